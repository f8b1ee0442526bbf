"""A change in chunks has the same result as in one step: cluster state, store, event log and broker requests."""

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from kactl.actors.machines.machine import Move, MoveReplicas
from kactl.decide.machines.election import Election
from kactl.decide.messages.log import PartitionEvent
from kactl.model import Leadership, PartitionState, ReplicaState, TopicPartition
from kactl.model.errors import ControllerMoved, SessionExpired, StoreUnavailable
from kactl.stores.base import Names
from tests.support.cluster_seeds import led
from tests.support.machine_harness import Machines, open_machines
from tests.support.marks import fast_and_slow
from tests.support.scripted_store import fails, fails_after, really

pytestmark = pytest.mark.anyio

BROKERS: Final = (1, 2, 3, 4)
WHOLE: Final = 10_000
ONLINE, OFFLINE, NEW = PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.NEW


async def fill(bench: Machines, dice: random.Random) -> list[str]:
    """Fill a random cluster with partitions that are led, new, without a live leader, or changed in the store.
    Returns their names."""
    live = dice.sample(BROKERS, dice.randint(1, 4))
    names = []
    for topic in range(dice.randint(1, 4)):
        for partition in range(dice.randint(1, 4)):
            name = f"t{topic}-{partition}"
            names.append(name)
            replicas = dice.sample(BROKERS, dice.randint(1, 3))
            if dice.random() < 0.2:
                await bench.put(name, replicas, NEW, stored=led(9, 0, replicas, 0) if dice.random() < 0.3 else None,
                                known=None, replica_state=ReplicaState.NEW)  # fmt: skip
                continue
            isr = dice.sample(replicas, dice.randint(1, len(replicas)))
            leader = dice.choice(isr)
            version = dice.randint(0, 2)
            known = led(leader, 0, isr, version)
            # A leader has written since, and the cluster state is stale.
            others = dice.sample(replicas, dice.randint(1, len(replicas)))
            raced = dice.random() < 0.25
            stored = (
                led(leader, 0, [leader, *(each for each in others if each != leader)], version + 1) if raced else known
            )
            state = ONLINE if leader in live and dice.random() < 0.8 else OFFLINE
            await bench.put(name, replicas, state, stored=stored, known=known)
    bench.live(*live)
    queued = {name.partition("-")[0] for name in names if dice.random() < 0.15}
    bench.cluster.queue_deletion(queued)
    return names


def last_told(bench: Machines) -> dict[str, Any]:
    """Returns the last request content of each broker and partition, by kind."""
    told: dict[str, Any] = {}
    for sent in bench.outbox.flushes:
        for kind in ("lead", "metadata", "stop"):
            for broker, of in getattr(sent, kind).items():
                told |= {f"{kind} {broker} {name}": said for name, said in of.items()}
    return told


def happened(bench: Machines) -> dict[str, list[Any]]:
    """Returns the recorded events of each partition and replica, in order."""
    by_name: dict[str, list[Any]] = defaultdict(list)
    for event in bench.events:
        if isinstance(event, PartitionEvent):
            said = (event.from_state, event.to_state, event.leader, event.leader_epoch, event.isr, event.refused)
            by_name[f"{event.topic}-{event.partition}"].append(said)
        else:
            by_name[f"{event.topic}-{event.partition}/{event.broker}"].append((event.from_state, event.to_state))
    return dict(by_name)


async def stored_leaderships(bench: Machines, names: list[str]) -> list[Leadership | None]:
    held = await bench.store.real.leaderships(Names.of([TopicPartition.parse(name) for name in names]))
    return [held.one(row) for row in range(len(names))]


async def story(seed: int, chunk: int) -> dict[str, Any]:
    """A broker failure, a preferred leader election, and the broker's return."""
    async with open_machines(unclean_default=seed % 3 == 0) as bench:
        dice = random.Random(seed)
        bench.partitions.chunk = bench.replicas.chunk = chunk
        names = await fill(bench, dice)
        table, cluster = bench.cluster.table, bench.cluster
        dead = dice.choice(BROKERS)
        cluster.remove_brokers([dead])
        answers = []

        async def move(rows: Any, target: PartitionState, election: Election | None = None) -> None:
            moved = await bench.partitions.receive(Move(rows, target, election))
            answers.append((moved.rows.tolist(), moved.refusal.tolist(), moved.elected.tolist()))

        await move(table.led_by_none_of(cluster.live_brokers.live), OFFLINE)
        await move(table.in_state(NEW, OFFLINE), ONLINE, Election.OFFLINE)
        brokers = frozenset({dead, dice.choice(BROKERS)}) if seed % 2 else frozenset({dead})
        await bench.replicas.receive(MoveReplicas(table.with_replica_on(brokers), ReplicaState.OFFLINE, brokers))
        await move(table.with_leadership(), ONLINE, Election.PREFERRED)
        bench.live(dead)
        rows = table.with_replica_on([dead])
        await bench.replicas.receive(MoveReplicas(rows, ReplicaState.ONLINE, frozenset({dead})))
        await move(table.in_state(NEW, OFFLINE), ONLINE, Election.OFFLINE)
        assert (cluster.offline_count, cluster.imbalance_count) == cluster.count_again()
        return {
            "answers": answers,
            "known": [bench.view(name) for name in names],
            "stored": await stored_leaderships(bench, names),
            "told": last_told(bench),
            "happened": happened(bench),
            "unclean": bench.partitions.unclean_elections,
        }


@pytest.mark.parametrize("first", fast_and_slow(range(0, 60, 20), fast=1))
async def test_chunks_have_the_same_result_as_one_step(first: int) -> None:
    for seed in range(first, first + 20):
        whole = await story(seed, WHOLE)
        for chunk in (1, 2, 3):
            parted = await story(seed, chunk)
            for what, said in whole.items():
                assert parted[what] == said, f"seed {seed}, chunks of {chunk}: {what}"


# -- failures in between -----------------------------------------------------------------------------------------------

COUNT: Final = 6
NAMES: Final = [f"t-{partition}" for partition in range(COUNT)]


async def led_by_the_dead(bench: Machines) -> None:
    """Broker 1 led all partitions and has failed; 2 and 3 are in sync."""
    for name in NAMES:
        await bench.put(name, [1, 2, 3], OFFLINE, stored=led(1, 0, [1, 2, 3], 0))
    bench.live(2, 3)
    bench.partitions.chunk = bench.replicas.chunk = 1


def told_of(bench: Machines) -> set[str]:
    return {name for sent in bench.outbox.flushes for of in sent.lead.values() for name in of}


async def led_in_store(bench: Machines) -> set[str]:
    return {
        name
        for name, held in zip(NAMES, await stored_leaderships(bench, NAMES), strict=True)
        if held and held.leader == 2
    }


@pytest.mark.parametrize("boundary", range(COUNT))
async def test_later_controller_ends_a_change_at_any_boundary(boundary: int) -> None:
    async with open_machines() as bench:
        await led_by_the_dead(bench)
        bench.whole_script = False
        bench.store.next("commit", *[really] * boundary, fails(ControllerMoved(ours=50, theirs=51)))

        with pytest.raises(ControllerMoved):
            await bench.move(NAMES, ONLINE, Election.OFFLINE)

        # Nothing was sent or applied that is not stored.
        assert told_of(bench) <= await led_in_store(bench)
        known = {name for name in NAMES if bench.view(name).leader == 2}
        assert known <= await led_in_store(bench)
        assert known == set(NAMES[:boundary])
        # One chunk more than the known ones may have been in flight.
        assert len(await led_in_store(bench)) <= boundary + 1
        assert len(bench.store.commits) <= boundary + 2


@pytest.mark.parametrize("boundary", range(COUNT))
async def test_session_end_ends_a_change_at_any_boundary(boundary: int) -> None:
    async with open_machines() as bench:
        await led_by_the_dead(bench)
        bench.whole_script = False
        bench.store.next("commit", *[really] * boundary, *[fails(SessionExpired("over"))] * COUNT)

        moved = await bench.move(NAMES, ONLINE, Election.OFFLINE)

        assert isinstance(moved.error, SessionExpired)
        assert moved.elected.tolist() == [True] * boundary + [False] * (COUNT - boundary)
        assert moved.rows.tolist() == bench.rows(*NAMES).tolist()
        assert told_of(bench) <= await led_in_store(bench) == set(NAMES[:boundary])


@pytest.mark.parametrize("boundary", range(COUNT))
@pytest.mark.parametrize("step", [fails, fails_after])
async def test_store_failure_stops_the_change_and_reverts_the_rest(boundary: int, step: Callable[..., Any]) -> None:
    async with open_machines() as bench:
        await led_by_the_dead(bench)
        bench.whole_script = False
        gone = StoreUnavailable("gone")
        bench.store.next("commit", *[really] * boundary, step(gone), *[fails(gone)] * COUNT)
        bench.store.next("leaderships", *[fails(gone)] * COUNT)

        moved = await bench.move(NAMES, ONLINE, Election.OFFLINE)

        elected = moved.elected.tolist()
        assert elected == [True] * boundary + [False] * (COUNT - boundary)
        assert told_of(bench) == set(NAMES[:boundary])  # and these were sent, because this instance is the controller
        assert bench.cluster.pop_retries().tolist() == bench.rows(*NAMES[boundary:]).tolist()
        assert len(bench.store.commits) <= boundary + 2


@pytest.mark.parametrize("boundary", range(COUNT))
async def test_internal_error_reverts_no_committed_rows(boundary: int) -> None:
    async with open_machines() as bench:
        await led_by_the_dead(bench)
        bench.whole_script = False
        bench.store.next("commit", *[really] * boundary, fails(ZeroDivisionError("a bug")))

        with pytest.raises(ZeroDivisionError):
            await bench.move(NAMES, ONLINE, Election.OFFLINE)

        assert told_of(bench) == set(NAMES[:boundary])


@pytest.mark.parametrize("boundary", range(COUNT))
async def test_replicas_leave_isrs_until_the_store_fails(boundary: int) -> None:
    async with open_machines() as bench:
        await led_by_the_dead(bench)
        bench.whole_script = False
        bench.store.next("commit", *[really] * boundary, *[fails(StoreUnavailable("gone"))] * COUNT)
        bench.store.next("leaderships", *[fails(StoreUnavailable("gone"))] * COUNT)

        await bench.move_replicas(NAMES, ReplicaState.OFFLINE, 1)

        states = [bench.replica(name, 1) for name in NAMES]
        assert states == [ReplicaState.OFFLINE] * boundary + [ReplicaState.ONLINE] * (COUNT - boundary)
        assert told_of(bench) == set(NAMES[:boundary])
        assert bench.cluster.pop_retries().tolist() == bench.rows(*NAMES[boundary:]).tolist()


async def test_first_chunks_are_sent_before_the_last_are_written() -> None:
    async with open_machines() as bench:
        await led_by_the_dead(bench)
        heard: list[int] = []

        async def look(real: Any, *arguments: Any) -> Any:
            heard.append(len(told_of(bench)))
            return await real(*arguments)

        bench.store.next("commit", *[look] * COUNT)
        await bench.move(NAMES, ONLINE, Election.OFFLINE)

        assert heard[-1] >= 4
        assert told_of(bench) == set(NAMES)


async def test_rows_that_no_longer_need_a_move_are_skipped() -> None:
    async with open_machines() as bench:
        await led_by_the_dead(bench)
        wanted = {0, 3}
        move = Move(
            bench.rows(*NAMES), ONLINE, Election.OFFLINE, wanted=lambda rows, _: np.isin(rows.partition, list(wanted))
        )

        moved = await bench.partitions.receive(move)

        assert [bench.view(name).leader for name in NAMES] == [2, 1, 1, 2, 1, 1]
        assert moved.elected.tolist() == [True, False, False, True, False, False]
        assert not moved.refusal.any()
