"""Replica machine over a real store: moves, brokers that leave ISRs, and requests to brokers.

Kafka reads the store before an ISR is shrunk. Here only a rejected row is read.
"""

import numpy as np
import pytest

from kactl.actors.machines.machine import MoveReplicas
from kactl.decide.machines import replica
from kactl.decide.messages.log import PartitionEvent, ReplicaEvent
from kactl.model import PartitionState, ReplicaState
from kactl.model.errors import ControllerMoved, SessionExpired, StoreError, StoreUnavailable
from tests.support.cluster_seeds import EPOCH, led
from tests.support.machine_harness import Machines, SentLead, SentState, SentStop
from tests.support.scripted_store import WriteCall, fails, really

pytestmark = pytest.mark.anyio

S = ReplicaState
NEW, ONLINE, OFFLINE, ABSENT = S.NEW, S.ONLINE, S.OFFLINE, S.ABSENT
STARTED, SUCCESSFUL, INELIGIBLE = S.DELETION_STARTED, S.DELETION_SUCCESSFUL, S.DELETION_INELIGIBLE
LED = PartitionState.ONLINE


# -- startup -----------------------------------------------------------------------------------------------------------


async def _start(bench: Machines) -> None:
    """Apply the startup moves of a controller: offline replicas are protected, then moved like any others."""
    table, live = bench.cluster.table, bench.cluster.live_brokers.live
    rows = table.rows(table.all())
    states = np.where(rows.online(live), np.uint8(ONLINE), np.uint8(INELIGIBLE))
    table.set_replica_states(rows.index, np.where(rows.assigned, states, np.uint8(ABSENT)))
    holders = set(rows.replicas[rows.assigned].tolist())
    for target, brokers in ((ONLINE, holders & live.ids), (OFFLINE, holders - live.ids)):
        if brokers:
            await bench.move_replicas(table.with_replica_on(brokers), target, *brokers)


@pytest.mark.parametrize(
    ("live", "assigned", "began"),
    [
        pytest.param([5], 5, ONLINE, marks=pytest.mark.scenario(109)),
        pytest.param([], 5, OFFLINE, marks=pytest.mark.scenario(110)),
        pytest.param([5], 100, OFFLINE, marks=pytest.mark.scenario(111)),
    ],
)
async def test_initial_replica_states_follow_their_brokers(
    bench: Machines, live: list[int], assigned: int, began: ReplicaState
) -> None:
    bench.live(*live)
    await bench.put("t-0", [assigned], replica_state=ABSENT)

    await _start(bench)

    assert bench.replica("t-0", assigned) == began


@pytest.mark.scenario(147)
async def test_earlier_leadership_is_sent_under_our_controller_epoch(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], LED, stored=led(5, 2, [5], 1, by=49), replica_state=ABSENT)

    await _start(bench)

    assert bench.sent.lead == {5: {"t-0": SentLead(5, 2, (5,), 1, (5,), controller_epoch=49)}}
    assert bench.sent.epochs == {EPOCH}


# -- transitions -------------------------------------------------------------------------------------------------------


def _refused(number: int, before: ReplicaState, *targets: ReplicaState) -> list[object]:
    return [pytest.param(before, target, before, marks=pytest.mark.scenario(number)) for target in targets]


@pytest.mark.parametrize(
    ("before", "target", "after_"),
    [
        pytest.param(ABSENT, NEW, NEW, marks=pytest.mark.scenario(112)),
        *_refused(113, ABSENT, ONLINE, OFFLINE, STARTED, INELIGIBLE, SUCCESSFUL),
        *_refused(114, NEW, ABSENT, STARTED, INELIGIBLE, SUCCESSFUL),
        pytest.param(NEW, ONLINE, ONLINE, marks=pytest.mark.scenario(115)),
        *_refused(117, ONLINE, ABSENT, NEW, STARTED, INELIGIBLE, SUCCESSFUL),
        *_refused(120, OFFLINE, ABSENT, NEW, SUCCESSFUL),
        pytest.param(OFFLINE, INELIGIBLE, INELIGIBLE, marks=pytest.mark.scenario(123)),
        *_refused(124, STARTED, ABSENT, NEW, ONLINE, OFFLINE),
        pytest.param(STARTED, INELIGIBLE, INELIGIBLE, marks=pytest.mark.scenario(125)),
        pytest.param(STARTED, SUCCESSFUL, SUCCESSFUL, marks=pytest.mark.scenario(126)),
        *_refused(128, SUCCESSFUL, NEW, ONLINE, OFFLINE, STARTED, INELIGIBLE),
        *_refused(129, INELIGIBLE, ABSENT, NEW, STARTED, SUCCESSFUL),
        *_refused(131, INELIGIBLE, INELIGIBLE),
    ],
)
async def test_only_legal_transitions_are_applied_without_requests(
    bench: Machines,
    caplog: pytest.LogCaptureFixture,
    before: ReplicaState,
    target: ReplicaState,
    after_: ReplicaState,
) -> None:
    bench.live(5)
    await bench.put("t-0", [5], replica_state=before)

    await bench.move_replicas("t-0", target, 5)

    refused = not replica.LEGAL[before, target]
    assert bench.replica("t-0", 5) == after_
    assert ("ILLEGAL_MOVE" in caplog.text) == refused
    assert [event.refused for event in bench.events] == (
        [f"cannot become {target.name}: not a legal transition from its state"]
        if refused
        else [""] * (before != after_)
    )
    assert bench.sent.requests == []
    assert bench.store.calls == []


@pytest.mark.scenario(122)
async def test_deletion_is_requested(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], replica_state=OFFLINE)

    await bench.move_replicas("t-0", STARTED, 5)

    assert bench.sent.stop == {5: {"t-0": SentStop(-1, delete=True)}}
    assert bench.sent.epochs == {EPOCH}
    assert bench.replica("t-0", 5) == STARTED


@pytest.mark.scenario(127)
async def test_deleted_replica_leaves_the_assignment(bench: Machines) -> None:
    await bench.put("t-0", [5], replica_state=SUCCESSFUL)

    await bench.move_replicas("t-0", ABSENT, 5)

    assert bench.view("t-0").replicas == ()
    assert bench.view("t-0").replica_states == {}


async def test_deleted_replica_leaves_the_reassignment(bench: Machines) -> None:
    """The first remaining replica becomes the preferred one, and the imbalance count follows."""
    bench.live(5, 6)
    await bench.put(
        "t-0",
        [4, 5, 6],
        LED,
        stored=led(5, 1, [5, 6], 1),
        replica_state={4: SUCCESSFUL, 5: ONLINE, 6: ONLINE},
        removing=[4],
    )
    before = bench.cluster.imbalance_count

    await bench.move_replicas("t-0", ABSENT, 4)

    assert (bench.view("t-0").replicas, bench.view("t-0").removing) == ((5, 6), ())
    assert (before, bench.cluster.imbalance_count) == (1, 0)


@pytest.mark.scenario(57)
@pytest.mark.parametrize("target", list(ReplicaState))
async def test_call_without_rows_starts_no_batch(bench: Machines, target: ReplicaState) -> None:
    bench.live(5)
    bench.replicas.batch.update_metadata([5])  # a batch that was begun now would find this, and say so

    try:
        await bench.replicas.receive(MoveReplicas(np.zeros(0, np.intp), target, frozenset({5})))
    finally:
        bench.replicas.batch.clear()

    assert bench.outbox.flushes == []


# -- online ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(ONLINE, marks=pytest.mark.scenario(118)),
        pytest.param(OFFLINE, marks=pytest.mark.scenario(121)),
        pytest.param(INELIGIBLE, marks=pytest.mark.scenario(130)),
    ],
)
async def test_online_replica_receives_its_leader(bench: Machines, before: ReplicaState) -> None:
    bench.live(5)
    await bench.put("t-0", [5], LED, stored=led(5, 0, [5], 0), replica_state=before)

    await bench.move_replicas("t-0", ONLINE, 5)

    assert bench.replica("t-0", 5) == ONLINE
    assert bench.sent.lead == {5: {"t-0": SentLead(5, 0, (5,), 0, (5,))}}
    assert bench.sent.metadata == {5: {"t-0": SentState(5, 0, (5,), 0)}}
    assert bench.sent.epochs == {EPOCH}


@pytest.mark.scenario(133)
async def test_new_replica_receives_is_new(bench: Machines) -> None:
    bench.live(4, 5)
    await bench.put("t-0", [4, 5], LED, stored=led(4, 2, [4], 0), replica_state={4: ONLINE})

    await bench.move_replicas("t-0", NEW, 5)

    assert bench.replica("t-0", 5) == NEW
    assert bench.sent.lead == {5: {"t-0": SentLead(4, 2, (4,), 0, (4, 5), is_new=True)}}
    assert bench.sent.metadata.keys() == {4, 5}
    assert bench.store.calls == []


@pytest.mark.scenario(134)
async def test_new_replica_that_leads_is_rejected_alone(bench: Machines, caplog: pytest.LogCaptureFixture) -> None:
    bench.live(4, 5)
    await bench.put("t-0", [5, 4], LED, stored=led(5, 0, [5], 0), replica_state=ABSENT)
    await bench.put("t-1", [5, 4], LED, stored=led(4, 0, [4], 0), replica_state=ABSENT)

    await bench.move_replicas(["t-0", "t-1"], NEW, 5)

    assert bench.replica("t-0", 5) == ABSENT
    assert bench.replica("t-1", 5) == NEW
    assert bench.sent.lead[5].keys() == {"t-1"}
    assert "ASKED_TO_LEAD; the first: t-0 on broker 5" in caplog.text


@pytest.mark.scenario(135)
async def test_unassigned_new_replica_is_appended_to_the_assignment(bench: Machines) -> None:
    await bench.put("t-0", [4], replica_state={4: ONLINE, 5: NEW})

    await bench.move_replicas("t-0", ONLINE, 5)

    assert bench.view("t-0").replicas == (4, 5)
    assert bench.replica("t-0", 5) == ONLINE


@pytest.mark.scenario(136)
async def test_replica_without_leadership_gets_no_request(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], replica_state=OFFLINE)

    await bench.move_replicas("t-0", ONLINE, 5)

    assert bench.replica("t-0", 5) == ONLINE
    assert bench.sent.requests == []


@pytest.mark.scenario(137)
async def test_replicas_on_several_brokers_share_a_flush(bench: Machines) -> None:
    bench.live(5, 6)
    await bench.put("a-0", [5, 6], LED, stored=led(5, 0, [5, 6], 0))
    await bench.put("b-0", [5], LED, stored=led(5, 0, [5], 0))

    await bench.move_replicas(["a-0", "b-0"], ONLINE, 5, 6)

    assert {to: set(names) for to, names in bench.sent.lead.items()} == {5: {"a-0", "b-0"}, 6: {"a-0"}}


async def test_replica_to_be_stopped_is_not_started(bench: Machines) -> None:
    """Its broker starts along with another, assigned one."""
    bench.live(5, 6)
    states = {5: ONLINE, 6: ONLINE}
    await bench.put("t-0", [5], LED, stored=led(5, 0, [5, 6], 0), replica_state=states)

    await bench.move_replicas("t-0", ONLINE, 5, 6)

    assert set(bench.sent.lead) == {5}


@pytest.mark.scenario(148)
async def test_unregistered_broker_receives_nothing(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [7, 5], LED, stored=led(5, 0, [5], 0))

    await bench.move_replicas("t-0", ONLINE, 7)

    assert bench.replica("t-0", 7) == ONLINE
    assert [to for to, _ in bench.sent.requests] == [5]
    assert bench.sent.lead == {}


# -- offline -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario(116)
async def test_new_replica_without_leadership_is_stopped(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], replica_state=NEW)

    await bench.move_replicas("t-0", OFFLINE, 5)

    assert bench.sent.stop == {5: {"t-0": SentStop(-1, delete=False)}}
    assert bench.sent.metadata == {5: {}}
    assert bench.sent.epochs == {EPOCH}
    assert bench.replica("t-0", 5) == OFFLINE


@pytest.mark.scenario(119)
async def test_offline_leader_leaves_the_isr_and_no_leader(bench: Machines) -> None:
    """Nothing is read here: the write is rejected if the cluster state is stale."""
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=led(5, 0, [5, 6], 0))

    await bench.move_replicas("t-0", OFFLINE, 5)

    assert bench.store.reads == []
    assert bench.store.commits == [[WriteCall("t-0", -1, 1, (6,), 0)]]
    assert bench.store.fences == [bench.cluster.fence]
    assert bench.leadership("t-0") == await bench.stored("t-0") == led(-1, 1, [6], 1)
    assert bench.sent.stop == {5: {"t-0": SentStop(0, delete=False)}}
    assert bench.sent.lead == {6: {"t-0": SentLead(-1, 1, (6,), 1, (5, 6))}}
    assert bench.sent.metadata.keys() == {5, 6}
    assert bench.sent.kinds == ["LeaderAndIsr", "UpdateMetadata", "StopReplica"]
    assert bench.replica("t-0", 5) == OFFLINE


@pytest.mark.scenario(132)
async def test_ineligible_replica_without_leadership_goes_offline(bench: Machines) -> None:
    await bench.put("t-0", [5], replica_state=INELIGIBLE)

    await bench.move_replicas("t-0", OFFLINE, 5)

    assert bench.replica("t-0", 5) == OFFLINE


@pytest.mark.scenario(138)
@pytest.mark.scenario(139)
async def test_call_after_a_session_end_works(bench: Machines, caplog: pytest.LogCaptureFixture) -> None:
    bench.live(5, 6, 7)
    await bench.put("a-0", [5, 7], LED, stored=led(7, 0, [5, 7], 0))
    await bench.put("b-0", [6, 7], LED, stored=led(7, 0, [6, 7], 0))
    bench.store.next("commit", fails(SessionExpired("over")))

    await bench.move_replicas(["a-0", "b-0"], OFFLINE, 5, 6)
    states, unsent, told = (bench.replica("a-0", 5), bench.replica("b-0", 6)), bench.outbox.flushes == [], caplog.text
    await bench.move_replicas(["a-0", "b-0"], OFFLINE, 5, 6)

    assert states == (ONLINE, ONLINE)
    assert unsent
    assert "over" in told
    assert (bench.replica("a-0", 5), bench.replica("b-0", 6)) == (OFFLINE, OFFLINE)
    assert bench.sent.lead[7].keys() == {"a-0", "b-0"}


@pytest.mark.scenario(139)
@pytest.mark.parametrize(
    ("error", "escapes"),
    [
        (StoreUnavailable("gone"), False),
        (StoreError("refused"), False),
        (ControllerMoved(ours=EPOCH, theirs=51), True),
        (ZeroDivisionError("a bug"), True),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_next_call_starts_with_an_empty_batch_after_any_error(
    bench: Machines, error: Exception, escapes: bool
) -> None:
    bench.live(5, 6, 7)
    await bench.put("a-0", [5, 7], LED, stored=led(7, 0, [5, 7], 0))
    await bench.put("b-0", [6, 7], LED, stored=led(7, 0, [6, 7], 0))
    bench.store.next("commit", really, fails(error))

    if escapes:
        with pytest.raises(type(error)):
            await bench.move_replicas(["a-0", "b-0"], OFFLINE, 5, 6)
    else:
        await bench.move_replicas(["a-0", "b-0"], OFFLINE, 5, 6)
    bench.outbox.flushes.clear()
    await bench.move_replicas("b-0", OFFLINE, 6)

    assert bench.replica("b-0", 6) == OFFLINE
    assert bench.sent.lead == {7: {"b-0": SentLead(7, 1, (7,), 1, (6, 7))}}


@pytest.mark.scenario(140)
async def test_deposed_controller_shrinks_no_isr(bench: Machines) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=led(5, 0, [5, 6], 0))
    await bench.follow_us()

    with pytest.raises(ControllerMoved):
        await bench.move_replicas("t-0", OFFLINE, 5)

    assert bench.leadership("t-0") == await bench.stored("t-0") == led(5, 0, [5, 6], 0)
    assert bench.replica("t-0", 5) == ONLINE
    assert bench.outbox.flushes == []


@pytest.mark.scenario(141)
async def test_out_of_sync_replica_goes_offline_without_a_write(bench: Machines) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=led(6, 1, [6], 0))

    await bench.move_replicas("t-0", OFFLINE, 5)

    assert bench.store.calls == []
    assert bench.sent.lead == {6: {"t-0": SentLead(6, 1, (6,), 0, (5, 6))}}
    assert bench.replica("t-0", 5) == OFFLINE


@pytest.mark.scenario(142)
async def test_isr_of_a_topic_in_deletion_shrinks_without_requests(bench: Machines) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=led(6, 1, [5, 6], 0))
    bench.cluster.queue_deletion(["t"])

    await bench.move_replicas("t-0", OFFLINE, 5)

    assert await bench.stored("t-0") == bench.leadership("t-0") == led(6, 2, [6], 1)
    assert bench.sent.stop == {5: {"t-0": SentStop(-2, delete=False)}}
    assert bench.sent.kinds == ["StopReplica"]
    assert bench.replica("t-0", 5) == OFFLINE


@pytest.mark.scenario(143)
async def test_stop_has_the_old_epoch_and_deletion_the_new_one(bench: Machines) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=led(6, 4, [5, 6], 0))

    await bench.move_replicas("t-0", OFFLINE, 5)
    await bench.move_replicas("t-0", STARTED, 5)

    stops = [flush.stop for flush in bench.outbox.flushes]
    assert stops == [{5: {"t-0": SentStop(4, delete=False)}}, {5: {"t-0": SentStop(5, delete=True)}}]


@pytest.mark.parametrize(
    "queued",
    [
        pytest.param(False, marks=pytest.mark.scenario(144)),
        pytest.param(True, marks=pytest.mark.scenario(145)),
    ],
)
async def test_replica_without_stored_leadership_is_stopped_and_kept(
    bench: Machines, caplog: pytest.LogCaptureFixture, queued: bool
) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, known=led(6, 4, [5, 6], 0))
    if queued:
        bench.cluster.queue_deletion(["t"])

    await bench.move_replicas("t-0", OFFLINE, 5)

    assert bench.sent.stop == {5: {"t-0": SentStop(-2 if queued else 4, delete=False)}}
    assert bench.sent.lead == {}
    assert bench.replica("t-0", 5) == ONLINE
    assert ("NO_LEADERSHIP" in caplog.text) == (not queued)


@pytest.mark.scenario(146)
async def test_last_isr_is_sent_when_two_brokers_leave(bench: Machines) -> None:
    bench.live(1, 2, 3)
    await bench.put("t-0", [1, 2, 3], LED, stored=led(3, 7, [1, 2, 3], 0))

    await bench.move_replicas("t-0", OFFLINE, 2, 1)

    assert bench.store.commits == [[WriteCall("t-0", 3, 8, (2, 3), 0)], [WriteCall("t-0", 3, 9, (3,), 1)]]
    assert bench.sent.lead[3] == {"t-0": SentLead(3, 9, (3,), 2, (1, 2, 3))}
    assert bench.sent.stop == {1: {"t-0": SentStop(7, delete=False)}, 2: {"t-0": SentStop(8, delete=False)}}


async def test_without_brokers_only_assigned_replicas_go_offline(bench: Machines) -> None:
    """Replicas of an earlier assignment stay on a broker, even if another partition is still assigned to it."""
    bench.live(1, 2)
    await bench.put("t-0", [1, 2])
    await bench.put("t-1", [2], replica_state={1: ONLINE, 2: ONLINE})

    await bench.move_replicas(["t-0", "t-1"], OFFLINE)

    assert bench.view("t-0").replica_states == {1: OFFLINE, 2: OFFLINE}
    assert bench.view("t-1").replica_states == {1: ONLINE, 2: OFFLINE}
    assert bench.sent.stop[1].keys() == {"t-0"}


# -- recorded events ---------------------------------------------------------------------------------------------------


async def test_offline_replica_is_recorded_with_the_new_leadership(bench: Machines) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=led(5, 0, [5, 6], 0))

    await bench.move_replicas("t-0", OFFLINE, 5)

    moved, gone = bench.events
    assert isinstance(moved, ReplicaEvent)
    assert isinstance(gone, PartitionEvent)
    assert (moved.topic, moved.partition, moved.broker) == ("t", 0, 5)
    assert (moved.from_state, moved.to_state) == (ONLINE, OFFLINE)
    assert (gone.leader, gone.leader_epoch, gone.isr, gone.partition_epoch, gone.refused) == (-1, 1, (6,), 1, "")
    assert {event.controller_epoch for event in bench.events} == {EPOCH}


async def test_move_to_the_same_state_is_not_recorded(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], LED, stored=led(5, 0, [5], 0))

    await bench.move_replicas("t-0", ONLINE, 5)

    assert bench.events == []
