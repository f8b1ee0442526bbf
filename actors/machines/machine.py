"""Base of the machine actors: plan, commit, apply, and gather requests, chunk by chunk."""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

import numpy as np

from kactl.decide.outbound.batch import Addressed, RequestBatch
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bytes, RowNumbers
from kactl.model import PartitionState, ReplicaState
from kactl.model.errors import ControllerMoved, StoreError
from kactl.runtime.clock import Clock, SystemClock
from kactl.runtime.logs import logger
from kactl.stores.base import Store
from kactl.telemetry.event_log import EventLog

from ..actor import Actor
from ..preemption import NEVER, Preemption
from .chunks import WHOLE, SendBuffer, chunks
from .commit import Committer
from .messages import Move, MoveReplicas

log = logger(__name__)


class Outbox(Protocol):
    """Queues requests in the order in which they are to be sent; never waits. Implemented by `actors.channels`."""

    def send(self, requests: Iterable[Addressed]) -> None:
        """Queue requests. One to a broker without a channel is logged and dropped."""


M = TypeVar("M", Move, MoveReplicas)
T = TypeVar("T")


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
