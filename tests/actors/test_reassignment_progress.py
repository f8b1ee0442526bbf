"""Progress of a reassignment and its blockers, and a reassignment by in-process participants."""

import pytest

from kactl.actors.system import Controller
from kactl.config.protocol_level import LATEST, ProtocolLevel
from kactl.decide.machines.reassignment import Progress, Step, progress
from kactl.model import NO_LEADER, Assignment, TopicPartition
from kactl.model.errors import StoreUnavailable
from kactl.participant import Listener, Participants
from kactl.stores.memory import MemoryStore
from kactl.transports.memory import MemoryHub
from tests.support.clocks import ManualClock, settle
from tests.support.cluster_seeds import tp
from tests.support.controller_harness import World, world
from tests.support.scripted_store import fails

from .reassignment_helpers import reassign, script_once

pytestmark = pytest.mark.anyio


def only_progress(w: World) -> Progress:
    (found,) = progress(w.controller.cluster)
    return found


async def test_progress_names_the_cause_of_the_wait() -> None:
    async with world(1, 2, 3, 4) as w:
        await w.create("t", [[1, 2]])
        await reassign(w, {"t-0": [4, 3]})

        assert only_progress(w) == Progress(
            topic="t",
            partition=0,
            assignment=Assignment((4, 3, 1, 2), adding=(4, 3), removing=(1, 2)),
            step=Step.COPYING,
            waits_for=(4, 3),
            dead=(),
            leader=1,
            reason="leader 1 has not yet added brokers 4, 3 to the ISR",
        )
        await w.stop(3)
        assert (only_progress(w).waits_for, only_progress(w).dead) == ((4, 3), (3,))
        assert only_progress(w).reason == "leader 1 has not yet added broker 4 to the ISR; broker 3 cannot serve"
        await w.write_isr("t-0", 1, 2, 4)
        assert (only_progress(w).waits_for, only_progress(w).dead) == ((3,), (3,))
        assert only_progress(w).reason == "broker 3 cannot serve: start it, or choose another target"


async def test_failed_directory_blocks_a_replica() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        w.brokers.failed_dirs = {2: {"t-0"}}

        await reassign(w, {"t-0": [2]})

        assert (only_progress(w).waits_for, only_progress(w).dead) == ((2,), (2,))


async def test_missing_leader_blocks_all_replicas() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2]})
        await w.stop(1)

        assert only_progress(w).leader == NO_LEADER
        assert only_progress(w).reason == ("it has no leader to add broker 2 to the ISR: start a broker of the ISR")


async def test_partition_without_leadership_has_no_records_to_copy() -> None:
    async with world(1) as w:
        await w.create("t", [[2]])
        await reassign(w, {"t-0": [1, 2]})

        assert only_progress(w).reason == (
            "it never had a leader, so there is no replica to copy from: start one of its brokers"
        )


async def test_completion_that_was_not_stored() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2]})
        script_once(w, "write_assignment", fails(StoreUnavailable("gone")))
        await w.write_isr("t-0", 1, 2)

        assert (only_progress(w).step, only_progress(w).waits_for) == (Step.COMPLETING, ())
        assert only_progress(w).reason == "its completion could not be stored; the controller retries"
        await w.wait(12_000)
        assert progress(w.controller.cluster) == []


async def test_progress_is_limited_to_requested_and_running_partitions() -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1], [1], [1]])
        await reassign(w, {"t-2": [2], "t-0": [2]})

        assert [each.partition for each in progress(w.controller.cluster)] == [0, 2]
        asked = progress(w.controller.cluster, [tp("t-2"), tp("t-1"), tp("x-0")])
        assert [each.partition for each in asked] == [2]


# -- participants ------------------------------------------------------------------------------------------------------


class RecordingListener(Listener):
    """Records its broker's role changes in one list for all brokers."""

    def __init__(self, broker: int, told: list[str]) -> None:
        self._broker, self._told = broker, told

    def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
        self._told.append(f"{self._broker} leads {name}")

    def became_follower(self, name: TopicPartition, *, leader: int, leader_epoch: int) -> None:
        self._told.append(f"{self._broker} follows {leader} for {name}")

    def stopped(self, name: TopicPartition, *, deleted: bool) -> None:
        self._told.append(f"{self._broker} {'deletes' if deleted else 'stops'} {name}")


@pytest.mark.parametrize("level", [LATEST, ProtocolLevel(2, 6)], ids=str)
async def test_participants_complete_a_reassignment(level: ProtocolLevel) -> None:
    clock, hub, told = ManualClock(), MemoryHub(), list[str]()
    copied: set[int] = {1, 2}

    def listener(broker: int) -> Listener:
        return RecordingListener(broker, told)

    def caught_up(_: TopicPartition, follower: int) -> bool:
        return follower in copied

    async with MemoryStore(clock=clock) as store:
        controller = Controller(100, store=store.another(), hub=hub, clock=clock, level=level)
        group = Participants(4, store=store, hub=hub, clock=clock, listener=listener, in_sync=caught_up)
        async with controller, group as brokers:
            await settle()
            await controller.create_topic("orders", assignment={0: [1, 2], 1: [2, 1]}, timeout_ms=0)
            await settle()
            name = tp("orders-0")
            told.clear()

            (accepted,) = await controller.reassign({name: [3, 4]})
            await settle()

            assert accepted.error == 0
            assert [brokers[broker].hosted(name) is not None for broker in (1, 2, 3, 4)] == [True] * 4
            view = controller.partition(name)
            assert view is not None
            assert (view.leader, view.isr) == (1, (1, 2))
            assert {"3 follows 1 for orders-0", "4 follows 1 for orders-0"} <= set(told)

            copied.add(3)
            await clock.advance(1_000)
            view = controller.partition(name)
            assert view is not None
            assert (view.leader, set(view.isr)) == (1, {1, 2, 3})
            assert [each.waits_for for each in progress(controller.cluster)] == [(4,)]

            told.clear()
            copied.add(4)
            await clock.advance(1_000)
            view = controller.partition(name)
            assert view is not None
            assert (view.leader, view.replicas, set(view.isr)) == (3, (3, 4), {3, 4})
            assert await controller.reassignments() == {}
            assert [brokers[broker].hosted(name) is not None for broker in (1, 2, 3, 4)] == [False, False, True, True]
            assert {"3 leads orders-0", "4 follows 3 for orders-0"} <= set(told)
            for broker in (1, 2):
                assert [each for each in told if each.startswith(f"{broker} ")][-2:] == [
                    f"{broker} stops orders-0",
                    f"{broker} deletes orders-0",
                ]
            # Partitions that were not moved are served as before.
            assert brokers[2].hosted(tp("orders-1")) is not None
            assert all(brokers[broker].leader(name) == 3 for broker in (1, 2, 3, 4))
