"""Pre-emption of a large event by small events: when they run, which state they see, and which events they end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import numpy as np
import pytest

from kactl.actors.handlers.brokers import METADATA_CHUNKS
from kactl.actors.machines.machine import PORTION_CHUNKS
from kactl.decide.messages.admin import ElectionKind, ReplicaLeaderElection
from kactl.decide.messages.broker import (
    AllocateProducerIds,
    AlterPartitionReceived,
    IsrProposal,
    PartitionReport,
    ReportPartitions,
)
from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.decide.messages.events import (
    BRIEF_PARTITIONS_MAX,
    BrokerChange,
    ControllerState,
    Event,
    LeaderAndIsrResponseReceived,
    Priority,
    UpdateMetadataResponseReceived,
)
from kactl.decide.messages.log import PartitionEvent
from kactl.model import PartitionState, ReplicaState, ReplicaStatus, TopicPartition
from kactl.model.errors import ControllerMoved, ErrorCode, IllegalState, KactlError, NotController, StoreUnavailable
from kactl.telemetry.event_record import EventRecord
from tests.support.clocks import settle
from tests.support.controller_harness import World, leaders_in, world

pytestmark = pytest.mark.anyio

ONLINE, OFFLINE = PartitionState.ONLINE, PartitionState.OFFLINE
COUNT: Final = 6
OTHER: Final = TopicPartition("other", 0)
# At the boundary of one partition led by 1, an election is requested: by the time 1 fails it is led by 3.
ASSIGNMENT: Final = [[1, 2, 3]] * COUNT


async def create_and_prepare(w: World) -> None:
    """Create a topic led by broker 1 with one partition per chunk, and another one whose leader is not the preferred
    replica."""
    await w.create("other", [[2, 3]])
    await w.stop(2)
    await w.start(2)
    await w.write_isr("other-0", 3, 2)
    await w.create("t", ASSIGNMENT)
    assert w.known("other-0").leader == 3
    w.brokers.forget()


class Middle:
    """Runs an action whenever a chunk is being committed, and records the cluster state at that time."""

    def __init__(self, w: World, at: int, then: Callable[[], Awaitable[Any]]) -> None:
        self.w, self.at, self.then = w, at, then
        self.writes: list[list[str]] = []
        self.asked: asyncio.Future[Any] | None = None
        self._real = w.controller.store.commit
        w.controller.store.commit = self._commit  # type: ignore[method-assign]

    async def _commit(self, write: Any, fence: Any) -> Any:
        self.writes.append([str(name) for name in write.names])
        if len(self.writes) == self.at:
            self.asked = asyncio.ensure_future(self.then())
            await asyncio.sleep(0)
        return await self._real(write, fence)


def preferred_election(w: World) -> Callable[[], Awaitable[Any]]:
    return lambda: w.controller.elect(ElectionKind.PREFERRED, [OTHER])


@pytest.mark.parametrize("at", range(1, COUNT))
async def test_single_election_does_not_wait_for_a_whole_failure(at: int) -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        middle = Middle(w, at, preferred_election(w))

        await w.stop(1)

        assert middle.asked is not None
        (result,) = await middle.asked
        assert (result.outcome, result.leader) == ("ok", 2)
        # First the chunk in flight, then the election; the rest of the failure follows.
        assert at <= middle.writes.index(["other-0"]) <= at + 1
        assert len(middle.writes) == COUNT + 1
        assert [w.known(f"t-{each}").leader for each in range(COUNT)] == [2] * COUNT
        assert all(1 not in w.known(f"t-{each}").isr for each in range(COUNT))
        await w.check()


async def test_partition_elected_meanwhile_is_not_elected_again() -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        last = TopicPartition("t", COUNT - 1)
        # It requests a leader for a partition that the failure has not reached yet.
        middle = Middle(w, 1, lambda: w.controller.elect(ElectionKind.UNCLEAN, [last]))

        await w.stop(1)

        assert middle.asked is not None
        (result,) = await middle.asked
        assert (result.outcome, result.leader) == ("ok", 2)
        # One normal election: it removes 1 from the ISR, so that no write is left to do.
        assert middle.writes.count([str(last)]) == 1
        epochs = {w.known(f"t-{each}").leader_epoch for each in range(COUNT)}
        assert epochs == {1}
        assert w.brokers.told(3)[str(last)][:2] == (2, 1)
        await w.check()


async def test_partition_elected_before_the_failure_stays_online() -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        last, asked = TopicPartition("t", COUNT - 1), []

        async def look(real: Any) -> Any:
            asked.append(asyncio.ensure_future(w.controller.elect(ElectionKind.UNCLEAN, [last])))
            await asyncio.sleep(0)
            return await real()

        w.script("brokers", look)
        seen = w.controller.history.seq
        await w.stop(1)

        (result,) = await asked[0]
        assert (result.outcome, result.leader) == ("ok", 2)
        happened, _ = w.controller.history.read(seen, limit=1000, kinds=("partition",))
        of_it = [each for each in happened if isinstance(each, PartitionEvent) and each.partition == COUNT - 1]
        assert next((each.from_state, each.to_state, each.leader_epoch) for each in of_it) == (ONLINE, ONLINE, 1)
        assert OFFLINE not in {each.to_state for each in of_it}
        assert w.known(str(last)).leader_epoch == 1
        await w.check()


async def test_isr_proposal_is_answered_and_kept_during_a_failure() -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        name, topic = TopicPartition("other", 0), w.controller.cluster.table.topic("other")
        assert topic is not None
        held = w.known("other-0")
        proposal = IsrProposal(topic.ref, 0, held.leader_epoch, (3,), held.partition_epoch)
        asked = AlterPartitionReceived(3, w.epoch(3), (proposal,))
        middle = Middle(w, 2, lambda: w.controller.ask(asked))

        await w.stop(1)

        assert middle.asked is not None
        (result,) = await middle.asked
        assert result.error is ErrorCode.NONE
        assert middle.writes.index([str(name)]) < len(middle.writes) - 1
        assert w.known("other-0").isr == (3,)
        await w.check()


async def test_brokers_receive_partition_changes_in_commit_order() -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        first = TopicPartition("t", 0)
        # Elected by the failure, and again before the failure is complete.
        Middle(w, 2, lambda: w.controller.elect(ElectionKind.PREFERRED, [first]))
        await w.stop(1)

        for broker in (2, 3):
            for kind in (LeaderAndIsr, UpdateMetadata):
                said = [leaders_in(request.states) for request in w.brokers.of(broker, kind)]  # type: ignore[union-attr]
                epochs = [each[str(first)][1] for each in said if str(first) in each]
                assert epochs
                assert epochs == sorted(epochs), (broker, kind)


@pytest.mark.parametrize("at", range(1, COUNT))
@pytest.mark.parametrize("error", [ControllerMoved(ours=1, theirs=2), IllegalState("it cannot be")])
async def test_error_of_a_small_event_ends_the_large_one_before_resigning(at: int, error: KactlError) -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        middle = Middle(w, at, preferred_election(w))
        real = w.controller.store.commit
        states: list[int] = []

        async def refused(write: Any, fence: Any) -> Any:
            if not states and [str(name) for name in write.names] == ["other-0"]:
                middle.writes.append(["other-0"])
                raise error
            return await real(write, fence)

        w.controller.store.commit = refused  # type: ignore[method-assign]
        written = []
        resign = w.controller.loop.controllership.resign

        def noted(cause: str) -> None:
            states.append(len(w.controller.loop.events.in_progress))
            written.extend(middle.writes)
            resign(cause)

        w.controller.loop.controllership.resign = noted  # type: ignore[method-assign]
        await w.stop(1)

        assert middle.asked is not None
        with pytest.raises((NotController, IllegalState)):
            await middle.asked
        # The large event was the only current event by then, and had released its rows.
        assert states[0] == 1
        assert written[-1] == ["other-0"]
        assert not w.controller.loop.events.in_progress
        # The next controller, this or another instance, finds the cluster as it is stored.
        await w.wait(30_000)
        assert w.controller.is_active
        assert sorted(w.controller.cluster.brokers) == [2, 3]
        assert [w.known(f"t-{each}").leader for each in range(COUNT)] == [2] * COUNT
        await w.check()


@pytest.mark.parametrize("at", range(1, 2 * COUNT))
@pytest.mark.parametrize("what", ["moved", "expired", "failed", "bug"])
async def test_cluster_recovers_from_a_failure_at_any_chunk_boundary(at: int, what: str) -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        store, real, writes = w.controller.store, w.controller.store.commit, []

        async def commit(write: Any, fence: Any) -> Any:
            writes.append(write)
            if len(writes) == at:
                asyncio.ensure_future(preferred_election(w)()).add_done_callback(lambda task: task.exception())
                await asyncio.sleep(0)
            if len(writes) == at + 1:
                if what == "moved":
                    raise ControllerMoved(ours=1, theirs=2)
                if what == "expired":
                    store.expire()  # type: ignore[attr-defined]
                elif what == "failed":
                    raise StoreUnavailable("gone")
                else:
                    raise ZeroDivisionError("a bug")
            return await real(write, fence)

        store.commit = commit  # type: ignore[method-assign]
        await w.stop(1)
        await w.wait(60_000)

        assert w.controller.is_active
        assert [w.known(f"t-{each}").leader for each in range(COUNT)] == [2] * COUNT
        assert all(1 not in w.known(f"t-{each}").isr for each in range(COUNT))
        last = {broker: w.brokers.told(broker) for broker in (2, 3)}
        for each in range(COUNT):
            held = w.known(f"t-{each}")
            for broker in (2, 3):
                assert last[broker][f"t-{each}"][:2] == (held.leader, held.leader_epoch)
        await w.check()


async def test_session_end_is_not_overtaken() -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)

        async def expire_and_elect() -> Any:
            w.controller.store.expire()  # type: ignore[attr-defined]
            return await preferred_election(w)()

        handled: list[str] = []
        begin = w.controller.loop.events.begin

        def begun(event: Event, *args: Any, **named: Any) -> EventRecord:
            handled.append(event.label)
            return begin(event, *args, **named)

        w.controller.loop.events.begin = begun  # type: ignore[method-assign]
        middle = Middle(w, 1, expire_and_elect)
        await w.stop(1)

        assert middle.asked is not None
        await middle.asked
        assert handled.index("Expire") < handled.index("ReplicaLeaderElection")


async def test_small_events_do_not_starve_the_large_one() -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        many = 5 * COUNT

        async def flood() -> Any:
            return await asyncio.gather(*(w.controller.elect(ElectionKind.PREFERRED, [OTHER]) for _ in range(many)))

        handled: list[str] = []
        begin = w.controller.loop.events.begin

        def begun(event: Event, *args: Any, **named: Any) -> EventRecord:
            handled.append(event.label)
            return begin(event, *args, **named)

        w.controller.loop.events.begin = begun  # type: ignore[method-assign]
        end = w.controller.loop.events.end

        def ended(record: EventRecord, **named: Any) -> None:
            handled.append("end")
            end(record, **named)

        w.controller.loop.events.end = ended  # type: ignore[method-assign]
        middle = Middle(w, 1, flood)
        await w.stop(1)

        assert middle.asked is not None
        assert len(await middle.asked) == many
        # While the clock stands still one of them runs at each boundary, and the large event ends among them.
        depth, inside = 0, 0
        for label in handled:
            depth += -1 if label == "end" else 1
            inside += depth == 2 and label == "ReplicaLeaderElection"
        assert 0 < inside < many


async def test_both_current_events_are_visible_and_timed_separately() -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        seen: list[Any] = []
        states: list[ControllerState] = []

        async def look(write: Any, fence: Any) -> Any:
            if [str(name) for name in write.names] == ["other-0"]:
                seen.append(w.controller.queue().current)
                states.append(w.controller.loop.state)
                await w.clock.sleep_ms(40)
            return await real(write, fence)

        Middle(w, 2, preferred_election(w))
        real = w.controller.store.commit
        w.controller.store.commit = look  # type: ignore[method-assign]
        await w.stop(1)
        await w.clock.advance(100)

        (current,) = seen
        assert (current.label, current.between) == ("BrokerChange", "ReplicaLeaderElection")
        assert states == [ControllerState.MANUAL_LEADER_BALANCE]
        kinds = {kind.label: kind for kind in w.controller.queue().kinds}
        assert kinds["ReplicaLeaderElection"].process.max_ms == 40
        assert kinds["BrokerChange"].process.max_ms == 0
        assert kinds["ReplicaLeaderElection"].handled == 1
        assert w.controller.queue().current is None
        assert w.controller.loop.state is ControllerState.IDLE


async def test_parity_mode_has_no_preemption_and_one_flush() -> None:
    async with world(1, 2, 3, chunk_partitions=1, parity=True) as w:
        await create_and_prepare(w)
        middle = Middle(w, 1, preferred_election(w))
        await w.stop(1)

        assert middle.writes[:2] == [[f"t-{each}" for each in range(COUNT)], ["other-0"]]
        led = [r.states for r in w.brokers.of(3, LeaderAndIsr) if "t-0" in leaders_in(r.states)]  # type: ignore[union-attr]
        # For the election, and for the replicas that went offline.
        assert [len(states) for states in led] == [COUNT, COUNT]


async def test_requests_are_sent_in_portions() -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        await w.stop(1)

        sizes = [len(r.states) for r in w.brokers.of(3, LeaderAndIsr)]  # type: ignore[union-attr]
        assert sizes[:2] == [PORTION_CHUNKS, COUNT - PORTION_CHUNKS]


async def test_new_broker_receives_all_partitions_in_parts() -> None:
    async with world(1, 2, chunk_partitions=1) as w:
        count = 2 * METADATA_CHUNKS + 1
        await w.create("t", [[1, 2]] * count)
        w.brokers.forget()
        await w.start(3)

        told = [r.states for r in w.brokers.of(3, UpdateMetadata)]  # type: ignore[union-attr]
        assert [len(states) for states in told] == [METADATA_CHUNKS, METADATA_CHUNKS, 1]
        assert {name for states in told for name in leaders_in(states)} == {f"t-{each}" for each in range(count)}


def _kinds(w: World, broker: int) -> list[str]:
    return [type(request).__name__ for request in w.brokers.of(broker)]


@pytest.mark.parametrize("at", ["brokers", "metadata", "told"])
@pytest.mark.parametrize("bounced", [False, True])
async def test_registered_broker_gets_metadata_before_its_partitions(at: str, bounced: bool) -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        # Partitions whose election is requested at each boundary of the registration event.
        names = [TopicPartition("t", each) for each in range(COUNT)]
        asked: list[asyncio.Future[Any]] = []

        async def ask() -> None:
            asked.extend(asyncio.ensure_future(w.controller.elect(ElectionKind.PREFERRED, [name])) for name in names)
            await asyncio.sleep(0)

        async def look(real: Any) -> Any:
            found = await real()
            await ask()
            return found

        send, sends = w.controller.channels.send, []

        def sent(requests: Any) -> None:
            requests = list(requests)
            if any(broker == 2 for broker, _ in requests):
                sends.append(requests)
                if len(sends) == (1 if at == "metadata" else 2 * METADATA_CHUNKS):
                    asked.extend(asyncio.ensure_future(w.controller.elect(ElectionKind.PREFERRED, [n])) for n in names)
            send(requests)

        if not bounced:
            await w.stop(2)
            w.brokers.forget()
        if at == "brokers":
            w.script("brokers", look)
        else:
            w.controller.channels.send = sent  # type: ignore[method-assign]
        await w.start(2)
        await asyncio.gather(*asked)

        assert asked
        kinds = _kinds(w, 2)
        first = kinds.index("LeaderAndIsr")
        assert kinds[:first] == ["UpdateMetadata"] * first
        assert first > 0
        told = w.brokers.of(2, LeaderAndIsr)[0]
        assert isinstance(told, LeaderAndIsr)
        assert sorted(leaders_in(told.states)) == sorted([*map(str, names), "other-0"])
        await w.check()


async def test_takeover_sends_each_broker_one_request_with_all_partitions() -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await w.create("t", [[1, 2, 3]] * (2 * PORTION_CHUNKS + 1))
        w.brokers.forget()
        await w.controller.resign()
        await settle()

        assert w.controller.is_active
        for broker in (1, 2, 3):
            first = w.brokers.of(broker, LeaderAndIsr)[0]
            assert isinstance(first, LeaderAndIsr)
            assert len(first.states) == 2 * PORTION_CHUNKS + 1


def _answer(*errors: int, error: int = 0) -> LeaderAndIsrResponseReceived:
    count = len(errors)
    partitions = PartitionErrors(
        ("t",), np.zeros(count, np.int32), np.arange(count, dtype=np.int32), np.array(errors, np.int16)
    )
    return LeaderAndIsrResponseReceived(1, 1, LeaderAndIsrResponse(error, partitions))


@pytest.mark.parametrize("at", range(1, COUNT + 1))
async def test_replica_that_serves_again_during_its_failure_stays_online(at: int) -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        middle = Middle(w, at, lambda: w.controller.ask(_status(w, ReplicaStatus.READY)))

        w.controller.loop.inbox.put(_answer(*[ErrorCode.KAFKA_STORAGE_ERROR] * COUNT))
        await settle()

        assert middle.asked is not None
        states = [w.known(f"t-{each}").replica_states[1] for each in range(COUNT)]
        assert states == [*[ReplicaState.OFFLINE] * (COUNT - 1), ReplicaState.ONLINE]
        assert w.controller.cluster.table.dirs_offline(1).tolist() == [
            w.controller.cluster.table.row(TopicPartition("t", each)) for each in range(COUNT - 1)
        ]
        await w.check()


async def test_replica_that_fails_again_while_it_is_started_stays_offline() -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        w.controller.loop.inbox.put(_answer(*[ErrorCode.KAFKA_STORAGE_ERROR] * COUNT))
        await settle()
        middle = Middle(w, 1, lambda: w.controller.ask(_status(w, ReplicaStatus.FAILED)))

        w.controller.loop.inbox.put(_answer(*[ErrorCode.NONE] * COUNT))
        await settle()

        assert middle.asked is not None
        states = [w.known(f"t-{each}").replica_states[1] for each in range(COUNT)]
        assert states == [*[ReplicaState.ONLINE] * (COUNT - 1), ReplicaState.OFFLINE]
        await w.check()


def _status(w: World, status: ReplicaStatus) -> ReportPartitions:
    last = PartitionReport(TopicPartition("t", COUNT - 1), 1, status)
    return ReportPartitions(1, w.epoch(1), (last,))


def test_only_small_events_without_list_changes_preempt() -> None:
    few = tuple(TopicPartition("t", each) for each in range(BRIEF_PARTITIONS_MAX))

    assert ReplicaLeaderElection(ElectionKind.PREFERRED, few).priority is Priority.HIGH
    assert ReplicaLeaderElection(ElectionKind.PREFERRED, (*few, OTHER)).priority is Priority.EXCLUSIVE
    assert ReplicaLeaderElection(ElectionKind.PREFERRED).priority is Priority.EXCLUSIVE
    assert AlterPartitionReceived(1, 1, ()).priority is Priority.HIGH
    assert AllocateProducerIds(1, 1).priority is Priority.HIGH
    assert BrokerChange().priority is Priority.EXCLUSIVE
    assert UpdateMetadataResponseReceived(1, 1, UpdateMetadataResponse(0)).priority is Priority.LOW
    assert _answer(0, 0).priority is Priority.LOW
    # A failed directory takes replicas offline, which is a large event. A stale controller epoch ends the
    # controllership.
    assert _answer(0, ErrorCode.KAFKA_STORAGE_ERROR).priority is Priority.EXCLUSIVE
    assert _answer(error=ErrorCode.STALE_CONTROLLER_EPOCH).priority is Priority.EXCLUSIVE


async def test_responses_wait_for_a_large_event_up_to_a_limit() -> None:
    async with world(1, 2, 3, chunk_partitions=1) as w:
        await create_and_prepare(w)
        depths: list[int] = []
        begin = w.controller.loop.events.begin

        def begun(event: Any, *args: Any, **named: Any) -> EventRecord:
            record = begin(event, *args, **named)
            if isinstance(event, UpdateMetadataResponseReceived):
                depths.append(len(w.controller.loop.events.in_progress))
            return record

        w.controller.loop.events.begin = begun  # type: ignore[method-assign]
        await w.stop(1)
        assert set(depths) == {1}

        depths.clear()
        await w.start(1)
        depths.clear()
        real = w.controller.store.commit

        async def slow(write: Any, fence: Any) -> Any:
            await w.clock.sleep_ms(60)
            return await real(write, fence)

        w.controller.store.commit = slow  # type: ignore[method-assign]
        await w.stop(2)
        for _ in range(30):
            await w.clock.advance(60)
        assert 2 in depths
        await settle()
