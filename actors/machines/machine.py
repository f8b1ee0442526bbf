"""Base of the machine actors, and the requests to them: plan, commit, apply, and gather requests, chunk by chunk.

    chunk 1   plan ─ write ─────── apply, send
    chunk 2          plan ─ write ─────────── apply, send
    chunk 3                        plan ─ write ───────────── apply, send

While one chunk of a large move is at the store, the next is planned, and the one before is applied and sent. Brokers
receive the first new leaders while later ones are being written, and the event loop is held for no longer than one
chunk takes. This is sound because the plan of a row depends on that row alone and no row is in two chunks: at most two
chunks are in flight, and the later one is neither applied nor sent before the earlier one.

A change that is nearer to one chunk than to two is made as a whole.
"""

import asyncio
import collections
import contextlib
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from kactl.actors.actor import Actor
from kactl.actors.priority_inbox import NEVER, Preemption
from kactl.decide.machines.election import Election
from kactl.decide.machines.partition import Wanted
from kactl.decide.outbound.batch import Addressed, RequestBatch
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, Bytes, RowNumbers
from kactl.model import PartitionState, ReplicaState
from kactl.model.errors import ControllerMoved, StoreError
from kactl.runtime.clock import Clock, SystemClock
from kactl.runtime.logs import logger
from kactl.stores.base import Store
from kactl.telemetry.event_log import EventLog

from .commit import Committer

log = logger(__name__)


T = TypeVar("T")

# Send the requests of this many chunks at once, unless they take so long that brokers would wait for changes that are
# committed already. A request to each of thirty brokers costs as much as a thousand partitions.
PORTION_CHUNKS: Final = 4
PORTION_MS: Final = 50
# Chunk size of a change that is never divided, as in Kafka's controller.
WHOLE: Final = 1 << 62
# A chunk is smaller by this factor while small events arrive at a high rate.
HIGH_RATE_FACTOR: Final = 8
# Chunks that are being planned or written. A waiting one hides the latency of the other's way to the store and back.
IN_FLIGHT: Final = 2


def never() -> bool:
    return False


@contextlib.asynccontextmanager
async def chunks(
    count: int,
    size: int,
    write: Callable[[slice], Coroutine[Any, Any, T]],
    *,
    stop: Callable[[], bool] = never,
    high_rate: bool = False,
) -> AsyncIterator[AsyncIterator[T]]:
    """Write `count` rows in chunks of about `size`, one chunk ahead of the caller.

        async with chunks(len(rows), size, write) as written:
            async for chunk in written:
                ...  # the next one is at the store meanwhile

    Args:
        write: plans and writes the rows of a slice. The next call may begin before the caller is done with this chunk.
        stop: called before each chunk but the first; if True, no further chunk is begun for now.
        high_rate: yield sooner, at a higher total cost: smaller chunks, one at a time.

    Yields:
        The results of `write`, in order; at least one.

    Raises:
        The exception that `write` raises. When an exception leaves the block, no chunk is in flight, and chunks that
        were not yielded are not applied. A cancellation cancels the chunks in flight.
    """
    size = max(1, size // HIGH_RATE_FACTOR) if high_rate else size
    # Chunks of equal size, near the requested one: a small rest would cost nearly as much as a full chunk.
    number = max(1, round(count / size))
    size = -(-count // number)
    in_flight: collections.deque[asyncio.Task[T]] = collections.deque()
    parts = (slice(begin, min(begin + size, count)) for begin in range(0, count, size))
    try:
        if number == 1:
            yield _one(write, slice(0, count))
        else:
            yield _ahead(parts, write, in_flight, stop=stop, limit=1 if high_rate else IN_FLIGHT)
    except asyncio.CancelledError:
        for task in in_flight:
            task.cancel()
        raise
    except BaseException:
        # Not cancelled: a write that has reached the store may be committed. One after the other: `asyncio.gather`
        # takes one step more in Python 3.11 than later, and a simulated run would depend on the version.
        for task in in_flight:
            with contextlib.suppress(Exception):
                await task
        raise


async def _one(write: Callable[[slice], Coroutine[Any, Any, T]], part: slice) -> AsyncIterator[T]:
    yield await write(part)


async def _ahead(
    parts: Iterator[slice],
    write: Callable[[slice], Coroutine[Any, Any, T]],
    in_flight: "collections.deque[asyncio.Task[T]]",
    *,
    stop: Callable[[], bool],
    limit: int,
) -> AsyncIterator[T]:
    part = next(parts, None)
    begun = False
    while True:
        while part is not None and len(in_flight) < limit and not (begun and stop()):
            task = asyncio.get_running_loop().create_task(write(part), name=f"rows from {part.start}")
            in_flight.append(task)
            part, begun = next(parts, None), True
        if not in_flight:
            return
        # The chunk that was begun last reaches the store before the first is applied; other tasks run, too.
        await asyncio.sleep(0)
        written = await in_flight[0]
        in_flight.popleft()
        yield written


class SendBuffer:
    """Decides when to send the requests that the chunks of one move have gathered so far."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chunks = 0
        self._since_ms = clock.monotonic_ms()

    def is_full(self) -> bool:
        """Returns whether to send now. To be called once after each chunk."""
        self._chunks += 1
        now_ms = self._clock.monotonic_ms()
        if self._chunks < PORTION_CHUNKS and now_ms - self._since_ms < PORTION_MS:
            return False
        self._chunks, self._since_ms = 0, now_ms
        return True


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """Move the partitions in some rows. `election` is needed for a move to ONLINE of rows that are not NEW.

    Attributes:
        wanted: selects the rows that still need the move when their chunk is planned; the others are left as they are.
            None: all of them.
        preemptible: whether the rest is left for another call if a small event is due between two chunks.
    """

    rows: RowNumbers
    target: PartitionState
    election: Election | None = None
    wanted: Wanted | None = None
    preemptible: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class MoveResult:
    """Result of a Move, by row.

    Attributes:
        rows: the rows that were handled: all, or the first of them if a small event preempted the move.
        refusal: uint8[n] of Refusal; NONE where the move was made.
        elected: bool[n], rows that were ONLINE or OFFLINE and have a leader by an election.
        error: the error that ended the call; `refusal` is STORE_FAILED for the rows that were not moved before.
    """

    rows: RowNumbers
    refusal: Bytes
    elected: Bools
    error: StoreError | None = None

    @classmethod
    def join(cls, parts: Sequence["MoveResult"]) -> "MoveResult":
        """Returns the concatenation of one or more results, with the first error."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.refusal for part in parts]),
            np.concatenate([part.elected for part in parts]),
            next((part.error for part in parts if part.error is not None), None),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class MoveReplicas:
    """Move replicas of the partitions in some rows.

    Attributes:
        brokers: the brokers of the replicas; None: all assigned replicas.
        which: bool[W, n], the replicas by slot, in place of `brokers`. Slots that were added since are not moved.
        preemptible: whether the rest is left for another call if a small event is due between two chunks. The result is
            the number of rows that are done.
        whole: send one request of each kind to each broker after the last chunk, not one per portion.
    """

    rows: RowNumbers
    target: ReplicaState
    brokers: frozenset[int] | None = None
    which: Bools | None = None
    preemptible: bool = False
    whole: bool = False

    def part(self, part: slice | Bools) -> "MoveReplicas":
        """Returns the same move of some of the rows."""
        which = None if self.which is None else self.which[:, part]
        return dataclasses.replace(self, rows=self.rows[part], which=which)


class Outbox(Protocol):
    """Queues requests in the order in which they are to be sent; never waits. Implemented by `actors.channels`."""

    def send(self, requests: Iterable[Addressed]) -> None:
        """Queue requests. One to a broker without a channel is logged and dropped."""


M = TypeVar("M", Move, MoveReplicas)


class Machine(Actor[M]):
    """A machine actor.

    Args:
        chunk: number of rows that are planned and written at once.
        preemption: small events that wait during a preemptible move.

    Attributes:
        batch: requests that are gathered; empty between moves.
        refused: number of transitions that were refused, by the names of the states.
        outbox: receives the requests.
    """

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        store: Store,
        outbox: Outbox,
        history: EventLog,
        *,
        chunk: int = WHOLE,
        clock: Clock | None = None,
        preemption: Preemption = NEVER,
    ) -> None:
        super().__init__(name)
        self.preemption = preemption
        self.cluster = cluster
        self.outbox = outbox
        self.history = history
        self.chunk = chunk
        self.committer = Committer(cluster, store, history)
        self.batch = RequestBatch(cluster, history.reason)
        self.refused: Counter[tuple[str, str]] = Counter()
        self._clock = SystemClock() if clock is None else clock

    def _count_refused(self, before: Bytes, target: PartitionState | ReplicaState) -> str:
        """Count refused transitions from the states `before`. Returns the cause of the event in progress, for a log."""
        for state, count in zip(*np.unique(before, return_counts=True), strict=True):
            self.refused[type(target)(state).name.lower(), target.name.lower()] += int(count)
        because = self.history.current.because
        return "" if because is None else f" (event {because.event}, {because.trigger})"

    @contextlib.asynccontextmanager
    async def _chunks(
        self, move: M, write: Callable[[slice], Coroutine[Any, Any, T]], *, whole: bool = False
    ) -> AsyncIterator[AsyncIterator[T]]:
        """Write a move in chunks; see `chunks`. The requests that the caller gathers are sent in portions.

        After the store has failed a whole call, no further chunk is begun.

        Args:
            whole: send all requests at the end instead.

        Raises:
            ControllerMoved, StoreError: nothing was sent but portions that were committed before.
        """
        failures = self.committer.failures

        def stop() -> bool:
            return self.committer.failures > failures or (move.preemptible and self.preemption.is_due())

        self.batch.begin()
        try:
            high_rate = move.preemptible and self.preemption.is_high_rate()
            async with chunks(len(move.rows), self.chunk, write, stop=stop, high_rate=high_rate) as written:
                yield written if whole else self._send_portions(written)
        except (ControllerMoved, StoreError):
            raise
        except Exception:
            # A bug: the chunks that were committed before are in force.
            self._send()
            raise
        else:
            self._send()
        finally:
            # However the move ended, the next one begins with an empty batch.
            self.batch.clear()

    async def _send_portions(self, written: AsyncIterator[T]) -> AsyncIterator[T]:
        buffer = SendBuffer(self._clock)
        async for chunk in written:
            yield chunk
            if buffer.is_full():
                self._send()

    def _give_up(self, rest: RowNumbers, label: str, error: StoreError | None) -> None:
        """Log rows that were not moved because the store failed; `error` ended the session.

        Without an error they were not tried, and are marked for a retry.
        """
        if not len(rest):
            return
        if error is None:
            self.cluster.mark_for_retry(rest)
        log.error("moving %d %s failed: %s", len(rest), label, error or "the store has failed for those before")

    def _send(self) -> None:
        with self.history.current.encode:
            requests = self.batch.flush()
        self.outbox.send(requests)
