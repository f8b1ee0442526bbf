"""The ledger: what is known of each row after a write, and what memory and store say after many calls of all kinds."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from kactl.actors.ledger import Ledger
from kactl.election import Election
from kactl.errors import SessionExpired, StoreUnavailable
from kactl.machines import partition
from kactl.model import Leadership, PartitionState, ReplicaState
from kactl.rows import Change, Refusal
from kactl.store import Found
from tests.actors.bench import Bench, at, open_bench
from tests.scripted_store import (
    Step,
    Written,
    after,
    answers,
    fails,
    fails_after,
    fails_between,
    found,
    refuses,
)

pytestmark = pytest.mark.anyio

NEW, ONLINE, OFFLINE = PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE
NAMES = ["a-0", "b-0", "b-1"]


async def _three(bench: Bench) -> Change:
    """An election of three partitions, planned and not written."""
    bench.live(5, 6)
    for name in NAMES:
        await bench.put(name, [5, 6], ONLINE, stored=at(6, 3, [6, 5], 4))
    return _planned(bench, NAMES)


def _planned(bench: Bench, names: Sequence[str]) -> Change:
    rows = bench.cluster.table.rows(bench.rows(*names))
    nobody = np.zeros(len(rows), np.bool_)
    return partition.elect(rows, Election.PREFERRED, bench.cluster.now, unclean=nobody, controller_epoch=50)


def _ledger(bench: Bench) -> Ledger:
    return Ledger(bench.cluster, bench.store.promised)


async def test_what_was_kept_comes_back_with_its_versions(bench: Bench) -> None:
    change = await _three(bench)

    settled = await _ledger(bench).commit(change)

    assert settled.kept.tolist() == [True, True, True]
    assert settled.change.partition_epoch.tolist() == [5, 5, 5]
    assert bench.store.commits == [[Written(name, 5, 4, (5, 6), 4) for name in NAMES]]
    assert bench.store.fences == [bench.cluster.fence]
    assert bench.leadership("a-0") == at(6, 3, [5, 6], 4)


async def test_rows_with_nothing_to_write_are_kept_as_they_are_and_not_sent(bench: Bench) -> None:
    change = await _three(bench)
    writes = np.array([False, True, False])

    settled = await _ledger(bench).commit(change.replace(writes=writes))

    assert settled.kept.tolist() == [True, True, True]
    assert settled.change.partition_epoch.tolist() == [4, 5, 4]
    assert [[row.name for row in rows] for rows in bench.store.commits] == [["b-0"]]


async def test_nothing_is_sent_where_nothing_is_to_be_written(bench: Bench) -> None:
    change = await _three(bench)

    settled = await _ledger(bench).commit(change.replace(writes=np.zeros(3, np.bool_)))

    assert settled.kept.all()
    assert bench.store.calls == []


async def test_each_row_is_kept_refused_or_failed(bench: Bench) -> None:
    change = await _three(bench)
    await bench.leader_writes("b-1", at(6, 3, [6], 5), expected=4)
    bench.store.next("commit", refuses("a-0"))

    settled = await _ledger(bench).commit(change)

    assert settled.failed.tolist() == [True, False, False]
    assert settled.kept.tolist() == [False, True, False]
    assert settled.conflict.tolist() == [False, False, True]
    assert settled.change.rows.at.tolist() == bench.rows("b-0").tolist()


@pytest.mark.parametrize(
    ("wrote", "kept"),
    [
        (at(5, 4, [5, 6], 5), True),
        (at(6, 4, [5, 6], 5), False),
        (at(5, 5, [5, 6], 5), False),
        (at(5, 4, [5], 5), False),
        (at(5, 4, [5, 6], 6), False),
        (at(5, 4, [5, 6], 5, epoch=49), False),
        (at(5, 4, [5, 6], 5, recovering=True), False),
    ],
    ids=["as we wrote it", "leader", "leader epoch", "isr", "version", "controller epoch", "recovering"],
)
async def test_only_what_stands_there_word_for_word_is_taken_for_ours(
    bench: Bench, wrote: Leadership, kept: bool
) -> None:
    bench.live(5, 6)
    await bench.put("a-0", [5, 6], ONLINE, stored=at(6, 3, [6, 5], 4))
    change = _planned(bench, ["a-0"])

    async def write() -> None:
        await bench.seed("a-0", wrote)

    bench.store.next("commit", after(write, then=fails(StoreUnavailable("gone"))))

    settled = await _ledger(bench).commit(change)

    assert settled.kept.tolist() == [kept]
    assert settled.conflict.tolist() == [not kept]
    assert settled.change.partition_epoch.tolist() == ([5] if kept else [])


async def test_a_row_that_cannot_be_read_back_is_in_conflict_and_one_that_vanished_too(bench: Bench) -> None:
    change = await _three(bench)
    bench.store.next("commit", fails_after(StoreUnavailable("gone")))
    bench.store.next("leaderships", answers(found(Found.FAILED, "a-0"), found(Found.MISSING, "b-0")))

    settled = await _ledger(bench).commit(change)

    assert settled.conflict.tolist() == [True, True, False]
    assert settled.kept.tolist() == [False, False, True]


@pytest.mark.parametrize("during", ["commit", "leaderships"])
async def test_the_end_of_our_session_is_no_failure_of_a_row(bench: Bench, during: str) -> None:
    change = await _three(bench)
    if during == "leaderships":
        bench.store.next("commit", fails(StoreUnavailable("gone")))
    bench.store.next(during, fails(SessionExpired("over")))

    with pytest.raises(SessionExpired):
        await _ledger(bench).commit(change)


async def test_a_store_that_cannot_be_read_back_has_failed_every_row(bench: Bench) -> None:
    change = await _three(bench)
    bench.store.next("commit", fails_between(StoreUnavailable("gone"), "a-0"))
    bench.store.next("leaderships", fails(StoreUnavailable("gone")))

    settled = await _ledger(bench).commit(change)

    assert settled.failed.tolist() == [True, True, True]
    assert len(settled.change) == 0


async def test_rows_are_read_again_without_touching_the_table(bench: Bench) -> None:
    await _three(bench)
    await bench.leader_writes("a-0", at(6, 3, [6, 9], 5, epoch=51), expected=4)
    await bench.leader_writes("b-0", at(6, 4, [6], 5, recovering=True), expected=4)
    bench.store.next("leaderships", answers(found(Found.FAILED, "b-1")))

    rows, refusal = await _ledger(bench).read_again(bench.cluster.table.rows(bench.rows(*NAMES)))

    assert refusal.tolist() == [Refusal.LATER_CONTROLLER, Refusal.NONE, Refusal.STORE_FAILED]
    assert rows.partition_epoch.tolist() == [5, 5, 4]
    assert rows.leader_epoch.tolist() == [3, 4, 3]
    assert rows.recovering.tolist() == [False, True, False]
    assert [set(rows.replicas[:, each][rows.in_sync[:, each]].tolist()) for each in range(3)] == [{6, 9}, {6}, {5, 6}]
    assert bench.leadership("a-0") == bench.leadership("b-0") == at(6, 3, [5, 6], 4)


async def test_rows_stay_as_they_were_where_nothing_can_be_read(bench: Bench) -> None:
    await _three(bench)
    before = bench.cluster.table.rows(bench.rows(*NAMES))
    bench.store.next("leaderships", fails(StoreUnavailable("gone")))

    rows, refusal = await _ledger(bench).read_again(before)

    assert rows is before
    assert refusal.tolist() == [Refusal.STORE_FAILED] * 3


# -- any calls, in any order -------------------------------------------------------------------------------------------

_STORIES = 60
_CALLS = 25
_BROKERS = (1, 2, 3, 4, 5, 6)


class _Story:
    """Random calls, leaders that write behind our back, and a store that fails now and then; all from one seed."""

    def __init__(self, seed: int, bench: Bench) -> None:
        self.random = random.Random(seed)
        self.bench = bench
        self.names: list[str] = []
        self.done: list[str] = []

    async def begin(self) -> None:
        for number in range(self.random.randint(2, 8)):
            name = f"{self.random.choice('ab')}-{number}"
            replicas = self.random.sample(_BROKERS, self.random.randint(1, 4))
            await self.bench.put(name, replicas, PartitionState.NEW, replica_state=ReplicaState.NEW)
            self.names.append(name)
        self.bench.live(*_BROKERS)
        await self.bench.move(self.names, ONLINE)
        await self.bench.move_replicas(self.names, ReplicaState.ONLINE)

    async def leader_writes(self) -> None:
        """A leader shrinks its ISR, or lets in a replica, now and then one from outside the assignment."""
        name = self.random.choice(self.names)
        stored = await self.bench.stored(name)
        if stored is None or stored.leader == -1:
            return
        others = self.random.sample(_BROKERS, self.random.randint(0, 3))
        isr = tuple(dict.fromkeys([stored.leader, *others]))
        wrote = at(stored.leader, stored.leader_epoch, isr, stored.partition_epoch + 1, epoch=stored.controller_epoch)
        await self.bench.leader_writes(name, wrote, expected=stored.partition_epoch)
        self.done.append(f"{name} is written {isr}")

    def trouble(self) -> None:
        """One of the next calls of the store goes another way."""
        gone = StoreUnavailable("gone")
        steps: list[Step] = [
            after(self.leader_writes),
            fails(gone),
            fails_after(gone),
            after(self.leader_writes, then=fails_after(gone)),
        ]
        self.bench.store.next("commit", self.random.choice(steps))
        self.done.append("trouble")

    async def call(self) -> None:
        some = sorted(self.random.sample(self.names, self.random.randint(1, len(self.names))))
        at_ = self.bench.rows(*some)
        what = self.random.randrange(6)
        if what == 0:
            broker = self.random.choice(_BROKERS)
            if self.bench.cluster.brokers.keys() == {broker}:
                return
            self.done.append(f"{broker} dies")
            self.bench.cluster.remove_brokers([broker])
            await self.bench.move(self.bench.cluster.table.led_by_none_of(self.bench.cluster.now.live), OFFLINE)
            await self.bench.move(self.bench.cluster.table.in_state(NEW, OFFLINE), ONLINE, Election.OFFLINE)
            await self.bench.move_replicas(
                self.bench.cluster.table.with_replica_on([broker]), ReplicaState.OFFLINE, broker
            )
        elif what == 1:
            broker = self.random.choice(_BROKERS)
            self.done.append(f"{broker} comes")
            self.bench.live(broker)
            await self.bench.move_replicas(
                self.bench.cluster.table.with_replica_on([broker]), ReplicaState.ONLINE, broker
            )
            await self.bench.move(self.bench.cluster.table.in_state(NEW, OFFLINE), ONLINE, Election.OFFLINE)
        elif what == 2:
            brokers = self.random.sample(_BROKERS, 2)
            self.done.append(f"replicas of {some} on {brokers} go")
            await self.bench.move_replicas(at_, ReplicaState.OFFLINE, *brokers)
        elif what == 3:
            election = self.random.choice(list(Election))
            self.done.append(f"{election} of {some}")
            await self.bench.move(at_, ONLINE, election)
        elif what == 4:
            await self.leader_writes()
        else:
            self.trouble()

    async def check(self) -> None:
        """Memory never runs ahead of the store, and where the versions are equal both say the same."""
        for name in self.names:
            stored, known = await self.bench.stored(name), self.bench.leadership(name)
            if known is None:
                continue
            assert stored is not None, f"{name} is known as {known}, and nothing is stored; after {self.done}"
            assert known.partition_epoch <= stored.partition_epoch, f"{name}: {known} / {stored}; after {self.done}"
            if known.partition_epoch == stored.partition_epoch:
                assert (known.leader, known.leader_epoch, set(known.isr), known.recovering) == (
                    (stored.leader, stored.leader_epoch, set(stored.isr), stored.recovering)
                ), f"{name} after {self.done}"

    async def settle(self) -> None:
        """In peace, an election of everything leaves memory and store with one mind."""
        self.bench.live(*_BROKERS)
        self.bench.store.forget_script()
        await self.bench.move(self.bench.cluster.table.in_state(ONLINE, OFFLINE), ONLINE, Election.UNCLEAN)
        for name in self.names:
            if self.bench.state(name) != NEW:
                assert _same(await self.bench.stored(name), self.bench.leadership(name)), f"{name} after {self.done}"


def _same(stored: Leadership | None, known: Leadership | None) -> bool:
    if stored is None or known is None:
        return stored is known
    return set(stored.isr) == set(known.isr) and (
        (stored.leader, stored.leader_epoch, stored.partition_epoch, stored.controller_epoch, stored.recovering)
        == (known.leader, known.leader_epoch, known.partition_epoch, known.controller_epoch, known.recovering)
    )


@pytest.mark.parametrize("seed", range(_STORIES))
async def test_memory_follows_the_store_whatever_is_called(seed: int) -> None:
    async with open_bench(unclean_default=bool(seed % 2)) as bench:
        bench.whole_script = False
        story = _Story(seed, bench)
        await story.begin()
        for _ in range(_CALLS):
            await story.call()
            await story.check()
        await story.settle()
