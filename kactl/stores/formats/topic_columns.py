"""Assignments of many topics as columns, without an object for each partition."""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Final

import numpy as np

from kactl.decide.state.table import in_sync_of
from kactl.model import NO_BROKER, TopicRef
from kactl.stores.base import Assignments

from .records import TopicNode
from .states import members

# Records decoded at a time, before they become columns, which have a tenth of the size.
TOPICS_AT_ONCE: Final = 500


def columns(topics: Iterable[tuple[TopicRef, TopicNode]]) -> Assignments:
    """Returns the assignments of some topics, ascending by partition within each.

    Args:
        topics: decoded one after another, as they are taken.
    """
    refs: list[TopicRef] = []
    parts = []
    remaining = iter(topics)
    while read := list(islice(remaining, TOPICS_AT_ONCE)):
        parts.append(_part([node for _, node in read], first=len(refs)))
        refs += [ref for ref, _ in read]
    width = max((len(part.replicas) for part in parts), default=0)
    parts = [_widened(part, width) for part in parts] or [_part([], first=0)]
    return Assignments(
        tuple(refs),
        np.concatenate([part.topic for part in parts]),
        np.concatenate([part.partition for part in parts]),
        np.concatenate([part.replicas for part in parts], axis=1),
        np.concatenate([part.adding for part in parts], axis=1),
        np.concatenate([part.removing for part in parts], axis=1),
    )


def _part(nodes: Sequence[TopicNode], *, first: int) -> Assignments:
    """Returns the assignments of some topics, the first of which has the number `first`; without their names."""
    sizes = [len(node.partitions) for node in nodes]
    topic = np.repeat(np.arange(first, first + len(nodes), dtype=np.int32), sizes)
    partition = np.fromiter(chain.from_iterable(node.partitions for node in nodes), np.int32, len(topic))
    replicas = members(list(chain.from_iterable(node.partitions.values() for node in nodes)))
    adding, removing = np.zeros(replicas.shape, np.bool_), np.zeros(replicas.shape, np.bool_)
    begin = 0
    for node, size in zip(nodes, sizes, strict=True):
        of_topic = slice(begin, begin + size)
        for moved, marks in ((node.adding_replicas, adding), (node.removing_replicas, removing)):
            if moved:
                brokers = members([moved.get(number, ()) for number in node.partitions])
                marks[:, of_topic] = in_sync_of(replicas[:, of_topic], brokers)
        begin += size
    part = Assignments((), topic, partition, replicas, adding, removing)
    # Kafka writes the partitions of a large topic in the order of a hash.
    if ((np.diff(topic) == 0) & (np.diff(partition) < 0)).any():
        return part.take(np.lexsort((partition, topic)))
    return part


def _widened(part: Assignments, width: int) -> Assignments:
    more = ((0, width - len(part.replicas)), (0, 0))
    if not more[0][1]:
        return part
    return Assignments(
        part.topics,
        part.topic,
        part.partition,
        np.pad(part.replicas, more, constant_values=NO_BROKER),
        np.pad(part.adding, more),
        np.pad(part.removing, more),
    )
