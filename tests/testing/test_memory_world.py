"""Faults of the simulated in-memory store: their effects on clients, and their events in the history."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from kactl.model import Assignment, TopicRef
from kactl.model.errors import ControllerMoved, StoreError, StoreUnavailable
from kactl.stores.base import StoreEvent
from kactl.stores.memory import MemoryStore
from kactl.testing import Node, sim
from kactl.testing.history import Event, History
from kactl.testing.links import Links
from tests.sim.engine.checkers.events import FIELDS, validate
from tests.sim.engine.worlds.recorded_memory import RecordedMemoryWorld, StoreFaults
from tests.support.store_clients import (
    ORDERS,
    ORDERS_0,
    THREE_PARTITIONS,
    broker_info,
    create_and_lead,
    new_write,
    stored_leadership,
)

from .running import this_loop

SESSION_MS = 6_000.0
NO_ROWS = np.zeros(0, np.int32)


class Program:
    """One client of the world, on a node of its own, with the events that it has received."""

    def __init__(self, world: RecordedMemoryWorld, name: str) -> None:
        self.world = world
        self.node: Node = world.loop.node(name)
        self.store: MemoryStore = world.client(self.node)
        self.events: list[tuple[float, str]] = []
        self.store.subscribe(self._note)
        self._opened, self._leaving = asyncio.Event(), asyncio.Event()
        self.process = world.loop.start(self.node, self._live())

    async def _live(self) -> None:
        async with self.store:
            self._opened.set()
            await self._leaving.wait()

    async def leave(self) -> None:
        """Close the store."""
        self._leaving.set()
        await self.process

    def _note(self, event: StoreEvent) -> None:
        self.events.append((round(self.world.loop.now_s, 3), event.what.value))

    @property
    def kinds(self) -> list[str]:
        return [kind for _, kind in self.events]

    def run(self, main: Callable[[MemoryStore], Awaitable[Any]]) -> "asyncio.Task[Any]":
        """Run a function on the node, inside the block of the store."""

        async def program() -> Any:
            await self._opened.wait()
            return await main(self.store)

        return self.world.loop.start(self.node, program())


def new_world(latency_ms: tuple[float, float] = (1.0, 1.0)) -> RecordedMemoryWorld:
    loop = this_loop()
    history = History(lambda: loop.now_s * 1000)

    def check(event: Event) -> None:
        try:
            validate(event)
        except ValueError as error:
            loop.halt(error)

    history.subscribe([kind for kind in FIELDS if kind.startswith("store.")], check)
    return RecordedMemoryWorld(loop, history, Links(loop, {"store": latency_ms}), session_timeout_ms=SESSION_MS)


def recorded(world: RecordedMemoryWorld, kind: str) -> list[dict[str, Any]]:
    return [event.fields for event in world.history.events if event.kind == kind]


async def register(store: MemoryStore, broker: int = 1, timeout_ms: int = 4_000) -> None:
    session = await store.new_session(timeout_ms)
    await session.register(broker_info(broker))


async def nothing(store: MemoryStore) -> None:
    pass


def test_sessions_of_a_killed_client_expire() -> None:
    async def main() -> tuple[list[int], list[int], int, list[dict[str, Any]]]:
        world = new_world()
        doomed, other = Program(world, "broker 1"), Program(world, "controller 100")
        await doomed.run(register)
        await doomed.run(lambda store: store.contest(7))
        await other.run(lambda store: store.brokers())
        world.loop.kill(doomed.node)
        await asyncio.sleep(3.9)
        before = list(world.state.brokers)
        await asyncio.sleep(SESSION_MS / 1000)
        assert world.state.controller is None
        return before, list(world.state.brokers), other.kinds.count("brokers"), recorded(world, "store.commit")

    before, after, told, commits = sim.run(main)

    assert (before, after, told) == ([1], [], 1)
    ends = [(commit["operation"], commit["client"], [op.key for op in commit["ops"]]) for commit in commits[-2:]]
    assert ends == [("expire", "", ["brokers/1"]), ("expire", "", ["controller"])]


def test_idle_client_keeps_its_session() -> None:
    async def main() -> tuple[list[str], bool]:
        world = new_world((100.0, 900.0))
        program = Program(world, "controller 100")
        await program.run(lambda store: store.contest(100))
        await asyncio.sleep(600)
        return program.kinds, world.state.controller is not None

    assert sim.run(main) == ([], True)


def test_session_that_ends_before_a_paused_client_reads_that_it_was_opened_is_opened_again() -> None:
    async def main() -> tuple[list[str], list[str]]:
        world = new_world()
        program = Program(world, "controller 100")
        await asyncio.sleep(0.0015)  # the answer is on its way
        world.loop.pause(program.node)
        await asyncio.sleep(0.005)
        world.expire_session("controller 100")
        await asyncio.sleep(0.005)
        world.loop.resume(program.node)
        await asyncio.sleep(1)
        await program.run(lambda store: store.contest(100))
        return program.kinds, [session["what"] for session in recorded(world, "store.session")]

    kinds, sessions = sim.run(main)

    assert kinds == ["session lost", "session opened"]
    assert sessions == ["opened", "expired", "opened"]


def test_sleepwalking_client_is_fenced() -> None:
    """It believes in a session that has ended, until it reaches the server and the notification has arrived."""

    async def main() -> tuple[RecordedMemoryWorld, list[tuple[float, str]]]:
        world = new_world()
        old, new = Program(world, "controller 100"), Program(world, "controller 101")
        fence = await old.run(create_and_lead)
        world.expire_session("controller 100", notify_after_ms=3_000)
        await new.run(lambda store: store.contest(101))
        with pytest.raises(ControllerMoved):
            await old.run(lambda store: store.commit(new_write([ORDERS_0], leader=2, expected=0), fence))
        await asyncio.sleep(1)
        await old.run(lambda store: store.contest(100, take_over=True))
        return world, old.events

    world, events = sim.run(main)

    commits = [commit for commit in recorded(world, "store.commit") if commit["operation"] in ("commit", "contest")]
    assert [(commit["outcome"], commit["fence"], commit["client"]) for commit in commits[1:]] == [
        ("ok", 1, "controller 100"),
        ("ok", None, "controller 101"),
        ("fenced", 1, "controller 100"),
        ("ok", None, "controller 100"),
    ]
    assert [kind for _, kind in events] == ["session lost", "session opened"]
    assert 3.0 < events[0][0] < events[1][0] < 3.1


@pytest.mark.parametrize("is_done", [True, False])
def test_outcome_of_a_lost_operation_is_unknown(is_done: bool) -> None:
    async def main() -> tuple[RecordedMemoryWorld, bool, bool]:
        world = new_world()
        program = Program(world, "controller 100")
        fence = await program.run(create_and_lead)
        world.faults = StoreFaults(lost_answers=1.0) if is_done else StoreFaults(lost_requests=1.0)
        with pytest.raises(StoreUnavailable):
            await program.run(lambda store: store.commit(new_write([ORDERS_0], leader=2, expected=0), fence))
        world.faults = StoreFaults()
        found = await program.run(lambda store: stored_leadership(store, ORDERS_0))
        return world, found.leader == 2, program.kinds == []

    world, is_written, is_quiet = sim.run(main)

    (unknown,) = recorded(world, "store.unknown")
    txns = {commit["txn"] for commit in recorded(world, "store.commit")}
    answered = {answer["txn"] for answer in recorded(world, "store.answered")}
    assert is_written is is_done
    assert unknown["done"] is is_done
    assert (unknown["txn"] in txns) is is_done
    assert unknown["txn"] not in answered
    assert is_quiet


def test_refused_operation_has_no_effect() -> None:
    async def main() -> int:
        world = new_world()
        program = Program(world, "controller 100")
        await program.run(nothing)
        world.faults = StoreFaults(refusals=1.0)
        with pytest.raises(StoreError, match="refused contest"):
            await program.run(lambda store: store.contest(100))
        return world.state.epoch

    assert sim.run(main) == 0


@pytest.mark.parametrize(("cut_s", "expected"), [(3.0, []), (5.5, ["suspended", "connected"])])
def test_client_doubts_its_session_after_a_long_silence(cut_s: float, expected: list[str]) -> None:
    async def main() -> tuple[list[str], bool]:
        world = new_world()
        program = Program(world, "controller 100")
        await program.run(lambda store: store.contest(100))
        world.cut("controller 100")
        await asyncio.sleep(cut_s)
        world.heal("controller 100")
        await asyncio.sleep(10)
        return program.kinds, world.state.controller is not None

    assert sim.run(main) == (expected, True)


@pytest.mark.parametrize("direction", ["both", "to_server"])
def test_session_ends_during_a_long_cut(direction: str) -> None:
    async def main() -> tuple[list[tuple[float, str]], float]:
        world = new_world()
        program, other = Program(world, "controller 100"), Program(world, "controller 101")
        await program.run(lambda store: store.contest(100))
        await other.run(lambda store: store.controller())
        world.cut("controller 100", to_client=direction == "both")
        await asyncio.sleep(20)
        world.heal("controller 100")
        await asyncio.sleep(1)
        gone = next(at_s for at_s, kind in other.events if kind == "controller gone")
        return program.events, gone

    events, gone_s = sim.run(main)

    kinds = [kind for _, kind in events]
    assert kinds == ["suspended", "session lost", "session opened"]
    # Doubt comes before the server may end the session.
    assert events[0][0] < gone_s < 6.2
    assert events[2][0] > 20


def test_operation_during_a_cut_fails_within_its_limit() -> None:
    async def main() -> tuple[float, list[str], list[str]]:
        world = new_world()
        program = Program(world, "controller 100")
        await program.run(nothing)
        world.cut("controller 100")
        began_s = world.loop.now_s
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await program.run(lambda store: store.create_topic(ORDERS, THREE_PARTITIONS, {}))
        took_s = world.loop.now_s - began_s
        before = list(world.state.topics)
        world.heal("controller 100")
        after = await program.run(lambda store: store.topics())
        assert [unknown["done"] for unknown in recorded(world, "store.unknown")] == [True]
        return took_s, before, after

    took_s, before, after = sim.run(main)

    assert took_s == pytest.approx(4.0, abs=0.01)
    # The late request is executed before the read: a caller that reads back learns of it.
    assert (before, after) == ([], ["orders"])


def test_requests_of_a_cut_may_be_lost_and_events_never_are() -> None:
    async def main() -> tuple[list[str], list[str]]:
        world = new_world()
        program, other = Program(world, "controller 100"), Program(world, "admin")
        await program.run(lambda store: store.topics())
        await other.run(nothing)
        world.cut("controller 100")
        create = program.run(lambda store: store.create_topic(ORDERS, THREE_PARTITIONS, {}))
        await other.run(lambda store: store.create_topic(TopicRef("other"), {0: Assignment((1,))}, {}))
        await asyncio.sleep(1)
        world.heal("controller 100", deliver=False)
        with pytest.raises(StoreUnavailable, match="did not receive"):
            await create
        return program.kinds, await program.run(lambda store: store.topics())

    assert sim.run(main) == (["topics"], ["other"])


def test_client_reconnects_when_a_cut_has_broken_its_connection() -> None:
    """A client sends a message each 2 s. Each short cut hits one, and lost it as if the connection had survived."""

    async def main() -> tuple[list[str], bool]:
        world = new_world()
        program = Program(world, "controller 100")
        await program.run(lambda store: store.contest(100))
        for _ in range(4):
            await asyncio.sleep(1.9)
            world.cut("controller 100")
            await asyncio.sleep(0.1)
            world.heal("controller 100", deliver=False)
        return program.kinds, world.state.controller is not None

    assert sim.run(main) == ([], True)


def test_event_arrives_before_the_answer_that_it_precedes() -> None:
    async def main() -> int:
        world = new_world((1.0, 500.0))
        world.faults = StoreFaults(late_events=0.5, late_ms=2_000)
        watching, other = Program(world, "controller 100"), Program(world, "admin")
        await other.run(nothing)
        shown = 0
        await watching.run(lambda store: store.topics())
        for number in range(30):
            name = f"t{number}"
            watching.events.clear()
            await other.run(lambda store, name=name: store.create_topic(TopicRef(name), {}, {}))  # type: ignore[misc]
            if name in await watching.run(lambda store: store.topics()):
                assert watching.kinds == ["topics"]
                shown += 1
        return shown

    assert sim.run(main) == 30


@pytest.mark.parametrize(("faults", "expected"), [({"doubled_events": 1.0}, 2), ({"coalesced_events": 1.0}, 1)])
def test_doubled_and_coalesced_events(faults: dict[str, float], expected: int) -> None:
    async def main() -> int:
        world = new_world()
        world.faults = StoreFaults(**faults)
        watching, other = Program(world, "controller 100"), Program(world, "admin")
        await watching.run(lambda store: store.topics())
        await other.run(lambda store: store.create_topic(ORDERS, {}, {}))
        await asyncio.sleep(1)
        return watching.kinds.count("topics")

    assert sim.run(main) == expected


def test_stopped_server_ends_no_session_and_loses_operations() -> None:
    async def main() -> tuple[list[str], list[str], bool]:
        world = new_world((50.0, 50.0))
        program = Program(world, "controller 100")
        await program.run(lambda store: store.contest(100))
        await program.run(register)
        on_way = program.run(lambda store: store.create_topic(ORDERS, THREE_PARTITIONS, {}))
        await asyncio.sleep(0.01)
        world.stop()
        await asyncio.sleep(60)
        world.start()
        await asyncio.sleep(1)
        with pytest.raises(StoreUnavailable):
            await on_way
        topics = await program.run(lambda store: store.topics())
        return program.kinds, topics, world.state.controller is not None and 1 in world.state.brokers

    assert sim.run(main) == (["suspended", "connected"], [], True)


def test_closed_client_leaves_at_once() -> None:
    async def main() -> list[str]:
        world = new_world()
        program = Program(world, "controller 100")
        await program.run(lambda store: store.contest(100))
        await program.run(register)
        await program.leave()
        await asyncio.sleep(0.1)
        assert world.state.controller is None
        assert not world.state.brokers
        return [session["what"] for session in recorded(world, "store.session")]

    assert sim.run(main) == ["opened", "opened", "closed", "closed"]


def test_lost_listing_hides_no_deletion() -> None:
    """A topic counts as listed when the answer has reached the client."""

    async def main() -> frozenset[str]:
        world = new_world()
        watching, other = Program(world, "controller 100"), Program(world, "admin")
        await other.run(lambda store: store.create_topic(ORDERS, THREE_PARTITIONS, {}))
        await watching.run(lambda store: store.assignments(["orders"]))
        world.remove_topic("orders")
        await other.run(lambda store: store.create_topic(ORDERS, THREE_PARTITIONS, {}))
        world.faults = StoreFaults(lost_answers=1.0)
        with pytest.raises(StoreUnavailable):
            await watching.run(lambda store: store.topics())
        assert watching.store.take_deleted_topics() == frozenset()
        world.faults = StoreFaults()
        await watching.run(lambda store: store.topics())
        return watching.store.take_deleted_topics()

    assert sim.run(main) == {"orders"}


def test_history_names_what_was_written() -> None:
    async def main() -> RecordedMemoryWorld:
        world = new_world()
        program = Program(world, "controller 100")
        fence = await program.run(create_and_lead)
        write = new_write([ORDERS_0], leader=2, leader_epoch=1, isr=(2, 3), expected=0)
        await program.run(lambda store: store.commit(write, fence))
        await program.run(lambda store: store.commit(write, fence))
        await program.run(lambda store: store.mark_deletion("orders"))
        await program.run(lambda store: store.delete_topics({"orders": NO_ROWS}, fence))
        return world

    commits = recorded(sim.run(main), "store.commit")

    value = {"leader": 2, "leader_epoch": 1, "isr": [2, 3], "recovering": False, "controller_epoch": 1}
    assert [commit["outcome"] for commit in commits] == ["ok", "ok", "ok", "ok", "conflict", "ok", "ok"]
    assert [op.key for op in commits[0]["ops"]] == ["configs/orders", "topics/orders"]
    assert commits[0]["ops"][1].value["partitions"]["0"] == [[1, 2, 3], [], []]
    assert [tuple(op[:3]) for op in commits[1]["ops"]] == [("epoch", -1, 1), ("controller", -1, 0)]
    assert [tuple(op) for op in commits[3]["ops"]] == [("leadership/orders/0", 0, 1, value)]
    assert commits[4]["conflicts"] == ["leadership/orders/0"]
    assert [tuple(op[:3]) for op in commits[6]["ops"]] == [
        ("configs/orders", 0, -1),
        ("topics/orders", 0, -1),
        ("leadership/orders/0", 1, -1),
        ("leadership/orders/1", 0, -1),
        ("leadership/orders/2", 0, -1),
        ("deletions/orders", 0, -1),
    ]


def test_equal_seeds_make_equal_histories() -> None:
    async def main() -> str:
        world = new_world((0.5, 40.0))
        programs = [Program(world, f"controller {number}") for number in range(3)]
        for program in programs:
            await program.run(lambda store: store.topics())
        world.faults = StoreFaults(lost_requests=0.1, lost_answers=0.1, late_events=0.1)
        for number in range(60):
            program = programs[number % 3]
            try:
                await program.run(lambda store, n=number: store.create_topic(TopicRef(f"t{n}"), {}, {}))  # type: ignore[misc]
            except StoreUnavailable:
                world.expire_session(program.node.name, notify_after_ms=50)
        return world.history.digest()

    digests = [sim.run(main, seed=seed) for seed in (1, 1, 2)]

    assert digests[0] == digests[1] != digests[2]
