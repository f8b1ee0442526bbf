"""Text of `kactl describe`."""

from collections.abc import Iterable, Sequence
from typing import Final

from kactl.admin.schema import (
    AnyEvent,
    BrokerInfo,
    ClusterInfo,
    ControllerInfo,
    PartitionExplanation,
    PartitionInfo,
    QueueInfo,
    ReassignmentInfo,
    Stoppable,
    TermInfo,
    TopicExplanation,
    TopicInfo,
)

from . import output, shards
from .explain import candidate_lines
from .get import broker_state, controller_values, drain_text, partition_table
from .output import BAD, NONE, PLAIN, WARN, Cell
from .watch import line

_DELETION: Final = {
    "none": "not requested",
    "halted": "halted, and continues by itself after this:",
    "running": "in progress:",
}
_STANDBY: Final = "only the controller knows this; the server is a standby"


def controller_lines(
    controller: ControllerInfo, cluster: ClusterInfo, queue: QueueInfo, terms: Sequence[TermInfo]
) -> list[str]:
    """Returns the lines of the controller."""
    current = NONE if queue.current is None else f"{queue.current.label}, for {queue.current.for_ms:,.1f}ms"
    values: list[tuple[str, Cell]] = [
        *controller_values(controller),
        ("current event", current),
        ("oldest event", f"{queue.oldest_ms:,.1f}ms"),
        ("brokers", f"{cluster.brokers} registered, {cluster.brokers_dead} dead"),
        ("partitions", f"{cluster.partitions:,} of {output.count(cluster.topics, 'topic')}"),
        ("health", cluster.status),
    ]
    lines = output.pairs(values)
    for check in cluster.checks:
        if check.result in ("warn", "fail", "unknown"):
            lines.append(f"  {check.result.upper()} {check.name}: {output.harmless(check.detail or NONE)}")
            if check.remedy:
                lines.append(f"    {output.harmless(check.remedy)}")
    lines += ["", "Controllers, newest last:"]
    return lines + [
        f"  epoch {term.epoch}: controller {term.controller_id}, {output.moment(term.began_ms)} to "
        f"{'now' if term.ended_ms is None else output.moment(term.ended_ms)}"
        f"{': ' + output.harmless(term.cause) if term.cause else ''}"
        for term in terms
    ]


def broker_lines(
    broker: BrokerInfo, stoppable: Stoppable | None, out_of_sync: Sequence[PartitionInfo], events: Iterable[AnyEvent]
) -> list[str]:
    """Returns the lines of a broker."""
    addresses = ", ".join(f"{each.listener}://{each.host}:{each.port} ({each.protocol})" for each in broker.endpoints)
    values: list[tuple[str, Cell]] = [
        ("broker", f"{shards.named(broker.id, broker.name)}{', the controller' if broker.is_controller else ''}"),
        ("state", broker_state(broker)),
        *([("drained", drain_text(broker.drain))] if broker.drain is not None else []),
        ("epoch", NONE if broker.epoch is None else str(broker.epoch)),
        ("rack", broker.rack or NONE),
        ("endpoints", addresses or NONE),
        ("link", _link(broker)),
        ("leads", f"{broker.leaders:,} partitions ({broker.leader_skew:+.1f}%)"),
        ("replicas", f"{broker.replicas:,} ({broker.replica_skew:+.1f}%)"),
        ("not in sync", (str(broker.out_of_sync), WARN if broker.out_of_sync else PLAIN)),
        *([("shards", f"owns {broker.shards:,}, standby of {broker.standby_shards:,}")] if broker.shards else []),
        *([("offers", ", ".join(broker.groups) or "no ownership topic")] if broker.groups is not None else []),
        ("requests waiting", f"{broker.queue_size}, the oldest for {output.duration(broker.queue_oldest_ms)}"),
        ("last error", (broker.last_error or NONE, BAD if broker.last_error else PLAIN)),
        (
            "can stop",
            _STANDBY if stoppable is None else ("yes. " if stoppable.stoppable else "no. ") + stoppable.explained,
        ),
    ]
    lines = output.pairs(values)
    if out_of_sync:
        lines += ["", "Partitions whose replica here is not in sync:", *partition_table(out_of_sync)]
    return lines + _events(events)


def topic_lines(
    topic: TopicInfo,
    config: dict[str, str] | None,
    explanation: TopicExplanation | None,
    partitions: Sequence[PartitionInfo],
) -> list[str]:
    """Returns the lines of a topic."""
    overrides = (
        "unknown: the store cannot be read" if config is None else " ".join(f"{k}={v}" for k, v in config.items())
    )
    values: list[tuple[str, Cell]] = [
        ("topic", topic.name),
        ("id", topic.id or NONE),
        *topic_sizes(topic),
        ("overrides", overrides or NONE),
        (
            "offline" if topic.kind == "replicated" else "without owner",
            (str(topic.offline_partitions), BAD if topic.offline_partitions else PLAIN),
        ),
        (
            "under-replicated",
            (str(topic.under_replicated_partitions), WARN if topic.under_replicated_partitions else PLAIN),
        ),
        ("deletion", _STANDBY if explanation is None else _DELETION[explanation.deletion]),
    ]
    waits = [] if explanation is None else [f"  {output.harmless(each)}" for each in explanation.waits_for]
    return [*output.pairs(values), *waits, "", *partition_table(partitions)]


def topic_sizes(topic: TopicInfo) -> list[tuple[str, Cell]]:
    """Returns the number of partitions and replicas of a topic, or of shards and standbys."""
    if topic.kind == "replicated":
        return [("partitions", f"{topic.partitions:,}"), ("replication", str(topic.replication_factor))]
    standby = NONE if topic.standby is None else str(topic.standby)
    return [("kind", topic.kind), ("shards", f"{topic.partitions:,}"), ("standbys", standby)]


def partition_lines(
    partition: PartitionInfo, explanation: PartitionExplanation | None, events: Iterable[AnyEvent]
) -> list[str]:
    """Returns the lines of a partition."""
    return [*output.pairs(_partition(partition)), "", *explanation_lines(explanation), *_events(events)]


def reassignment_lines(
    reassignment: ReassignmentInfo, partition: PartitionInfo, explanation: PartitionExplanation | None
) -> list[str]:
    """Returns the lines of a reassignment."""
    values: list[tuple[str, Cell]] = [
        *_partition(partition),
        ("adding", output.numbers(reassignment.adding)),
        ("removing", output.numbers(reassignment.removing)),
        ("waits for", reassignment.waits_for or NONE),
    ]
    return [*output.pairs(values), "", *explanation_lines(explanation)]


def explanation_lines(explanation: PartitionExplanation | None) -> list[str]:
    """Returns the reasons for the leader of a partition, and what would change it."""
    if explanation is None:
        return [f"Why it has this leader: {_STANDBY}."]
    return candidate_lines(explanation)


def _partition(item: PartitionInfo) -> list[tuple[str, Cell]]:
    minimum = NONE if item.min_insync_replicas is None else str(item.min_insync_replicas)
    if item.shard is not None:
        return _shard(item)
    states = ", ".join(f"{broker} {state.replace('_', ' ')}" for broker, state in item.replica_states.items())
    return [
        ("partition", f"{item.topic}-{item.partition}"),
        ("state", (item.state, PLAIN if item.state == "online" else BAD)),
        ("leader", (output.broker(item.leader), BAD if item.leader < 0 else PLAIN)),
        ("preferred", output.broker(item.preferred_leader)),
        ("leader epoch", output.broker(item.leader_epoch)),
        ("partition epoch", output.broker(item.partition_epoch)),
        ("controller epoch", output.broker(item.controller_epoch)),
        ("replicas", output.numbers(item.replicas)),
        ("isr", (output.numbers(item.isr), WARN if item.under_replicated else PLAIN)),
        (
            "min ISR",
            (f"{minimum}, not reached" if item.under_min_isr else minimum, BAD if item.under_min_isr else PLAIN),
        ),
        ("replica states", states or NONE),
        ("handlers", _handlers(item)),
    ]


def _shard(item: PartitionInfo) -> list[tuple[str, Cell]]:
    former = shards.former(item)
    return [
        ("shard", f"{item.topic}-{item.partition}"),
        ("state", shards.state(item)),
        ("owner", shards.owner(item)),
        *([("former owner", former)] if former != NONE else []),
        ("standbys", shards.standbys(item)),
        ("leader epoch", output.broker(item.leader_epoch)),
        ("handlers", _handlers(item)),
    ]


def _handlers(item: PartitionInfo) -> Cell:
    status = "; ".join(
        f"{broker} {each.status.replace('_', ' ')} for {output.duration(each.for_ms)}: {each.detail}"
        for broker, each in item.replica_status.items()
    )
    return (status, WARN) if status else NONE


def _events(events: Iterable[AnyEvent]) -> list[str]:
    lines = [_with_cause(event) for event in events]
    return ["", "Events, newest last:", *(f"  {each}" for each in lines)] if lines else []


def _with_cause(event: AnyEvent) -> str:
    because = getattr(event, "because", None)
    if because is None:
        return line(event)
    caller = f" for {because.caller}" if because.caller else ""
    return f"{line(event)}  because of {because.trigger}{caller}"


def _link(broker: BrokerInfo) -> Cell:
    if broker.linked is None:
        return NONE
    return ("open" if broker.linked else "lost") + f" since {output.moment(broker.linked_since_ms)}", (
        PLAIN if broker.linked else WARN
    )
