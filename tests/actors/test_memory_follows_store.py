"""Cluster state and store agree after any sequence of calls."""

import random

import pytest

from kactl.decide.machines.election import Election
from kactl.model import Leadership, PartitionState, ReplicaState
from kactl.model.errors import StoreUnavailable
from tests.support.cluster_seeds import led
from tests.support.machine_harness import Machines, open_machines
from tests.support.marks import fast_and_slow
from tests.support.scripted_store import Step, after, fails, fails_after

pytestmark = pytest.mark.anyio

NEW, ONLINE, OFFLINE = PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE

# Enough for a few failures of every kind, in about two seconds. 2,500 seeds passed once.
_STORIES = 60
_CALLS = 25  # in each
_BROKERS = (1, 2, 3, 4, 5, 6)


class _Story:
    """Random calls, concurrent writes by leaders, and occasional store failures, all from one seed."""

    def __init__(self, seed: int, bench: Machines) -> None:
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
        """A leader removes or adds an ISR member, at times one outside the assignment."""
        name = self.random.choice(self.names)
        stored = await self.bench.stored(name)
        if stored is None or stored.leader == -1:
            return
        others = self.random.sample(_BROKERS, self.random.randint(0, 3))
        isr = tuple(dict.fromkeys([stored.leader, *others]))
        wrote = led(stored.leader, stored.leader_epoch, isr, stored.partition_epoch + 1, by=stored.controller_epoch)
        await self.bench.leader_writes(name, wrote, expected=stored.partition_epoch)
        self.done.append(f"{name} is written {isr}")

    def trouble(self) -> None:
        """Script one of the next store calls to fail."""
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
            await self.bench.move(
                self.bench.cluster.table.led_by_none_of(self.bench.cluster.live_brokers.live), OFFLINE
            )
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
        """The cluster state is never newer than the store, and equal at equal versions."""
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
        """Without failures, an election of all partitions leaves equal cluster state and store."""
        self.bench.live(*_BROKERS)
        self.bench.store.forget_script()
        await self.bench.move(self.bench.cluster.table.in_state(ONLINE, OFFLINE), ONLINE, Election.UNCLEAN)
        for name in self.names:
            if self.bench.state(name) != NEW:
                assert _agree(await self.bench.stored(name), self.bench.leadership(name)), f"{name} after {self.done}"


def _agree(stored: Leadership | None, known: Leadership | None) -> bool:
    if stored is None or known is None:
        return stored is known
    return set(stored.isr) == set(known.isr) and (
        (stored.leader, stored.leader_epoch, stored.partition_epoch, stored.controller_epoch, stored.recovering)
        == (known.leader, known.leader_epoch, known.partition_epoch, known.controller_epoch, known.recovering)
    )


@pytest.mark.parametrize("seed", fast_and_slow(range(_STORIES), 20))
async def test_cluster_state_agrees_with_the_store_after_any_calls(seed: int) -> None:
    async with open_machines(unclean_default=bool(seed % 2)) as bench:
        bench.whole_script = False
        story = _Story(seed, bench)
        await story.begin()
        for _ in range(_CALLS):
            await story.call()
            await story.check()
        await story.settle()
