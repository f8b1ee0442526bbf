"""Offline and imbalance counters: after every change they equal a recount."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kactl.decide.machines import partition
from kactl.decide.machines.election import Election
from kactl.decide.outbound.batch import RequestBatch
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import RowNumbers
from kactl.model import Assignment, PartitionState, ReplicaState, TopicPartition
from kactl.stores.base import Assignments, Leaderships
from tests.oracle.model import Leading, ObjectCluster, Partition
from tests.support import sync_machines as columns
from tests.support.cluster_seeds import ClusterSeed, led, seed_broker
from tests.support.cluster_strategies import TOPICS, cluster_seeds_drawn
from tests.support.marks import at_most

IDS = st.integers(0, 5)
NAMES = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 2))
MEMBERS = st.lists(IDS, max_size=4, unique=True)


class Counting(RuleBasedStateMachine):
    """Random sequences of cluster changes."""

    cluster: Cluster

    @initialize(seed=cluster_seeds_drawn())
    def begin(self, seed: ClusterSeed) -> None:
        self.cluster = seed.columns()

    def chosen(self, data: st.DataObject) -> RowNumbers:
        """Return random rows of the cluster."""
        rows = self.cluster.table.all().tolist()
        return np.array(data.draw(st.lists(st.sampled_from(rows), unique=True)) if rows else [], np.intp)

    @rule(names=st.lists(NAMES, min_size=1, max_size=3, unique=True), data=st.data())
    def assign(self, names: list[TopicPartition], data: st.DataObject) -> None:
        assignments = {}
        for name in names:
            replicas = data.draw(MEMBERS)
            if data.draw(st.booleans()):
                assignments[name] = self.cluster.assignment(name).reassign_to(tuple(replicas))
            else:
                assignments[name] = Assignment(tuple(replicas))
        self.cluster.put_assignments(Assignments.of(assignments))

    @rule(data=st.data(), isr=MEMBERS, leader=st.integers(-1, 5), epoch=st.integers(0, 3))
    def read(self, data: st.DataObject, isr: list[int], leader: int, epoch: int) -> None:
        rows = self.chosen(data)
        states = [led(leader, epoch, isr, epoch) if data.draw(st.integers(0, 3)) else None for _ in rows]
        self.cluster.put_leaderships(rows, Leaderships.of(states))

    @rule(data=st.data(), state=st.sampled_from(PartitionState))
    def put_state(self, data: st.DataObject, state: PartitionState) -> None:
        self.cluster.set_states(self.chosen(data), state)

    @rule(data=st.data(), to=st.sampled_from([PartitionState.NEW, PartitionState.OFFLINE, PartitionState.ABSENT]))
    def move(self, data: st.DataObject, to: PartitionState) -> None:
        columns.move_partitions(self.cluster, self.chosen(data), to)

    @rule(data=st.data(), election=st.sampled_from(Election))
    def elect(self, data: st.DataObject, election: Election) -> None:
        columns.go_online(self.cluster, RequestBatch(self.cluster), self.chosen(data), election)

    @rule(data=st.data(), election=st.sampled_from(Election), leader=st.integers(-1, 5))
    def elect_from_what_was_read_again(self, data: st.DataObject, election: Election, leader: int) -> None:
        rows = self.cluster.table.rows(self.chosen(data))
        rows = rows.take(rows.has_leadership)
        rows = rows.replace(
            leader=np.full(len(rows), leader, np.int32),
            in_sync=rows.assigned,
            partition_epoch=rows.partition_epoch + 1,
        )
        nowhere = np.zeros(len(rows), np.bool_)
        change = partition.elect(rows, election, self.cluster.live_brokers, unclean=nowhere, controller_epoch=1)
        self.cluster.apply(columns.committed(change).take(change.writes))

    @rule(data=st.data(), id=IDS, to=st.sampled_from(ReplicaState))
    def move_replicas(self, data: st.DataObject, id: int, to: ReplicaState) -> None:
        batch, rows = RequestBatch(self.cluster), self.chosen(data)
        if to == ReplicaState.OFFLINE:
            columns.replicas_offline(self.cluster, batch, rows, [id])
        else:
            columns.move_replicas(self.cluster, batch, rows, [id], to)

    @rule(data=st.data(), id=IDS, offline=st.booleans())
    def fail_directory(self, data: st.DataObject, id: int, offline: bool) -> None:
        self.cluster.table.mark_dirs(id, self.chosen(data), offline)

    @rule(id=IDS, change=st.sampled_from(["come", "go", "fail", "leave", "stay"]))
    def change_broker(self, id: int, change: str) -> None:
        match change:
            case "come":
                self.cluster.add_brokers([seed_broker(id)])
            case "go":
                self.cluster.remove_brokers([id])
            case "fail":
                columns.broker_failed(self.cluster, id)
            case "leave" | "stay":
                self.cluster.mark_shutting_down(id, change == "leave")

    @rule(topics=st.sets(st.sampled_from(TOPICS), max_size=2))
    def queue(self, topics: set[str]) -> None:
        self.cluster.queue_deletion(topics)

    @rule(topics=st.sets(st.sampled_from(TOPICS), max_size=2))
    def begin_deletion(self, topics: set[str]) -> None:
        self.cluster.begin_deletion(topics)

    @rule(topic=st.sampled_from(TOPICS))
    def remove(self, topic: str) -> None:
        self.cluster.remove_topic(topic)

    @invariant()
    def both_counts_are_right(self) -> None:
        if not hasattr(self, "cluster"):
            return
        counted = (self.cluster.offline_count, self.cluster.imbalance_count)
        assert counted == self.cluster.count_again()
        objects = as_objects(self.cluster)
        assert counted == (objects.count_offline(), objects.count_imbalanced())


def as_objects(cluster: Cluster) -> ObjectCluster:
    """Object model of the cluster, as far as the counters need it."""
    objects = ObjectCluster(0, 0, topics_to_delete=cluster.topics_to_delete, deletion_started=cluster.deletion_started)
    for row in cluster.table.all().tolist():
        view = cluster.table.view(row)
        leadership = view.leadership
        leading = (
            None
            if leadership is None
            else Leading(leadership.leader, leadership.leader_epoch, list(leadership.isr), 0, 0)
        )
        objects.partitions[view.name] = Partition(
            view.name, list(view.replicas), list(view.adding), state=view.state, leading=leading
        )
    return objects


TestCounting = Counting.TestCase
TestCounting.settings = settings(max_examples=at_most(80), stateful_step_count=15)
