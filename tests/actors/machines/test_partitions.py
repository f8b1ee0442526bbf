"""Partition machine over a real store: moves, first leaders, the end of a call, and recorded events."""

import numpy as np
import pytest

from kactl.actors.machines.machine import Move
from kactl.decide.machines.election import Election
from kactl.decide.messages.log import PartitionEvent
from kactl.decide.state.change import REFUSAL_TEXT, Refusal
from kactl.model import NO_VERSION, Leadership, PartitionState
from kactl.model.errors import ControllerMoved, SessionExpired, StoreError, StoreUnavailable
from tests.support.cluster_seeds import EPOCH, led
from tests.support.machine_harness import Machines, SentLead, SentState, refusals_of
from tests.support.scripted_store import WriteCall, fails, really, rejects

pytestmark = pytest.mark.anyio

NEW, ONLINE, OFFLINE, ABSENT = PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.ABSENT
MADE = Refusal.NONE


# -- moves without a leader --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "target", "after_"),
    [
        pytest.param(ABSENT, NEW, NEW, marks=pytest.mark.scenario(34)),
        pytest.param(ABSENT, ONLINE, ABSENT, marks=pytest.mark.scenario(35)),
        pytest.param(ABSENT, OFFLINE, ABSENT, marks=pytest.mark.scenario(36)),
        pytest.param(NEW, OFFLINE, OFFLINE, marks=pytest.mark.scenario(40)),
        pytest.param(NEW, ABSENT, NEW, marks=pytest.mark.scenario(41)),
        pytest.param(ONLINE, OFFLINE, OFFLINE, marks=pytest.mark.scenario(44)),
        pytest.param(ONLINE, ABSENT, ONLINE, marks=pytest.mark.scenario(45)),
        pytest.param(ONLINE, NEW, ONLINE, marks=pytest.mark.scenario(46)),
        pytest.param(OFFLINE, ABSENT, ABSENT, marks=pytest.mark.scenario(52)),
        pytest.param(OFFLINE, NEW, OFFLINE, marks=pytest.mark.scenario(53)),
    ],
)
async def test_only_legal_transitions_change_the_state(
    bench: Machines, before: PartitionState, target: PartitionState, after_: PartitionState
) -> None:
    bench.live(5)
    await bench.put("t-0", [5], before)

    moved = await bench.move("t-0", target, Election.OFFLINE)

    assert bench.state("t-0") == after_
    assert refusals_of(moved) == [MADE if after_ == target else Refusal.ILLEGAL_MOVE]
    assert not moved.elected.any()
    assert bench.store.calls == []
    assert bench.sent.requests == []


@pytest.mark.scenario(54)
async def test_partitions_count_as_offline_until_they_have_a_leader(bench: Machines) -> None:
    bench.live(5)
    names = [f"test-{number}" for number in range(4)]
    for name in names:
        await bench.put(name, [5])

    await bench.move(names, NEW)
    await bench.move(names, OFFLINE)
    offline = bench.cluster.offline_count
    for name in names:
        await bench.seed(name, led(5, 0, [5], 0))
    await bench.move(names, ONLINE, Election.OFFLINE)

    assert offline == 4
    assert bench.cluster.offline_count == 0


@pytest.mark.scenario(55)
async def test_partitions_in_deletion_do_not_count_as_offline(bench: Machines) -> None:
    names = [f"test-{number}" for number in range(4)]
    for name in names:
        await bench.put(name, [5])
    bench.cluster.queue_deletion(["test"])
    bench.cluster.begin_deletion(["test"])

    await bench.move(names, NEW)
    await bench.move(names, OFFLINE)

    assert bench.cluster.offline_count == 0


@pytest.mark.scenario(56)
async def test_offline_partitions_leave_the_count_with_their_deletion(bench: Machines) -> None:
    names = [f"test-{number}" for number in range(4)]
    for name in names:
        await bench.put(name, [5], NEW)
    await bench.move(names, OFFLINE)
    before = bench.cluster.offline_count

    bench.cluster.queue_deletion(["test"])
    await bench.move(names, OFFLINE)
    await bench.move(names, ABSENT)
    bench.cluster.begin_deletion(["test"])

    assert before == 4
    assert bench.cluster.offline_count == 0


@pytest.mark.scenario(57)
@pytest.mark.parametrize("target", list(PartitionState))
async def test_call_without_rows_starts_no_batch(bench: Machines, target: PartitionState) -> None:
    bench.live(5)
    bench.partitions.batch.update_metadata([5])  # a new batch would find this one, and fail

    try:
        moved = await bench.partitions.receive(Move(np.zeros(0, np.intp), target, Election.OFFLINE))
    finally:
        bench.partitions.batch.clear()

    assert len(moved.refusal) == len(moved.elected) == 0
    assert bench.outbox.flushes == []


@pytest.mark.scenario(58)
async def test_rejected_move_keeps_an_unknown_partition_unknown(bench: Machines) -> None:
    await bench.put("t-0", [5])

    moved = await bench.move("t-0", ONLINE)

    assert bench.state("t-0") == ABSENT
    assert moved.elected.tolist() == [False]


# -- first leaders -----------------------------------------------------------------------------------------------------


@pytest.mark.scenario(37)
async def test_new_partition_gets_its_first_leader(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], NEW)

    moved = await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert bench.store.commits == [[WriteCall("t-0", 5, 0, (5,), NO_VERSION)]]
    assert bench.store.fences == [bench.cluster.fence]
    assert await bench.stored("t-0") == bench.leadership("t-0") == led(5, 0, [5], 0)
    assert bench.state("t-0") == ONLINE
    assert bench.sent.lead == {5: {"t-0": SentLead(5, 0, (5,), 0, (5,), is_new=True)}}
    assert bench.sent.metadata == {5: {"t-0": SentState(5, 0, (5,), 0)}}
    assert bench.sent.epochs == {EPOCH}
    assert bench.sent.kinds == ["LeaderAndIsr", "UpdateMetadata"]
    assert not moved.elected.any()


@pytest.mark.scenario(38)
async def test_partition_stays_new_after_a_store_failure(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], NEW)
    bench.store.next("commit", fails(StoreUnavailable("gone")))

    moved = await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.STORE_FAILED]
    assert bench.state("t-0") == NEW
    assert bench.leadership("t-0") is None
    assert bench.sent.requests == []


@pytest.mark.scenario(39)
async def test_partition_stays_new_if_a_leader_is_stored(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], NEW, stored=led(5, 3, [5], 4, by=EPOCH - 1), known=None)

    moved = await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.STATE_EXISTS]
    assert bench.state("t-0") == NEW
    assert await bench.stored("t-0") == led(5, 3, [5], 4, by=EPOCH - 1)
    assert bench.sent.requests == []


@pytest.mark.scenario(66)
async def test_first_leaders_need_no_election(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], NEW)
    await bench.put("t-1", [5], NEW)

    moved = await bench.move(["t-0", "t-1"], ONLINE)

    assert refusals_of(moved) == [MADE, MADE]
    assert bench.state("t-0") == bench.state("t-1") == ONLINE


@pytest.mark.scenario(67)
async def test_first_leader_of_a_deposed_controller_is_not_sent(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], NEW)
    await bench.follow_us()

    with pytest.raises(ControllerMoved):
        await bench.move("t-0", ONLINE)

    assert bench.state("t-0") == NEW
    assert await bench.stored("t-0") is None
    assert bench.outbox.flushes == []


@pytest.mark.scenario(69)
async def test_first_online_replica_leads_with_all_online_ones_in_sync(
    bench: Machines,
) -> None:
    bench.live(2, 3)
    await bench.put("t-0", [1, 2, 3], NEW)

    await bench.move("t-0", ONLINE)

    expected = SentLead(2, 0, (2, 3), 0, (1, 2, 3), is_new=True)
    known = SentState(2, 0, (2, 3), 0, offline=(1,))
    assert await bench.stored("t-0") == led(2, 0, [2, 3], 0)
    assert bench.sent.lead == {2: {"t-0": expected}, 3: {"t-0": expected}}
    assert bench.sent.metadata == {2: {"t-0": known}, 3: {"t-0": known}}


@pytest.mark.scenario(70)
async def test_partition_without_online_replicas_stays_new(bench: Machines, caplog: pytest.LogCaptureFixture) -> None:
    bench.live(3)
    await bench.put("t-0", [1, 2], NEW)

    moved = await bench.move("t-0", ONLINE)

    assert refusals_of(moved) == [Refusal.NO_ONLINE_REPLICA]
    assert "t-0" in caplog.text
    assert bench.state("t-0") == NEW
    assert bench.store.calls == []


@pytest.mark.scenario(71)
async def test_broker_in_shutdown_is_not_in_the_first_isr(bench: Machines) -> None:
    bench.live(2)
    bench.shutting_down(1)
    await bench.put("t-0", [1, 2], NEW)

    await bench.move("t-0", ONLINE)

    assert await bench.stored("t-0") == led(2, 0, [2], 0)


@pytest.mark.scenario(72)
async def test_replica_in_a_failed_directory_is_not_in_the_first_isr(bench: Machines) -> None:
    bench.live(1, 2)
    row = await bench.put("t-0", [1, 2], NEW)
    bench.cluster.table.mark_dirs(1, np.array([row]), True)

    await bench.move("t-0", ONLINE)

    assert await bench.stored("t-0") == led(2, 0, [2], 0)


async def test_first_leaders_fail_one_by_one(bench: Machines) -> None:
    bench.live(5)
    for name in ("t-0", "t-1"):
        await bench.put(name, [5], NEW)
    await bench.put("t-2", [6], NEW)
    await bench.put("t-3", [5], NEW, stored=led(5, 0, [5], 1, by=EPOCH - 1), known=None)
    bench.store.next("commit", rejects("t-1"))

    moved = await bench.move(["t-0", "t-1", "t-2", "t-3"], ONLINE)

    assert refusals_of(moved) == [MADE, Refusal.STORE_FAILED, Refusal.NO_ONLINE_REPLICA, Refusal.STATE_EXISTS]
    assert [bench.state(f"t-{number}") for number in range(4)] == [ONLINE, NEW, NEW, NEW]
    assert bench.sent.lead[5].keys() == {"t-0"}


# -- the end of a call -------------------------------------------------------------------------------------------------


@pytest.mark.scenario(139)
@pytest.mark.parametrize(
    ("error", "escapes"),
    [
        (StoreUnavailable("gone"), False),
        (StoreError("refused"), False),
        (SessionExpired("over"), False),
        (ControllerMoved(ours=EPOCH, theirs=51), True),
        (ZeroDivisionError("a bug"), True),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_next_call_starts_with_an_empty_batch_after_any_error(
    bench: Machines, error: Exception, escapes: bool
) -> None:
    bench.live(5)
    await bench.put("new-0", [5], NEW)
    await bench.put("t-0", [5], OFFLINE, stored=led(-1, 0, [5], 1), known=led(-1, 0, [5], 0))
    bench.store.next("commit", really, fails(error))

    if escapes:
        with pytest.raises(type(error)):
            await bench.move(["new-0", "t-0"], ONLINE, Election.OFFLINE)
    else:
        await bench.move(["new-0", "t-0"], ONLINE, Election.OFFLINE)
    bench.outbox.flushes.clear()
    await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert bench.state("t-0") == ONLINE
    assert bench.sent.lead[5].keys() == {"t-0"}


async def test_session_end_ends_the_call_without_requests(bench: Machines) -> None:
    bench.live(5)
    await bench.put("new-0", [5], NEW)
    await bench.put("t-0", [5], OFFLINE, stored=led(-1, 0, [5], 1), known=led(-1, 0, [5], 0))
    bench.store.next("commit", really, fails(SessionExpired("over")))

    moved = await bench.move(["new-0", "t-0"], ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.STORE_FAILED, Refusal.STORE_FAILED]
    assert isinstance(moved.error, SessionExpired)
    assert bench.outbox.flushes == []


# -- recorded events ---------------------------------------------------------------------------------------------------


async def test_moves_are_recorded_with_their_results(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5])

    await bench.move("t-0", NEW)
    await bench.move("t-0", ONLINE)
    await bench.move("t-0", ONLINE, Election.PREFERRED)
    await bench.move("t-0", ABSENT)

    told = [
        (event.from_state, event.to_state, event.leader_epoch, event.partition_epoch, event.refused)
        for event in bench.events
        if isinstance(event, PartitionEvent)
    ]
    assert told == [
        (ABSENT, NEW, -1, -1, ""),
        (NEW, ONLINE, 0, 0, ""),
        (ONLINE, ONLINE, 1, 1, ""),
        (ONLINE, ONLINE, 1, 1, REFUSAL_TEXT[Refusal.ILLEGAL_MOVE]),
    ]
    assert {event.controller_epoch for event in bench.events} == {EPOCH}


@pytest.mark.parametrize(
    ("state", "stored", "known", "refusal"),
    [
        (NEW, None, None, Refusal.STORE_FAILED),
        (NEW, led(5, 3, [5], 1, by=EPOCH - 1), None, Refusal.STATE_EXISTS),
        (OFFLINE, led(6, 3, [5], 1), led(6, 3, [5], 1), Refusal.STORE_FAILED),
    ],
)
async def test_rejected_partition_is_recorded_with_its_state(
    bench: Machines, state: PartitionState, stored: Leadership | None, known: Leadership | None, refusal: Refusal
) -> None:
    bench.live(5)
    await bench.put("t-0", [5], state, stored=stored, known=known)
    if refusal == Refusal.STORE_FAILED:
        bench.store.next("commit", rejects("t-0"))

    await bench.move("t-0", ONLINE, Election.OFFLINE)

    (event,) = bench.events
    assert isinstance(event, PartitionEvent)
    assert (event.from_state, event.to_state) == (state, state)
    assert event.leader == (6 if known else -1)
    assert event.leader_epoch == (3 if known else -1)
    assert event.refused == REFUSAL_TEXT[refusal]


async def test_partition_elected_again_is_recorded_once(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], OFFLINE, stored=led(-1, 0, [5], 1), known=led(-1, 0, [5], 0))

    await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert [(each.to_state, each.partition_epoch) for each in bench.events if isinstance(each, PartitionEvent)] == [
        (ONLINE, 2)
    ]
