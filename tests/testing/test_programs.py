"""Simulated clusters for users' programs: faults, failover, the network between nodes, and coming to rest."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from kactl.decide.messages.admin import UndrainBroker
from kactl.decide.messages.control import Request, Response
from kactl.decide.messages.following import FollowerReportsRequested, PeerMessage
from kactl.model import TopicPartition
from kactl.model.errors import ControllerUnreachable
from kactl.participant import Listener
from kactl.testing import sim
from kactl.testing.history import History
from kactl.testing.nodes import on
from kactl.testing.programs import FAULTS, ClusterNode, SimCluster, Simulation, nemesis
from kactl.testing.programs.simulation import Plan, plan_of
from kactl.testing.script import Action
from kactl.transports.base import LinkState

from .running import this_loop

NAMES = ("controller 100", "controller 101", "node 1", "node 2", "node 3")


class Leads(Listener):
    """Records the partitions that it leads."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node

    def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
        self.node.record("leads", name=str(name), epoch=leader_epoch, incarnation=self.node.incarnation)


def run_cluster(main: Callable[[SimCluster], Awaitable[Any]], *, seed: int = 1) -> Any:
    """Run a function with a cluster in which the topic t has three partitions on all nodes."""

    async def run() -> Any:
        loop = this_loop()
        cluster = SimCluster(loop, History(lambda: loop.now_s * 1000), application=Leads)
        await cluster.create_topic("t", partitions=3, replication_factor=3)
        await cluster.settled()
        return await main(cluster)

    return sim.run(run, seed=seed)


def test_faults_are_drawn_from_the_seed() -> None:
    def drawn(seed: int) -> list[Action]:
        return nemesis.draw(random.Random(seed), list(FAULTS), NAMES, 600_000)

    actions = drawn(1)

    assert actions == drawn(1) != drawn(2)
    assert [action.at_ms for action in actions] == sorted(action.at_ms for action in actions)
    assert actions[0].at_ms > 0
    assert actions[-1].at_ms < 600_000
    assert {action.do for action in drawn(1) + drawn(2) + drawn(3)} == set(FAULTS)
    assert nemesis.draw(random.Random(1), [], NAMES, 600_000) == []


@pytest.mark.parametrize(("duration", "expected_ms"), [("90s", 90_000), ("10min", 600_000), ("5ms", 5), (2, 2_000)])
def test_durations(duration: str | float, expected_ms: float) -> None:
    assert plan_of(duration=duration).duration_ms == expected_ms


@pytest.mark.parametrize("fault", FAULTS)
def test_cluster_comes_to_rest_after_each_fault(fault: str) -> None:
    async def main() -> tuple[int, int]:
        simulation = Simulation(3, Plan((fault,), 60_000))
        simulation.begin()
        cluster = await simulation.cluster(application=Leads)
        await cluster.create_topic("t", partitions=3, replication_factor=3)
        await simulation.run_out()
        await simulation.heal()
        await cluster.settled()
        begun = [event for event in simulation.history.events if event.kind == "fault.begin"]
        assert simulation.script is not None
        return len(begun), len(simulation.script.actions)

    begun, drawn = sim.run(main, seed=3)

    assert begun > 1
    assert drawn >= begun


def test_another_controller_takes_over_from_a_killed_one() -> None:
    async def main(cluster: SimCluster) -> tuple[str | None, str | None, int]:
        before = cluster.resolve("active controller")
        assert before is not None
        cluster.kill(before)
        await cluster.settled()
        after = cluster.resolve("active controller")
        cluster.restart(before)
        await asyncio.sleep(10)
        return before, after, len(cluster.controllers)

    before, after, count = run_cluster(main)

    assert {before, after} == {"controller 100", "controller 101"}
    assert count == 2


def test_restarted_process_is_a_new_incarnation() -> None:
    async def main(cluster: SimCluster) -> set[tuple[str, int]]:
        cluster.kill("node 1")
        await asyncio.sleep(10)
        cluster.restart("node 1")
        await cluster.settled()
        for name in ("node 2", "node 3"):
            cluster.kill(name)
        await asyncio.sleep(10)
        leads = [event for event in cluster.history.events if event.kind == "leads"]
        assert all(event.node in ("node 1", "node 2", "node 3") for event in leads)
        return {(event.node, event.fields["incarnation"]) for event in leads}

    assert ("node 1", 2) in run_cluster(main)


class Port:
    """Participant that records the requests it receives."""

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.claim = str(broker)
        self.incarnation = b""
        self.received: list[PeerMessage] = []

    async def why_foreign(self, controller: int, epoch: int) -> str:
        raise AssertionError

    def link_changed(self, state: LinkState, reason: str = "") -> None:
        raise AssertionError(f"the link became {state}")

    async def handle(self, request: Request) -> Response:
        raise AssertionError

    def receive(self, message: PeerMessage) -> None:
        self.received.append(message)


def test_cut_separates_nodes_in_the_network() -> None:
    async def main(cluster: SimCluster) -> None:
        one, two = cluster._nodes["node 1"], cluster._nodes["node 2"]
        active = cluster.resolve("active controller")
        assert active is not None
        port = Port(2)
        message = FollowerReportsRequested(1, 2, 0, 0)

        def received() -> int:
            return sum(each is message for each in port.received)  # not those of the node's own participant

        async def ask() -> None:
            await link.ask(UndrainBroker(2), controller=int(active.removeprefix("controller ")))

        async def call(work: Coroutine[Any, Any, None]) -> None:
            await cluster.loop.start(one, work)

        async def send() -> int:
            with on(one):
                link.send(message)
            await asyncio.sleep(0.1)
            return received()

        async with (
            cluster.view(one).participant_side(Port(1)) as link,
            cluster.view(two).participant_side(port) as other,
        ):
            other.registered(0)
            await call(ask())
            assert await send() == 1

            cluster.cut("node 1", "network")

            began_s = cluster.loop.now_s
            with pytest.raises(ControllerUnreachable, match=r"no answer of .* within 2000 ms"):
                await call(ask())
            assert cluster.loop.now_s == pytest.approx(began_s + 2.0)
            assert await send() == 1
            cluster.heal("node 1")
            await call(ask())
            arrived = await send()
            assert arrived >= 2  # the one that waited may be overtaken
            cluster.pause("node 2")
            assert await send() == arrived

    run_cluster(main)


@pytest.mark.parametrize(
    ("hurt", "missing"),
    [
        (lambda cluster: [cluster.kill(name) for name in NAMES[:2]], "0 controllers are active"),
        (lambda cluster: [cluster.kill(name) for name in NAMES[2:]], "partition t-0 has no live leader"),
    ],
)
def test_unsettled_cluster_names_what_is_missing(hurt: Callable[[SimCluster], object], missing: str) -> None:
    async def main(cluster: SimCluster) -> None:
        hurt(cluster)
        await asyncio.sleep(10)
        with pytest.raises(TimeoutError, match=f"has not settled within 20 s: {missing}"):
            await cluster.settled(timeout_s=20)

    run_cluster(main)


def test_actions_without_a_target_are_skipped() -> None:
    async def main(cluster: SimCluster) -> int:
        at_ms = cluster.loop.now_s * 1000 + 100
        actions = [Action("kill", at_ms=at_ms, args={"node": "node 9"}), Action("pause", at_ms=at_ms)]
        carried_out = nemesis.Nemesis(cluster, actions)
        await asyncio.sleep(1)
        return carried_out.skipped

    assert run_cluster(main) == 2


def is_whole(cluster: SimCluster, name: str) -> bool:
    """Returns whether a process runs at full speed and with all its links."""
    node = cluster._nodes[name]
    channels = cluster.links.select(name) + cluster.links.select(target=name)
    return node.state == "running" and not node.slow_ms and not any(channel.is_cut for channel in channels)


@pytest.mark.parametrize("fault", ["kill", "pause", "slow", "partition"])
def test_fault_strikes_its_target_and_ends_by_itself(fault: str) -> None:
    async def main(cluster: SimCluster) -> list[bool]:
        at_ms = cluster.loop.now_s * 1000 + 1_000
        args = {"node": "node 2", "for_ms": 3_000, "from": "both"}
        nemesis.Nemesis(cluster, [Action(fault, at_ms=at_ms, args=args)])
        whole = []
        for delay_s in (0.5, 1.0, 2.0, 1.0):
            await asyncio.sleep(delay_s)
            whole.append(is_whole(cluster, "node 2"))
            assert is_whole(cluster, "node 1") or fault == "partition"
        return whole

    assert run_cluster(main) == [True, False, False, True]


def test_healing_ends_all_faults() -> None:
    async def main(cluster: SimCluster) -> list[bool]:
        cluster.kill("node 1")
        cluster.cut("node 2")
        cluster.slow("node 3", 50.0)
        cluster.pause("controller 100")
        assert not any(is_whole(cluster, name) for name in NAMES)  # node 2 was cut off from controller 101, too
        cluster.heal_all()
        return [is_whole(cluster, name) for name in NAMES]

    assert run_cluster(main) == [True] * 5


def test_running_process_is_not_started_again() -> None:
    async def main(cluster: SimCluster) -> bool:
        node = cluster._nodes["node 1"]
        cluster.restart("node 1")
        return cluster._nodes["node 1"] is node

    assert run_cluster(main)
