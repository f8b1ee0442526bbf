"""Leadership as JSON: many records decoded into columns, and rows of a write encoded.

The records of a response are decoded together, as lines, by the decoder of a single record. That succeeds only if each
record is valid: a text that begins and ends as an object does, without more braces than records, is one object, or
makes the whole invalid. If the whole is invalid each record is decoded by itself, and malformed ones are returned with
the reason.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from kactl.decide.state.rows import Ints, RowNumbers, some
from kactl.model import NO_BROKER, NO_EPOCH, NO_LEADER, NO_VERSION
from kactl.stores.base import Found, Leaderships, Write

from . import records

_STATE: Final = b'{"controller_epoch":%d,"leader":%d,"version":1,"leader_epoch":%d,"isr":[%s]%s}'
_RECOVERING: Final = b',"leader_recovery_state":1'


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """The stored states of some partitions.

    Attributes:
        unreadable: the indexes of malformed nodes, and the reason of each.
    """

    states: Leaderships
    unreadable: Sequence[tuple[int, str]] = ()


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


def block(data: list[bytes | None], versions: Ints, failed: Sequence[tuple[int, Found]] = ()) -> Block:
    """Returns the block of the records that were read, and their versions.

    Args:
        failed: the index among all partitions of each record that was not read, ascending, and why.
    """
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


def _all_at_once(data: Sequence[bytes | None]) -> list[records.StateNode] | None:
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
        nodes = records.decode_states(lines)
    except records.Malformed:
        return None
    return nodes if len(nodes) == len(data) else None


def _one_by_one(data: Sequence[bytes | None], unreadable: list[tuple[int, str]]) -> Iterator[records.StateNode]:
    for index, text in enumerate(data):
        try:
            node = records.decode_state(text)
        except records.Malformed as error:
            unreadable.append((index, str(error)))
            node = _NOTHING
        yield node


_NOTHING: Final = records.StateNode(NO_EPOCH, NO_LEADER, NO_EPOCH, [])


def _columns(nodes: Sequence[records.StateNode], versions: Ints) -> Leaderships:
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


def encode(write: Write, selection: RowNumbers, epoch: int) -> list[bytes]:
    """Returns the data of some rows' nodes."""
    isr_texts: dict[tuple[int, ...], bytes] = {}
    columns = zip(
        write.leader[selection].tolist(),
        write.leader_epoch[selection].tolist(),
        zip(*write.isr[:, selection].tolist(), strict=True) if len(write.isr) else [()] * len(selection),
        write.recovering[selection].tolist(),
        strict=True,
    )
    data = []
    for leader, leader_epoch, isr, recovering in columns:
        text = isr_texts.get(isr)
        if text is None:
            text = isr_texts[isr] = b",".join(b"%d" % broker for broker in isr if broker != NO_BROKER)
        data.append(_STATE % (epoch, leader, leader_epoch, text, _RECOVERING if recovering else b""))
    return data
