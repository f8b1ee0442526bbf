"""Events of the simulated ZooKeeper: transactions as commits of entries, with operation, fence and outcome."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from kactl.model import Assignment, Broker, Endpoint, Fence, TopicPartition, TopicRef
from kactl.model.errors import ControllerMoved, NotFound, StoreError
from kactl.stores.base import Outcome
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.stores.zookeeper.topic_lives import TopicLives
from kactl.testing import Node, Schedule, SimLoop, on, sim
from kactl.testing.contracts.store_support import ALL, ORDERS, THREE_PARTITIONS, new_write, write_of
from kactl.testing.history import Event, History
from kactl.testing.links import Links
from tests.sim.engine.checkers.events import validate
from tests.sim.engine.run import run_script
from tests.sim.engine.script import BrokersSpec, Script, WorldSpec
from tests.sim.engine.worlds.zookeeper import ZooKeeperWorld

REPLACEMENT: Final = TopicRef(ORDERS.name, bytes(15) + b"x")


class Bench:
    """A world with clients, and its history."""

    def __init__(self, servers: int = 1) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        self.history = History(lambda: loop.now_s * 1000)
        self.world = ZooKeeperWorld(
            loop, self.history, Links(loop, {"store": (1.0, 1.0)}), session_timeout_ms=10_000, servers=servers
        )

    async def run(self, name: str, main: Callable[[ZooKeeperStore], Awaitable[Any]]) -> Any:
        """Run something with a store of a node's own."""
        node: Node = self.loop.node(name)
        with on(node):
            store = self.world.client(node)

        async def whole() -> Any:
            async with store:
                return await main(store)

        return await self.loop.start(node, whole())

    async def replace(self) -> None:
        """Remove the topic by hand and create it again, with another id and the same partitions."""

        async def recreate(store: ZooKeeperStore) -> None:
            self.world.remove_topic(ORDERS.name)
            await store.create_topic(REPLACEMENT, THREE_PARTITIONS, {})

        await self.run("operators", recreate)

    def commits(self, operation: str) -> list[dict[str, Any]]:
        return [
            event.fields
            for event in self.history.events
            if event.kind == "store.commit" and event.fields["operation"] == operation
        ]


def simulated(main: Callable[[Bench], Awaitable[None]]) -> list[Event]:
    """Run a test; returns the events, each of the documented form."""

    async def whole() -> list[Event]:
        bench = Bench()
        await main(bench)
        return bench.history.events

    events = sim.run(whole, schedule=Schedule("fifo"))
    for event in events:
        validate(event)
    return events


def test_leaderships_are_committed_under_the_fence_of_their_writer() -> None:
    async def main(bench: Bench) -> None:
        async def lead(store: ZooKeeperStore) -> None:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            fence = await store.contest(100)
            await store.commit(new_write(ALL), fence)
            await store.commit(new_write(ALL[:1], leader_epoch=1, leader=2, expected=0), fence)

        await bench.run("controller 100", lead)

        (elected,) = bench.commits("contest")
        keys = [(op.key, op.old, op.new, op.value) for op in elected["ops"]]
        assert keys == [
            ("epoch", -1, 1, {"epoch": 1}),
            ("controller", -1, 0, {"id": 100, "epoch": 1}),
        ]
        *_, last = bench.commits("commit")
        assert (last["client"], last["fence"], last["outcome"]) == ("controller 100", 1, "ok")
        (op,) = last["ops"]
        assert (op.key, op.old, op.new) == ("leadership/orders/0", 0, 1)
        assert op.value == {
            "leader": 2,
            "leader_epoch": 1,
            "isr": [1, 2, 3],
            "recovering": False,
            "controller_epoch": 1,
        }

    simulated(main)


def test_write_under_an_old_fence_is_recorded_as_fenced() -> None:
    async def main(bench: Bench) -> None:
        async def lead(store: ZooKeeperStore) -> Fence:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            return await store.contest(100)

        async def take_over(store: ZooKeeperStore) -> None:
            await store.contest(101, take_over=True)

        async def write(store: ZooKeeperStore) -> None:
            with pytest.raises(ControllerMoved):
                await store.commit(new_write(ALL), fence)

        fence = await bench.run("controller 100", lead)
        await bench.run("controller 101", take_over)
        await bench.run("controller 100", write)

        assert {(one["outcome"], one["fence"], len(one["ops"])) for one in bench.commits("commit")} == {
            ("fenced", 1, 0)
        }

    simulated(main)


def test_conflicting_write_names_the_entry() -> None:
    async def main(bench: Bench) -> None:
        async def lead(store: ZooKeeperStore) -> None:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            fence = await store.contest(100)
            await store.commit(new_write(ALL), fence)
            assert await store.write_isr(TopicPartition("orders", 0), _leadership(), expected=7) is None

        await bench.run("broker 1", lead)

        (refused,) = bench.commits("write_isr")
        assert (refused["outcome"], refused["conflicts"]) == ("conflict", ["leadership/orders/0"])

    simulated(main)


def _leadership() -> Any:
    from kactl.model import Leadership

    return Leadership(1, 0, (1,), 7, 1)


def test_registrations_end_with_their_sessions() -> None:
    async def main(bench: Bench) -> None:
        async def register(store: ZooKeeperStore) -> None:
            session = await store.new_session(10_000)
            epoch = await session.register(Broker(1, 0, (Endpoint("I", "h1", 9092),)))
            assert bench.world.content.registrations() == {1: epoch}
            bench.world.expire_brokers("broker 1")
            await asyncio.sleep(1)
            assert bench.world.content.registrations() == {}

        await bench.run("broker 1", register)

        (ended,) = bench.commits("expire")
        assert [(op.key, op.new) for op in ended["ops"]] == [("brokers/1", -1)]

    simulated(main)


@pytest.mark.parametrize("done", [True, False])
def test_lost_answer_is_recorded_as_unknown(*, done: bool) -> None:
    async def main(bench: Bench) -> None:
        async def write(store: ZooKeeperStore) -> None:
            bench.world.lose("admin", done=done, matches=lambda request: bool(request.parts))
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})

        await bench.run("admin", write)

        (unknown,) = [event.fields for event in bench.history.events if event.kind == "store.unknown"]
        assert unknown["done"] == done
        assert (unknown["txn"] == bench.commits("create_topic")[0]["txn"]) == done

    simulated(main)


def test_write_that_is_decided_after_its_client_has_lost_the_connection_is_named() -> None:
    """It is in the leader's log, which the other servers get when the leader finds them again."""

    async def main() -> None:
        bench = Bench(servers=3)
        leader = bench.world.ensemble.leader
        assert leader is not None

        async def write(store: ZooKeeperStore) -> None:
            await store.controller()  # connected
            bench.world.cut_servers(leader.name)
            creating = asyncio.ensure_future(store.create_topic(ORDERS, THREE_PARTITIONS, {}))
            await asyncio.sleep(20)
            bench.world.heal_servers()
            with contextlib.suppress(StoreError):
                await creating

        await bench.run("admin", write)

        # The client has repeated the request.
        decided = [event for event in bench.history.events if event.kind == "store.commit" and event.fields["client"]]
        assert [event.fields["operation"] for event in decided] == ["create_topic", "create_topic"]
        unknown = next(event.seq for event in bench.history.events if event.kind == "store.unknown")
        assert decided[0].fields["sent"] <= unknown < decided[0].seq

    sim.run(main, schedule=Schedule("fifo"))


def test_topic_is_removed_by_hand_with_all_that_belongs_to_it() -> None:
    async def main(bench: Bench) -> None:
        async def lead(store: ZooKeeperStore) -> None:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {"a": "b"})
            await store.commit(new_write(ALL), await store.contest(100))
            assert set(bench.world.content.leaderships()) == set(ALL)
            bench.world.remove_topic(ORDERS.name)
            assert bench.world.content.topics() == {}
            assert await store.topics() == []

        await bench.run("admin", lead)

        (removed,) = bench.commits("by hand")
        assert len(removed["ops"]) == 5

    simulated(main)


@pytest.mark.parametrize("seed", [1, 2])
def test_whole_cluster_runs_over_zookeeper(seed: int) -> None:
    script = Script(
        world=WorldSpec(store="zookeeper", brokers=BrokersSpec(count=3)), duration_ms=20_000.0, name="zookeeper"
    )
    script.schedule.seed = seed

    first, again = run_script(script), run_script(script)

    assert first.signature == "pass", first.error
    assert first.digest == again.digest
    assert any(event.kind == "ctl.elected" for event in first.history.events)


def test_first_leadership_is_not_written_to_a_topic_that_replaced_its_own_just_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topic was compared, and is then removed by hand and created again before the write arrives."""
    others = TopicLives.others

    async def main(bench: Bench) -> None:
        async def replaced(self: TopicLives, *args: Any) -> list[bool]:
            found = await others(self, *args)
            await bench.replace()
            return found

        async def lead(store: ZooKeeperStore) -> Any:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            await store.assignments([ORDERS.name])
            fence = await store.contest(100)
            monkeypatch.setattr(TopicLives, "others", replaced)
            return await store.commit(write_of(ORDERS, new_write(ALL)), fence)

        committed = await bench.run("controller 100", lead)

        assert set(committed.outcome.tolist()) == {Outcome.FAILED}
        assert [path for path in bench.world.servers[0].tree.nodes if path.endswith("/state")] == []

    simulated(main)


def test_first_leadership_is_not_written_below_the_node_of_a_concurrent_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second commit compares the topic before it is replaced, and the third one after."""
    others = TopicLives.others

    async def main(bench: Bench) -> None:
        async def lead(store: ZooKeeperStore) -> list[int]:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            await store.assignments([ORDERS.name])
            fence = await store.contest(100)
            first, second, third = [write_of(ORDERS, new_write([name])) for name in ALL[:3]]
            outcomes = [await store.commit(first, fence)]

            async def replaced(self: TopicLives, *args: Any) -> list[bool]:
                monkeypatch.setattr(TopicLives, "others", others)
                found = await others(self, *args)
                await bench.replace()
                outcomes.append(await store.commit(third, fence))
                return found

            monkeypatch.setattr(TopicLives, "others", replaced)
            outcomes.append(await store.commit(second, fence))
            return [int(committed.outcome[0]) for committed in outcomes]

        assert await bench.run("controller 100", lead) == [Outcome.COMMITTED, Outcome.FAILED, Outcome.FAILED]
        assert [path for path in bench.world.servers[0].tree.nodes if path.endswith("/state")] == []

    simulated(main)


def test_assignment_is_not_written_to_a_topic_that_replaced_its_own_just_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The nodes of both topics have version 0. The replacement has no leadership."""
    current = TopicLives.current

    async def main(bench: Bench) -> None:
        async def replaced(self: TopicLives, *args: Any) -> list[Any]:
            found = await current(self, *args)
            monkeypatch.setattr(TopicLives, "current", current)
            await bench.replace()
            return found

        async def lead(store: ZooKeeperStore) -> None:
            await store.create_topic(ORDERS, THREE_PARTITIONS, {})
            await store.assignments([ORDERS.name])
            fence = await store.contest(100)
            await store.commit(write_of(ORDERS, new_write(ALL)), fence)
            monkeypatch.setattr(TopicLives, "current", replaced)
            with pytest.raises(NotFound):
                await store.write_assignment(ORDERS, {0: Assignment((3,))}, fence)

            stored = await store.assignments([ORDERS.name])
            assert list(stored.topics) == [REPLACEMENT]
            assert dict(stored.items())[ALL[0]] == THREE_PARTITIONS[0]

        await bench.run("controller 100", lead)

    simulated(main)
