"""Standby: a copy of the cluster that follows the store while another instance is the controller.

A takeover starts by reading the whole cluster, which takes longer than everything after it if the cluster is large. A
standby reads the cluster in advance, piece by piece, and then only the changes. A takeover receives the copy together
with the parts that may be stale, and reads those again; without a copy everything is stale.

The copy is not used for decisions before the takeover has updated it. If it is wrong nevertheless, the store rejects
writes based on it, and the rejected rows are read again.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np

from kactl.actors.priority_inbox import Timers
from kactl.decide.machines import partition
from kactl.decide.messages.events import Event, StandbyUpdate, TopicChange
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.records import Assignments
from kactl.decide.state.rows import RowNumbers
from kactl.decide.state.table import NO_ROW
from kactl.model import Maintenance, Membership, ReplicaState
from kactl.model.errors import Remedy, StoreError
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.stores.base import Changes, Names, Store

from .base import ControllerContext, Handler, Handlers
from .topics import bounded, reassigned

log = logger(__name__)

# Topics or partitions per read. Events of the controllership wait for at most one read.
TOPICS_AT_ONCE: Final = 200
PARTITIONS_AT_ONCE: Final = 10_000
# Pause after a store error before a new copy is started.
BEGIN_AGAIN_MS: Final = 10_000
# How long brokers and deletions that were read for a view are reused.
SURROUNDINGS_AGE_MS: Final = 1000
# How long a reader waits while topics are being replaced: milliseconds, unless the store is slow.
WHOLE_TIMEOUT_S: Final = 2.0


class Copy:
    """Topics and partitions that were read, and which of them are stale.

    Attributes:
        cluster: without brokers and without states.
        position: position in the store's change log.
        stale_topics: to be read with all of their partitions.
        stale: rows of other topics with leadership to be read.
        asked_ms: monotonic time at which the changes were last read.
        current_ms: monotonic time at which nothing was stale; None until everything has been read once.
        version: incremented by every change of the copy.
        whole: cleared while topics are being replaced and some of them are missing.
    """

    def __init__(self, cluster: Cluster, position: tuple[int, ...], topics: Collection[str]) -> None:
        self.cluster = cluster
        self.position = position
        self.stale_topics = set(topics)
        self.stale: set[int] = set()  # row numbers
        self.asked_ms = 0.0
        self.current_ms: float | None = None
        self.version = 0
        self.whole = asyncio.Event()
        self.whole.set()

    @property
    def is_stale(self) -> bool:
        return bool(self.stale_topics or self.stale)

    def note(self, changes: Changes) -> None:
        """Mark changed topics and partitions as stale."""
        self.position = changes.position
        self.stale_topics |= changes.topics
        row_numbers = self.cluster.table.rows_at(changes.partitions)
        self.stale.update(row_numbers[row_numbers != NO_ROW].tolist())

    def drop(self, topics: Collection[str]) -> None:
        """Remove topics from the copy."""
        self.cluster.remove_topics(topics)
        if self.stale:
            # Their rows may be reused.
            self.stale.intersection_update(self.cluster.table.all().tolist())

    def drop_unlisted(self, listed: Collection[str]) -> None:
        """Remove the topics that do not exist any more."""
        gone = {topic.name for topic in self.cluster.table.topics()}.difference(listed)
        if gone:
            self.drop(gone)
            self.version += 1

    async def refresh(self, store: Store) -> None:
        """Read some of the stale topics or partitions.

        Raises:
            StoreError: the copy may be incomplete; start a new one.
        """
        if self.stale_topics:
            names = sorted(self.stale_topics)[:TOPICS_AT_ONCE]
            self.whole.clear()
            self.stale_topics.difference_update(names)
            self.drop(names)
            await self._read_topics(store, names)
            self.whole.set()
        elif self.stale:
            row_numbers = sorted(self.stale)[:PARTITIONS_AT_ONCE]
            self.stale.difference_update(row_numbers)
            await self.read_leaderships(store, np.array(row_numbers, np.intp))
        self.version += 1

    async def _read_topics(self, store: Store, names: list[str]) -> None:
        loaded = bounded(await store.assignments(names))
        row_numbers = self.cluster.put_assignments(loaded)
        self.cluster.reassigning |= {name for name, _ in reassigned(loaded)}
        self.cluster.put_leaderships(row_numbers, await store.leaderships(_names(loaded)))

    async def settle(self, store: Store, listed: Collection[str]) -> list[str]:
        """Read stale partitions, and drop topics that are stale as a whole or gone.

        Args:
            listed: all topics in the store.

        Returns:
            The topics that remain to be read, sorted.
        """
        if self.stale:
            row_numbers = np.array(sorted(self.stale), np.intp)
            self.stale.clear()
            await self.read_leaderships(store, row_numbers)
        known = {topic.name for topic in self.cluster.table.topics()}
        self.drop(known.intersection(self.stale_topics) | known.difference(listed))
        return sorted(set(listed) - {topic.name for topic in self.cluster.table.topics()})

    async def read_leaderships(self, store: Store, row_numbers: RowNumbers) -> None:
        """Read leadership again. A topic with a partition that is gone or unreadable becomes stale as a whole."""
        table = self.cluster.table
        stored = await store.leaderships(table.names(row_numbers))
        self.cluster.put_leaderships(row_numbers, stored)
        if not stored.found.all():
            numbers = table.rows(row_numbers[~stored.found]).topic.tolist()
            self.stale_topics |= {table.topic_at(number).name for number in numbers}


class View(NamedTuple):
    """Read-only view of the cluster on a standby.

    Attributes:
        cluster: read-only; partitions and replicas have the states with which a takeover would start.
        copied: the copy itself, without states; the same object for the life of the copy.
        age_ms: upper bound of how far the copy is behind the store.
    """

    cluster: Cluster
    copied: Cluster
    age_ms: float


class Standby(Handlers):
    """Keeps the copy up to date, and returns it to a takeover or to readers.

    Args:
        timers: schedule the next read.
    """

    def __init__(self, context: ControllerContext, timers: Timers) -> None:
        super().__init__(context)
        self._timers = timers
        self._conditions = Conditions(log, self.clock.monotonic_ms)
        self._copy: Copy | None = None
        self._listed = False  # no topic was created or deleted since the list was read
        self._current_ms = self.clock.monotonic_ms()  # when the copy was last up to date, or when it was started
        self._viewing = asyncio.Lock()
        self._viewed: tuple[Copy, int, Cluster] | None = None
        self._surroundings: tuple[float, Membership, list[str]] | None = None

    def handlers(self) -> dict[type[Event], Handler]:
        return {StandbyUpdate: self.on_standby_update}

    @property
    def copied(self) -> int:
        """Number of partitions in the copy; 0 without a copy."""
        return 0 if self._copy is None else len(self._copy.cluster.table)

    @property
    def copy(self) -> Cluster | None:
        """The copy, read-only, without brokers and states; None if there is none."""
        return None if self._copy is None else self._copy.cluster

    @property
    def lag_ms(self) -> float:
        """Time since the copy was last up to date."""
        return self.clock.monotonic_ms() - self._current_ms

    @property
    def stale(self) -> int:
        """Number of stale topics and partitions."""
        return 0 if self._copy is None else len(self._copy.stale_topics) + len(self._copy.stale)

    def begin(self) -> None:
        """Start to follow the store, unless this instance does already."""
        if self.settings.standby_interval_ms > 0 and not self._timers.is_set(StandbyUpdate()):
            self._current_ms = self.clock.monotonic_ms()
            self._timers.set(StandbyUpdate(), self.settings.standby_interval_ms)

    def forget(self) -> None:
        """Drop the copy."""
        self._copy = None
        self._timers.cancel(StandbyUpdate())

    async def on_standby_update(self, event: StandbyUpdate) -> None:
        if self.epoch:
            return  # this instance is the controller now
        try:
            if self._copy is None:
                self._copy = await self._make()
            elif self._copy.is_stale:
                await self._copy.refresh(self.store)
            else:
                await self._follow(self._copy)
        except Exception as failed:
            self.forget()
            self._timers.set(StandbyUpdate(), BEGIN_AGAIN_MS)
            if not isinstance(failed, StoreError):
                raise
            text = "the standby's copy of the cluster is dropped and read again later: %s"
            self._conditions.add("", logging.WARNING, text, failed)
            return
        self._conditions.end("", "the standby reads the cluster again")
        copy = self._copy
        behind = copy is None or copy.is_stale
        if copy is not None and not behind:
            copy.current_ms = copy.asked_ms
            self._current_ms = self.clock.monotonic_ms()
        # Queued behind other events even with a delay of 0.
        self._timers.set(StandbyUpdate(), 0 if behind else self.settings.standby_interval_ms)

    async def _make(self) -> Copy:
        # The position first: changes during the read are then reported by the next one.
        asked_ms = self.clock.monotonic_ms()
        position = (await self.store.changes(None)).position
        topics = await self._list_topics()
        log.info("standby: reading %d topics in advance", len(topics))
        copy = Copy(Cluster(self.cluster.controller_id, recovery=self.cluster.recovery), position, topics)
        copy.asked_ms = asked_ms
        return copy

    async def _follow(self, copy: Copy) -> None:
        copy.asked_ms = self.clock.monotonic_ms()
        changes = await self.store.changes(copy.position)
        if changes.whole:
            log.info("standby: the store cannot list the changes; reading everything again")
            self._copy = None
            return
        copy.note(changes)
        if not self._listed:
            copy.drop_unlisted(await self._list_topics())
        # Topics that were created again are among the changes.
        self.store.take_deleted_topics()

    async def _list_topics(self) -> list[str]:
        """Returns the names of all topics. The next change of them is notified."""
        self._listed = True  # before the read, as the notification may arrive during it
        try:
            return await self.store.topics()
        except BaseException:
            self._listed = False
            raise

    def notified(self, event: Event) -> None:
        """Handle an event that only a controller handles."""
        if isinstance(event, TopicChange):
            self._listed = False

    async def view(self) -> View | None:
        """Returns the cluster as copied, or None without a complete copy.

        Called by readers outside the controller's event loop. Brokers and deletions, which the copy lacks, are read
        from the store, at most once in `SURROUNDINGS_AGE_MS`.

        Raises:
            StoreError: brokers or deletions cannot be read.
        """
        async with self._viewing:
            _, membership, deletions = await self._read_surroundings()
            copy = self._copy
            if copy is None or copy.current_ms is None:
                return None
            try:
                async with asyncio.timeout(WHOLE_TIMEOUT_S):
                    await copy.whole.wait()
            except TimeoutError:
                return None
            if copy is not self._copy:
                return None
            if self._viewed is None or self._viewed[0] is not copy or self._viewed[1] != copy.version:
                self._viewed = copy, copy.version, _for_reading(copy.cluster, membership, deletions)
            return View(self._viewed[2], copy.cluster, self.clock.monotonic_ms() - copy.current_ms)

    async def maintenance(self) -> Maintenance:
        """Returns the orders of operators, as `view` reads them.

        Raises:
            StoreError: they cannot be read.
        """
        async with self._viewing:
            return (await self._read_surroundings())[1].maintenance

    async def _read_surroundings(self) -> tuple[float, Membership, list[str]]:
        now_ms = self.clock.monotonic_ms()
        if self._surroundings is None or now_ms - self._surroundings[0] > SURROUNDINGS_AGE_MS:
            self._surroundings = now_ms, await self.store.membership(), await self.store.deletions()
            self._viewed = None
        return self._surroundings

    async def hand_over(self) -> Copy:
        """Returns the copy with all changes up to now marked as stale, or an empty copy if it is not reliable.

        The standby keeps no reference to it.

        Raises:
            StoreError: the store session, and so the controllership, has ended.
        """
        copy, self._copy = self._copy, None
        self._timers.cancel(StandbyUpdate())
        if copy is not None:
            try:
                changes = await self.store.changes(copy.position, last=True)
            except StoreError as failed:
                if failed.remedy is Remedy.RESIGN:
                    raise
                log.warning("the store could not list the changes: %s", failed)
            else:
                if not changes.whole:
                    copy.note(changes)
                    return copy
            log.info("the standby's copy is not reliable; reading everything again")
        return Copy(Cluster(self.cluster.controller_id, recovery=self.cluster.recovery), (), ())


def _for_reading(known: Cluster, membership: Membership, deletions: Sequence[str]) -> Cluster:
    """Returns a cluster over the rows of a copy, with the states with which a takeover would start."""
    shown = Cluster(known.controller_id, recovery=known.recovery)
    shown.table = known.table.for_reading()
    shown.reassigning = set(known.reassigning)
    shown.add_brokers(membership.brokers.values())
    shown.set_maintenance(membership.maintenance)
    shown.queue_deletion(deletions)
    row_numbers = shown.table.all()
    rows = shown.table.rows(row_numbers)
    states = np.where(
        rows.online(shown.live_brokers.registered), np.uint8(ReplicaState.ONLINE), np.uint8(ReplicaState.OFFLINE)
    )
    shown.table.set_replica_states(row_numbers, np.where(rows.assigned, states, np.uint8(ReplicaState.ABSENT)))
    shown.table.set_states(row_numbers, partition.begin(rows, shown.staying).state)
    shown.offline_count, shown.imbalance_count = shown.count_again()
    return shown


def _names(loaded: Assignments) -> Names:
    return Names(loaded.topics, loaded.topic, loaded.partition)
