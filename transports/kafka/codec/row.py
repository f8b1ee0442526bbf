"""Partitions in bytes, from columns: many records at once, each at its place.

A partition's record has a size that depends on nothing but how many members its lists have, its *shape*. So rows are
grouped by shape; the records of a group are one packed big-endian numpy array, filled column by column; and each group
is then scattered over the places that its records have among the others and among the headings of the topics.

    number of topics │ heading t0 │ record │ record │ tags │ heading t1 │ record │ tags │ ...
"""

import dataclasses
import itertools
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kactl.decide.state.rows import Ints, RowNumbers
from kactl.decide.state.topics import AllTopics, Topics
from kactl.model import NO_BROKER, TopicRef

from .primitive import EMPTY_ARRAY, NO_TAGS, string, uvarint

Sizes = npt.NDArray[np.int64]
Content = npt.NDArray[np.uint8]

# (name of the column, numpy type), in the order of the wire. The tagged fields at a record's end are not named.
Layout = tuple[tuple[str, str], ...]
Columns = Mapping[str, npt.NDArray[Any] | None]  # None: all zero, or all lists empty
INT32: Final = ">i4"
BOOL: Final = "?"
INT8: Final = "i1"
LIST: Final = "list"  # of int32; in columns [W, n] with NO_BROKER in places to be passed over
# Shapes whose record type is kept. Replication factors and their halves: a hundred is a lively cluster.
_KEPT_SHAPES: Final = 1024
# Up to here a shape is numbered in 16 bits, for which numpy sorts in linear time.
_RADIX_KEYS: Final = 1 << 16
# Records that are filled at a time: 4096 of about 60 bytes stay in a core's cache until they are scattered.
_FILLED_AT_ONCE: Final = 4096
# Openings of one size for which a scatter of their own is cheaper than their bytes one by one.
_WORTH_A_GROUP: Final = 16
_Group = tuple[RowNumbers | slice, "_Record"]
_Record = tuple[npt.NDArray[Any], tuple[int, ...]]  # one record with its lists' lengths set, all else zero; the lengths


@dataclasses.dataclass(frozen=True, slots=True)
class TopicHeaders:
    """Headers of some topics: `content[begin[i]:begin[i] + size[i]]`."""

    content: Content
    begin: Sizes
    size: Sizes

    def __len__(self) -> int:
        return len(self.size)

    def take(self, which: npt.NDArray[np.int32]) -> "TopicHeaders":
        return TopicHeaders(self.content, self.begin[which], self.size[which])


@dataclasses.dataclass(slots=True)
class _Kept:
    """The headers of the topics of one table, as far as they have been used."""

    replaced: int
    headers: TopicHeaders


class TopicHeaderCache:
    """Cache of headers by topic, for the lifetime of the table that numbers the topics. Thread-safe.

    The headers are stored in one array of bytes by the topics' numbers, so that those of 10,000 topics are copied
    without a Python loop.
    """

    def __init__(self, *, ids: bool) -> None:
        self._ids = ids
        self._lock = threading.Lock()
        self._kept: weakref.WeakKeyDictionary[AllTopics, _Kept] = weakref.WeakKeyDictionary()

    def of(self, topics: Sequence[TopicRef]) -> TopicHeaders:
        """Returns the headers of `topics`, in their order."""
        if not isinstance(topics, Topics):
            return self._made(list(topics))
        with self._lock:
            cached = self._kept.get(topics.all)
            if cached is None or cached.replaced != topics.all.replaced:
                cached = self._kept[topics.all] = _Kept(topics.all.replaced, self._made([]))
            if len(cached.headers) < len(topics.all):
                cached.headers = _joined(cached.headers, self._made(topics.all.since(len(cached.headers))))
            return cached.headers.take(topics.numbers)

    def _made(self, refs: list[TopicRef]) -> TopicHeaders:
        encoded = [string(ref.name) + ref.id if self._ids else string(ref.name) for ref in refs]
        size = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return TopicHeaders(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum(size) - size, size)


def _joined(first: TopicHeaders, second: TopicHeaders) -> TopicHeaders:
    return TopicHeaders(
        np.concatenate([first.content, second.content]),
        np.concatenate([first.begin, second.begin + len(first.content)]),
        np.concatenate([first.size, second.size]),
    )


def topics_in_bytes(layout: Layout, columns: Columns, headers: TopicHeaders, topic: Ints) -> memoryview:
    """The array of topics, each an array of partitions in the order of the rows.

    Args:
        layout: of one partition.
        columns: what `layout` names, n rows each.
        headings: what stands before the number of partitions of each topic. Those without rows are passed over.
        topic: int32[n], index into `headers`; equal ones side by side.
    """
    if not len(topic):
        return memoryview(EMPTY_ARRAY)
    groups = list(_by_shape(layout, columns, len(topic)))
    sizes: Sizes | int = groups[0][1][0].itemsize
    if len(groups) > 1:
        sizes = np.empty(len(topic), np.int64)
        for rows, (template, _) in groups:
            sizes[rows] = template.itemsize
    out, places, _ = _laid_out(headers, topic, sizes, [0, len(topic)])
    for rows, record in groups:
        records = np.empty(_FILLED_AT_ONCE, f"V{record[0].itemsize}")
        for some in _pieces(rows):
            filled = records[: _count(some)]
            # In the cache, and from there copied in one piece, where numpy would copy fields one by one.
            _fill(filled, record, some, layout, columns)
            _pieces_of(out, records.itemsize)[places[some]] = filled
    return out.data.toreadonly()


class Records:
    """Partitions in bytes, each once and apart from the others, to be copied to wherever they are wanted.

    Args:
        layout: of one partition.
        columns: what `layout` names, n > 0 rows each.
    """

    def __init__(self, layout: Layout, columns: Columns, count: int) -> None:
        groups = list(_by_shape(layout, columns, count))
        # Of each shape its records, and of each row its shape and its place there.
        self._records = [_records(rows, record, layout, columns, count) for rows, record in groups]
        self._shape: npt.NDArray[np.uint16] | None = None
        if len(groups) > 1:
            shape = np.uint16 if len(groups) <= _RADIX_KEYS else np.uint32
            self._shape = np.empty(count, shape)
            self._within = np.empty(count, np.int32)
            for shape_number, (rows, _) in enumerate(groups):
                self._shape[rows] = shape_number
                self._within[rows] = np.arange(len(self._records[shape_number]))
            self._sizes = np.array([records.itemsize for records in self._records])

    def arrays(self, positions: RowNumbers, bounds: list[int], headers: TopicHeaders, topic: Ints) -> list[memoryview]:
        """Several arrays of topics, as `topics_in_bytes` makes one.

        Args:
            positions: intp[m], the rows of all arrays, one array behind the other.
            bounds: array i holds `positions[bounds[i]:bounds[i + 1]]`, which is not empty.
            headings: as there.
            topic: int32[m], index into `headers`; equal ones side by side within an array.
        """
        if self._shape is None:
            (records,) = self._records
            out, places, begins = _laid_out(headers, topic, records.itemsize, bounds)
            _pieces_of(out, records.itemsize)[places] = records[positions]
        else:
            shape = self._shape[positions]
            out, places, begins = _laid_out(headers, topic, self._sizes[shape], bounds)
            within = self._within[positions]
            for shape_number in np.flatnonzero(np.bincount(shape)).tolist():
                some = np.flatnonzero(shape == shape_number)
                records = self._records[shape_number]
                _pieces_of(out, records.itemsize)[places[some]] = records[within[some]]
        whole = out.data.toreadonly()
        return [whole[begin:end] for begin, end in itertools.pairwise([*begins.tolist(), len(out)])]


def _laid_out(
    headers: TopicHeaders, topic: Ints, sizes: Sizes | int, bounds: list[int]
) -> tuple[npt.NDArray[np.uint8], Sizes, Sizes]:
    """Arrays of topics with everything in them but their records, the place of each record, the place of each array."""
    first = np.empty(len(topic), np.bool_)  # of its topic
    np.not_equal(topic[1:], topic[:-1], out=first[1:])
    first[bounds[:-1]] = True
    begins = np.flatnonzero(first)
    counts = np.diff(begins, append=len(topic))
    headers = headers.take(topic[begins])
    opening = headers.size + _uvarint_sizes(counts + 1)
    heads = np.searchsorted(begins, bounds)  # the first topic of each array, and the end of all
    topics = np.diff(heads)
    leads = _uvarint_sizes(topics + 1)

    # Before a record stand all records before it, all openings up to its topic's, the tags that end each topic, and
    # the number of topics of each array.
    opened = np.cumsum(opening) + np.arange(len(counts)) * len(NO_TAGS)
    opened += leads[0] if len(leads) == 1 else np.repeat(np.cumsum(leads), topics)
    before = opened if len(counts) == len(topic) else np.repeat(opened, counts)
    if isinstance(sizes, int):
        places = np.arange(len(topic)) * sizes + before
        closings = places[begins + counts - 1] + sizes
    else:
        places = np.cumsum(sizes) - sizes + before
        closings = (places + sizes)[begins + counts - 1]
    openings = places[begins] - opening
    starts = openings[heads[:-1]] - leads

    out = np.empty(int(closings[-1]) + len(NO_TAGS), np.uint8)
    _put_uvarints(out, starts, topics + 1)
    _put_headers(out, openings, headers)
    _put_uvarints(out, openings + headers.size, counts + 1)
    out[closings] = np.frombuffer(NO_TAGS, np.uint8)
    return out, places, starts


def _by_shape(layout: Layout, columns: Columns, count: int) -> Iterator[_Group]:
    """The rows of each shape, ascending; everything as a slice if there is but one shape."""
    members = [
        None if column is None else np.add.reduce(column != NO_BROKER, axis=0, dtype=np.int16)
        for column in (columns[name] for name, kind in layout if kind is LIST)
    ]
    keys = 1
    key = np.zeros(count, np.int64)
    for counts in members:
        if counts is not None:
            key += counts.astype(np.int64) * keys
            keys *= int(counts.max()) + 1

    def record(row: int) -> _Record:
        return _record(layout, tuple(0 if counts is None else int(counts[row]) for counts in members))

    if (key == key[0]).all():
        yield slice(0, count), record(0)
        return
    order = np.argsort(key.astype(np.uint16) if keys <= _RADIX_KEYS else key, kind="stable")
    ordered = key[order]
    for rows in np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1):
        yield rows, record(rows[0])


@lru_cache(_KEPT_SHAPES)
def _record(layout: Layout, lengths: tuple[int, ...]) -> _Record:
    """One record of a shape; `lengths` are those of the lists in their order."""
    fields: list[tuple[str, Any]] = []
    constants = {}
    left = iter(lengths)
    for name, kind in layout:
        if kind is LIST:
            length = next(left)
            prefix = np.frombuffer(uvarint(length + 1), np.uint8)
            fields += [(f"length of {name}", (np.uint8, len(prefix))), (name, (INT32, length))]
            constants[f"length of {name}"] = prefix
        else:
            fields.append((name, kind))
    record = np.zeros(1, np.dtype([*fields, ("tags", np.uint8)]))
    for name, constant in constants.items():
        record[name] = constant
    return record, lengths


def _put_headers(out: npt.NDArray[np.uint8], places: RowNumbers, headers: TopicHeaders) -> None:
    """Each heading at its place: in one piece where many are of one size, byte by byte where hardly two are."""
    sizes, begins = headers.size, headers.begin
    first = int(sizes[0])
    present = [first] if (sizes == first).all() else np.flatnonzero(np.bincount(sizes)).tolist()
    if len(present) * _WORTH_A_GROUP > len(headers):
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        out[within + np.repeat(places, sizes)] = headers.content[within + np.repeat(begins, sizes)]
        return
    for size in present:
        some = slice(None) if len(present) == 1 else np.flatnonzero(sizes == size)
        _pieces_of(out, size)[places[some]] = _pieces_of(headers.content, size)[begins[some]]


def _uvarint_sizes(values: RowNumbers) -> RowNumbers:
    """How many bytes each value takes: seven bits to a byte."""
    sizes = np.ones(len(values), np.int64)
    most = int(values.max())
    for bits in range(7, most.bit_length(), 7):
        sizes += values >= 1 << bits
    return sizes


def _put_uvarints(out: npt.NDArray[np.uint8], places: RowNumbers, values: RowNumbers) -> None:
    if int(values.max()) < 0x80:
        out[places] = values
        return
    sizes = _uvarint_sizes(values)
    for number in range(int(sizes.max())):
        here = sizes > number
        more = (sizes[here] > number + 1) << 7
        out[places[here] + number] = values[here] >> 7 * number & 0x7F | more


def _pieces_of(content: npt.NDArray[np.uint8], size: int) -> npt.NDArray[Any]:
    """The `size` bytes from each place on, as one value that numpy copies whole."""
    return np.ndarray((len(content) - size + 1,), f"V{size}", buffer=content, strides=(1,))


def _records(
    rows: RowNumbers | slice, record: _Record, layout: Layout, columns: Columns, count: int
) -> npt.NDArray[np.void]:
    """The records of all rows of one shape."""
    records = np.empty(count if isinstance(rows, slice) else len(rows), f"V{record[0].itemsize}")
    begin = 0
    for some in _pieces(rows):
        end = begin + _count(some)
        _fill(records[begin:end], record, some, layout, columns)
        begin = end
    return records


def _fill(
    records: npt.NDArray[np.void], record: _Record, some: RowNumbers | slice, layout: Layout, columns: Columns
) -> None:
    """Make the records of some rows of one shape."""
    template, lengths = record
    records[:] = template.view(records.dtype)
    fields = records.view(template.dtype)
    left = iter(lengths)
    for name, kind in layout:
        column = columns[name]
        length = next(left) if kind is LIST else None
        if column is None:
            continue
        if length is None:
            fields[name] = column[some]
        elif length:
            fields[name] = _lists(column[:, some], length)


def _count(rows: RowNumbers | slice) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _pieces(rows: RowNumbers | slice) -> Iterator[RowNumbers | slice]:
    if isinstance(rows, slice):
        for begin in range(0, rows.stop, _FILLED_AT_ONCE):
            yield slice(begin, min(begin + _FILLED_AT_ONCE, rows.stop))
    else:
        for begin in range(0, len(rows), _FILLED_AT_ONCE):
            yield rows[begin : begin + _FILLED_AT_ONCE]


def _lists(column: Ints, length: int) -> Ints:
    """[n, length]: the members in their order, given that each row of `column` [W, n] has `length` of them."""
    if length == len(column):
        return column.T
    by_row = np.ascontiguousarray(column.T)
    lists: Ints = by_row[by_row != NO_BROKER].reshape(-1, length)
    return lists
