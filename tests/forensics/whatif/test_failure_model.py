"""Failure model of partition classes: outcomes equal those of kactl's controller, and sums equal those by scenario."""

import dataclasses
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.machines.election import Election
from kactl.decide.outbound.batch import RequestBatch
from kactl.decide.whatif import classes
from kactl.decide.whatif.assumptions import Assumptions
from kactl.decide.whatif.classes import NO_SLOT, Classes
from kactl.decide.whatif.failure_model import COUNTS, FailureModel, FailureState, fail
from kactl.forensics.whatif.tables import columns_of, filled
from kactl.model import NO_LEADER, PartitionState, PartitionView, ReplicaState
from tests.support.cluster_seeds import ClusterSeed, PartitionSeed, led, tp
from tests.support.sync_machines import go_online, move_partitions, replicas_offline

from .snapshots import POOL, Drawn, P, clusters, table

SOME = st.sets(st.sampled_from(POOL), max_size=3)


def classes_of(partitions: Collection[P], away: Collection[int] = (), brokers: tuple[int, ...] = POOL) -> Classes:
    """Returns one class for each partition, in their order."""
    return classes.classes_of(columns_of(filled(table(partitions), Assumptions())), brokers, away)[0]


def model_of(drawn: Drawn) -> FailureModel:
    return FailureModel(classes_of(drawn.partitions, drawn.away), at(drawn.away), len(POOL))


def at(brokers: Collection[int]) -> tuple[int, ...]:
    """Returns the positions of brokers."""
    return tuple(POOL.index(broker) for broker in sorted(brokers))


def leaders(moment: FailureState) -> list[int]:
    """Returns the leader of each partition; -1 for none."""
    members = [[POOL[each] for each in column if each >= 0] for column in moment.classes.members.T.tolist()]
    return [-1 if slot == NO_SLOT else line[slot] for slot, line in zip(moment.leader.tolist(), members, strict=True)]


def controller_after(drawn: Drawn, dead: Collection[int]) -> dict[str, PartitionView]:
    """Returns the partitions after kactl's own controller has handled the failure of the brokers."""
    seeds = {}
    for each in drawn.partitions:
        assert each.isr is not None
        # No leader although a replica could lead, for example because of a failed directory.
        stuck = each.led_by == -1 and not set(each.isr) <= drawn.away
        seeds[tp(each.name)] = PartitionSeed(
            replicas=each.replicas,
            leadership=led(each.led_by, 4, each.isr),
            state=PartitionState.ONLINE if each.led_by >= 0 else PartitionState.OFFLINE,
            states=dict.fromkeys(each.replicas, ReplicaState.ONLINE),
            dirs_offline=each.isr if stuck else (),
        )
    cluster = ClusterSeed(live=frozenset(drawn.alive), partitions=seeds).columns()
    cluster.remove_brokers(dead)
    batch, unclean = RequestBatch(cluster), {each.topic for each in drawn.partitions if each.unclean}
    move_partitions(cluster, cluster.table.led_by_none_of(cluster.live_brokers.live), PartitionState.OFFLINE)
    go_online(cluster, batch, cluster.table.in_state(PartitionState.OFFLINE), Election.OFFLINE, unclean)
    gone = set(dead) | drawn.away
    replicas_offline(cluster, batch, cluster.table.with_replica_on(gone), gone)
    batch.flush()
    views = [cluster.table.view(row) for row in cluster.table.all().tolist()]
    return {str(each.name): each for each in views}


@given(clusters(), SOME)
def test_leaders_and_isrs_agree_with_the_controller(drawn: Drawn, dead: set[int]) -> None:
    dying = sorted(dead - drawn.away)

    decided = controller_after(drawn, dying)
    before = controller_after(drawn, [])
    model = model_of(drawn)
    counts = dict(zip(COUNTS, model.after(at(dying)).counts.tolist(), strict=True))

    led_now = {name: view for name, view in decided.items() if view.state == PartitionState.ONLINE}
    expected = [decided[each.name].leader if each.name in led_now else NO_LEADER for each in drawn.partitions]
    assert leaders(fail(model.now, at(dying), len(POOL))) == expected
    in_sync = {name: len(view.isr) for name, view in led_now.items()}
    assert counts["offline"] == len(decided) - len(led_now)
    assert counts["lone"] == sum(size == 1 for size in in_sync.values())
    assert counts["under_min"] == sum(in_sync.get(each.name, 0) < (each.min_isr or 0) for each in drawn.partitions)
    was = {name: view.leader if view.state == PartitionState.ONLINE else NO_LEADER for name, view in before.items()}
    assert counts["moved"] == sum(view.leader != was[name] for name, view in led_now.items())


@given(clusters(), SOME)
def test_losses_and_recoverable_partitions(drawn: Drawn, dead: set[int]) -> None:
    dying = sorted(dead - drawn.away)
    gone = set(dying) | drawn.away

    counts = dict(zip(COUNTS, model_of(drawn).after(at(dying)).counts.tolist(), strict=True))

    before, after = controller_after(drawn, []), controller_after(drawn, dying)
    lossy, recoverable = 0, 0
    for each in drawn.partitions:
        was, then, isr = before[each.name], after[each.name], set(each.isr or ())
        if then.state == PartitionState.ONLINE:
            lossy += then.leader not in isr and then.leader != was.leader
        elif was.state == PartitionState.ONLINE:
            failed = isr if each.led_by == NO_LEADER and isr - drawn.away else set()
            recoverable += bool(set(each.replicas) - gone - failed)
    assert counts["lossy"] == lossy
    assert counts["recoverable"] == recoverable


@given(clusters(), SOME)
def test_one_more_failure_equals_all_failures_at_once(drawn: Drawn, dead: set[int]) -> None:
    model, first = model_of(drawn), at(dead - drawn.away)

    found = model.each_after(first)

    for more in range(len(POOL)):
        alone = more in first or POOL[more] in drawn.away
        together = model.after(first if alone else (*first, more))
        assert found.counts[more].tolist() == together.counts.tolist()
        assert found.load[more] == pytest.approx(together.load)


@given(clusters(), SOME)
def test_equal_classes_are_merged(drawn: Drawn, dead: set[int]) -> None:
    twice = [dataclasses.replace(each, name=f"{each.name}{copy}") for each in drawn.partitions for copy in "12"]
    many = classes_of(twice, drawn.away)
    merged = many.merged()
    who, away = at(dead - drawn.away), at(drawn.away)

    sums, of_many = (FailureModel(each, away, len(POOL)).after(who) for each in (merged, many))

    assert len(merged) <= len(drawn.partitions)
    assert merged.partitions.sum() == len(twice)
    assert sums.counts.tolist() == of_many.counts.tolist()
    assert sums.load.tolist() == of_many.load.tolist()


@given(clusters(), st.lists(st.sets(st.sampled_from(POOL), min_size=1, max_size=2), max_size=4))
def test_rolling_restart_agrees_with_its_steps(drawn: Drawn, steps: list[set[int]]) -> None:
    calm = Drawn(tuple(dataclasses.replace(each, unclean=False) for each in drawn.partitions), drawn.away)
    model = model_of(calm)
    going = [step - drawn.away for step in steps]

    found = model.roll([at(step) for step in going])

    leader = leaders(model.now)
    stuck = [each == NO_LEADER for each in leader]
    moves = 0
    for number, step in enumerate(going):
        gone = step | drawn.away
        then = [
            was if was != NO_LEADER and was not in gone else _first(each, gone) if not never else NO_LEADER
            for each, was, never in zip(calm.partitions, leader, stuck, strict=True)
        ]
        assert found.counts[number, 0] == then.count(NO_LEADER)
        assert found.load[number].tolist() == [then.count(broker) for broker in POOL]
        back = [
            _first(each, drawn.away) if new == NO_LEADER and not never else new
            for each, new, never in zip(calm.partitions, then, stuck, strict=True)
        ]
        moves += sum(new != was for new, was in zip(back, leader, strict=True))
        leader = back
    assert found.counts[-1].tolist()[-1] == moves
    assert found.load[-1].tolist() == [leader.count(broker) for broker in POOL]


def _first(partition: P, gone: Collection[int]) -> int:
    """Returns the first assigned replica that is in sync and alive."""
    isr = set(partition.isr or ())
    return next((broker for broker in partition.replicas if broker in isr and broker not in gone), NO_LEADER)


def test_eligible_leader_replica_leads_without_loss() -> None:
    # KRaft: 3 left the ISR with all committed records.
    classes = classes_of([P("a-0", (1, 2, 3), (2,), elr=(3,))])
    model = FailureModel(classes, (), len(POOL))

    sums = dict(zip(COUNTS, model.after(at([2])).counts.tolist(), strict=True))

    assert leaders(fail(model.now, at([2]), len(POOL))) == [3]
    assert (sums["offline"], sums["lossy"], sums["lone"]) == (0, 0, 1)


def test_leader_missing_from_the_isr_is_in_sync() -> None:
    model = FailureModel(classes_of([P("a-0", (1, 2, 3), (2,), leader=3)]), (), len(POOL))

    assert leaders(model.now) == [3]
    assert leaders(fail(model.now, at([3]), len(POOL))) == [2]
    assert leaders(fail(model.now, at([2]), len(POOL))) == [3]


def test_unassigned_member_of_the_isr_never_leads() -> None:
    model = FailureModel(classes_of([P("a-0", (1, 2), (1, 5))]), (), len(POOL))

    assert leaders(fail(model.now, at([1]), len(POOL))) == [NO_LEADER]


def test_in_sync_replicas_come_first() -> None:
    classes = classes_of([P("a-0", (8, 5, 3, 2), (2, 5)), P("b-0", (1,), (1,))])

    assert [POOL[each] for each in classes.members[:, 0]] == [5, 2, 8, 3]
    assert classes.in_sync.tolist() == [2, 1]
    assert classes.members[:, 1].tolist() == [POOL.index(1), -1, -1, -1]


def test_sum_of_no_classes_is_zero() -> None:
    model = FailureModel(classes_of([]), (), len(POOL))

    assert not model.after(at([1, 2])).counts.any()
    assert not model.each_after(at([1])).load.any()
    assert model.roll([]).counts.shape == (1, len(COUNTS))
    assert len(classes_of([]).merged()) == 0
    assert np.array_equal(model.losing_safe_leaders(at([1])), [])
