"""Topics with `leadership.lease=false`: new leaders begin while earlier ones may still act."""

from collections.abc import Collection

import pytest

from kactl.decide.messages.admin import ResignController
from kactl.model import NO_BROKER
from kactl.model.errors import StoreUnavailable
from tests.support.clocks import settle
from tests.support.leaders import T0, TIMEOUT_MS, Leaders, open_leaders

pytestmark = pytest.mark.anyio

WITHOUT = {"leadership.lease": "false"}


async def create(leaders: Leaders, config: dict[str, str]) -> None:
    await leaders.controller.create_topic("t", assignment={0: (1, 2, 3)}, config=config)
    await leaders.clock.advance(1_000)
    assert leaders.valid() == [1]


async def move_from_silent(leaders: Leaders) -> None:
    """Move the leadership from a participant that lives and receives nothing."""
    leaders.hub.cut.add(1)
    await leaders.controller.drain(1)
    await settle()
    assert leaders.leader() == 2


def evicted(leaders: Leaders) -> list[int]:
    events = leaders.controller.history.read(0)[0]
    return [event.broker for event in events if getattr(event, "what", "") == "evicted"]  # type: ignore[union-attr]


async def test_next_leader_does_not_wait() -> None:
    async with open_leaders() as leaders:
        await create(leaders, WITHOUT)
        await move_from_silent(leaders)
        assert leaders.valid() == [1, 2]
        assert leaders.controller.cluster.table.column("holder")[0] == NO_BROKER
        assert "waits" not in leaders.controller.explain(T0).verdict

        await leaders.clock.advance(2 * TIMEOUT_MS)
        assert evicted(leaders) == []  # no leader waits for it


async def test_next_controller_reads_the_setting_when_a_leader_waits() -> None:
    async with open_leaders(controllers=2) as leaders:
        await create(leaders, WITHOUT)
        first = leaders.controller
        await first.ask(ResignController())
        await leaders.clock.advance(1_000)
        assert leaders.controller is not first
        await move_from_silent(leaders)
        assert leaders.valid() == [1, 2]


async def test_change_of_the_setting_releases_a_leader_that_waits() -> None:
    async with open_leaders() as leaders:
        await create(leaders, {})
        await move_from_silent(leaders)
        assert leaders.valid() == [1]
        await leaders.controller.set_topic_config("t", WITHOUT)
        await settle()
        assert leaders.valid() == [1, 2]


async def test_leaders_wait_again_after_the_setting_is_removed() -> None:
    async with open_leaders() as leaders:
        await create(leaders, WITHOUT)
        await leaders.controller.set_topic_config("t", {"leadership.lease": None})
        await settle()
        await move_from_silent(leaders)
        assert leaders.valid() == [1]


async def test_leaders_wait_while_the_setting_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_leaders() as leaders:
        readable = leaders.store.topic_configs

        async def unavailable(topics: Collection[str]) -> dict[str, dict[str, str] | None]:
            raise StoreUnavailable("away")

        monkeypatch.setattr(leaders.store, "topic_configs", unavailable)
        await create(leaders, WITHOUT)
        await move_from_silent(leaders)
        assert leaders.valid() == [1]

        monkeypatch.setattr(leaders.store, "topic_configs", readable)
        await leaders.clock.advance(1_000)  # the leader reports again
        assert leaders.valid() == [1, 2]
