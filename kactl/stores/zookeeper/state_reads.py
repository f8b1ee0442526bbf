"""Reads of many states in one request, with the response decoded into columns instead of an object for each node.

The data of all nodes of a response are decoded together, as lines, by the decoder of a single node. That succeeds only
if each node is valid: a text that begins and ends as an object does, without more braces than nodes, is one object, or
makes the whole invalid. If the whole is invalid each node is decoded by itself, and malformed nodes are returned with
the reason.

Source: ZooKeeper's MultiOperationRecord, MultiResponse and Stat.
"""

import dataclasses
import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar, Final

import numpy as np
from kazoo.exceptions import NoNodeError, ZookeeperError

from kactl.model import NO_BROKER, NO_EPOCH, NO_LEADER, NO_VERSION
from kactl.state.rows import Ints, some
from kactl.stores.base import Found, Leaderships, Names

from . import layout
from .state_paths import Paths

# About 80 KB of request and 160 KB of response: a server needs 2 ms for it, while the previous one is decoded.
STATES_AT_ONCE: Final = 1_000

_INT: Final = struct.Struct("!i")
_GET_DATA: Final = struct.pack("!i?i", 4, False, -1)
_END: Final = struct.pack("!i?i", -1, True, -1)
# The header of each result: its kind, the end flag, and its error.
_HEADER_SIZE: Final = 9
_FOUND: Final = struct.pack("!i?i", 4, False, 0)
_ERROR_KIND: Final = struct.pack("!i?", -1, False)
_NO_NODE: Final = -101
_STAT_SIZE: Final = 68
# Offset of the data version in a node's Stat.
_VERSION_AT: Final = 32


@dataclasses.dataclass(frozen=True, slots=True)
class ReadStates:
    """The states of some partitions in one multi-read; the response is a `Block`, in their order. It arms no watches.

    Needs a server of 3.6 or later; others return UnimplementedError.
    """

    paths: Paths

    type: ClassVar[int] = 22

    def __len__(self) -> int:
        return len(self.paths)

    def serialize(self) -> bytes:
        return self.paths.join(_GET_DATA) + _END  # the zero after each path means that it is not watched

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> "Block":
        return _decode(answer, offset)


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """The stored states of some partitions.

    Attributes:
        unreadable: the indexes of malformed nodes, and the reason of each.
    """

    states: Leaderships
    unreadable: Sequence[tuple[int, str]] = ()


def requests(names: Names, chroot: str) -> list[ReadStates]:
    """Returns the requests that read the states of some partitions."""
    paths = Paths.of(names, chroot)
    begins = range(0, len(names), STATES_AT_ONCE)
    return [ReadStates(paths.part(begin, begin + STATES_AT_ONCE)) for begin in begins]


def block(nodes: Sequence[Any]) -> Block:
    """Returns the block of nodes that were read one by one: (data, stat), or an error, for each."""
    failed = [
        (index, Found.MISSING if isinstance(node, NoNodeError) else Found.FAILED)
        for index, node in enumerate(nodes)
        if isinstance(node, ZookeeperError)
    ]
    read = [node for node in nodes if not isinstance(node, ZookeeperError)]
    versions = np.array([stat.version for _, stat in read], np.int32)
    return _block([data for data, _ in read], versions, failed)


def join(blocks: Sequence[Leaderships]) -> Leaderships:
    """Concatenate blocks."""
    width = max((len(block.isr) for block in blocks), default=0)
    padded = [np.pad(block.isr, ((0, width - len(block.isr)), (0, 0)), constant_values=NO_BROKER) for block in blocks]
    if not blocks:
        return Leaderships.of([])
    return Leaderships(
        isr=np.concatenate(padded, axis=1),
        **{
            field.name: np.concatenate([getattr(block, field.name) for block in blocks])
            for field in dataclasses.fields(Leaderships)
            if field.name != "isr"
        },
    )


def _decode(answer: bytes, offset: int) -> Block:
    data: list[bytes | None] = []
    ends: list[int] = []
    failed: list[tuple[int, Found]] = []
    length_at = _INT.unpack_from
    while True:
        header = answer[offset : offset + _HEADER_SIZE]
        offset += _HEADER_SIZE
        if header == _FOUND:
            (length,) = length_at(answer, offset)
            begin = offset + _INT.size
            offset = begin + length if length > 0 else begin
            data.append(answer[begin:offset] if length >= 0 else None)
            ends.append(offset)
            offset += _STAT_SIZE
        elif header == _END:
            break
        elif header.startswith(_ERROR_KIND):
            (code,) = length_at(answer, offset)
            offset += _INT.size
            failed.append((len(data) + len(failed), Found.MISSING if code == _NO_NODE else Found.FAILED))
        else:
            raise ValueError(f"a result begins with {header!r}")
    offsets = np.array(ends, np.intp)[:, np.newaxis] + np.arange(_VERSION_AT, _VERSION_AT + _INT.size)
    versions = np.frombuffer(answer, np.uint8)[offsets].view(">i4").ravel().astype(np.int32)
    return _block(data, versions, failed)


def _block(data: list[bytes | None], versions: Ints, failed: Sequence[tuple[int, Found]]) -> Block:
    nodes = _all_at_once(data)
    unreadable: list[tuple[int, str]] = []
    if nodes is None:
        nodes = list(_one_by_one(data, unreadable))
    if not failed and not unreadable:
        return Block(_columns(nodes, versions))
    count = len(data) + len(failed)
    status = np.full(count, Found.FOUND, np.uint8)
    for index, failure in failed:
        status[index] = failure
    # Convert indexes among the nodes that were read into indexes among all.
    rows = np.flatnonzero(status == Found.FOUND)
    malformed = [(int(rows[index]), reason) for index, reason in unreadable]
    for index, _ in unreadable:
        versions[index] = NO_VERSION
    status[[row for row, _ in malformed]] = Found.UNREADABLE
    return Block(_spread(_columns(nodes, versions), rows, status), malformed)


def _all_at_once(data: Sequence[bytes | None]) -> list[layout.StateNode] | None:
    """Returns the nodes, or None if one of them is, or may be, malformed."""
    try:
        lines = b"\n".join(data)  # type: ignore[arg-type]
    except TypeError:
        return None  # a node without data
    # Each node begins and ends as an object does, and no line ends within one.
    split = lines.startswith(b"{") and lines.endswith(b"}") and lines.count(b"}\n{") == len(data) - 1
    counts = lines.count(b"\n"), lines.count(b"{"), lines.count(b"}")
    if not split or counts != (len(data) - 1, len(data), len(data)):
        return None
    try:
        nodes = layout.decode_states(lines)
    except layout.Malformed:
        return None
    return nodes if len(nodes) == len(data) else None


def _one_by_one(data: Sequence[bytes | None], unreadable: list[tuple[int, str]]) -> Iterator[layout.StateNode]:
    for index, text in enumerate(data):
        try:
            node = layout.decode_state(text)
        except layout.Malformed as error:
            unreadable.append((index, str(error)))
            node = _NOTHING
        yield node


_NOTHING: Final = layout.StateNode(NO_EPOCH, NO_LEADER, NO_EPOCH, [])


def _columns(nodes: Sequence[layout.StateNode], versions: Ints) -> Leaderships:
    count = len(nodes)
    return Leaderships(
        status=np.full(count, Found.FOUND, np.uint8),
        leader=np.array([node.leader for node in nodes], np.int32),
        leader_epoch=np.array([node.leader_epoch for node in nodes], np.int32),
        isr=members([node.isr for node in nodes]),
        partition_epoch=versions,
        controller_epoch=np.array([node.controller_epoch for node in nodes], np.int32),
        recovering=np.array([node.leader_recovery_state for node in nodes], np.bool_),
    )


def members(lists: Sequence[Sequence[int]]) -> Ints:
    """int32[K, n]: lists of broker ids, padded with NO_BROKER; a repeated id is kept once."""
    sizes = np.fromiter(map(len, lists), np.intp, len(lists))
    width = int(sizes.max(initial=0))
    flat = np.fromiter(chain.from_iterable(lists), np.int32, int(sizes.sum()))
    table: Ints = np.full((len(lists), width), NO_BROKER, np.int32)
    table[np.arange(width) < sizes[:, np.newaxis]] = flat
    ordered = np.sort(table, axis=1)
    twice = some(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NO_BROKER)).T)
    for row in np.flatnonzero(twice).tolist():
        once = list(dict.fromkeys(lists[row]))
        table[row] = NO_BROKER
        table[row, : len(once)] = once
    return np.ascontiguousarray(table.T)


def _spread(states: Leaderships, rows: Any, status: Any) -> Leaderships:
    """Returns the rows that were read, at `rows`, among those that were not."""
    missing = Leaderships.of([None] * len(status))
    for field in dataclasses.fields(Leaderships):
        if field.name not in ("isr", "status"):
            getattr(missing, field.name)[rows] = getattr(states, field.name)
    isr = np.full((len(states.isr), len(status)), NO_BROKER, np.int32)
    isr[:, rows] = states.isr
    return dataclasses.replace(missing, isr=isr, status=status)
