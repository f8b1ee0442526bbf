"""Features: stored features at startup, and later updates by tools."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kactl.actors.system import Controller
from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.admin import FeatureResult, FeatureUpdate, UpdateFeatures, UpgradeType
from kactl.model import Broker, Features, Fence, Membership
from kactl.model.errors import BadRequest, ErrorCode, NotController, StoreDamaged, StoreUnavailable
from kactl.stores.base import Session
from kactl.stores.memory import MemoryStore
from tests.support.clocks import ManualClock, settle
from tests.support.controller_harness import CONTROLLER, SESSION_TIMEOUT_MS, RecordingBrokers, World

pytestmark = pytest.mark.anyio

SUPPORTED = {"a": (1, 5)}


class Store(MemoryStore):
    """Records its first calls and fails as directed."""

    def __init__(self, other: MemoryStore) -> None:
        super().__init__(other.state, clock=other._clock)
        self.asked: list[str] = []
        self.damaged = False
        self.unwritten: Exception | None = None
        self.unanswered: Exception | None = None

    async def features(self) -> Features | None:
        self.asked.append("features")
        if self.damaged:
            raise StoreDamaged("/feature", "it is no JSON", "mend it")
        return await super().features()

    async def write_features(self, features: Features, fence: Fence) -> Features:
        self.asked.append("write_features")
        if self.unwritten is not None:
            raise self.unwritten
        written = await super().write_features(features, fence)
        if self.unanswered is not None:
            raise self.unanswered
        return written

    async def log_dir_notifications(self) -> Any:
        self.asked.append("log_dir_notifications")
        return await super().log_dir_notifications()

    async def membership(self) -> Membership:
        self.asked.append("membership")
        return await super().membership()


async def register_broker(store: MemoryStore, id_: int, *features: tuple[str, int, int]) -> Session:
    session = await store.new_session(SESSION_TIMEOUT_MS)
    await session.register(Broker(id_, 0, (), None, features))
    return session


@asynccontextmanager
async def open_controller(
    stored: Features | None = None, *, damaged: bool = False, **options: Any
) -> AsyncIterator[World]:
    """Open a controller over `stored` features. Brokers 1 and 2 support feature a up to level 5 and 4."""
    clock = ManualClock()
    async with MemoryStore(clock=clock) as admin:
        fence = await admin.contest(99)
        if stored is not None:
            await admin.write_features(stored, fence)
        await admin.resign(fence)
        store, transport = Store(admin), RecordingBrokers()
        store.damaged = damaged
        controller = Controller(CONTROLLER, store=store, transport=transport, clock=clock, **options)
        made = World(clock, admin, controller, transport)
        made.sessions[1] = await register_broker(admin, 1, ("a", 1, 5))
        made.sessions[2] = await register_broker(admin, 2, ("a", 1, 4))
        async with controller:
            await settle()
            assert controller.is_active
            yield made


async def update_features(made: World, *updates: FeatureUpdate, dry_run: bool = False) -> list[FeatureResult]:
    found = made.controller.hub.controller(CONTROLLER)
    assert found is not None
    answer: list[FeatureResult] = await found(UpdateFeatures(updates, dry_run))
    await settle()
    return answer


# -- startup -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(400)
async def test_initial_features_are_enabled_and_empty() -> None:
    async with open_controller() as made:
        assert await made.store.features() == Features({}, enabled=True, version=0)
        assert made.controller.cluster.features == await made.store.features()


@pytest.mark.scenario(401)
async def test_disabled_features_are_reset() -> None:
    async with open_controller(Features({"a": 1}, enabled=False)) as made:
        assert await made.store.features() == Features({}, enabled=True, version=1)


@pytest.mark.scenario(402)
async def test_enabled_features_are_kept() -> None:
    async with open_controller(Features({"a": 1})) as made:
        assert await made.store.features() == Features({"a": 1}, enabled=True, version=0)
        assert "write_features" not in made.controller.store.asked  # type: ignore[attr-defined]


@pytest.mark.scenario(403)
@pytest.mark.parametrize(
    ("stored", "version"),
    [(None, 0), (Features(enabled=False, format=1), 0), (Features({"a": 1}), 1)],
    ids=["absent", "disabled", "enabled"],
)
async def test_features_are_disabled_below_their_protocol_level(stored: Features | None, version: int) -> None:
    async with open_controller(stored, level=ProtocolLevel(2, 6)) as made:
        assert await made.store.features() == Features({}, enabled=False, format=1, version=version)


async def test_features_are_read_first() -> None:
    async with open_controller() as made:
        asked = made.controller.store.asked  # type: ignore[attr-defined]

        assert asked[:4] == ["features", "write_features", "log_dir_notifications", "membership"]


async def test_unreadable_features_are_kept_and_the_controller_starts() -> None:
    async with open_controller(Features({"a": 1}), damaged=True, supported_features=SUPPORTED) as made:
        assert made.controller.cluster.features is None
        assert made.controller.snapshot().brokers == 2
        assert await made.store.features() == Features({"a": 1}, version=0)

        with pytest.raises(BadRequest, match="cannot be read"):
            await update_features(made, FeatureUpdate("a", 2))


# -- incompatible brokers ----------------------------------------------------------------------------------------------


async def test_broker_without_finalized_features_is_ignored() -> None:
    async with open_controller(Features({"a": 5})) as made:
        assert sorted(made.controller.cluster.brokers) == [1]

        made.sessions[3] = await register_broker(made.store, 3, ("a", 4, 6))
        made.sessions[4] = await register_broker(made.store, 4)
        await settle()
        assert sorted(made.controller.cluster.brokers) == [1, 3]

        await made.sessions.pop(1).close()
        made.sessions[1] = await register_broker(made.store, 1, ("a", 1, 4))  # an older version
        await settle()
        assert sorted(made.controller.cluster.brokers) == [3]


async def test_every_broker_is_compatible_without_finalized_features() -> None:
    async with open_controller() as made:
        made.sessions[3] = await register_broker(made.store, 3)
        await settle()

        assert sorted(made.controller.cluster.brokers) == [1, 2, 3]


# -- updates -----------------------------------------------------------------------------------------------------------


async def test_level_supported_by_all_brokers_is_finalized() -> None:
    async with open_controller(supported_features=SUPPORTED) as made:
        results = await update_features(made, FeatureUpdate("a", 4), FeatureUpdate("stranger", 1))

        assert [(each.feature, each.error.name) for each in results] == [("a", "NONE"), ("stranger", "INVALID_REQUEST")]
        assert await made.store.features() == Features({"a": 4}, version=1)
        assert made.controller.cluster.features == Features({"a": 4}, version=1)
        assert [
            each.error for each in await update_features(made, FeatureUpdate("a", 0, UpgradeType.SAFE_DOWNGRADE))
        ] == [0]
        assert await made.store.features() == Features({}, version=2)


async def test_controller_without_supported_features_finalizes_none() -> None:
    """The default, for Kafka brokers with ZooKeeper, which stop when a feature is finalized."""
    async with open_controller() as made:
        (result,) = await update_features(made, FeatureUpdate("a", 4))

        assert (result.error, result.message) == (ErrorCode.INVALID_REQUEST, "this controller does not support a")
        assert await made.store.features() == Features({}, version=0)


async def test_update_without_a_change_is_not_written() -> None:
    async with open_controller(Features({"a": 1}), supported_features=SUPPORTED) as made:
        await update_features(made, FeatureUpdate("a", 1), FeatureUpdate("a", 5))
        await update_features(made, FeatureUpdate("a", 4), dry_run=True)

        assert await made.store.features() == Features({"a": 1}, version=0)


async def test_failed_write_fails_only_the_accepted_updates() -> None:
    async with open_controller(supported_features=SUPPORTED) as made:
        made.controller.store.unwritten = StoreUnavailable("the connection broke")  # type: ignore[attr-defined]

        results = await update_features(made, FeatureUpdate("a", 4), FeatureUpdate("stranger", 1))

        assert [each.error.name for each in results] == ["FEATURE_UPDATE_FAILED", "INVALID_REQUEST"]
        assert made.controller.cluster.features == await made.store.features() == Features({}, version=0)


async def test_updates_with_unknown_outcome_are_read_back() -> None:
    async with open_controller(supported_features=SUPPORTED) as made:
        made.controller.store.unanswered = StoreUnavailable("the connection broke")  # type: ignore[attr-defined]

        (result,) = await update_features(made, FeatureUpdate("a", 4))

        assert result.error is ErrorCode.NONE
        assert made.controller.cluster.features == Features({"a": 4}, version=1)


async def test_no_feature_is_finalized_below_the_protocol_level() -> None:
    async with open_controller(level=ProtocolLevel(2, 6), supported_features=SUPPORTED) as made:
        with pytest.raises(BadRequest, match=r"protocol level 2\.7"):
            await update_features(made, FeatureUpdate("a", 1))


async def test_fenced_controller_finalizes_nothing() -> None:
    async with open_controller(supported_features=SUPPORTED) as made:
        found = made.controller.hub.controller(CONTROLLER)
        assert found is not None
        await made.store.contest(7, take_over=True)

        with pytest.raises(NotController):
            await found(UpdateFeatures((FeatureUpdate("a", 1),)))

        assert await made.store.features() == Features({}, version=0)
