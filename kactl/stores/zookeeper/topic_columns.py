"""Assignments of many topic nodes as columns, without an object for each partition."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from kazoo.exceptions import NoNodeError, ZookeeperError

from kactl.model import NO_BROKER, TopicRef
from kactl.runtime.logs import logger
from kactl.state.table import in_sync_of
from kactl.stores.base import Assignments

from . import layout
from .state_reads import members

log = logger(__name__)

# Nodes decoded at a time, before they become columns, which have a tenth of the size.
TOPICS_AT_ONCE: Final = 500


def columns(wanted: Sequence[str], nodes: Sequence[Any]) -> Assignments:
    """Returns the assignments of some topics, ascending by partition within each.

    Args:
        wanted: the names of the topics.
        nodes: (data, stat), or an error, for each. Missing and unreadable topics are left out; the latter are logged.
    """
    refs: list[TopicRef] = []
    parts = []
    for begin in range(0, len(wanted), TOPICS_AT_ONCE):
        selection = slice(begin, begin + TOPICS_AT_ONCE)
        read = _decoded(wanted[selection], nodes[selection])
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


def _decoded(wanted: Sequence[str], nodes: Sequence[Any]) -> list[tuple[TopicRef, layout.TopicNode]]:
    read = []
    for name, node in zip(wanted, nodes, strict=True):
        if isinstance(node, NoNodeError):
            continue
        if isinstance(node, ZookeeperError):
            log.warning("%s could not be read, the topic is left out: %r", layout.topic(name), node)
            continue
        try:
            topic_id, topic = layout.decode_topic_node(node[0])
        except layout.Malformed as error:
            log.warning("%s is no assignment, the topic is left out: %s", layout.topic(name), error)
            continue
        read.append((TopicRef(name, topic_id), topic))
    return read


def _part(nodes: Sequence[layout.TopicNode], *, first: int) -> Assignments:
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
