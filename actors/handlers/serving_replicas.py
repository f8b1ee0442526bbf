"""Replicas that a broker could not serve and serves again, without a restart of the broker.

A participant's application may fail once and succeed when the same request arrives again. Its first response has
stopped the replica meanwhile, so the replica is started anew. Kafka's brokers serve a replica whose directory has
failed only after a restart.
"""

import dataclasses
import zlib
from collections.abc import Iterable
from typing import Final

import numpy as np

from kactl.actors.priority_inbox import Timers
from kactl.decide.messages.events import Event, ReplicaRecovery
from kactl.decide.state.rows import RowNumbers, common
from kactl.model import ReplicaState, TopicPartition
from kactl.runtime.logs import logger

from .base import ControllerContext, Handler, Handlers
from .deletion import Deletion
from .offline import StoppedReplicas
from .ownership import Ownership
from .reassignments import Reassignments

log = logger(__name__)

# Pauses between the starts of a replica that fails each time, as between the calls of a handler that fails.
PAUSES_MS: Final = (1_000.0, 2_000.0, 4_000.0)
# Of a replica that has failed after each of these, too: the pauses double up to this one.
PAUSE_MS_MAX: Final = 60_000.0
# The later pauses are shorter by up to this part, so that replicas that fail together are not started together.
PAUSE_SPREAD: Final = 0.25
# A replica that was started longer ago, and than its pause, is not counted as one that fails each time.
FORGET_MS: Final = 10_000.0


def pause_ms(name: TopicPartition, count: int) -> float:
    """Returns the pause after so many starts in a row."""
    if count <= len(PAUSES_MS):
        return PAUSES_MS[count - 1]
    part = PAUSE_SPREAD * zlib.crc32(f"{name} {count}".encode()) / 2**32
    # A replica that has failed for long would otherwise need a number without bounds.
    return min(PAUSES_MS[-1] * 2.0 ** min(count - len(PAUSES_MS), 16), PAUSE_MS_MAX) * (1 - part)


@dataclasses.dataclass(frozen=True, slots=True)
class _Starts:
    """Starts of a replica in a row.

    Attributes:
        count: how many.
        last_ms: monotonic time of the last one.
        pause_ms: until the next one at the earliest.
    """

    count: int
    last_ms: float
    pause_ms: float

    @property
    def next_ms(self) -> float:
        return self.last_ms + self.pause_ms

    @property
    def forgotten_ms(self) -> float:
        return self.last_ms + max(FORGET_MS, self.pause_ms)


@dataclasses.dataclass(frozen=True, slots=True)
class _Registration:
    """What is known of a broker under one registration.

    Attributes:
        starts: of its replicas.
        unfinished: replicas that do not count as failed any more, but whose start an error has ended.
    """

    broker_epoch: int
    starts: dict[TopicPartition, _Starts] = dataclasses.field(default_factory=dict)
    unfinished: set[TopicPartition] = dataclasses.field(default_factory=set)


class ServingReplicas(Handlers):
    """Starts replicas again that have failed.

    A response without an error does not prove that the application can serve: a participant also sends one for a
    leadership that waits, before it calls its application. Such a replica fails and responds in turns, so its starts
    are spaced out. They never end: nothing is lost by another one.

    A response proves nothing if the participant has reported the failure: the order was accepted before its handler
    failed, or while it waits. Another report follows when the replica can serve.

    Args:
        timers: delay these starts.
    """

    def __init__(
        self,
        context: ControllerContext,
        stopped: StoppedReplicas,
        *,
        deletion: Deletion,
        reassignments: Reassignments,
        timers: Timers,
        ownership: Ownership,
    ) -> None:
        super().__init__(context)
        self._ownership = ownership
        self._stopped = stopped
        self._deletion = deletion
        self._reassignments = reassignments
        self._timers = timers
        # Replicas without an error in their last response, by registration, until they are started again.
        self._answered: dict[ReplicaRecovery, dict[TopicPartition, None]] = {}
        self._registrations: dict[int, _Registration] = {}  # by broker, the last one

    def handlers(self) -> dict[type[Event], Handler]:
        return {ReplicaRecovery: self.on_replica_recovery}

    def answered(self, broker: int, serving: RowNumbers, failed: RowNumbers) -> None:
        """Queue the start of replicas that count as failed and answered without an error; forget those that failed."""
        event = ReplicaRecovery(broker, self.cluster.brokers[broker].epoch)
        names = self._answered.setdefault(event, {})
        fresh = self._startable(event, self.cluster.table.names(serving))
        names |= fresh
        for name in self.cluster.table.names(failed):
            names.pop(name, None)
        if not names:
            del self._answered[event]
        elif fresh:
            self._queue(event)

    async def on_replica_recovery(self, event: ReplicaRecovery) -> None:
        registered = self.cluster.brokers.get(event.broker)
        if registered is None or registered.epoch != event.broker_epoch:
            self._answered.pop(event, None)
            return
        now_ms, starts = self.clock.monotonic_ms(), self._starts_of(event)
        for name in tuple(self._answered.get(event, {})):
            if self._is_reported(event.broker, name):
                del self._answered[event][name]
        due = [name for name in self._answered.get(event, {}) if name not in starts or starts[name].next_ms <= now_ms]
        await self.serve(event.broker, np.sort(self.cluster.table.rows_known(due)))
        for name in due:
            count = starts[name].count + 1 if name in starts else 1
            starts[name] = _Starts(count, now_ms, pause_ms(name, count))
            if count == len(PAUSES_MS) + 1:
                log.warning("broker %d: %s has failed after %d starts in a row; it is started again after pauses of up "
                            "to %d s", event.broker, name, count - 1, PAUSE_MS_MAX / 1_000)  # fmt: skip
        left = self._answered.pop(event, {})
        left = {name: None for name in left if name not in due}
        if left:
            self._answered[event] = left
            self._queue(event)

    def _startable(self, event: ReplicaRecovery, names: Iterable[TopicPartition]) -> dict[TopicPartition, None]:
        """Returns the names without those of replicas that have reported that they cannot serve."""
        starts, now_ms = self._starts_of(event), self.clock.monotonic_ms()
        result: dict[TopicPartition, None] = {}
        for name in names:
            if self._is_reported(event.broker, name):
                continue
            if name in starts and now_ms >= starts[name].forgotten_ms:
                del starts[name]
            result[name] = None
        return result

    def _is_reported(self, broker: int, name: TopicPartition) -> bool:
        """Whether the last report of a replica is a failure."""
        report = self.cluster.replica_report(name, broker)
        return report is not None and report.status.is_failure

    def _queue(self, event: ReplicaRecovery) -> None:
        """Queue the event for the time of the first start that is due."""
        starts, now_ms = self._starts_of(event), self.clock.monotonic_ms()
        delay_ms = min(starts[name].next_ms - now_ms if name in starts else 0.0 for name in self._answered[event])
        if delay_ms > 0:
            self._timers.set(event, delay_ms)
        else:
            self.context.enqueue(event)

    def _registration(self, broker: int, broker_epoch: int) -> _Registration:
        known = self._registrations.get(broker)
        if known is None or known.broker_epoch != broker_epoch:
            known = self._registrations[broker] = _Registration(broker_epoch)
        return known

    def _starts_of(self, event: ReplicaRecovery) -> dict[TopicPartition, _Starts]:
        return self._registration(event.broker, event.broker_epoch).starts

    async def serve(self, broker: int, row_numbers: RowNumbers) -> None:
        """Use replicas again although their directory, or application, counts as failed.

        If the call raises, another one for the same replicas does the rest.

        Raises:
            StoreError: their leader epochs could not be written; they count as failed as before.
        """
        table = self.cluster.table
        unfinished = self._registration(broker, self.cluster.brokers[broker].epoch).unfinished
        row_numbers = common(row_numbers, np.union1d(table.dirs_offline(broker), table.rows_known(unfinished)))
        if not len(row_numbers):
            return
        await self._stopped.raise_epochs(broker, table.not_queued(row_numbers))
        table.mark_dirs(broker, row_numbers, False)
        names = tuple(table.names(row_numbers))
        try:
            await self._use(broker, row_numbers)
        except Exception:
            unfinished.update(names)
            raise
        unfinished.difference_update(names)

    async def _use(self, broker: int, row_numbers: RowNumbers) -> None:
        """Start replicas that do not count as failed any more, and continue everything that waits for them."""
        ids, table = frozenset({broker}), self.cluster.table
        await self.move_many_replicas(
            row_numbers,
            ReplicaState.ONLINE,
            ids,
            wanted=lambda rows: np.setdiff1d(rows, table.dirs_offline(broker)),  # one may have failed again
        )
        await self._ownership.members_came()
        await self.elect_offline()
        await self._reassignments.resume_on(ids)
        await self._deletion.resume_on(ids)
