"""Progress of topics towards leaders that serve, and towards brokers that know of them."""

from collections.abc import Callable, Collection
from itertools import zip_longest
from typing import Final, NamedTuple

import numpy as np

from kactl.decide.messages.admin import EnsureTopic, TopicProgress
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Rows
from kactl.model import NO_LEADER, TopicPartition

from .explain import handler_text, waits_for
from .placement import usable_brokers
from .shards import explain, failing, serving
from .shortage import too_few, unusable

# As many as an error message can name.
NAMED_MAX: Final = 5
# Partitions whose reasons are found at once, some 50 microseconds each. The others refer to `explain`.
EXPLAINED_MAX: Final = 200


class Delivery(NamedTuple):
    """Requests on their way to all brokers, up to one moment.

    Attributes:
        behind: (down) -> the brokers that have not answered all of them, also those that are down if `down`.
        last_error: returns why a broker cannot be reached; empty if it can.
    """

    behind: Callable[[bool], Collection[int]]
    last_error: Callable[[int], str]


def missing_brokers(cluster: Cluster, asked: EnsureTopic) -> str:
    """Returns why a topic cannot be created before more brokers have registered or linked; empty if it can.

    The brokers that count are those of `usable_brokers`, as for placement, also if an assignment names them.
    """
    if asked.kind == "ownership":
        return ""  # its partitions are owned as soon as there is a participant
    usable = {broker.id for broker in usable_brokers(cluster)}
    if asked.assignment is not None:
        named = {broker for assignment in asked.assignment.values() for broker in assignment.replicas}
        return unusable(cluster, named - usable)
    wanted = 1 if asked.replication_factor is None else asked.replication_factor
    if len(usable) >= wanted:
        return ""
    return too_few(cluster, usable, wanted)


def leader_epochs(cluster: Cluster, topic: str, count: int) -> bytes | None:
    """Returns a value that changes with each leader of a topic; None while a partition has none, or there are fewer."""
    rows = _rows_of(cluster, topic)
    if rows is None or len(rows) < count or not (rows.leader != NO_LEADER).all():
        return None
    return rows.index.tobytes() + rows.leader_epoch.tobytes()


def progress_of(
    cluster: Cluster,
    topic: str,
    *,
    count: int,
    created: bool = False,
    delivery: Delivery | None = None,
    ready_ms: float | None = None,
    led: bool = True,
    explained: bool = False,
) -> TopicProgress:
    """Returns which partitions of a topic wait for a leader, or for its acknowledgement, and which brokers are behind.

    Args:
        count: the number of partitions that the topic is to have at least.
        created: as the result states it.
        delivery: of the orders to the leaders. None: leaders only have to be registered.
        ready_ms: the time on the monotonic clock; leaders also have to serve, without a failure a moment ago. None:
            they need not.
        led: False if the partitions only have to be known.
        explained: the result has a reason for each partition that waits.
    """
    rows = _rows_of(cluster, topic)
    if rows is None:
        return TopicProgress(created, count, (f"topic {topic} is not known to the controller",))
    if len(rows) < count:
        return TopicProgress(created, count - len(rows), ("its partitions have not been read from the store",))
    if not led:
        return TopicProgress(created, 0)
    silent = frozenset(delivery.behind(True)) if delivery else frozenset[int]()
    complete = cluster.live_brokers.registered[rows.leader] & ~np.isin(rows.leader, list(silent))
    if ready_ms is not None:
        complete &= serving(cluster, rows) & cluster.readiness.are_settled(rows.index, ready_ms)
        complete &= ~failing(cluster, rows)
    waiting = np.flatnonzero(~complete)
    last_error = delivery.last_error if delivery else lambda broker: ""
    named = [
        _reason(cluster, TopicPartition(topic, int(rows.partition[row])), int(rows.leader[row]), silent, last_error)
        for row in waiting[: EXPLAINED_MAX if explained else NAMED_MAX].tolist()
    ]
    reasons = named[:NAMED_MAX]
    numbers = rows.partition[waiting].tolist() if explained else []
    partitions = dict(zip_longest(numbers, named if explained else [], fillvalue="`kactl explain` has the reason"))
    uninformed = sorted({*delivery.behind(False)} - {*rows.leader.tolist()}) if delivery else []
    reasons += [f"broker {broker} {_silent('the metadata', last_error(broker))}" for broker in uninformed[:NAMED_MAX]]
    return TopicProgress(created, len(waiting) + len(uninformed), tuple(reasons), partitions)


def _rows_of(cluster: Cluster, topic: str) -> Rows | None:
    known = cluster.table.topic(topic)
    return None if known is None else cluster.table.rows(np.asarray(cluster.table.rows_of(known)))


def _reason(
    cluster: Cluster, name: TopicPartition, leader: int, silent: Collection[int], last_error: Callable[[int], str]
) -> str:
    if leader == NO_LEADER:
        explanation = explain(cluster, name)
        if explanation is None:
            return f"{name} has no leader"
        return "; ".join((f"{name}: {explanation.verdict}", *explanation.remedies[:1]))
    if leader not in cluster.brokers:
        return f"{name}: its leader {leader} is not registered any more"
    row = cluster.table.row(name)
    report = cluster.replica_report(name, leader)
    state = "" if report is None else f": {handler_text(report)}"
    if row in cluster.table.dirs_offline(leader):
        return f"{name}: its leader {leader} has reported an error{state}"
    if leader in silent:
        return f"{name}: its leader {leader} {_silent('the order', last_error(leader))}{state}"
    if waited := waits_for(cluster, cluster.table.view(row)):
        return f"{name}: its leader {leader} waits for {waited}"
    return (
        f"{name}: its leader {leader} has not begun to lead{state or ': its handler still prepares, or has just begun'}"
    )


def _silent(what: str, error: str) -> str:
    return f"has not acknowledged {what}{f' ({error})' if error else ''}"
