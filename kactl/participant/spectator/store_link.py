"""Routes read from the store, for spectators that cannot reach a controller.

The store does not know which leaders act, so no route is ready.
"""

import asyncio
import collections
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from kactl.decide.machines.route_log import RouteLog
from kactl.decide.messages.routes import RouteMessage, Version, Watch
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.readiness import Readiness
from kactl.decide.state.records import Assignments, Names
from kactl.decide.state.table import NO_ROW
from kactl.model import NO_BROKER
from kactl.runtime.clock import Clock
from kactl.stores.base import Changed, Store, StoreEvent
from kactl.transports.base import SpectatorLink

# How often the store is asked for changes while a spectator waits for one.
INTERVAL_MS: Final = 500
# Versions of this source have no controllership.
EPOCH: Final = 0
# The changes of a store do not contain deletions, which its list of topics shows. The watch of the list ends with the
# session.
_LISTS_TOPICS: Final = frozenset((Changed.TOPICS, Changed.SESSION_LOST))


class StoreNetwork:
    """A `SpectatorNetwork` over a store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    @asynccontextmanager
    async def spectator_side(self, *, controllers: Sequence[str] = ()) -> AsyncIterator[SpectatorLink]:
        """See `SpectatorNetwork`."""
        async with self._store as store:
            yield StoreLink(store, self._clock)


class StoreLink:
    """The `SpectatorLink` that reads the store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._reading = asyncio.Lock()
        self._position: tuple[int, ...] | None = None
        self._listed = False  # no topic was created or deleted since the list was read
        store.subscribe(self._on_event)
        self._cluster = Cluster(NO_BROKER)
        # Numbers of an earlier process are lower, so a version of it is never taken for one of this process.
        self._log = RouteLog(self._cluster.table, first=clock.now_ms() * 1000)

    async def watch(self, asked: Watch) -> RouteMessage:
        """See `SpectatorLink`."""
        began_ms = self._clock.monotonic_ms()
        while True:
            read_ms = self._clock.monotonic_ms()
            async with self._reading:
                await self._read()
            now_ms = self._clock.monotonic_ms()
            rest_ms = began_ms + asked.wait_ms - now_ms
            if Version(EPOCH, self._log.seq) != asked.after or rest_ms <= 0:
                return self._log.since(EPOCH, asked.after, asked.topics, age_ms=now_ms - read_ms)
            await self._clock.sleep_ms(min(rest_ms, INTERVAL_MS))

    async def _read(self) -> None:
        """Read what has changed in the store."""
        changes = await self._store.changes(self._position)
        if changes.whole or self._position is None:
            self._cluster = Cluster(NO_BROKER)
            await self._read_topics(await self._list_topics())
            self._log = RouteLog(self._cluster.table, first=self._log.seq + 1)
        else:
            await self._read_partitions(changes.partitions)
            await self._read_topics(sorted(changes.topics))
            if not self._listed:
                listed = await self._list_topics()
                known = {topic.name for topic in self._cluster.table.topics()}
                self._cluster.remove_topics(sorted(known.difference(listed)))
        self._log.update(await self._store.brokers(), Readiness())
        self._position = changes.position

    def _on_event(self, event: StoreEvent) -> None:
        if event.what in _LISTS_TOPICS:
            self._listed = False

    async def _list_topics(self) -> list[str]:
        """Returns the names of all topics, and watches the list."""
        self._listed = True  # before the read, as a change may be reported during it
        try:
            return await self._store.topics()
        except BaseException:
            self._listed = False
            raise
        finally:
            self._store.take_deleted_topics()  # topics that were created again are among the changes

    async def _read_partitions(self, names: Names) -> None:
        rows = self._cluster.table.rows_at(names)
        rows = rows[rows != NO_ROW]
        if len(rows):
            self._cluster.put_leaderships(rows, await self._store.leaderships(self._cluster.table.names(rows)))

    async def _read_topics(self, topics: list[str]) -> None:
        if not topics:
            return
        loaded: Assignments = await self._store.assignments(topics)
        names = Names(loaded.topics, loaded.topic, loaded.partition)
        leaderships = await self._store.leaderships(names)
        known = {ref.name: ref.id for ref in loaded.topics}
        table = self._cluster.table
        # Nothing remains of a topic that was deleted and created again: it has another id, or fewer partitions.
        before = {name: known_topic for name in topics if (known_topic := table.topic(name)) is not None}
        count = collections.Counter(name.topic for name in names)
        self._cluster.remove_topics(
            name
            for name, topic in before.items()
            if name not in known or topic.ref.id != known[name] or len(table.rows_of(topic)) > count[name]
        )
        self._cluster.put_leaderships(self._cluster.put_assignments(loaded), leaderships)
