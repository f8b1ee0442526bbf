"""Elections of the partition machine: reads, writes and requests with and without an electable leader.

Kafka reads the store before it writes. Here only a rejected row, or a row without known leadership, is read; the
scenarios use such rows.
"""

import numpy as np
import pytest

from kactl.decide.machines import partition
from kactl.decide.machines.election import Election
from kactl.decide.state.change import Refusal
from kactl.model import Leadership, PartitionState
from kactl.model.errors import ControllerMoved, StoreUnavailable
from kactl.stores.base import Found
from tests.support.cluster_seeds import led
from tests.support.machine_harness import Machines, SentLead, open_machines, refusals_of
from tests.support.scripted_store import (
    WriteCall,
    after,
    fails,
    really,
    rejects,
    returns,
    with_status,
    with_version,
)

pytestmark = pytest.mark.anyio

NEW, ONLINE, OFFLINE = PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE
MADE = Refusal.NONE


@pytest.mark.scenario(42)
async def test_preferred_election_increments_the_epoch(bench: Machines) -> None:
    """Nothing is read here: the write is rejected if the cluster state is stale."""
    bench.live(5)
    await bench.put("t-0", [5], ONLINE, stored=led(5, 0, [5], 0))
    bench.store.next("commit", returns(with_version(2)))

    moved = await bench.move("t-0", ONLINE, Election.PREFERRED)

    assert bench.store.reads == []
    assert bench.store.commits == [[WriteCall("t-0", 5, 1, (5,), 0)]]
    assert bench.leadership("t-0") == led(5, 1, [5], 2)
    assert bench.sent.lead == {5: {"t-0": SentLead(5, 1, (5,), 2, (5,))}}
    assert bench.state("t-0") == ONLINE
    assert moved.elected.tolist() == [True]


@pytest.mark.scenario(43)
async def test_controlled_shutdown_election_is_sent_to_the_old_leader(bench: Machines) -> None:
    bench.shutting_down(5)
    bench.live(6)
    await bench.put("t-0", [5, 6], ONLINE, stored=led(5, 0, [5, 6], 0))
    bench.store.next("commit", returns(with_version(2)))

    await bench.move("t-0", ONLINE, Election.CONTROLLED_SHUTDOWN)

    expected = SentLead(6, 1, (6,), 2, (5, 6))
    assert bench.store.commits == [[WriteCall("t-0", 6, 1, (6,), 0)]]
    assert bench.sent.lead == {5: {"t-0": expected}, 6: {"t-0": expected}}
    assert bench.state("t-0") == ONLINE


@pytest.mark.scenario(47)
async def test_clean_offline_election_reads_no_configuration(bench: Machines) -> None:
    """Kafka reads the configurations of an empty set of topics."""
    bench.live(5)
    await bench.put("t-0", [5], OFFLINE, stored=led(-1, 0, [5], 0))
    bench.store.next("commit", returns(with_version(2)))

    await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert bench.store.config_reads == []
    assert bench.store.commits == [[WriteCall("t-0", 5, 1, (5,), 0)]]
    assert bench.sent.lead == {5: {"t-0": SentLead(5, 1, (5,), 2, (5,))}}
    assert bench.state("t-0") == ONLINE


@pytest.mark.parametrize(
    "recovery",
    [
        pytest.param(True, marks=pytest.mark.scenario(48)),
        pytest.param(False, marks=pytest.mark.scenario(49)),
    ],
)
async def test_requested_unclean_election_reads_no_configuration(recovery: bool) -> None:
    async with open_machines(recovery=recovery) as bench:
        bench.live(5)
        await bench.put("t-0", [6, 5], OFFLINE, stored=led(6, 0, [6], 0))

        await bench.move("t-0", ONLINE, Election.UNCLEAN)

        assert bench.store.config_reads == []
        assert bench.store.commits == [[WriteCall("t-0", 5, 1, (5,), 0, recovering=recovery)]]
        assert bench.leadership("t-0") == await bench.stored("t-0") == led(5, 1, [5], 1, recovering=recovery)
        assert bench.sent.lead == {5: {"t-0": SentLead(5, 1, (5,), 1, (6, 5), recovering=recovery)}}
        assert bench.state("t-0") == ONLINE
        assert bench.partitions.unclean_elections == 1


@pytest.mark.scenario(50)
async def test_failed_read_fails_only_the_rows_to_read(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], OFFLINE, stored=led(5, 0, [5], 0), known=None)
    bench.store.next("leaderships", fails(StoreUnavailable("gone")))

    moved = await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.STORE_FAILED]
    assert bench.state("t-0") == OFFLINE
    assert bench.sent.requests == []


@pytest.mark.scenario(51)
@pytest.mark.parametrize("known", [None, led(5, 0, [5], 0)], ids=["unread", "refused"])
async def test_partition_without_stored_leadership_is_not_elected(bench: Machines, known: Leadership | None) -> None:
    bench.live(5)
    await bench.put("t-0", [5], OFFLINE, known=known)

    moved = await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.NO_LEADERSHIP]
    assert bench.store.reads == [["t-0"]]
    assert bench.state("t-0") == OFFLINE
    assert bench.sent.requests == []


@pytest.mark.scenario(59)
@pytest.mark.parametrize("known", [None, led(5, 3, [5], 7)], ids=["unread", "refused"])
async def test_leadership_of_a_later_controller_is_not_overwritten(bench: Machines, known: Leadership | None) -> None:
    bench.live(5)
    theirs = led(5, 4, [5], 8, by=51)
    await bench.put("t-0", [5], ONLINE, stored=theirs, known=known)

    moved = await bench.move("t-0", ONLINE, Election.PREFERRED)

    assert refusals_of(moved) == [Refusal.LATER_CONTROLLER]
    assert await bench.stored("t-0") == theirs
    assert bench.leadership("t-0") == known
    assert bench.state("t-0") == ONLINE
    assert bench.sent.requests == []


@pytest.mark.scenario(60)
async def test_leadership_of_an_earlier_controller_is_continued(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], ONLINE, stored=led(5, 3, [5], 7, by=49))

    await bench.move("t-0", ONLINE, Election.PREFERRED)

    assert bench.store.commits == [[WriteCall("t-0", 5, 4, (5,), 7)]]
    assert bench.leadership("t-0") == await bench.stored("t-0") == led(5, 4, [5], 8)


@pytest.mark.scenario(61)
async def test_row_written_by_its_leader_is_read_and_elected_again(bench: Machines) -> None:
    """One read here, because the first write needs none."""
    bench.live(5, 6)
    await bench.put("t-0", [5, 6], ONLINE, stored=led(5, 3, [5], 8), known=led(5, 3, [5, 6], 7))

    await bench.move("t-0", ONLINE, Election.PREFERRED)

    expected = SentLead(5, 4, (5,), 9, (5, 6))
    assert bench.store.reads == [["t-0"]]
    assert bench.store.commits == [[WriteCall("t-0", 5, 4, (5, 6), 7)], [WriteCall("t-0", 5, 4, (5,), 8)]]
    assert bench.leadership("t-0") == await bench.stored("t-0") == led(5, 4, [5], 9)
    assert bench.sent.lead == {5: {"t-0": expected}, 6: {"t-0": expected}}


@pytest.mark.scenario(62)
async def test_each_row_of_an_election_has_its_own_result(bench: Machines) -> None:
    """Only the three rejected rows are read, where Kafka reads all four and then one."""
    bench.live(5)
    await bench.put("t-0", [5], OFFLINE, stored=led(-1, 0, [5], 0))
    await bench.put("t-1", [5], OFFLINE, stored=led(-1, 0, [5], 1), known=led(-1, 0, [5], 0))
    await bench.put("t-2", [5], OFFLINE, known=led(-1, 0, [5], 0))
    await bench.put("t-3", [5], OFFLINE, stored=led(-1, 0, [5], 2, by=51), known=led(-1, 0, [5], 0))
    names = [f"t-{number}" for number in range(4)]

    moved = await bench.move(names, ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [MADE, MADE, Refusal.NO_LEADERSHIP, Refusal.LATER_CONTROLLER]
    assert [bench.state(name) for name in names] == [ONLINE, ONLINE, OFFLINE, OFFLINE]
    assert bench.store.reads == [["t-1", "t-2", "t-3"]]
    assert bench.store.commits[1] == [WriteCall("t-1", 5, 1, (5,), 1)]
    assert bench.sent.lead == {5: {"t-0": SentLead(5, 1, (5,), 1, (5,)), "t-1": SentLead(5, 1, (5,), 2, (5,))}}


@pytest.mark.scenario(63)
async def test_undecodable_leadership_counts_as_unreadable(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], OFFLINE, stored=led(5, 0, [5], 0), known=None)
    bench.store.next("leaderships", returns(with_status(Found.UNREADABLE, "t-0")))

    moved = await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.NO_LEADERSHIP]
    assert bench.state("t-0") == OFFLINE


async def test_failed_read_of_one_row_is_a_store_failure(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], OFFLINE, stored=led(5, 0, [5], 0), known=None)
    await bench.put("t-1", [5], OFFLINE, stored=led(5, 0, [5], 0), known=None)
    bench.store.next("leaderships", returns(with_status(Found.FAILED, "t-0")))

    moved = await bench.move(["t-0", "t-1"], ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.STORE_FAILED, MADE]


@pytest.mark.scenario(64)
async def test_row_with_a_store_failure_is_not_retried(bench: Machines) -> None:
    bench.live(5)
    before = led(-1, 0, [5], 0)
    await bench.put("t-0", [5], OFFLINE, stored=before)
    bench.store.next("commit", rejects("t-0"))

    moved = await bench.move("t-0", ONLINE, Election.OFFLINE)

    assert refusals_of(moved) == [Refusal.STORE_FAILED]
    assert len(bench.store.commits) == 1
    assert bench.state("t-0") == OFFLINE
    assert bench.leadership("t-0") == before
    assert bench.sent.requests == []


@pytest.mark.scenario(65)
async def test_missing_election_fails_without_an_exception(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], OFFLINE, stored=led(-1, 0, [5], 0))

    moved = await bench.move("t-0", ONLINE)

    assert refusals_of(moved) == [Refusal.ILLEGAL_MOVE]
    assert bench.state("t-0") == OFFLINE
    assert bench.store.calls == []


async def test_first_leaders_of_a_call_without_an_election_are_sent(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], NEW)
    await bench.put("t-1", [5], OFFLINE, stored=led(-1, 0, [5], 0))

    moved = await bench.move(["t-0", "t-1"], ONLINE)

    assert refusals_of(moved) == [MADE, Refusal.ILLEGAL_MOVE]
    assert bench.sent.lead[5].keys() == {"t-0"}


@pytest.mark.scenario(68)
async def test_election_of_a_deposed_controller_is_not_sent(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], ONLINE, stored=led(5, 0, [5], 0))
    await bench.follow_us()

    with pytest.raises(ControllerMoved):
        await bench.move("t-0", ONLINE, Election.PREFERRED)

    assert bench.leadership("t-0") == led(5, 0, [5], 0)
    assert bench.outbox.flushes == []


async def test_call_of_a_controller_deposed_midway_sends_nothing(
    bench: Machines,
) -> None:
    bench.live(5)
    await bench.put("t-0", [5], NEW)
    await bench.put("t-1", [5], OFFLINE, stored=led(-1, 0, [5], 1), known=led(-1, 0, [5], 0))
    bench.store.next("commit", really, after(bench.follow_us))

    with pytest.raises(ControllerMoved):
        await bench.move(["t-0", "t-1"], ONLINE, Election.OFFLINE)

    assert await bench.stored("t-0") == led(5, 0, [5], 0)
    assert bench.outbox.flushes == []


@pytest.mark.scenario(73)
async def test_first_leaders_and_elections_share_a_call(bench: Machines) -> None:
    bench.live(5)
    await bench.put("t-0", [5], NEW)
    await bench.put("t-1", [5], OFFLINE, stored=led(-1, 0, [5], 0))

    moved = await bench.move(["t-0", "t-1"], ONLINE, Election.OFFLINE)

    assert bench.state("t-0") == bench.state("t-1") == ONLINE
    assert moved.elected.tolist() == [False, True]
    assert bench.sent.lead == {
        5: {"t-0": SentLead(5, 0, (5,), 0, (5,), is_new=True), "t-1": SentLead(5, 1, (5,), 1, (5,))},
    }


@pytest.mark.scenario(74)
async def test_out_of_sync_preferred_replica_is_not_elected_by_machine(bench: Machines) -> None:
    bench.live(5, 6)
    before = led(6, 3, [6], 4)
    await bench.put("t-0", [5, 6], ONLINE, stored=before)

    moved = await bench.move("t-0", ONLINE, Election.PREFERRED)

    assert refusals_of(moved) == [Refusal.NO_ELIGIBLE_LEADER]
    assert bench.state("t-0") == ONLINE
    assert bench.leadership("t-0") == before
    assert bench.store.commits == []


@pytest.mark.scenario(75)
async def test_new_and_offline_partitions_of_live_topics_are_elected(bench: Machines) -> None:
    bench.live(5)
    unchanged = led(5, 2, [5], 2)
    await bench.put("a-0", [5], OFFLINE, stored=led(-1, 0, [5], 0))
    await bench.put("b-0", [5], NEW)
    await bench.put("c-0", [5], ONLINE, stored=unchanged)
    await bench.put("q-0", [5], OFFLINE, stored=led(-1, 0, [5], 0))
    bench.cluster.queue_deletion(["q"])

    moved = await bench.move(bench.cluster.table.in_state(NEW, OFFLINE), ONLINE, Election.OFFLINE)

    assert moved.rows.tolist() == bench.rows("a-0", "b-0").tolist()
    assert [bench.state(name) for name in ("a-0", "b-0", "c-0", "q-0")] == [ONLINE, ONLINE, ONLINE, OFFLINE]
    assert bench.leadership("c-0") == unchanged


@pytest.mark.scenario(76)
async def test_one_topic_can_be_elected_alone(bench: Machines) -> None:
    bench.live(5)
    for name in ("a-0", "b-0"):
        await bench.put(name, [5], OFFLINE, stored=led(-1, 0, [5], 0))
    table = bench.cluster.table
    topic = table.topic("a")
    assert topic is not None

    await bench.move(np.intersect1d(table.in_state(NEW, OFFLINE), table.rows_of(topic)), ONLINE, Election.OFFLINE)

    assert (bench.state("a-0"), bench.state("b-0")) == (ONLINE, OFFLINE)


@pytest.mark.scenario(77)
async def test_startup_elects_partitions_without_a_live_leader(
    bench: Machines,
) -> None:
    bench.live(5, 6)
    await bench.put("a-0", [5])
    await bench.put("b-0", [5], stored=led(5, 1, [5], 1))
    await bench.put("c-0", [7, 5], stored=led(7, 1, [7, 5], 1))
    row = await bench.put("d-0", [6, 5], stored=led(6, 1, [6, 5], 1))
    bench.cluster.table.mark_dirs(6, np.array([row]), True)
    table = bench.cluster.table

    bench.cluster.apply(partition.begin(table.rows(table.all()), bench.cluster.staying))
    began = [bench.state(name) for name in ("a-0", "b-0", "c-0", "d-0")]
    moved = await bench.move(table.in_state(NEW, OFFLINE), ONLINE, Election.OFFLINE)

    assert began == [NEW, ONLINE, OFFLINE, OFFLINE]
    assert moved.rows.tolist() == bench.rows("a-0", "c-0", "d-0").tolist()
    assert bench.leadership("a-0") == led(5, 0, [5], 0)
    assert bench.leadership("b-0") == led(5, 1, [5], 1)
    assert bench.leadership("c-0") == led(5, 2, [5], 2)
    assert bench.leadership("d-0") == led(5, 2, [5], 2)
