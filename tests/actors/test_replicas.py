"""The machine of replicas, over a real store: moves, brokers that leave ISRs, and what brokers are told.

Where the store is read before an ISR is shrunk elsewhere, it is here the refused row that is read.
"""

from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from kactl.actors.messages import MoveReplicas
from kactl.errors import ControllerMoved, SessionExpired, StoreError, StoreUnavailable
from kactl.history import PartitionEvent, ReplicaEvent
from kactl.machines import replica
from kactl.model import Leadership, PartitionState, ReplicaState
from kactl.store import Found
from tests.actors.bench import EPOCH, Bench, Known, Led, Stopped, at
from tests.scripted_store import (
    Step,
    Written,
    after,
    answers,
    fails,
    fails_after,
    fails_between,
    found,
    really,
    refuses,
)

pytestmark = pytest.mark.anyio

S = ReplicaState
NEW, ONLINE, OFFLINE, ABSENT = S.NEW, S.ONLINE, S.OFFLINE, S.ABSENT
STARTED, SUCCESSFUL, INELIGIBLE = S.DELETION_STARTED, S.DELETION_SUCCESSFUL, S.DELETION_INELIGIBLE
LED = PartitionState.ONLINE


# -- how a controller begins -------------------------------------------------------------------------------------------


async def _start(bench: Bench) -> None:
    """What a controller does with replicas when it begins: dead ones are protected, then moved like any others."""
    table, live = bench.cluster.table, bench.cluster.now.live
    rows = table.rows(table.all())
    states = np.where(rows.online(live), np.uint8(ONLINE), np.uint8(INELIGIBLE))
    table.set_replica_states(rows.at, np.where(rows.assigned, states, np.uint8(ABSENT)))
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
async def test_replicas_begin_as_their_brokers_are(
    bench: Bench, live: list[int], assigned: int, began: ReplicaState
) -> None:
    bench.live(*live)
    await bench.put("t-0", [assigned], replica_state=ABSENT)

    await _start(bench)

    assert bench.replica("t-0", assigned) == began


@pytest.mark.scenario(147)
async def test_a_leadership_from_before_us_is_told_under_our_header(bench: Bench) -> None:
    bench.live(5)
    await bench.put("t-0", [5], LED, stored=at(5, 2, [5], 1, epoch=49), replica_state=ABSENT)

    await _start(bench)

    assert bench.sent.lead == {5: {"t-0": Led(5, 2, (5,), 1, (5,), controller_epoch=49)}}
    assert bench.sent.epochs == {EPOCH}


# -- the table of moves ------------------------------------------------------------------------------------------------


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
async def test_a_replica_moves_where_the_table_allows_it_and_nobody_is_told(
    bench: Bench, caplog: pytest.LogCaptureFixture, before: ReplicaState, target: ReplicaState, after_: ReplicaState
) -> None:
    bench.live(5)
    await bench.put("t-0", [5], replica_state=before)

    await bench.move_replicas("t-0", target, 5)

    refused = not replica.LEGAL[before, target]
    assert bench.replica("t-0", 5) == after_
    assert ("ILLEGAL_MOVE" in caplog.text) == refused
    assert len(bench.events) == (before != after_)
    assert bench.sent.requests == []
    assert bench.store.calls == []


@pytest.mark.scenario(122)
async def test_a_deletion_is_asked_for(bench: Bench) -> None:
    bench.live(5)
    await bench.put("t-0", [5], replica_state=OFFLINE)

    await bench.move_replicas("t-0", STARTED, 5)

    assert bench.sent.stop == {5: {"t-0": Stopped(-1, delete=True)}}
    assert bench.sent.epochs == {EPOCH}
    assert bench.replica("t-0", 5) == STARTED


@pytest.mark.scenario(127)
async def test_a_deleted_replica_leaves_the_assignment(bench: Bench) -> None:
    await bench.put("t-0", [5], replica_state=SUCCESSFUL)

    await bench.move_replicas("t-0", ABSENT, 5)

    assert bench.view("t-0").replicas == ()
    assert bench.view("t-0").replica_states == {}


async def test_a_deleted_replica_leaves_the_reassignment_too_and_the_counter_follows(bench: Bench) -> None:
    """The first that is left becomes the preferred one."""
    bench.live(5, 6)
    await bench.put(
        "t-0",
        [4, 5, 6],
        LED,
        stored=at(5, 1, [5, 6], 1),
        replica_state={4: SUCCESSFUL, 5: ONLINE, 6: ONLINE},
        removing=[4],
    )
    before = bench.cluster.imbalance_count

    await bench.move_replicas("t-0", ABSENT, 4)

    assert (bench.view("t-0").replicas, bench.view("t-0").removing) == ((5, 6), ())
    assert (before, bench.cluster.imbalance_count) == (1, 0)


@pytest.mark.scenario(57)
@pytest.mark.parametrize("target", list(ReplicaState))
async def test_a_call_without_partitions_does_not_even_begin_a_batch(bench: Bench, target: ReplicaState) -> None:
    bench.live(5)
    bench.replicas.batch.update_metadata([5])  # a batch that was begun now would find this, and say so

    try:
        await bench.replicas.receive(MoveReplicas(np.zeros(0, np.intp), target, frozenset({5})))
    finally:
        bench.replicas.batch.clear()

    assert bench.outbox.flushes == []


# -- coming up ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(ONLINE, marks=pytest.mark.scenario(118)),
        pytest.param(OFFLINE, marks=pytest.mark.scenario(121)),
        pytest.param(INELIGIBLE, marks=pytest.mark.scenario(130)),
    ],
)
async def test_a_replica_that_comes_up_is_told_who_leads(bench: Bench, before: ReplicaState) -> None:
    bench.live(5)
    await bench.put("t-0", [5], LED, stored=at(5, 0, [5], 0), replica_state=before)

    await bench.move_replicas("t-0", ONLINE, 5)

    assert bench.replica("t-0", 5) == ONLINE
    assert bench.sent.lead == {5: {"t-0": Led(5, 0, (5,), 0, (5,))}}
    assert bench.sent.metadata == {5: {"t-0": Known(5, 0, (5,), 0)}}
    assert bench.sent.epochs == {EPOCH}


@pytest.mark.scenario(133)
async def test_a_new_replica_is_told_to_follow_as_new(bench: Bench) -> None:
    bench.live(4, 5)
    await bench.put("t-0", [4, 5], LED, stored=at(4, 2, [4], 0), replica_state={4: ONLINE})

    await bench.move_replicas("t-0", NEW, 5)

    assert bench.replica("t-0", 5) == NEW
    assert bench.sent.lead == {5: {"t-0": Led(4, 2, (4,), 0, (4, 5), is_new=True)}}
    assert bench.sent.metadata.keys() == {4, 5}
    assert bench.store.calls == []


@pytest.mark.scenario(134)
async def test_a_new_replica_that_leads_already_is_refused_and_the_others_go_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.live(4, 5)
    await bench.put("t-0", [5, 4], LED, stored=at(5, 0, [5], 0), replica_state=ABSENT)
    await bench.put("t-1", [5, 4], LED, stored=at(4, 0, [4], 0), replica_state=ABSENT)

    await bench.move_replicas(["t-0", "t-1"], NEW, 5)

    assert bench.replica("t-0", 5) == ABSENT
    assert bench.replica("t-1", 5) == NEW
    assert bench.sent.lead[5].keys() == {"t-1"}
    assert "ASKED_TO_LEAD; the first: t-0 on broker 5" in caplog.text


@pytest.mark.scenario(135)
async def test_a_new_replica_that_the_assignment_does_not_name_is_put_at_its_end(bench: Bench) -> None:
    await bench.put("t-0", [4], replica_state={4: ONLINE, 5: NEW})

    await bench.move_replicas("t-0", ONLINE, 5)

    assert bench.view("t-0").replicas == (4, 5)
    assert bench.replica("t-0", 5) == ONLINE


@pytest.mark.scenario(136)
async def test_a_replica_without_leadership_comes_up_untold(bench: Bench) -> None:
    bench.live(5)
    await bench.put("t-0", [5], replica_state=OFFLINE)

    await bench.move_replicas("t-0", ONLINE, 5)

    assert bench.replica("t-0", 5) == ONLINE
    assert bench.sent.requests == []


@pytest.mark.scenario(137)
async def test_replicas_on_several_brokers_are_told_at_once(bench: Bench) -> None:
    bench.live(5, 6)
    await bench.put("a-0", [5, 6], LED, stored=at(5, 0, [5, 6], 0))
    await bench.put("b-0", [5], LED, stored=at(5, 0, [5], 0))

    await bench.move_replicas(["a-0", "b-0"], ONLINE, 5, 6)

    assert {to: set(names) for to, names in bench.sent.lead.items()} == {5: {"a-0", "b-0"}, 6: {"a-0"}}


@pytest.mark.scenario(148)
async def test_a_broker_that_is_not_registered_is_sent_nothing(bench: Bench) -> None:
    bench.live(5)
    await bench.put("t-0", [7, 5], LED, stored=at(5, 0, [5], 0))

    await bench.move_replicas("t-0", ONLINE, 7)

    assert bench.replica("t-0", 7) == ONLINE
    assert [to for to, _ in bench.sent.requests] == [5]
    assert bench.sent.lead == {}


# -- going offline -----------------------------------------------------------------------------------------------------


@pytest.mark.scenario(116)
async def test_a_new_replica_without_leadership_is_stopped_and_brokers_are_told_the_rest(bench: Bench) -> None:
    bench.live(5)
    await bench.put("t-0", [5], replica_state=NEW)

    await bench.move_replicas("t-0", OFFLINE, 5)

    assert bench.sent.stop == {5: {"t-0": Stopped(-1, delete=False)}}
    assert bench.sent.metadata == {5: {}}
    assert bench.sent.epochs == {EPOCH}
    assert bench.replica("t-0", 5) == OFFLINE


@pytest.mark.scenario(119)
async def test_a_leader_that_goes_offline_leaves_the_isr_and_no_leader(bench: Bench) -> None:
    """Nothing is read here: the write is refused if what we know is out of date."""
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=at(5, 0, [5, 6], 0))

    await bench.move_replicas("t-0", OFFLINE, 5)

    assert bench.store.reads == []
    assert bench.store.commits == [[Written("t-0", -1, 1, (6,), 0)]]
    assert bench.store.fences == [bench.cluster.fence]
    assert bench.leadership("t-0") == await bench.stored("t-0") == at(-1, 1, [6], 1)
    assert bench.sent.stop == {5: {"t-0": Stopped(0, delete=False)}}
    assert bench.sent.lead == {6: {"t-0": Led(-1, 1, (6,), 1, (5, 6))}}
    assert bench.sent.metadata.keys() == {5, 6}
    assert bench.sent.kinds == ["LeaderAndIsr", "UpdateMetadata", "StopReplica"]
    assert bench.replica("t-0", 5) == OFFLINE


@pytest.mark.scenario(132)
async def test_an_ineligible_replica_without_leadership_goes_offline(bench: Bench) -> None:
    await bench.put("t-0", [5], replica_state=INELIGIBLE)

    await bench.move_replicas("t-0", OFFLINE, 5)

    assert bench.replica("t-0", 5) == OFFLINE


@pytest.mark.scenario(138)
@pytest.mark.scenario(139)
async def test_the_end_of_our_session_ends_the_call_and_the_next_one_works(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.live(5, 6, 7)
    await bench.put("a-0", [5, 7], LED, stored=at(7, 0, [5, 7], 0))
    await bench.put("b-0", [6, 7], LED, stored=at(7, 0, [6, 7], 0))
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
async def test_whatever_ended_a_call_the_next_one_begins_with_an_empty_batch(
    bench: Bench, error: Exception, escapes: bool
) -> None:
    bench.live(5, 6, 7)
    await bench.put("a-0", [5, 7], LED, stored=at(7, 0, [5, 7], 0))
    await bench.put("b-0", [6, 7], LED, stored=at(7, 0, [6, 7], 0))
    bench.store.next("commit", really, fails(error))

    if escapes:
        with pytest.raises(type(error)):
            await bench.move_replicas(["a-0", "b-0"], OFFLINE, 5, 6)
    else:
        await bench.move_replicas(["a-0", "b-0"], OFFLINE, 5, 6)
    bench.outbox.flushes.clear()
    await bench.move_replicas("b-0", OFFLINE, 6)

    assert bench.replica("b-0", 6) == OFFLINE
    assert bench.sent.lead == {7: {"b-0": Led(7, 1, (7,), 1, (6, 7))}}


@pytest.mark.scenario(140)
async def test_a_deposed_controller_takes_nobody_out_of_an_isr(bench: Bench) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=at(5, 0, [5, 6], 0))
    await bench.follow_us()

    with pytest.raises(ControllerMoved):
        await bench.move_replicas("t-0", OFFLINE, 5)

    assert bench.leadership("t-0") == await bench.stored("t-0") == at(5, 0, [5, 6], 0)
    assert bench.replica("t-0", 5) == ONLINE
    assert bench.outbox.flushes == []


@pytest.mark.scenario(141)
async def test_a_replica_that_is_not_in_sync_goes_offline_without_a_write_and_is_told_of(bench: Bench) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=at(6, 1, [6], 0))

    await bench.move_replicas("t-0", OFFLINE, 5)

    assert bench.store.calls == []
    assert bench.sent.lead == {6: {"t-0": Led(6, 1, (6,), 0, (5, 6))}}
    assert bench.replica("t-0", 5) == OFFLINE


@pytest.mark.scenario(142)
async def test_the_isr_of_a_topic_that_goes_shrinks_unsaid(bench: Bench) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=at(6, 1, [5, 6], 0))
    bench.cluster.queue_deletion(["t"])

    await bench.move_replicas("t-0", OFFLINE, 5)

    assert await bench.stored("t-0") == bench.leadership("t-0") == at(6, 2, [6], 1)
    assert bench.sent.stop == {5: {"t-0": Stopped(-2, delete=False)}}
    assert bench.sent.kinds == ["StopReplica"]
    assert bench.replica("t-0", 5) == OFFLINE


@pytest.mark.scenario(143)
async def test_a_stop_carries_the_epoch_from_before_and_a_deletion_the_one_from_after(bench: Bench) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=at(6, 4, [5, 6], 0))

    await bench.move_replicas("t-0", OFFLINE, 5)
    await bench.move_replicas("t-0", STARTED, 5)

    stops = [flush.stop for flush in bench.outbox.flushes]
    assert stops == [{5: {"t-0": Stopped(4, delete=False)}}, {5: {"t-0": Stopped(5, delete=True)}}]


@pytest.mark.parametrize(
    "queued",
    [
        pytest.param(False, marks=pytest.mark.scenario(144)),
        pytest.param(True, marks=pytest.mark.scenario(145)),
    ],
)
async def test_where_nothing_is_stored_the_replica_is_stopped_and_stays(
    bench: Bench, caplog: pytest.LogCaptureFixture, queued: bool
) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, known=at(6, 4, [5, 6], 0))
    if queued:
        bench.cluster.queue_deletion(["t"])

    await bench.move_replicas("t-0", OFFLINE, 5)

    assert bench.sent.stop == {5: {"t-0": Stopped(-2 if queued else 4, delete=False)}}
    assert bench.sent.lead == {}
    assert bench.replica("t-0", 5) == ONLINE
    assert ("NO_LEADERSHIP" in caplog.text) == (not queued)


@pytest.mark.scenario(146)
async def test_two_brokers_leave_an_isr_one_after_the_other_and_the_last_word_is_told(bench: Bench) -> None:
    bench.live(1, 2, 3)
    await bench.put("t-0", [1, 2, 3], LED, stored=at(3, 7, [1, 2, 3], 0))

    await bench.move_replicas("t-0", OFFLINE, 2, 1)

    assert bench.store.commits == [[Written("t-0", 3, 8, (2, 3), 0)], [Written("t-0", 3, 9, (3,), 1)]]
    assert bench.sent.lead[3] == {"t-0": Led(3, 9, (3,), 2, (1, 2, 3))}
    assert bench.sent.stop == {1: {"t-0": Stopped(7, delete=False)}, 2: {"t-0": Stopped(8, delete=False)}}


async def test_several_brokers_go_offline_while_the_leader_writes_in_between(bench: Bench) -> None:
    """Each broker's leave is its own write; what the leader wrote meanwhile is read, and gone on from."""
    bench.live(3, 4)
    for name in ("t-0", "t-1"):
        await bench.put(name, [1, 2, 3, 4], LED, stored=at(3, 7, [1, 2, 3], 0))

    async def leader_lets_4_in() -> None:
        await bench.leader_writes("t-0", at(3, 7, [1, 2, 3, 4], 1), expected=0)

    async def leader_drops_2() -> None:
        await bench.leader_writes("t-0", at(3, 8, [3, 4], 3), expected=2)

    # Broker 1: refused, then kept. Broker 2: refused, then nothing to write.
    bench.store.next("commit", after(leader_lets_4_in), really, after(leader_drops_2))

    await bench.move_replicas(["t-0", "t-1"], OFFLINE, 1, 2)

    assert bench.store.reads == [["t-0"], ["t-0"]]
    assert bench.leadership("t-0") == await bench.stored("t-0") == at(3, 8, [3, 4], 3)
    assert bench.leadership("t-1") == await bench.stored("t-1") == at(3, 9, [3], 2)
    told = {"t-0": Led(3, 8, (3, 4), 3, (1, 2, 3, 4)), "t-1": Led(3, 9, (3,), 2, (1, 2, 3, 4))}
    assert bench.sent.lead == {3: told, 4: told}
    assert [bench.replica(name, broker) for name in ("t-0", "t-1") for broker in (1, 2)] == [OFFLINE] * 4


async def test_a_stray_that_is_found_in_the_store_widens_the_rows_in_the_middle_of_a_call(bench: Bench) -> None:
    bench.live(3)
    await bench.put("t-0", [1, 2, 3], LED, stored=at(3, 7, [1, 2, 3], 0))
    await bench.put("t-1", [1, 2, 3], LED, stored=at(3, 7, [1, 2, 3, 8, 9], 1), known=at(3, 7, [1, 2, 3], 0))
    narrow = bench.cluster.table.width

    await bench.move_replicas(["t-0", "t-1"], OFFLINE, 1, 2)

    assert bench.cluster.table.width > narrow
    assert bench.leadership("t-0") == await bench.stored("t-0") == at(3, 9, [3], 2)
    assert bench.leadership("t-1") == await bench.stored("t-1") == at(3, 9, [3, 8, 9], 3)
    assert bench.view("t-1").replicas == (1, 2, 3)
    assert bench.sent.lead[3]["t-1"] == Led(3, 9, (3, 8, 9), 3, (1, 2, 3))
    assert bench.sent.metadata[3]["t-0"] == Known(3, 9, (3,), 2, offline=(1, 2))


async def test_without_named_brokers_only_assigned_replicas_go_offline(bench: Bench) -> None:
    """What an earlier assignment left on a broker stays, even where another partition still names that broker."""
    bench.live(1, 2)
    await bench.put("t-0", [1, 2])
    await bench.put("t-1", [2], replica_state={1: ONLINE, 2: ONLINE})

    await bench.move_replicas(["t-0", "t-1"], OFFLINE)

    assert bench.view("t-0").replica_states == {1: OFFLINE, 2: OFFLINE}
    assert bench.view("t-1").replica_states == {1: ONLINE, 2: OFFLINE}
    assert bench.sent.stop[1].keys() == {"t-0"}


# -- leaving the ISR ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "broker", "left"),
    [
        pytest.param(at(1, 3, [1, 2, 3], 5), 2, at(1, 4, [1, 3], 6), marks=pytest.mark.scenario(149)),
        pytest.param(at(1, 3, [1, 2], 5), 1, at(-1, 4, [2], 6), marks=pytest.mark.scenario(150)),
        pytest.param(at(1, 3, [1], 5), 1, at(-1, 4, [1], 6), marks=pytest.mark.scenario(151)),
        pytest.param(at(-1, 4, [1], 6), 1, at(-1, 5, [1], 7), marks=pytest.mark.scenario(152)),
        pytest.param(
            at(2, 3, [2], 5, recovering=True), 2, at(-1, 4, [2], 6, recovering=True), marks=pytest.mark.scenario(153)
        ),
        pytest.param(at(2, 3, [2], 5, epoch=49), 1, at(2, 3, [2], 5, epoch=49), marks=pytest.mark.scenario(154)),
        pytest.param(at(1, 3, [], 5, epoch=49), 1, at(1, 3, [], 5, epoch=49), marks=pytest.mark.scenario(155)),
    ],
)
async def test_what_is_left_when_a_broker_leaves_an_isr(
    bench: Bench, stored: Leadership, broker: int, left: Leadership
) -> None:
    """Where nothing is to be written the leadership is taken over as it is, under our epoch."""
    bench.live(1, 2, 3)
    await bench.put("t-0", [1, 2, 3], LED, stored=stored)

    await bench.move_replicas("t-0", OFFLINE, broker)

    written = [] if left == stored else [
        [Written("t-0", left.leader, left.leader_epoch, left.isr, stored.partition_epoch, stored.recovering)]
    ]  # fmt: skip
    assert bench.store.commits == written
    assert await bench.stored("t-0") == left
    assert bench.leadership("t-0") == Leadership(
        left.leader, left.leader_epoch, left.isr, left.partition_epoch, EPOCH, left.recovering
    )
    assert bench.replica("t-0", broker) == OFFLINE


@pytest.mark.scenario(156)
async def test_a_broker_that_the_leader_dropped_meanwhile_needs_no_second_write(bench: Bench) -> None:
    bench.live(1, 2)
    await bench.put(
        "t-0", [1, 2], LED, stored=at(1, 3, [1], 6), known=at(1, 3, [1, 2], 5, recovering=True)
    )  # fmt: skip

    await bench.move_replicas("t-0", OFFLINE, 2)

    assert len(bench.store.commits) == 1
    assert bench.store.reads == [["t-0"]]
    assert bench.leadership("t-0") == await bench.stored("t-0") == at(1, 3, [1], 6)
    assert bench.sent.lead == {1: {"t-0": Led(1, 3, (1,), 6, (1, 2))}}
    assert bench.replica("t-0", 2) == OFFLINE


@pytest.mark.scenario(157)
async def test_what_a_later_controller_wrote_is_left_alone(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.live(1, 2)
    theirs, ours = at(1, 4, [1, 2], 6, epoch=51), at(1, 3, [1, 2], 5)
    await bench.put("t-0", [1, 2], LED, stored=theirs, known=ours)

    await bench.move_replicas("t-0", OFFLINE, 2)

    assert await bench.stored("t-0") == theirs
    assert bench.leadership("t-0") == ours
    assert bench.replica("t-0", 2) == ONLINE
    assert bench.sent.lead == {}
    assert "cannot become OFFLINE: LATER_CONTROLLER; the first: t-0" in caplog.text


@pytest.mark.parametrize("status", [Found.UNREADABLE, Found.MISSING], ids=lambda each: each.name)
@pytest.mark.parametrize(
    "queued",
    [
        pytest.param(False, marks=pytest.mark.scenario(158)),
        pytest.param(True, marks=pytest.mark.scenario(159)),
    ],
)
async def test_a_leadership_that_cannot_be_read_is_a_failure_unless_the_topic_goes(
    bench: Bench, caplog: pytest.LogCaptureFixture, queued: bool, status: Found
) -> None:
    bench.live(1, 2)
    await bench.put("t-0", [1, 2], LED, stored=at(1, 3, [1, 2], 6), known=at(1, 3, [1, 2], 5))
    bench.store.next("leaderships", answers(found(status, "t-0")))
    if queued:
        bench.cluster.queue_deletion(["t"])

    await bench.move_replicas("t-0", OFFLINE, 2)

    assert bench.replica("t-0", 2) == ONLINE
    assert ("NO_LEADERSHIP" in caplog.text) == (not queued)


@pytest.mark.scenario(160)
async def test_a_read_that_fails_fails_all_rows_that_had_to_be_read(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.live(1, 2)
    for name in ("t-0", "t-1"):
        await bench.put(name, [1, 2], LED, stored=at(1, 3, [1, 2], 6), known=at(1, 3, [1, 2], 5))
    await bench.put("t-2", [1, 2], LED, stored=at(1, 3, [1, 2], 6))
    bench.store.next("leaderships", fails(StoreUnavailable("gone")))

    await bench.move_replicas(["t-0", "t-1", "t-2"], OFFLINE, 2)

    assert [bench.replica(f"t-{number}", 2) for number in range(3)] == [ONLINE, ONLINE, OFFLINE]
    assert "2 replicas cannot become OFFLINE: STORE_FAILED; the first: t-0" in caplog.text
    assert bench.sent.stop[2].keys() == {"t-0", "t-1", "t-2"}
    assert bench.sent.lead[1].keys() == {"t-2"}


@pytest.mark.scenario(161)
async def test_a_write_that_fails_fails_its_row_alone(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.live(1, 2)
    for name in ("t-0", "t-1"):
        await bench.put(name, [1, 2], LED, stored=at(1, 3, [1, 2], 5))
    bench.store.next("commit", refuses("t-1"))

    await bench.move_replicas(["t-0", "t-1"], OFFLINE, 2)

    assert (bench.replica("t-0", 2), bench.replica("t-1", 2)) == (OFFLINE, ONLINE)
    assert bench.leadership("t-1") == at(1, 3, [1, 2], 5)
    assert bench.sent.lead[1].keys() == {"t-0"}
    assert "STORE_FAILED; the first: t-1" in caplog.text


async def test_a_row_that_never_stands_still_is_given_up_after_a_number_of_rounds(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kactl.actors.replicas.ROUNDS_MAX", 3)
    bench.live(1, 2)
    await bench.put("t-0", [1, 2], LED, stored=at(1, 3, [1, 2], 0))

    def restless(version: int) -> Callable[[], Awaitable[None]]:
        return lambda: bench.leader_writes("t-0", at(1, 3, [1, 2], version + 1), expected=version)

    bench.store.next("commit", *(after(restless(version)) for version in range(3)))

    await bench.move_replicas("t-0", OFFLINE, 2)

    assert len(bench.store.commits) == 3
    assert bench.replica("t-0", 2) == ONLINE
    assert "STORE_FAILED" in caplog.text


# -- calls whose outcome is unknown ------------------------------------------------------------------------------------


async def test_what_was_kept_of_an_unknown_outcome_goes_on_what_was_not_is_refused_what_changed_is_planned_again(
    bench: Bench,
) -> None:
    bench.live(5, 6)
    names = ["kept-0", "lost-0", "other-0"]
    for name in names:
        await bench.put(name, [5, 6], LED, stored=at(6, 3, [5, 6], 0))

    async def other() -> None:
        await bench.leader_writes("other-0", at(6, 3, [6], 1), expected=0)
        await bench.leader_writes("other-0", at(6, 3, [5, 6], 2), expected=1)

    bench.store.next("commit", after(other, then=fails_between(StoreUnavailable("gone"), "kept-0")))

    await bench.move_replicas(names, OFFLINE, 5)

    assert [bench.replica(name, 5) for name in names] == [OFFLINE, ONLINE, OFFLINE]
    assert bench.leadership("kept-0") == await bench.stored("kept-0") == at(6, 4, [6], 1)
    assert bench.leadership("lost-0") == await bench.stored("lost-0") == at(6, 3, [5, 6], 0)
    assert bench.leadership("other-0") == await bench.stored("other-0") == at(6, 4, [6], 3)
    assert bench.sent.lead[6].keys() == {"kept-0", "other-0"}


@pytest.mark.parametrize("step", [fails, fails_after], ids=["nothing was written", "it was written"])
async def test_an_outcome_that_stays_unknown_fails_the_row_and_the_next_call_finds_out(
    bench: Bench, step: Callable[[Exception], Step]
) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=at(6, 3, [5, 6], 0))
    bench.store.next("commit", step(StoreUnavailable("gone")))
    bench.store.next("leaderships", fails(StoreUnavailable("still gone")))

    await bench.move_replicas("t-0", OFFLINE, 5)
    first = bench.replica("t-0", 5)
    await bench.move_replicas("t-0", OFFLINE, 5)

    assert (first, bench.replica("t-0", 5)) == (ONLINE, OFFLINE)
    assert bench.leadership("t-0") == await bench.stored("t-0") == at(6, 4, [6], 1)


# -- what is recorded --------------------------------------------------------------------------------------------------


async def test_a_replica_that_goes_offline_is_recorded_with_the_leadership_that_is_left(bench: Bench) -> None:
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], LED, stored=at(5, 0, [5, 6], 0))

    await bench.move_replicas("t-0", OFFLINE, 5)

    moved, led = bench.events
    assert isinstance(moved, ReplicaEvent)
    assert isinstance(led, PartitionEvent)
    assert (moved.topic, moved.partition, moved.broker) == ("t", 0, 5)
    assert (moved.from_state, moved.to_state) == (ONLINE, OFFLINE)
    assert (led.leader, led.leader_epoch, led.isr, led.partition_epoch, led.refused) == (-1, 1, (6,), 1, "")
    assert {event.controller_epoch for event in bench.events} == {EPOCH}


async def test_a_move_to_the_same_state_is_not_recorded(bench: Bench) -> None:
    bench.live(5)
    await bench.put("t-0", [5], LED, stored=at(5, 0, [5], 0))

    await bench.move_replicas("t-0", ONLINE, 5)

    assert bench.events == []
