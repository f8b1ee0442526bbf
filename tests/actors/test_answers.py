"""Commands return when the brokers know of the change: they wait for leaders and for every broker's metadata."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import kactl
from kactl.model.errors import ActionTimedOut, BadRequest, NotController
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

SESSION_MS = 6_000


@asynccontextmanager
async def cluster(
    clock: ManualClock, **participants: Any
) -> AsyncIterator[tuple[kactl.Controller, kactl.Participants]]:
    """Three participants and the topic `old` with a replica on 1 and 2."""
    async with (
        kactl.Controller(100, clock=clock, auto_balance=False) as controller,
        kactl.Participants(
            3, store=controller.store, hub=controller.hub, clock=clock, session_timeout_ms=SESSION_MS, **participants
        ) as members,
    ):
        await settle()
        await controller.create_topic("old", assignment={0: [1, 2]})
        yield controller, members


Command = Callable[[kactl.Controller], Awaitable[object]]
COMMANDS: dict[str, Command] = {
    "create": lambda controller: controller.create_topic("new", assignment={0: [1, 2]}),
    "grow": lambda controller: controller.grow_topic("old", 2, assignment=[[2, 1]]),
    "delete": lambda controller: controller.delete_topic("old"),
    "elect": lambda controller: controller.elect("preferred", ["old-0"]),
    "ensure": lambda controller: controller.ensure_topic("new", assignment={0: [1, 2]}, wait="led"),
}


@pytest.mark.parametrize("command", COMMANDS)
async def test_commands_wait_for_brokers_without_a_replica(clock: ManualClock, command: str) -> None:
    async with cluster(clock) as (controller, members):
        await controller.reassign({"old-0": [2, 1]})  # the preferred leader is another one
        await settle()
        members.pause(3)
        running = asyncio.ensure_future(COMMANDS[command](controller))
        await settle()

        assert not running.done()
        members.resume(3)
        await clock.advance(1_000)
        await asyncio.wait_for(running, 60)


async def test_a_participant_that_ensures_waits_for_other_brokers(clock: ManualClock) -> None:
    async with cluster(clock) as (_, members):
        members.pause(3)
        ensuring = asyncio.ensure_future(members[1].ensure_topic("new", assignment={0: [1, 2]}, wait="led"))
        await clock.advance(1_000)

        assert not ensuring.done()
        members.resume(3)
        await clock.advance(1_000)
        assert await asyncio.wait_for(ensuring, 60) is True


async def test_timeout_names_the_broker_that_is_behind(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, members):
        members.pause(3)

        await controller.create_topic("new", assignment={0: [1, 2]}, timeout_ms=0)
        await settle()
        with pytest.raises(ActionTimedOut, match="broker 3 has not acknowledged the metadata"):
            await controller.wait_ready("new", timeout_ms=200)
        await controller.delete_topic("new", timeout_ms=0)
        await settle()
        with pytest.raises(ActionTimedOut, match="broker 3 has not acknowledged it"):
            await controller.wait_deleted("new", timeout_ms=200)
        members.resume(3)


async def test_election_that_a_broker_does_not_acknowledge_is_reported(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, members):
        await controller.reassign({"old-0": [2, 1]})
        await settle()
        members.pause(3)

        (result,) = await controller.elect("preferred", ["old-0"], timeout_ms=200)

        assert (result.outcome, result.error.name, result.leader) == ("failed", "REQUEST_TIMED_OUT", 2)
        assert "broker 3 has not acknowledged it" in result.message
        members.resume(3)


async def test_broker_that_cannot_be_reached_is_not_waited_for(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, members):
        await members.kill(3)
        creating = asyncio.ensure_future(controller.create_topic("new", assignment={0: [1, 2]}))
        await clock.advance(500)  # its session has not ended

        await asyncio.wait_for(creating, 60)
        assert {broker.id for broker in controller.brokers()} == {1, 2, 3}


async def test_leader_that_cannot_be_reached_is_replaced_first(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, members):
        await members.kill(1)
        creating = asyncio.ensure_future(controller.create_topic("new", assignment={0: [1, 2]}))
        await clock.advance(SESSION_MS / 2)
        assert not creating.done()
        await clock.advance(2 * SESSION_MS)

        await asyncio.wait_for(creating, 60)
        view = controller.partition("new-0")
        assert view is not None
        assert view.leader == 2


@pytest.mark.parametrize("command", COMMANDS)
async def test_resignation_ends_the_wait(clock: ManualClock, command: str) -> None:
    async with cluster(clock) as (controller, members):
        await controller.reassign({"old-0": [2, 1]})
        await settle()
        members.pause(3)
        running = asyncio.ensure_future(COMMANDS[command](controller))
        await settle()
        await controller.resign()

        with pytest.raises(NotController):
            await asyncio.wait_for(running, 60)
        members.resume(3)


async def test_wait_ends_with_its_caller(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, members):
        members.pause(3)
        with anyio.move_on_after(0.1):
            await controller.create_topic("new", assignment={0: [1, 2]})

        assert not controller.history._waiting
        assert not controller.channels._watchers
        members.resume(3)


# -- leaders that serve ------------------------------------------------------------------------------------------------


class Prepared(kactl.PartitionHandler):
    """Leads once the gate is open, and `old` at once."""

    gate: anyio.Event

    async def prepare(self, leader: kactl.Leader) -> None:
        if leader.partition.topic != "old":
            await self.gate.wait()

    async def lead(self, leader: kactl.Leader) -> None:
        await anyio.sleep_forever()


@pytest.fixture
def handler() -> type[Prepared]:
    return type("Handler", (Prepared,), {"gate": anyio.Event()})


async def test_creation_waits_for_leaders_that_serve_on_request(clock: ManualClock, handler: type[Prepared]) -> None:
    async with cluster(clock, handler=handler) as (controller, _):
        creating = asyncio.ensure_future(controller.create_topic("shards", assignment={0: [1], 1: [2]}))
        await clock.advance(5_000)
        await asyncio.wait_for(creating, 60)  # acknowledged, and nothing leads
        creating = asyncio.ensure_future(controller.create_topic("jobs", assignment={0: [1]}, wait="ready"))
        waiting = asyncio.ensure_future(controller.wait_ready("shards"))
        growing = asyncio.ensure_future(controller.grow_topic("shards", 3, assignment=[[3]], wait="ready"))
        await clock.advance(5_000)

        assert not any(task.done() for task in (creating, waiting, growing))
        handler.gate.set()
        await clock.advance(500)
        await asyncio.wait_for(asyncio.gather(creating, waiting, growing), 60)
        assert await controller.ensure_topic("jobs", wait="ready") is False


async def test_timeout_names_the_leader_whose_handler_prepares(clock: ManualClock, handler: type[Prepared]) -> None:
    async with cluster(clock, handler=handler) as (controller, _):
        creating = asyncio.ensure_future(
            controller.create_topic("jobs", assignment={0: [1]}, wait="ready", timeout_ms=1_000)
        )
        await clock.advance(5_000)  # it acknowledges its order

        with pytest.raises(ActionTimedOut, match=r"jobs-0: its leader 1 has not begun to lead: .*prepare"):
            await asyncio.wait_for(creating, 60)
        handler.gate.set()


async def test_participant_ensures_leaders_that_serve(clock: ManualClock, handler: type[Prepared]) -> None:
    async with cluster(clock, handler=handler) as (_, members):
        ensuring = asyncio.ensure_future(members[1].ensure_topic("jobs", assignment={0: [1]}, wait="ready"))
        await clock.advance(5_000)
        assert not ensuring.done()
        handler.gate.set()
        await clock.advance(1_000)

        assert await asyncio.wait_for(ensuring, 60) is True


async def test_wait_begins_before_the_topic_exists(clock: ManualClock) -> None:
    async with cluster(clock) as (controller, _):
        waiting = asyncio.ensure_future(controller.wait_ready("new", partitions=2))
        await controller.create_topic("new", partitions=1, replication_factor=1)
        await settle()
        assert not waiting.done()
        await controller.grow_topic("new", 2)

        await asyncio.wait_for(waiting, 60)
        with pytest.raises(ActionTimedOut, match="topic none is not known"):
            await controller.wait_ready("none", timeout_ms=100)
        with pytest.raises(BadRequest, match="give 'stored', 'led' or 'ready'"):
            await controller.create_topic("other", partitions=1, replication_factor=1, wait="none")  # type: ignore[arg-type]
        assert "other" not in {ref.name for ref in controller.topics()}
