"""Entries of topics in Metadata responses, from the controller's own table.

The entries are made while the response is written, step by step: those of 100,000 partitions are never in memory at the
same time, and the event loop runs other tasks in between. Each topic's rows are copied at once, so that its entry is
consistent.

Source: Kafka's ZkMetadataCache (getTopicMetadata, getPartitionMetadata), KafkaApis.handleTopicMetadataRequest.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kactl.decide.state.rows import Rows
from kactl.model import NO_BROKER, NO_LEADER, ZERO_ID
from kactl.model.errors import ErrorCode

from .field_types import Values

# Rows that are turned into Python objects at a time.
_CHUNK: Final = 256
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})
# First versions that report a missing listener as such, and names as null.
_LISTENER_ERRORS: Final = 6
_NULL_NAMES: Final = 12


class Listed(NamedTuple):
    """The registered brokers, by id: `reachable` have the listener that the client uses."""

    live: frozenset[int]
    reachable: frozenset[int]


class Named(NamedTuple):
    """A topic of a response. `name` is None if there is no topic with that id."""

    name: str | None
    id: bytes


class TopicEntries(Collection[Values]):
    """The entries of topics, made one by one.

    Args:
        rows_of: returns a copy of a topic's rows, by partition; None if there is no such topic.
        unknown: the error of topics that do not exist.
    """

    def __init__(
        self,
        topics: list[Named],
        rows_of: Callable[[str], Rows | None],
        listed: Listed,
        version: int,
        *,
        unknown: ErrorCode,
    ) -> None:
        self._topics = topics
        self._rows_of = rows_of
        self._listed = listed
        self._version = version
        self._unknown = unknown

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, entry: object) -> bool:
        return any(entry == other for other in self)

    def __iter__(self) -> Iterator[Values]:
        return map(self._entry, self._topics)

    def _entry(self, topic: Named) -> Values:
        if topic.name is None:
            name = None if self._version >= _NULL_NAMES else ""
            return {"error_code": ErrorCode.UNKNOWN_TOPIC_ID, "name": name, "topic_id": topic.id}
        entry: dict[str, Any] = {"name": topic.name, "topic_id": topic.id, "is_internal": topic.name in _INTERNAL}
        rows = self._rows_of(topic.name)
        if rows is None or rows.queued.any():
            # Brokers forget a topic as soon as its deletion begins.
            return {**entry, "error_code": self._unknown}
        elected = rows.take(rows.has_leadership)
        if not len(elected):
            return {**entry, "error_code": ErrorCode.LEADER_NOT_AVAILABLE}
        return {**entry, "partitions": _PartitionEntries(elected, self._listed, self._version)}


class _PartitionEntries(Collection[Values]):
    """The entries of the partitions of one topic."""

    def __init__(self, rows: Rows, listed: Listed, version: int) -> None:
        self._rows = rows
        self._listed = listed
        self._version = version

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, entry: object) -> bool:
        return any(entry == other for other in self)

    def __iter__(self) -> Iterator[Values]:
        for begin in range(0, len(self._rows), _CHUNK):
            yield from self._chunk(slice(begin, begin + _CHUNK))

    def _chunk(self, part: slice) -> Iterator[Values]:
        rows = self._rows
        columns = (rows.partition[part], rows.leader[part], rows.leader_epoch[part])
        slots = (rows.replicas, rows.assigned, rows.in_sync, rows.dir_offline)
        by_row = (column[:, part].T.tolist() for column in slots)
        for number, leader, epoch, *replicas in zip(*(column.tolist() for column in columns), *by_row, strict=True):
            yield self._entry(number, leader, epoch, *replicas)

    def _entry(
        self, number: int, leader: int, epoch: int, brokers: list[int], assigned: list[bool], in_sync: list[bool],
        failed: list[bool],
    ) -> Values:  # fmt: skip
        live = self._listed.live
        replicas = list(itertools.compress(brokers, assigned))
        isr = [broker for broker in itertools.compress(brokers, in_sync) if broker != NO_BROKER]
        offline = [
            broker
            for broker, is_assigned, has_failed in zip(brokers, assigned, failed, strict=True)
            if is_assigned and (has_failed or broker not in live)
        ]
        error = self._error(leader)
        if self._version == 0:
            # Clients of this version take no replicas that they cannot reach.
            reachable = [[broker for broker in some if broker in self._listed.reachable] for some in (replicas, isr)]
            if error is ErrorCode.NONE and reachable != [replicas, isr]:
                error = ErrorCode.REPLICA_NOT_AVAILABLE
            replicas, isr = reachable
        return {
            "error_code": error,
            "partition_index": number,
            "leader_id": leader if leader in self._listed.reachable else NO_LEADER,
            "leader_epoch": epoch,
            "replica_nodes": replicas,
            "isr_nodes": isr,
            "offline_replicas": offline,
        }

    def _error(self, leader: int) -> ErrorCode:
        if leader in self._listed.reachable:
            return ErrorCode.NONE
        if leader in self._listed.live and self._version >= _LISTENER_ERRORS:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.LEADER_NOT_AVAILABLE


def named(entries: Iterable[Mapping[str, Any]], ids: Mapping[bytes, str], known: Mapping[str, bytes]) -> list[Named]:
    """Returns the topics of a request, each once.

    Args:
        ids, known: the topics by id and by name.
    """
    topics: dict[Named, None] = {}
    for entry in entries:
        name = entry["name"]
        if name is None:
            topics[Named(ids.get(entry["topic_id"]), entry["topic_id"])] = None
        else:
            topics[Named(name, known.get(name, ZERO_ID))] = None
    return list(topics)
