"""Partition table: rows are freed and reused, and the state of each replica is kept by broker."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.state.change import Change
from kactl.decide.state.rows import BrokerSet
from kactl.decide.state.table import NO_ROW, Table
from kactl.model import Assignment, PartitionState, ReplicaState, TopicPartition
from kactl.model.errors import IllegalState, NotFound
from kactl.stores.base import Assignments, Found, Leaderships
from tests.support.cluster_seeds import led, tp

T0, T1, U0 = tp("t-0"), tp("t-1"), tp("u-0")


def table_of(**replicas: tuple[int, ...]) -> Table:
    """Table of partitions t0, u1 ... by topic letter and number."""
    table = Table()
    names = {TopicPartition(name[0], int(name[1:])): Assignment(brokers) for name, brokers in replicas.items()}
    table.put_assignments(Assignments.of(names))
    return table


def lead(table: Table, name: TopicPartition, *isr: int) -> None:
    table.put_leaderships(table.rows_named([name]), Leaderships.of([led(isr[0], 1, isr, 3)]))


# -- rows --------------------------------------------------------------------------------------------------------------


def test_freed_rows_are_reused_without_old_state() -> None:
    table = table_of(t0=(1, 2, 3), t1=(2, 3, 1), u0=(3,))
    lead(table, T0, 1, 2)
    table.set_states(table.all(), PartitionState.OFFLINE)
    table.set_replica_states(table.all(), ReplicaState.OFFLINE)
    table.mark_dirs(1, table.all(), True)
    freed = set(table.rows_named([T0, T1]).tolist())

    table.remove_topics(["t"])
    table.remove_topics(["t"])

    assert (len(table), table.topic_count(), table.leadership_count()) == (1, 1, 0)
    assert table.row(T0) == NO_ROW
    assert table.all().tolist() == [table.row(U0)]
    rows = table.put_assignments(Assignments.of({tp("v-0"): Assignment((4,)), tp("v-7"): Assignment((5, 1))}))
    assert set(rows.tolist()) == freed
    view = table.view(table.row(tp("v-7")))
    assert (view.topic, view.partition, view.replicas) == ("v", 7, (5, 1))
    assert (view.state, view.leadership, view.isr) == (PartitionState.ABSENT, None, ())
    assert set(view.replica_states.values()) == {ReplicaState.ABSENT}
    assert not len(table.dirs_offline(1))
    assert len(table) == 3
    assert not table.rows(rows).queued.any()


def test_free_rows_are_in_no_query_result() -> None:
    table = table_of(t0=(1, 2), u0=(1, 2))
    lead(table, T0, 1, 2)
    table.remove_topics(["t"])

    assert not len(table.led_by(1))
    assert not len(table.led_by_none_of(BrokerSet()))
    assert not len(table.with_leadership())
    assert table.in_state(PartitionState.ABSENT).tolist() == [table.row(U0)]
    assert table.with_replica_on({1, 2, -1}).tolist() == [table.row(U0)]
    assert not len(table.with_replica_on([-1]))


def test_unknown_partition_has_no_row() -> None:
    table = table_of(t3=(1,))

    assert [table.row(tp(name)) for name in ("t-0", "t-4", "u-0")] == [NO_ROW] * 3
    assert table.row(TopicPartition("t", -1)) == NO_ROW
    with pytest.raises(NotFound, match="t-4"):
        table.rows_named([tp("t-3"), tp("t-4")])


def test_unknown_partitions_are_left_out() -> None:
    table = table_of(t0=(1,), t1=(2,))

    rows = table.rows_known([T1, tp("t-4"), T0])

    assert rows.tolist() == [table.row(T1), table.row(T0)]


def test_table_grows_by_bulk_and_by_single_rows() -> None:
    table = Table()

    for number in range(300):
        table.put_assignment(TopicPartition("t", number), Assignment((number, number + 1)))
    table.put_assignments(Assignments.of({TopicPartition("u", number): Assignment((7,)) for number in range(500)}))

    assert len(table) == 800
    assert table.view(table.row(tp("t-299"))).replicas == (299, 300)
    assert table.view(table.row(tp("u-499"))).replicas == (7,)
    assert table.rows(table.all()).partition.tolist() == [*range(300), *range(500)]
    assert 800 * 20 < table.nbytes < 800 * 150


# -- slots -------------------------------------------------------------------------------------------------------------


def test_new_assignment_keeps_the_state_of_each_broker() -> None:
    table = table_of(t0=(1, 2, 3))
    lead(table, T0, 1, 3, 9)
    row = table.row(T0)
    for broker, state in ((1, ReplicaState.ONLINE), (2, ReplicaState.OFFLINE), (3, ReplicaState.NEW)):
        table.admit_replica(row, broker, state)
    table.mark_dirs(3, np.array([row]), True)

    table.put_assignment(T0, Assignment((4, 3, 1), adding=(4,), removing=(1,)))

    view = table.view(row)
    assert (view.replicas, view.adding, view.removing) == ((4, 3, 1), (4,), (1,))
    assert view.isr == (3, 1, 9)
    assert view.replica_states == {
        4: ReplicaState.ABSENT,
        3: ReplicaState.NEW,
        1: ReplicaState.ONLINE,
        2: ReplicaState.OFFLINE,  # no longer assigned, still a replica
    }
    assert table.dirs_offline(3).tolist() == [row]
    assert table.width == 5


def test_row_without_replicas_is_laid_out_anew() -> None:
    table = table_of(t0=(1, 2, 3))
    row = table.row(T0)
    table.mark_dirs(1, np.array([row]), True)
    rows = table.rows(np.array([row]))
    table.apply(Change.of(rows, assigned=np.zeros_like(rows.assigned)))  # as after deletion of the last replica

    table.put_assignments(Assignments.of({T0: Assignment((3, 4))}))

    lead(table, T0, 3, 2)
    assert table.view(row).isr == (3, 2)
    assert not len(table.dirs_offline(3))


def test_admitting_a_broker_widens_the_table_once() -> None:
    table = table_of(t0=(1, 2, 3), t1=(1,))
    row_numbers = table.rows_named([T0, T1])

    table.admit(row_numbers, np.array([[9, 9], [-1, 8], [9, 1]], np.int32))
    table.admit(row_numbers, np.array([[9, 9]], np.int32))

    rows = table.rows(row_numbers)
    assert table.width == 4
    assert rows.replicas.T.tolist() == [[1, 2, 3, 9], [1, 9, 8, -1]]
    assert rows.assigned.sum(axis=0).tolist() == [3, 1]
    assert not rows.in_sync.any()


def test_change_planned_before_the_table_widened_is_applied() -> None:
    table = table_of(t0=(1, 2, 3))
    lead(table, T0, 1, 2)
    rows = table.rows(table.all())
    table.admit(table.all(), np.array([[9]], np.int32))

    table.apply(Change.of(rows, in_sync=rows.replicas == 3, leader=np.array([3], np.int32)))

    assert table.view(table.row(T0)).isr == (3,)
    assert table.view(table.row(T0)).leader == 3


def test_states_of_all_replicas_are_set_on_brokers_only() -> None:
    table = table_of(t0=(1,), u0=(1, 2, 3))

    table.set_replica_states(table.all(), ReplicaState.ONLINE)
    table.admit(table.rows_named([T0]), np.array([[9]], np.int32))

    assert table.view(table.row(T0)).replica_states == {1: ReplicaState.ONLINE}
    assert set(table.view(table.row(U0)).replica_states.values()) == {ReplicaState.ONLINE}


def test_missing_stored_leadership_keeps_the_known_one() -> None:
    table = table_of(t0=(1, 2), t1=(1, 2), u0=(1, 2))
    for name in (T0, T1, U0):
        lead(table, name, 2, 1)
    loaded = Leaderships.of([led(1, 9, (1,), 4), None, led(5, 9, (5,), 4)])
    loaded.status[2] = Found.UNREADABLE

    table.put_leaderships(table.rows_named([T0, T1, U0]), loaded)

    views = [table.view(table.row(name)).leadership for name in (T0, T1, U0)]
    assert views == [led(1, 9, (1,), 4), led(2, 1, (1, 2), 3), led(2, 1, (1, 2), 3)]
    assert table.width == 3


# -- topics ------------------------------------------------------------------------------------------------------------


def test_topic_keeps_its_id() -> None:
    table = Table()

    table.add_topic("t", b"i" * 16)
    table.add_topic("t")

    assert table.topic("t").ref.id == b"i" * 16  # type: ignore[union-attr]
    with pytest.raises(IllegalState, match="topic t has the id"):
        table.add_topic("t", b"j" * 16)
    number = table.topic("t").number  # type: ignore[union-attr]
    table.remove_topics(["t"])
    with pytest.raises(IllegalState, match="is free"):
        table.topic_at(number)


def test_queries_exclude_topics_queued_for_deletion() -> None:
    table = table_of(t0=(1, 2), u0=(1, 2))
    lead(table, T0, 1)
    lead(table, U0, 1)

    table.queue_topic("t", True)
    table.queue_topic("unknown", True)

    here = [table.row(U0)]
    assert table.led_by(1).tolist() == here
    assert table.with_leadership().tolist() == here
    assert table.led_by_none_of(BrokerSet()).tolist() == here
    assert table.in_state(PartitionState.ABSENT).tolist() == here
    assert table.with_replica_on([1]).tolist() == [table.row(T0), table.row(U0)]
    table.queue_topic("t", False)
    assert len(table.with_leadership()) == 2


# -- random sequences --------------------------------------------------------------------------------------------------

names = st.builds(TopicPartition, st.sampled_from("tuv"), st.integers(0, 2))
members = st.lists(st.integers(0, 6), max_size=5, unique=True)
STEPS = st.one_of(
    st.tuples(st.just("assign"), st.dictionaries(names, members, min_size=1, max_size=3)),
    st.tuples(st.just("lead"), names, members),
    st.tuples(st.just("state"), names, st.integers(0, 6), st.sampled_from(ReplicaState)),
    st.tuples(st.just("dir"), names, st.integers(0, 6), st.booleans()),
    st.tuples(st.just("remove"), st.sampled_from("tuv")),
)


@given(st.lists(STEPS, max_size=25))
def test_table_agrees_with_a_dictionary_model(steps: list[tuple[object, ...]]) -> None:
    table = Table(width=1)
    replicas: dict[TopicPartition, list[int]] = {}
    isrs: dict[TopicPartition, set[int]] = {}
    states: dict[TopicPartition, dict[int, ReplicaState]] = {}
    for step in steps:
        match step:
            case ("assign", dict() as assignments):
                table.put_assignments(
                    Assignments.of({name: Assignment(tuple(brokers)) for name, brokers in assignments.items()})
                )
                for name, brokers in assignments.items():
                    replicas[name] = brokers
                    isrs.setdefault(name, set())
                    states.setdefault(name, {})
            case ("lead", TopicPartition() as name, list() as isr) if name in replicas:
                leadership = led(-1, 0, isr)
                table.put_leaderships(table.rows_named([name]), Leaderships.of([leadership]))
                isrs[name] = set(isr)
            case ("state", TopicPartition() as name, int() as broker, ReplicaState() as state) if name in replicas:
                table.admit_replica(table.row(name), broker, state)
                states[name][broker] = state
            case ("dir", TopicPartition() as name, int() as broker, bool() as offline) if name in replicas:
                table.mark_dirs(broker, table.rows_named([name]), offline)
            case ("remove", str() as topic):
                table.remove_topics([topic])
                for known in (replicas, isrs, states):
                    for name in [name for name in known if name.topic == topic]:
                        del known[name]

        assert len(table) == len(replicas)
        rows = table.rows(table.all())
        names = set()
        for position, row in enumerate(rows.index.tolist()):
            view = table.view(row)
            names.add(view.name)
            assert table.row(view.name) == row
            members = [broker for broker in rows.replicas[:, position].tolist() if broker != -1]
            assert len(members) == len(set(members)), "a broker has one slot"
            assert list(view.replicas) == replicas[view.name]
            assert set(view.isr) == isrs[view.name]
            expected = {id: state for id, state in states[view.name].items() if state != ReplicaState.ABSENT}
            assert {id: state for id, state in view.replica_states.items() if state != ReplicaState.ABSENT} == expected
        assert names == replicas.keys()
        free = rows.replicas == -1
        for name in ("assigned", "in_sync", "adding", "removing", "dir_offline"):
            assert not getattr(rows, name)[free].any(), f"{name} is marked on a free slot"
        assert (rows.replica_state[free] == ReplicaState.ABSENT).all()
