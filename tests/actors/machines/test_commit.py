"""Committer: state of each row after a commit, and results of reading rows back."""

from collections.abc import Sequence

import numpy as np
import pytest

from kactl.actors.machines.commit import CommitResult, Committer
from kactl.decide.machines import partition
from kactl.decide.machines.election import Election
from kactl.decide.state.change import Change, Refusal
from kactl.model import Leadership, PartitionState
from kactl.model.errors import SessionExpired, StoreError, StoreUnavailable
from kactl.stores.base import Found
from tests.support.cluster_seeds import led
from tests.support.machine_harness import Machines
from tests.support.scripted_store import (
    WriteCall,
    after,
    fails,
    fails_after,
    fails_between,
    rejects,
    returns,
    with_status,
)

pytestmark = pytest.mark.anyio

NEW, ONLINE, OFFLINE = PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE
NAMES = ["a-0", "b-0", "b-1"]


async def _three(bench: Machines) -> Change:
    """A planned election of three partitions that is not committed."""
    bench.live(5, 6)
    for name in NAMES:
        await bench.put(name, [5, 6], ONLINE, stored=led(6, 3, [6, 5], 4))
    return _planned_election(bench, NAMES)


def _planned_election(bench: Machines, names: Sequence[str]) -> Change:
    rows = bench.cluster.table.rows(bench.rows(*names))
    nobody = np.zeros(len(rows), np.bool_)
    return partition.elect(rows, Election.PREFERRED, bench.cluster.live_brokers, unclean=nobody, controller_epoch=50)


def _committer(bench: Machines) -> Committer:
    return Committer(bench.cluster, bench.store.promised, bench.history)


def _committed(result: CommitResult) -> list[bool]:
    committed: list[bool] = (~result.conflict & (result.change.refusal == Refusal.NONE)).tolist()
    return committed


def _failed(result: CommitResult) -> list[bool]:
    failed: list[bool] = (result.change.refusal == Refusal.STORE_FAILED).tolist()
    return failed


async def test_committed_rows_have_their_new_versions(bench: Machines) -> None:
    change = await _three(bench)

    settled = await _committer(bench).commit(change)

    assert _committed(settled) == [True, True, True]
    assert settled.change.partition_epoch.tolist() == [5, 5, 5]
    assert bench.store.commits == [[WriteCall(name, 5, 4, (5, 6), 4) for name in NAMES]]
    assert bench.store.fences == [bench.cluster.fence]
    assert bench.leadership("a-0") == led(6, 3, [5, 6], 4)


async def test_rows_without_a_write_are_committed_unsent(bench: Machines) -> None:
    change = await _three(bench)
    writes = np.array([False, True, False])

    settled = await _committer(bench).commit(change.replace(writes=writes))

    assert _committed(settled) == [True, True, True]
    assert settled.change.partition_epoch.tolist() == [4, 5, 4]
    assert [[row.name for row in rows] for rows in bench.store.commits] == [["b-0"]]


async def test_commit_without_writes_sends_nothing(bench: Machines) -> None:
    change = await _three(bench)

    settled = await _committer(bench).commit(change.replace(writes=np.zeros(3, np.bool_)))

    assert all(_committed(settled))
    assert bench.store.calls == []


async def test_each_row_is_committed_rejected_or_failed(bench: Machines) -> None:
    change = await _three(bench)
    await bench.leader_writes("b-1", led(6, 3, [6], 5), expected=4)
    bench.store.next("commit", rejects("a-0"))

    settled = await _committer(bench).commit(change)

    assert _failed(settled) == [True, False, False]
    assert _committed(settled) == [False, True, False]
    assert settled.conflict.tolist() == [False, False, True]
    assert settled.change.partition_epoch.tolist()[:2] == [4, 5]


@pytest.mark.parametrize(
    ("wrote", "kept"),
    [
        (led(5, 4, [5, 6], 5), True),
        (led(6, 4, [5, 6], 5), False),
        (led(5, 5, [5, 6], 5), False),
        (led(5, 4, [5], 5), False),
        (led(5, 4, [5, 6], 6), False),
        (led(5, 4, [5, 6], 5, by=49), False),
        (led(5, 4, [5, 6], 5, recovering=True), False),
    ],
    ids=["as we wrote it", "leader", "leader epoch", "isr", "version", "controller epoch", "recovering"],
)
async def test_only_an_identical_stored_row_counts_as_our_write(bench: Machines, wrote: Leadership, kept: bool) -> None:
    bench.live(5, 6)
    await bench.put("a-0", [5, 6], ONLINE, stored=led(6, 3, [6, 5], 4))
    change = _planned_election(bench, ["a-0"])

    async def write() -> None:
        await bench.seed("a-0", wrote)

    bench.store.next("commit", after(write, then=fails(StoreUnavailable("gone"))))

    settled = await _committer(bench).commit(change)

    assert _committed(settled) == [kept]
    assert settled.conflict.tolist() == [not kept]
    assert not kept or settled.change.partition_epoch.tolist() == [5]


async def test_unreadable_or_vanished_row_is_a_conflict(bench: Machines) -> None:
    change = await _three(bench)
    bench.store.next("commit", fails_after(StoreUnavailable("gone")))
    bench.store.next("leaderships", returns(with_status(Found.FAILED, "a-0"), with_status(Found.MISSING, "b-0")))

    settled = await _committer(bench).commit(change)

    assert settled.conflict.tolist() == [True, True, False]
    assert _committed(settled) == [False, False, True]


@pytest.mark.parametrize("during", ["commit", "leaderships"])
async def test_session_end_is_not_a_row_failure(bench: Machines, during: str) -> None:
    change = await _three(bench)
    if during == "leaderships":
        bench.store.next("commit", fails(StoreUnavailable("gone")))
    bench.store.next(during, fails(SessionExpired("over")))

    with pytest.raises(SessionExpired):
        await _committer(bench).commit(change)


async def test_failed_read_back_fails_every_row(bench: Machines) -> None:
    change = await _three(bench)
    bench.store.next("commit", fails_between(StoreUnavailable("gone"), "a-0"))
    bench.store.next("leaderships", fails(StoreUnavailable("gone")))

    settled = await _committer(bench).commit(change)

    assert _failed(settled) == [True, True, True]
    assert not settled.change.writes.any()
    assert settled.change.leader_epoch.tolist() == change.rows.leader_epoch.tolist()


@pytest.mark.parametrize("failure", ["row of a write", "write", "read back", "row of a read", "read"])
async def test_rows_that_the_store_failed_are_tried_again_later(bench: Machines, failure: str) -> None:
    change, committer = await _three(bench), _committer(bench)
    failed = {"row of a write": ["a-0"], "row of a read": ["b-1"]}.get(failure, NAMES)
    if failure.startswith("row"):
        bench.store.next("commit", rejects("a-0"))
        bench.store.next("leaderships", returns(with_status(Found.FAILED, "b-1")))
    elif failure == "read back":
        bench.store.next("commit", fails_between(StoreUnavailable("gone"), "a-0"))
        bench.store.next("leaderships", fails(StoreUnavailable("gone")))
    else:
        bench.store.next("commit" if failure == "write" else "leaderships", fails(StoreError("full")))

    if failure.endswith("read"):
        await committer.reload(bench.cluster.table.rows(bench.rows(*NAMES)))
    else:
        await committer.commit(change)

    assert bench.cluster.pop_retries().tolist() == sorted(bench.rows(*failed).tolist())


async def test_reload_does_not_change_the_table(bench: Machines) -> None:
    await _three(bench)
    await bench.leader_writes("a-0", led(6, 3, [6, 9], 5, by=51), expected=4)
    await bench.leader_writes("b-0", led(6, 4, [6], 5, recovering=True), expected=4)
    bench.store.next("leaderships", returns(with_status(Found.FAILED, "b-1")))

    rows, refusal = await _committer(bench).reload(bench.cluster.table.rows(bench.rows(*NAMES)))

    assert refusal.tolist() == [Refusal.LATER_CONTROLLER, Refusal.NONE, Refusal.STORE_FAILED]
    assert rows.partition_epoch.tolist() == [5, 5, 4]
    assert rows.leader_epoch.tolist() == [3, 4, 3]
    assert rows.recovering.tolist() == [False, True, False]
    assert [set(rows.replicas[:, each][rows.in_sync[:, each]].tolist()) for each in range(3)] == [{6, 9}, {6}, {5, 6}]
    assert bench.leadership("a-0") == bench.leadership("b-0") == led(6, 3, [5, 6], 4)


async def test_unreadable_rows_are_unchanged_by_a_reload(bench: Machines) -> None:
    await _three(bench)
    before = bench.cluster.table.rows(bench.rows(*NAMES))
    bench.store.next("leaderships", fails(StoreUnavailable("gone")))

    rows, refusal = await _committer(bench).reload(before)

    assert rows is before
    assert refusal.tolist() == [Refusal.STORE_FAILED] * 3
