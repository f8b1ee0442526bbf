"""Features: what a controller finds stored when it begins, and what tools ask for later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kactl.actors.system import Controller
from kactl.config.protocol_level import ProtocolLevel
from kactl.errors import BadRequest, ErrorCode, NotController, StoreDamaged, StoreUnavailable
from kactl.messages.admin import FeatureResult, FeatureUpdate, FeatureUpdatesRequested, UpgradeType
from kactl.model import Broker, Features, Fence
from kactl.stores.base import Session
from kactl.stores.memory import MemoryStore
from tests.support.clocks import ManualClock, settle
from tests.support.controller_harness import CONTROLLER, SESSION_TIMEOUT_MS, RecordingBrokers, World

pytestmark = pytest.mark.anyio

SUPPORTED = {"a": (1, 5)}


class Store(MemoryStore):
    """Notes what is asked first, and fails as it is told."""

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

    async def brokers(self) -> dict[int, Broker]:
        self.asked.append("brokers")
        return await super().brokers()


async def register_broker(store: MemoryStore, id_: int, *features: tuple[str, int, int]) -> Session:
    session = await store.new_session(SESSION_TIMEOUT_MS)
    await session.register(Broker(id_, 0, (), None, features))
    return session


@asynccontextmanager
async def open_controller(
    stored: Features | None = None, *, damaged: bool = False, **options: Any
) -> AsyncIterator[World]:
    """A controller that finds `stored`; brokers 1 and 2 are there, and support a up to 5 and up to 4."""
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
    answer: list[FeatureResult] = await found(FeatureUpdatesRequested(updates, dry_run))
    await settle()
    return answer


# -- a controller begins -----------------------------------------------------------------------------------------------


@pytest.mark.scenario(400)
async def test_features_begin_enabled_and_empty() -> None:
    async with open_controller() as made:
        assert await made.store.features() == Features({}, enabled=True, version=0)
        assert made.controller.cluster.features == await made.store.features()


@pytest.mark.scenario(401)
async def test_features_that_were_disabled_begin_anew() -> None:
    async with open_controller(Features({"a": 1}, enabled=False)) as made:
        assert await made.store.features() == Features({}, enabled=True, version=1)


@pytest.mark.scenario(402)
async def test_features_that_are_enabled_stay() -> None:
    async with open_controller(Features({"a": 1})) as made:
        assert await made.store.features() == Features({"a": 1}, enabled=True, version=0)
        assert "write_features" not in made.controller.store.asked  # type: ignore[attr-defined]


@pytest.mark.scenario(403)
@pytest.mark.parametrize(
    ("stored", "version"),
    [(None, 0), (Features(enabled=False, format=1), 0), (Features({"a": 1}), 1)],
    ids=["absent", "disabled", "enabled"],
)
async def test_below_the_level_of_features_they_are_disabled(stored: Features | None, version: int) -> None:
    async with open_controller(stored, level=ProtocolLevel(2, 6)) as made:
        assert await made.store.features() == Features({}, enabled=False, format=1, version=version)


async def test_features_come_before_anything_else_is_read() -> None:
    async with open_controller() as made:
        asked = made.controller.store.asked  # type: ignore[attr-defined]

        assert asked[:4] == ["features", "write_features", "log_dir_notifications", "brokers"]


async def test_features_that_cannot_be_read_stay_and_the_cluster_is_led_without() -> None:
    async with open_controller(Features({"a": 1}), damaged=True, supported_features=SUPPORTED) as made:
        assert made.controller.cluster.features is None
        assert made.controller.snapshot().brokers == 2
        assert await made.store.features() == Features({"a": 1}, version=0)

        with pytest.raises(BadRequest, match="cannot be read"):
            await update_features(made, FeatureUpdate("a", 2))


# -- brokers that do not fit -------------------------------------------------------------------------------------------


async def test_a_broker_that_does_not_support_what_is_finalized_is_passed_over() -> None:
    async with open_controller(Features({"a": 5})) as made:
        assert sorted(made.controller.cluster.brokers) == [1]

        made.sessions[3] = await register_broker(made.store, 3, ("a", 4, 6))
        made.sessions[4] = await register_broker(made.store, 4)
        await settle()
        assert sorted(made.controller.cluster.brokers) == [1, 3]

        await made.sessions.pop(1).close()
        made.sessions[1] = await register_broker(made.store, 1, ("a", 1, 4))  # it comes back, and is too old now
        await settle()
        assert sorted(made.controller.cluster.brokers) == [3]


async def test_where_nothing_is_finalized_every_broker_fits() -> None:
    async with open_controller() as made:
        made.sessions[3] = await register_broker(made.store, 3)
        await settle()

        assert sorted(made.controller.cluster.brokers) == [1, 2, 3]


# -- updates -----------------------------------------------------------------------------------------------------------


async def test_a_level_that_all_support_is_finalized() -> None:
    async with open_controller(supported_features=SUPPORTED) as made:
        results = await update_features(made, FeatureUpdate("a", 4), FeatureUpdate("stranger", 1))

        assert [(each.feature, each.error.name) for each in results] == [("a", "NONE"), ("stranger", "INVALID_REQUEST")]
        assert await made.store.features() == Features({"a": 4}, version=1)
        assert made.controller.cluster.features == Features({"a": 4}, version=1)
        assert [
            each.error for each in await update_features(made, FeatureUpdate("a", 0, UpgradeType.SAFE_DOWNGRADE))
        ] == [0]
        assert await made.store.features() == Features({}, version=2)


async def test_a_controller_that_supports_nothing_finalizes_nothing() -> None:
    """The default, for brokers of Kafka over ZooKeeper, which stop when something is finalized."""
    async with open_controller() as made:
        (result,) = await update_features(made, FeatureUpdate("a", 4))

        assert (result.error, result.message) == (ErrorCode.INVALID_REQUEST, "this controller does not support a")
        assert await made.store.features() == Features({}, version=0)


async def test_what_changes_nothing_is_not_written() -> None:
    async with open_controller(Features({"a": 1}), supported_features=SUPPORTED) as made:
        await update_features(made, FeatureUpdate("a", 1), FeatureUpdate("a", 5))
        await update_features(made, FeatureUpdate("a", 4), dry_run=True)

        assert await made.store.features() == Features({"a": 1}, version=0)


async def test_updates_that_cannot_be_written_fail_and_those_that_were_refused_stay_so() -> None:
    async with open_controller(supported_features=SUPPORTED) as made:
        made.controller.store.unwritten = StoreUnavailable("the connection broke")  # type: ignore[attr-defined]

        results = await update_features(made, FeatureUpdate("a", 4), FeatureUpdate("stranger", 1))

        assert [each.error.name for each in results] == ["FEATURE_UPDATE_FAILED", "INVALID_REQUEST"]
        assert made.controller.cluster.features == await made.store.features() == Features({}, version=0)


async def test_updates_whose_writing_got_no_answer_are_read_back() -> None:
    async with open_controller(supported_features=SUPPORTED) as made:
        made.controller.store.unanswered = StoreUnavailable("the connection broke")  # type: ignore[attr-defined]

        (result,) = await update_features(made, FeatureUpdate("a", 4))

        assert result.error is ErrorCode.NONE
        assert made.controller.cluster.features == Features({"a": 4}, version=1)


async def test_below_the_level_of_features_none_is_finalized() -> None:
    async with open_controller(level=ProtocolLevel(2, 6), supported_features=SUPPORTED) as made:
        with pytest.raises(BadRequest, match=r"protocol level 2\.7"):
            await update_features(made, FeatureUpdate("a", 1))


async def test_a_controller_that_finds_itself_fenced_finalizes_nothing() -> None:
    async with open_controller(supported_features=SUPPORTED) as made:
        found = made.controller.hub.controller(CONTROLLER)
        assert found is not None
        await made.store.contest(7, take_over=True)

        with pytest.raises(NotController):
            await found(FeatureUpdatesRequested((FeatureUpdate("a", 1),)))

        assert await made.store.features() == Features({}, version=0)
