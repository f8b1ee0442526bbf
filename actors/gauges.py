"""Readings of the gauges. They are zero while another instance is the controller."""

import functools
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from kactl.decide.machines.shards import ShardState, shard_rows, states_of
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.min_isr import under_and_at
from kactl.decide.state.replica_reports import ReplicaReport
from kactl.model import PartitionState, ReplicaState, ReplicaStatus
from kactl.telemetry.metrics import Reading
from kactl.telemetry.scope import version

from .channels import Channels
from .controller import ControllerLoop
from .machines.partitions import Partitions
from .machines.replicas import Replicas
from .machines.topic_settings import TopicSettings
from .remote_sessions import RemoteSessions

_NO_ATTRIBUTES: Mapping[str, str | int] = {}


def readings(
    loop: ControllerLoop,
    partitions: Partitions,
    replicas: Replicas,
    channels: Channels,
    sessions: RemoteSessions,
    topic_settings: TopicSettings,
) -> dict[str, Reading]:
    """Returns a reading for each gauge and counter, by name."""
    cluster = loop.cluster

    def mailboxes(read: Callable[[ControllerLoop | Partitions | Replicas], int]) -> Reading:
        return lambda: [(read(actor), {"kactl.actor": actor.name}) for actor in (loop, partitions, replicas)]

    def by_broker(read: Callable[[int], float]) -> Reading:
        return lambda: [(read(channel.broker.id), {"kafka.broker.id": channel.broker.id}) for channel in channels.all()]

    def min_isr() -> tuple[int, int]:
        return under_and_at(cluster, topic_settings.min_isr_of_topics(cluster.table)) if loop.is_active else (0, 0)

    return {
        "kafka.controller.active.count": _one(lambda: int(loop.is_active)),
        "kafka.controller.state": _one(lambda: int(loop.state)),
        "kafka.controller.topic.count": _one(lambda: cluster.table.topic_count()),
        "kafka.controller.partition.count": _one(lambda: cluster.table.leadership_count()),
        "kafka.partition.offline": _one(lambda: cluster.offline_replicated_count),
        "kafka.partition.underReplicated": _one(lambda: len(cluster.table.under_replicated())),
        "kafka.controller.partition.under_min_isr": _one(lambda: min_isr()[0]),
        "kafka.controller.partition.at_min_isr": _one(lambda: min_isr()[1]),
        "kafka.controller.partition.preferred_imbalance": _one(lambda: cluster.imbalance_count),
        "kafka.controller.topic.deletion.pending": _one(lambda: len(cluster.topics_to_delete)),
        "kafka.controller.topic.deletion.ineligible": _one(lambda: len(cluster.deletion_ineligible)),
        "kafka.controller.replica.deletion.pending": _one(lambda: _replicas_to_delete(cluster)),
        "kafka.controller.replica.deletion.ineligible": _one(
            lambda: _queued_replicas(cluster, ReplicaState.DELETION_INELIGIBLE)
        ),
        "kafka.controller.partition.reassigning": _one(lambda: len(cluster.reassigning)),
        "kafka.leader.count": lambda: _by_id(cluster, _leaders(cluster)),
        "kafka.partition.count": lambda: _by_id(
            cluster, cluster.table.column("replicas")[cluster.table.column("assigned")]
        ),
        "kafka.controller.broker.active": _one(lambda: len(cluster.brokers)),
        "kafka.controller.broker.fenced": _one(lambda: len(cluster.fenced)),
        "kactl.replica.status.count": lambda: _by_status(cluster),
        "kactl.replica.failures": lambda: _by_failing_topic(cluster, lambda report: report.failures),
        "kactl.replica.next_attempt": lambda: _by_failing_topic(
            cluster, lambda report: ((report.next_ms or 0.0) - loop.clock.monotonic_ms()) / 1000
        ),
        "kactl.shard.state.count": lambda: _by_shard_state(cluster),
        "kactl.shard.owner.count": lambda: _by_owner(cluster),
        "kafka.controller.event.queue.size": _one(lambda: len(loop.inbox)),
        "kactl.controller.event.queue.oldest": _one(lambda: loop.inbox.oldest_ms / 1000),
        "kafka.controller.broker.queue.size": by_broker(lambda broker: len(channels[broker])),
        "kactl.controller.broker.queue.oldest": by_broker(lambda broker: channels[broker].oldest_ms / 1000),
        "kactl.partition.unavailable.oldest": _one(
            lambda: loop.context.history.outages.oldest_ms(loop.clock.monotonic_ms()) / 1000 if loop.is_active else 0.0
        ),
        "kactl.build_info": _build_info,
        "kactl.controller.epoch": _one(lambda: cluster.fence.epoch),
        "kactl.standby.partition.count": _one(lambda: loop.standby.copied),
        "kactl.actor.mailbox.size": mailboxes(lambda actor: len(actor.inbox)),
        "kactl.actor.mailbox.refused.count": mailboxes(lambda actor: actor.inbox.refused),
        "kactl.actor.busy.duration": lambda: [
            (actor.busy_ms / 1000, {"kactl.actor": actor.name}) for actor in (loop, partitions, replicas)
        ],
        "kactl.event.started": lambda: [
            (count, {"kactl.event.kind": label}) for label, count in loop.events.started.items()
        ],
        "kactl.event.unchanged": lambda: [
            (count, {"kactl.event.kind": label}) for label, count in loop.events.unchanged.items()
        ],
        "kactl.isr.proposal.rejected": _counted(loop.context.proposals_rejected, "error"),
        "kactl.transitions.refused": lambda: [
            (count, {"machine": machine, "from": before, "to": after})
            for machine, actor in (("partition", partitions), ("replica", replicas))
            for (before, after), count in actor.refused.items()
        ],
        "kactl.event.timed_out": _one(lambda: loop.inbox.abandoned),
        "kafka.isr.operation.count": _counted(loop.context.isr_operations, "operation"),
        "kactl.controller.session.count": _one(lambda: len(sessions)),
        "kactl.controller.heartbeat.count": _counted(sessions.heartbeats, "kactl.heartbeat.verdict"),
        "kactl.controller.session.ended.count": _counted(sessions.ended, "kactl.session.cause"),
        "kactl.controller.change.count": _one(lambda: loop.controllership.elections_won),
        "kactl.assignment.rewritten.count": _one(lambda: loop.hosting.rewritten),
        "kafka.leaderElection.unclean.count": _one(lambda: partitions.unclean_elections),
    }


def _replicas_to_delete(cluster: Cluster) -> int:
    return _queued_replicas(cluster) - _queued_replicas(cluster, ReplicaState.DELETION_SUCCESSFUL)


def _queued_replicas(cluster: Cluster, state: ReplicaState | None = None) -> int:
    """Returns the number of replicas of topics that wait for deletion, in one state or in any."""
    count = 0
    for name in cluster.topics_to_delete:
        topic = cluster.table.topic(name)
        if topic is not None:
            rows = cluster.table.rows(cluster.table.rows_of(topic))
            counted = rows.assigned if state is None else rows.assigned & (rows.replica_state == state)
            count += int(np.count_nonzero(counted))
    return count


def _leaders(cluster: Cluster) -> Any:
    """Returns the leader of each partition. A partition has none once its deletion has begun."""
    return cluster.table.column("leader")[cluster.table.column("state") != PartitionState.ABSENT]


def _by_id(cluster: Cluster, column: Any) -> list[tuple[float, Mapping[str, str | int]]]:
    brokers, counts = np.unique(column, return_counts=True)
    count_of = dict(zip(brokers.tolist(), counts.tolist(), strict=True))
    return [(count_of.get(broker, 0), {"kafka.broker.id": broker}) for broker in cluster.brokers]


def _by_status(cluster: Cluster) -> list[tuple[float, Mapping[str, str | int]]]:
    counts = cluster.replica_status_counts()
    return [
        (counts[status], {"kactl.replica.status": status.name.lower()})
        for status in ReplicaStatus
        if status is not ReplicaStatus.READY
    ]


def _by_failing_topic(
    cluster: Cluster, value_of: Callable[[ReplicaReport], float]
) -> list[tuple[float, Mapping[str, str | int]]]:
    values: dict[str, float] = {}
    for name, _, report in cluster.reported_replicas():
        if report.fails:
            values[name.topic] = max(values.get(name.topic, 0.0), value_of(report))
    return [(value, {"kafka.topic": topic}) for topic, value in values.items()]


def _by_shard_state(cluster: Cluster) -> list[tuple[float, Mapping[str, str | int]]]:
    states = states_of(cluster, cluster.table.rows(shard_rows(cluster)))
    counts = np.bincount(states, minlength=len(ShardState)).tolist()
    return [(counts[state], {"kactl.shard.state": state.label}) for state in ShardState]


def _by_owner(cluster: Cluster) -> list[tuple[float, Mapping[str, str | int]]]:
    return _by_id(cluster, cluster.table.column("leader")[shard_rows(cluster)])


def _counted(counter: Counter[str], attribute: str) -> Reading:
    return lambda: [(count, {attribute: kind}) for kind, count in counter.items()]


@functools.cache  # reading the version takes a millisecond
def _build_info() -> list[tuple[float, Mapping[str, str | int]]]:
    return [(1, {"version": version(), "python": platform.python_version()})]


def _one(read: Callable[[], float]) -> Reading:
    def reading() -> Iterable[tuple[float, Mapping[str, str | int]]]:
        return [(read(), _NO_ATTRIBUTES)]

    return reading
