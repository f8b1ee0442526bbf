"""While another instance is the controller: a copy of the cluster, kept in step with the store.

Taking over begins with reading the whole cluster, which for a large one takes longer than all that follows. So an
instance that stands by reads it beforehand, a piece at a time, and from then on only what was written since. Whoever
takes over is handed what was read, and what of it may be stale, and reads that again: a takeover without a copy is one
of which everything is stale.

Nothing follows from the copy before the takeover has brought it up to date; and should it be wrong all the same, the
store refuses what is written on the strength of it, and what it refuses is read again.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np

from kactl.errors import Remedy, StoreError
from kactl.machines import partition
from kactl.messages.events import Event, StandbyDue
from kactl.model import Broker, ReplicaState
from kactl.runtime.logs import logger
from kactl.state.cluster import Cluster
from kactl.state.records import Assignments
from kactl.state.rows import RowNumbers
from kactl.state.table import NO_ROW
from kactl.stores.base import Changes, Names, Store

from .base import ControllerContext, Handler, Handlers
from .timers import Timers
from .topics import bounded, reassigned

log = logger(__name__)

# Topics, or partitions, that are read in one go; events of the controllership wait for no longer than that takes.
TOPICS_AT_ONCE: Final = 200
PARTITIONS_AT_ONCE: Final = 10_000
# After the store has failed the copy is begun anew, and not at once.
BEGIN_AGAIN_MS: Final = 10_000
# For how long brokers and deletions count that were read for readers.
SURROUNDINGS_AGE_MS: Final = 1000
# A reader waits so long for topics that are being replaced, which takes milliseconds unless the store is slow.
WHOLE_TIMEOUT_S: Final = 2.0


class Copy:
    """What was read of the topics and partitions, and what of it is stale.

    Attributes:
        cluster: holds no brokers, and no states.
        position: up to which the store's changes are known.
        stale_topics: have to be read, or read again, with all of their partitions.
        stale: partitions of other topics whose leadership has to be read again.
        asked_ms: when the store was last asked what has changed, by the monotonic clock.
        current_ms: the last moment at which nothing was stale; None until everything has been read once.
        version: rises with every change of the copy.
        whole: cleared while topics are being replaced, and some of them are missing.
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
        """Some of what is held is stale."""
        self.position = changes.position
        self.stale_topics |= changes.topics
        at = self.cluster.table.rows_at(changes.partitions)
        self.stale.update(at[at != NO_ROW].tolist())

    def drop(self, topics: Collection[str]) -> None:
        """Forget topics, whatever is known of them."""
        self.cluster.remove_topics(topics)
        if self.stale:
            # Their rows may be given to others.
            self.stale.intersection_update(self.cluster.table.all().tolist())

    async def refresh(self, store: Store) -> None:
        """Read a piece of what is stale.

        Raises:
            StoreError: what was to be read may be half there; begin anew.
        """
        if self.stale_topics:
            names = sorted(self.stale_topics)[:TOPICS_AT_ONCE]
            self.whole.clear()
            self.stale_topics.difference_update(names)
            self.drop(names)
            await self._read_topics(store, names)
            self.whole.set()
        elif self.stale:
            at = sorted(self.stale)[:PARTITIONS_AT_ONCE]
            self.stale.difference_update(at)
            await self.read_leaderships(store, np.array(at, np.intp))
        self.version += 1

    async def _read_topics(self, store: Store, names: list[str]) -> None:
        loaded = bounded(await store.assignments(names))
        at = self.cluster.put_assignments(loaded)
        self.cluster.reassigning |= {name for name, _ in reassigned(loaded)}
        self.cluster.put_leaderships(at, await store.leaderships(_names(loaded)))

    async def settle(self, store: Store, listed: Collection[str]) -> list[str]:
        """Bring up to date what is held, and drop what is not worth it: topics that are stale as a whole, or gone.

        Args:
            listed: all topics that there are.

        Returns:
            the topics that are left to be read, sorted.
        """
        if self.stale:
            at = np.array(sorted(self.stale), np.intp)
            self.stale.clear()
            await self.read_leaderships(store, at)
        known = {topic.name for topic in self.cluster.table.topics()}
        self.drop(known.intersection(self.stale_topics) | known.difference(listed))
        return sorted(set(listed) - {topic.name for topic in self.cluster.table.topics()})

    async def read_leaderships(self, store: Store, at: RowNumbers) -> None:
        """Read leadership again; topics of which some is gone, or could not be read, are stale as a whole."""
        table = self.cluster.table
        found = await store.leaderships(table.names(at))
        self.cluster.put_leaderships(at, found)
        if not found.found.all():
            numbers = table.rows(at[~found.found]).topic.tolist()
            self.stale_topics |= {table.topic_at(number).name for number in numbers}


class View(NamedTuple):
    """What an instance that stands by knows of the cluster.

    Attributes:
        cluster: for reading only; partitions and replicas have the states that a takeover would begin with.
        copied: the copy itself, without states; the same object while the copy lives.
        age_ms: for how long the copy may have been behind the store.
    """

    cluster: Cluster
    copied: Cluster
    age_ms: float


class Standby(Handlers):
    """See the module.

    Args:
        timers: by which the copy is looked at again.
    """

    def __init__(self, context: ControllerContext, timers: Timers) -> None:
        super().__init__(context)
        self._timers = timers
        self._copy: Copy | None = None
        self._current_ms = self.clock.monotonic_ms()  # when the copy was last up to date; before that: when it began
        self._viewing = asyncio.Lock()
        self._viewed: tuple[Copy, int, Cluster] | None = None
        self._surroundings: tuple[float, list[Broker], list[str]] | None = None

    def handlers(self) -> dict[type[Event], Handler]:
        return {StandbyDue: self.on_standby_due}

    @property
    def copied(self) -> int:
        """How many partitions the copy holds; 0 without one."""
        return 0 if self._copy is None else len(self._copy.cluster.table)

    @property
    def copy(self) -> Cluster | None:
        """The copy, to be read only; None if there is none. It knows no brokers and no states."""
        return None if self._copy is None else self._copy.cluster

    @property
    def lag_ms(self) -> float:
        """For how long the copy has not been up to date."""
        return self.clock.monotonic_ms() - self._current_ms

    @property
    def stale(self) -> int:
        """Topics and partitions that are left to be read."""
        return 0 if self._copy is None else len(self._copy.stale_topics) + len(self._copy.stale)

    def begin(self) -> None:
        """This instance stands by from now on, if it did not do so already."""
        if self.settings.standby_interval_ms > 0 and not self._timers.is_set(StandbyDue()):
            self._current_ms = self.clock.monotonic_ms()
            self._timers.set(StandbyDue(), self.settings.standby_interval_ms)

    def forget(self) -> None:
        """What was read does not count any more."""
        self._copy = None
        self._timers.cancel(StandbyDue())

    async def on_standby_due(self, event: StandbyDue) -> None:
        if self.epoch:
            return  # we are the controller now
        try:
            if self._copy is None:
                self._copy = await self._make()
            elif self._copy.is_stale:
                await self._copy.refresh(self.store)
            else:
                await self._follow(self._copy)
        except Exception as failed:
            self.forget()
            self._timers.set(StandbyDue(), BEGIN_AGAIN_MS)
            if not isinstance(failed, StoreError):
                raise
            log.warning("the copy of the cluster is given up, and is made anew later: %s", failed)
            return
        copy = self._copy
        behind = copy is None or copy.is_stale
        if copy is not None and not behind:
            copy.current_ms = copy.asked_ms
            self._current_ms = self.clock.monotonic_ms()
        # Behind whatever else waits: a pause, however short, would let nobody else go first.
        self._timers.set(StandbyDue(), 0 if behind else self.settings.standby_interval_ms)

    async def _make(self) -> Copy:
        # The position first: what changes while we read is then told later, and read once more.
        asked_ms = self.clock.monotonic_ms()
        position = (await self.store.changes(None)).position
        topics = await self.store.topics()
        log.info("this instance stands by, and reads %d topics beforehand", len(topics))
        made = Copy(Cluster(self.cluster.controller_id, recovery=self.cluster.recovery), position, topics)
        made.asked_ms = asked_ms
        return made

    async def _follow(self, copy: Copy) -> None:
        copy.asked_ms = self.clock.monotonic_ms()
        changes = await self.store.changes(copy.position)
        # These are among the changes; nobody else takes them.
        self.store.take_deleted_topics()
        if changes.whole:
            log.info("what changed in the store cannot be told; all of it is read again")
            self._copy = None
        else:
            copy.note(changes)

    async def view(self) -> View | None:
        """The cluster as the copy has it; None without a copy that is complete.

        Called by readers beside the event loop of the controller. Brokers and deletions, which the copy lacks, are read
        from the store, at most once in `SURROUNDINGS_AGE_MS`.

        Raises:
            StoreError: they cannot be read.
        """
        async with self._viewing:
            now_ms = self.clock.monotonic_ms()
            if self._surroundings is None or now_ms - self._surroundings[0] > SURROUNDINGS_AGE_MS:
                brokers = [*(await self.store.brokers()).values()]
                self._surroundings = now_ms, brokers, await self.store.deletions()
                self._viewed = None
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
                _, brokers, deletions = self._surroundings
                self._viewed = copy, copy.version, _for_reading(copy.cluster, brokers, deletions)
            return View(self._viewed[2], copy.cluster, self.clock.monotonic_ms() - copy.current_ms)

    async def hand_over(self) -> Copy:
        """The copy, with everything noted that was written up to now; an empty one, if there is none to rely on.

        Nothing is kept here.

        Raises:
            StoreError: our session, and with it our controllership, has ended.
        """
        copy, self._copy = self._copy, None
        self._timers.cancel(StandbyDue())
        if copy is not None:
            try:
                changes = await self.store.changes(copy.position, last=True)
            except StoreError as failed:
                if failed.remedy is Remedy.RESIGN:
                    raise
                log.warning("what changed in the store could not be told: %s", failed)
            else:
                if not changes.whole:
                    copy.note(changes)
                    return copy
            log.info("what was read while standing by cannot be relied on; all of it is read again")
        return Copy(Cluster(self.cluster.controller_id, recovery=self.cluster.recovery), (), ())


def _for_reading(known: Cluster, brokers: Sequence[Broker], deletions: Sequence[str]) -> Cluster:
    """A cluster with the states in which a takeover would begin, over the rows of a copy."""
    shown = Cluster(known.controller_id, recovery=known.recovery)
    shown.table = known.table.for_reading()
    shown.reassigning = set(known.reassigning)
    shown.add_brokers(brokers)
    shown.queue_deletion(deletions)
    at = shown.table.all()
    rows = shown.table.rows(at)
    states = np.where(
        rows.online(shown.live_brokers.live), np.uint8(ReplicaState.ONLINE), np.uint8(ReplicaState.OFFLINE)
    )
    shown.table.set_replica_states(at, np.where(rows.assigned, states, np.uint8(ReplicaState.ABSENT)))
    shown.table.set_states(at, partition.begin(rows, shown.live_brokers).state)
    shown.offline_count, shown.imbalance_count = shown.count_again()
    return shown


def _names(loaded: Assignments) -> Names:
    return Names(loaded.topics, loaded.topic, loaded.partition)
