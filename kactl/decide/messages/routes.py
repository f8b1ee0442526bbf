"""Routing metadata as it travels to spectators: the leader of every partition, and where it can be reached.

    spectator ── Watch: after version (7, 120) ──▶ controller
              ◀──────── Delta up to (7, 123) ─────             at once, or when something changes, or with nothing new
              ◀──────── Snapshot at (8, 4) ───────             if the controller does not know the version

Columns are little-endian bytes, so that a transport need not encode them row by row.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kactl.decide.state.records import Names
from kactl.decide.state.rows import Bools, Ints
from kactl.model import Broker, TopicRef
from kactl.model.errors import MalformedMessage

Longs = npt.NDArray[np.int64]
_INT: Final = np.dtype("<i4")
_LONG: Final = np.dtype("<i8")
# Topics of one report of a participant: more are rejected before they are decoded.
_TOPICS_MAX: Final = 20_000


class Version(NamedTuple):
    """Position in the changes of the metadata. `seq` counts the changes that one controllership has published."""

    controller_epoch: int
    seq: int


class Watch(msgspec.Struct, frozen=True, array_like=True, tag="watch"):
    """Request for the changes after a version.

    Attributes:
        after: version that the spectator has; None if it has nothing.
        wait_ms: how long the controller may wait for a change before it responds without one.
        topics: the topics of interest; None for all.
    """

    after: Version | None = None
    wait_ms: int = 0
    topics: tuple[str, ...] | None = None


class RouteColumns(msgspec.Struct, frozen=True, array_like=True):
    """Routes of n partitions. See `RouteRows`, into which they are decoded."""

    topics: tuple[str, ...]
    topic: bytes
    partition: bytes
    leader: bytes
    leader_epoch: bytes
    seq: bytes
    ready: bytes
    in_sync: bytes


class RemovedColumns(msgspec.Struct, frozen=True, array_like=True):
    """n partitions that do not exist any more. See `RemovedRows`."""

    topics: tuple[str, ...] = ()
    topic: bytes = b""
    partition: bytes = b""
    seq: bytes = b""


class Snapshot(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    """All routes of the topics of interest.

    Attributes:
        version: of the metadata.
        age_ms: how long before the response the controller was last known to be the active one.
        brokers: all registered brokers.
    """

    version: Version
    age_ms: float
    brokers: tuple[Broker, ...]
    routes: RouteColumns


class Delta(msgspec.Struct, frozen=True, array_like=True, tag="delta"):
    """Routes that have changed since the version of the request. Removals precede the changes.

    Attributes:
        version, age_ms: see `Snapshot`. The version is that of the request if nothing has changed.
        brokers: all registered brokers; None if they have not changed.
    """

    version: Version
    age_ms: float
    brokers: tuple[Broker, ...] | None
    routes: RouteColumns
    removed: RemovedColumns


RouteMessage = Snapshot | Delta


class LeaderColumns(msgspec.Struct, frozen=True, array_like=True):
    """Leaderships of n partitions on one broker. See `LeaderRows`."""

    topics: Annotated[tuple[str, ...], msgspec.Meta(max_length=_TOPICS_MAX)]
    topic: bytes
    partition: bytes
    leader_epoch: bytes
    leads: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class LeaderRows:
    """Leaderships of n partitions on one broker.

    Attributes:
        leader_epoch: int32[n].
        leads: bool[n], the leader acts under that epoch; False if it does so no more.
    """

    names: Names
    leader_epoch: Ints
    leads: Bools

    def encoded(self) -> LeaderColumns:
        names = self.names
        return LeaderColumns(
            tuple(ref.name for ref in names.topics),
            _bytes(names.topic, _INT),
            _bytes(names.partition, _INT),
            _bytes(self.leader_epoch, _INT),
            self.leads.tobytes(),
        )

    @classmethod
    def decoded(cls, columns: LeaderColumns) -> "LeaderRows":
        """Returns the columns as arrays.

        Raises:
            MalformedMessage: lengths differ, or a topic number is out of range.
        """
        partition = _array(columns.partition, _INT)
        topic = _sized(columns.topic, _INT, len(partition))
        _check_topics(topic, columns.topics)
        return cls(
            Names(tuple(map(TopicRef, columns.topics)), topic, partition),
            _sized(columns.leader_epoch, _INT, len(partition)),
            _sized(columns.leads, np.dtype(np.uint8), len(partition)) != 0,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class RemovedRows:
    """n removed partitions; `topics[topic[i]]` is the topic of row i, `seq` int64[n] the number of the removal."""

    topics: Sequence[str]
    topic: Ints
    partition: Ints
    seq: Longs

    def __len__(self) -> int:
        return len(self.partition)

    def encoded(self) -> RemovedColumns:
        return RemovedColumns(
            tuple(self.topics), _bytes(self.topic, _INT), _bytes(self.partition, _INT), _bytes(self.seq, _LONG)
        )

    @classmethod
    def decoded(cls, columns: RemovedColumns) -> "RemovedRows":
        """Returns the columns as arrays.

        Raises:
            MalformedMessage: lengths differ, or a topic number is out of range.
        """
        partition = _array(columns.partition, _INT)
        topic = _sized(columns.topic, _INT, len(partition))
        _check_topics(topic, columns.topics)
        return cls(columns.topics, topic, partition, _sized(columns.seq, _LONG, len(partition)))


@dataclasses.dataclass(frozen=True, slots=True)
class RouteRows:
    """Routes of n partitions; `topics[topic[i]]` is the topic of row i.

    Attributes:
        leader: int32[n]; NO_LEADER if there is none.
        seq: int64[n], number of the last change of each route.
        ready: bool[n], the leader has reported that it acts as the leader.
        in_sync: int32[W, n], the members of the ISR; NO_BROKER in free positions.
    """

    topics: Sequence[str]
    topic: Ints
    partition: Ints
    leader: Ints
    leader_epoch: Ints
    seq: Longs
    ready: Bools
    in_sync: Ints

    def __len__(self) -> int:
        return len(self.partition)

    def encoded(self) -> RouteColumns:
        return RouteColumns(
            topics=tuple(self.topics),
            topic=_bytes(self.topic, _INT),
            partition=_bytes(self.partition, _INT),
            leader=_bytes(self.leader, _INT),
            leader_epoch=_bytes(self.leader_epoch, _INT),
            seq=_bytes(self.seq, _LONG),
            ready=self.ready.tobytes(),
            in_sync=_bytes(self.in_sync, _INT),
        )

    @classmethod
    def decoded(cls, columns: RouteColumns) -> "RouteRows":
        """Returns the columns as arrays, which cannot be written to.

        Raises:
            MalformedMessage: lengths differ, or a topic number is out of range.
        """
        partition = _array(columns.partition, _INT)
        count = len(partition)
        topic = _sized(columns.topic, _INT, count)
        _check_topics(topic, columns.topics)
        in_sync = _array(columns.in_sync, _INT)
        if (len(in_sync) % count if count else len(in_sync)) != 0:
            raise MalformedMessage(f"{len(in_sync)} members of ISRs do not fit {count} partitions")
        return cls(
            topics=columns.topics,
            topic=topic,
            partition=partition,
            leader=_sized(columns.leader, _INT, count),
            leader_epoch=_sized(columns.leader_epoch, _INT, count),
            seq=_sized(columns.seq, _LONG, count),
            ready=_sized(columns.ready, np.dtype(np.uint8), count) != 0,
            in_sync=in_sync.reshape((len(in_sync) // count if count else 0, count)),
        )


def _bytes(column: Any, dtype: "np.dtype[Any]") -> bytes:
    content: bytes = np.ascontiguousarray(column, dtype).tobytes()
    return content


def _array(content: bytes, dtype: "np.dtype[Any]") -> Any:
    if len(content) % dtype.itemsize:
        raise MalformedMessage(f"a column has {len(content)} bytes, which is no multiple of {dtype.itemsize}")
    return np.frombuffer(content, dtype)


def _sized(content: bytes, dtype: "np.dtype[Any]", count: int) -> Any:
    column = _array(content, dtype)
    if len(column) != count:
        raise MalformedMessage(f"a column has {len(column)} rows, and another {count}")
    return column


def _check_topics(topic: Ints, topics: Sequence[str]) -> None:
    if len(topic) and (int(topic.min()) < 0 or int(topic.max()) >= len(topics)):
        raise MalformedMessage(f"rows name topics {int(topic.min())} to {int(topic.max())} of {len(topics)}")
