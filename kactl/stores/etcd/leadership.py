"""Leadership: read in bulk, and committed by compare-and-set on each partition's own version, under the fence.

A transaction is all or nothing. It compares the fence and the version of each of its rows, and, for rows that are
written for the first time, that their topic still exists. If it fails the keys are read: rows with another version are
conflicts, and the others are sent again.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from kactl.decide.state.rows import Bytes, RowNumbers
from kactl.model import NO_VERSION, Fence, Leadership, TopicPartition
from kactl.model.errors import StoreError, StoreUnavailable
from kactl.runtime.logs import logger
from kactl.stores.base import Committed, Found, Leaderships, Names, Outcome, Write
from kactl.stores.formats import records, states

from . import messages
from .calls import EtcdError
from .client import OPERATIONS_DEFAULT, Client
from .keys import Interval
from .messages import KeyValue, Put, Range, created_at, version_is
from .topics import MISSING, Topics

log = logger(__name__)

# Each round settles a row of each failed transaction, or finds the present number of a topic.
ROUNDS_MAX: Final = 100
# Of one transaction with lost responses.
SENDS_MAX: Final = 3
# From this number of partitions of one topic on, all of them are read in one range.
RANGE_MIN: Final = 8
# In one response: about three megabytes.
ROWS_AT_ONCE: Final = 10_000
# A completely damaged store must not flood the log.
LOGGED_MAX: Final = 10


class _Row(NamedTuple):
    """One row of a write. `expected` is etcd's version: 0 if nothing may be stored."""

    row: int
    topic: int
    partition: int
    expected: int
    value: bytes


class _Tried(NamedTuple):
    """A transaction that was sent, and the outcome of each row; None: to be sent again."""

    rows: Sequence[_Row]
    outcomes: Sequence[Outcome | None]


class _Read(NamedTuple):
    """A read, and the number of rows in its response."""

    request: Range
    rows: int


class LeadershipStore:
    """Leadership of one cluster.

    Args:
        rows_max: maximum number of rows of a transaction; None for as many as the server accepts.
    """

    def __init__(self, client: Client, topics: Topics, *, rows_max: int | None) -> None:
        self._client = client
        self._topics = topics
        self._rows_max = rows_max

    # -- reads

    async def read(self, names: Names) -> Leaderships:
        """Returns the stored leadership of some partitions, in their order. A malformed record is logged."""
        count = len(names)
        if not count:
            return Leaderships.of([])
        stored = await self._read_keys(names)
        rows = [row for row in range(count) if row in stored]
        failed = [(row, Found.MISSING) for row in range(count) if row not in stored]
        versions = np.array([stored[row][0] - 1 for row in rows], np.int32)
        block = states.block([stored[row][1] for row in rows], versions, failed)
        self._log_unreadable(names, block)
        return block.states

    async def _read_keys(self, names: Names) -> dict[int, tuple[int, bytes]]:
        keys = self._client.keys
        wanted = list(zip(names.topic.tolist(), names.partition.tolist(), strict=True))
        partitions: dict[int, set[int]] = {}
        for topic, partition in wanted:
            partitions.setdefault(topic, set()).add(partition)
        read = await self._topics.read_numbers([names.topics[topic].name for topic in partitions])
        numbers = {topic: read.get(names.topics[topic].name, MISSING) for topic in partitions}
        reads = self._reads({number: partitions[topic] for topic, number in numbers.items() if number != MISSING})
        parts = await self._client.each(self._client.read_part, _packed(reads))
        found = {kv.key: kv for part in parts for kv in chain.from_iterable(part)}
        stored: dict[int, tuple[int, bytes]] = {}
        for row, (topic, partition) in enumerate(wanted):
            kv = found.get(keys.state(numbers[topic], partition))
            if kv is not None:
                stored[row] = (kv.version, kv.value)
        return stored

    def _reads(self, wanted: Mapping[int, Collection[int]]) -> list[_Read]:
        """Returns the reads of some partitions, by topic number and partition.

        Neighbouring topics of which many partitions are wanted are one range: reading each on its own takes the server
        several times as long.
        """
        keys = self._client.keys
        reads: list[_Read] = []
        run: list[int] = []
        run_rows = 0

        def end_run() -> None:
            nonlocal run_rows
            if run:
                interval = Interval(keys.states_of(run[0]).begin, keys.states_of(run[-1]).end)
                reads.append(_Read(Range(*interval), run_rows))
            run.clear()
            run_rows = 0

        for number in sorted(wanted.keys() | self._topics.names().keys()):
            partitions = wanted.get(number, ())
            if len(partitions) < RANGE_MIN:
                end_run()
                reads += [_Read(Range(keys.state(number, partition)), 1) for partition in partitions if partition >= 0]
                continue
            if run_rows + len(partitions) > ROWS_AT_ONCE:
                end_run()
            run.append(number)
            run_rows += len(partitions)
        end_run()
        return reads

    def _log_unreadable(self, names: Names, block: states.Block) -> None:
        for row, reason in block.unreadable[:LOGGED_MAX]:
            topic, partition = names.topics[names.topic[row]].name, names.partition[row]
            log.warning("the record of %s-%d contains no leadership: %s", topic, partition, reason)
        if len(block.unreadable) > LOGGED_MAX:
            log.warning("%d more records contain no leadership", len(block.unreadable) - LOGGED_MAX)

    # -- writes

    async def commit(self, write: Write, fence: Fence) -> Committed:
        """See `Store.commit`."""
        outcome = np.full(len(write), Outcome.FAILED, np.uint8)
        if len(write):
            await self._write(write, fence, outcome)
        version = np.where(outcome == Outcome.COMMITTED, write.expected + 1, NO_VERSION).astype(np.int32)
        return Committed(outcome, version)

    async def _write(self, write: Write, fence: Fence, outcome: Bytes) -> None:
        everything: RowNumbers = np.lexsort((write.names.partition, write.names.topic))
        columns = zip(
            everything.tolist(),
            write.names.topic[everything].tolist(),
            write.names.partition[everything].tolist(),
            (write.expected[everything] + 1).tolist(),
            states.encode(write, everything, fence.epoch),
            strict=True,
        )
        left = [_Row(*column) for column in columns]
        present = False
        for _ in range(ROUNDS_MAX):
            numbers = await self._numbers(write.names, left, present=present)
            chunks = self._packed_rows(
                [row for row in left if numbers[row.topic] != MISSING], await self._row_limit(left)
            )

            async def send(rows: Sequence[_Row], numbers: dict[int, int] = numbers) -> _Tried:
                return await self._send(write.names, rows, numbers, fence)

            tried = await self._client.each(send, chunks) if chunks else []
            self._settle_missing([row for row in left if numbers[row.topic] == MISSING], outcome)
            left = await self._settle(write.names, tried, numbers, outcome)
            if not left:
                return
            present = True

    async def _numbers(self, names: Names, rows: Sequence[_Row], *, present: bool) -> dict[int, int]:
        """Returns the number of each topic of some rows, by its index."""
        topics = list(dict.fromkeys(row.topic for row in rows))
        texts = [names.topics[topic].name for topic in topics]
        if present:
            await self._topics.read_numbers(texts)
        numbers = dict(zip(topics, await self._topics.known_numbers(texts), strict=True))
        # Only a first leadership could be stored for another topic than its own: the others compare versions.
        first = list(dict.fromkeys(row.topic for row in rows if row.expected == 0))
        refs = [names.topics[topic] for topic in first]
        others = await self._topics.other_topics(refs, [numbers[topic] for topic in first])
        return numbers | {topic: MISSING for topic, is_other in zip(first, others, strict=True) if is_other}

    async def _row_limit(self, rows: Sequence[_Row]) -> int:
        """Returns how many comparisons one transaction may have besides that of the fence."""
        if self._rows_max is not None:
            return self._rows_max
        few = len(rows) < OPERATIONS_DEFAULT // 2
        return OPERATIONS_DEFAULT - 1 if few else await self._client.operations() - 1

    def _packed_rows(self, rows: Sequence[_Row], limit: int) -> list[list[_Row]]:
        """Split rows, in order, into transactions of at most `limit` comparisons, but of at least one row."""
        chunks: list[list[_Row]] = []
        used, last_new = limit, None
        for row in rows:
            new_topic = row.expected == 0 and row.topic != last_new
            if used + 1 + new_topic > limit:
                chunks.append([])
                used, new_topic = 0, row.expected == 0
            chunks[-1].append(row)
            used += 1 + new_topic
            if row.expected == 0:
                last_new = row.topic
        return chunks

    async def _send(self, names: Names, rows: Sequence[_Row], numbers: dict[int, int], fence: Fence) -> _Tried:
        keys = self._client.keys
        row_keys = [keys.state(numbers[row.topic], row.partition) for row in rows]
        compare = [version_is(keys.epoch, fence.version)]
        compare += [created_at(keys.topic(name), number) for name, number in _first_topics(names, rows, numbers)]
        written = ((key, row.expected, row.value) for key, row in zip(row_keys, rows, strict=True))
        body = messages.txn(compare, (), [Range(keys.epoch, keys_only=True)], written)
        return await self._execute(body, rows, row_keys, fence)

    async def _execute(self, body: bytes, rows: Sequence[_Row], row_keys: Sequence[bytes], fence: Fence) -> _Tried:
        """Send a transaction, and read its keys if it did not succeed.

        After a lost response it is sent again, unless its keys contain exactly what it writes, at the version that it
        produces. Both may be executed: the second one then finds other versions than it expects.
        """
        lost = False
        for _ in range(SENDS_MAX):
            try:
                if (await self._client.execute(body)).succeeded:
                    return _Tried(rows, [Outcome.COMMITTED] * len(rows))
            except EtcdError as error:
                if len(rows) < OPERATIONS_DEFAULT or not self._client.accepts_fewer(error):
                    raise
                return _Tried(rows, [None] * len(rows))  # nothing was executed
            except StoreUnavailable:
                lost = True
            found = await self._client.read_all([Range(key) for key in (self._client.keys.epoch, *row_keys)])
            outcomes = [
                _outcome(row, kvs[0] if kvs else None, adopt=lost) for row, kvs in zip(rows, found[1:], strict=True)
            ]
            self._client.check_fence(found[0], fence)
            if not lost or any(outcome is not None for outcome in outcomes):
                return _Tried(rows, outcomes)
        raise StoreUnavailable(f"etcd lost {SENDS_MAX} responses to one write: read back what it has written")

    def _settle_missing(self, rows: Sequence[_Row], outcome: Bytes) -> None:
        """Rows of topics that do not exist: nothing can be stored for them."""
        for row in rows:
            outcome[row.row] = Outcome.FAILED if row.expected == 0 else Outcome.CONFLICT

    async def _settle(
        self, names: Names, tried: Sequence[_Tried], numbers: dict[int, int], outcome: Bytes
    ) -> list[_Row]:
        """Record the outcome of transactions. Returns the rows that have to be sent again."""
        left: list[_Row] = []
        conflicts: list[_Row] = []
        for rows, outcomes in tried:
            for row, result in zip(rows, outcomes, strict=True):
                if result is Outcome.COMMITTED:
                    outcome[row.row] = result
                else:
                    (left if result is None else conflicts).append(row)
        if conflicts:
            # A conflict under an outdated number says nothing about the present topic.
            present = await self._numbers(names, conflicts, present=True)
            for row in conflicts:
                if present[row.topic] == numbers[row.topic]:
                    outcome[row.row] = Outcome.CONFLICT
                else:
                    left.append(row)
        return sorted(left, key=lambda row: (row.topic, row.partition))

    async def write_isr(self, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
        """See `Store.write_isr`."""
        for _ in range(ROUNDS_MAX):
            number = (await self._topics.read_numbers([name.topic])).get(name.topic, MISSING)
            if number == MISSING:
                return None
            key = self._client.keys.state(number, name.partition)
            value = records.encode_leadership(state)
            if (await self._client.txn([version_is(key, expected + 1)], [Put(key, value)])).succeeded:
                return expected + 1
            if (await self._topics.read_numbers([name.topic])).get(name.topic, MISSING) == number:
                return None
        raise StoreError(f"the ISR of {name} could not be written: others keep creating and deleting the topic")


def _outcome(row: _Row, stored: KeyValue | None, *, adopt: bool) -> Outcome | None:
    """Returns the outcome of a row after its transaction failed, by the stored record; None: send it again.

    Args:
        adopt: the transaction may have been executed, so that the stored record may be its own.
    """
    version = 0 if stored is None else stored.version
    if version == row.expected:
        return None
    ours = stored is not None and (version, stored.value) == (row.expected + 1, row.value)
    return Outcome.COMMITTED if adopt and ours else Outcome.CONFLICT


def _packed(reads: Sequence[_Read]) -> list[list[Range]]:
    """Split reads into transactions of a bounded number of operations and of rows."""
    parts: list[list[Range]] = []
    rows = ROWS_AT_ONCE
    for read in reads:
        if rows + read.rows > ROWS_AT_ONCE or len(parts[-1]) == OPERATIONS_DEFAULT:
            parts.append([])
            rows = 0
        parts[-1].append(read.request)
        rows += read.rows
    return parts


def _first_topics(names: Names, rows: Sequence[_Row], numbers: dict[int, int]) -> list[tuple[str, int]]:
    """Returns name and number of the topics with a row that is written for the first time."""
    topics = dict.fromkeys(row.topic for row in rows if row.expected == 0)
    return [(names.topics[topic].name, numbers[topic]) for topic in topics]
