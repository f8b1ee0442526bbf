"""Watches: which are armed, which events they produce, and how they survive a lost connection.

ZooKeeper's watches fire once, and a read arms them again. On the server they belong to a connection, not to a session,
and no connection transfers them to the next one. Therefore the version of the node that each armed watch had seen is
recorded; after a reconnection each watch is armed again by a read, and if the node has changed the watch counts as
fired. No change is missed, and a short network failure does not look like a change of everything.

If many nodes are read, or armed again, their watches are armed together (`set_watches`) and the nodes are read after
that; the few whose watch fires in between are read again, each under a new watch.

Two kinds are kept armed for as long as the session lasts: those of single partitions, and those of admin requests, of
which only the arrival of a new one is reported.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from kazoo.exceptions import NoNodeError, ZookeeperError
from kazoo.protocol.states import EventType, ZnodeStat

from kactl.model import TopicPartition
from kactl.runtime.logs import logger
from kactl.stores.base import Changed, StoreEvent
from kactl.stores.deleted_topics import DeletedTopics

from . import layout, set_watches
from .client import READ_BATCH, Client
from .request import MultiRead
from .responses import Responses

log = logger(__name__)

# Reading many nodes starts over each time that the connection is lost meanwhile.
TRIES_MAX: Final = 10


class Kind(enum.Enum):
    """The kind of a watch."""

    DATA = enum.auto()
    CHILDREN = enum.auto()


class _Mark(NamedTuple):
    """The transactions that last changed, and that created, a watched node, and the number of writes of its data."""

    changed: int
    created: int
    version: int


_ABSENT: Final = _Mark(0, 0, -1)  # no transaction has this number

_CHILDREN_CHANGED: Final = {
    layout.BROKERS: Changed.BROKERS,
    layout.TOPICS: Changed.TOPICS,
    layout.DELETIONS: Changed.DELETIONS,
    layout.ISR_NOTIFICATIONS: Changed.ISR_NOTIFICATIONS,
    layout.LOG_DIR_NOTIFICATIONS: Changed.LOG_DIR_NOTIFICATIONS,
}
_REQUESTED: Final = {
    layout.REASSIGNMENT_REQUEST: StoreEvent(Changed.REASSIGNMENT_REQUEST),
    layout.PREFERRED_ELECTION_REQUEST: StoreEvent(Changed.PREFERRED_ELECTION_REQUEST),
}


class Watches:
    """The watches of one session.

    Args:
        fired: receives the events for the store's listener.
        config_changed: called when nodes under /config/changes were created or deleted.

    Attributes:
        topics: the topics whose nodes were read.
    """

    def __init__(self, client: Client, fired: Callable[[StoreEvent], None], config_changed: Callable[[], None]) -> None:
        self._client = client
        self._fired = fired
        self._config_changed = config_changed
        self._armed: dict[tuple[str, Kind], _Mark] = {}
        self._leaderships: dict[str, StoreEvent] = {}
        # Versions of partitions' states that were reported, while their watches are being armed again.
        self._reported: dict[str, int | None] = {}
        self._connections = 0  # number of connections before this one
        self._arms_many = True  # False if the server does not support SetWatches
        self._event_paths: list[set[str]] = []  # receive the paths of all events
        self.topics = DeletedTopics()

    def record_read(self, path: str, kind: Kind, result: Any) -> None:
        """Record a watched read: its result is (data, stat), a stat, or None if `exists` found no node."""
        if isinstance(result, ZookeeperError):
            return
        mark = self._armed[path, kind] = _mark(kind, result)
        topic = _topic(path)
        if topic is not None and mark != _ABSENT:
            self.topics.record_read(topic, mark.created)

    async def read(self, paths: Sequence[str]) -> list[Any]:
        """Returns the data of some nodes, as (data, stat) or an error for each, and watches all of them."""
        if len(paths) < set_watches.PATHS_MIN or not self._arms_many:
            return await self._read_each(paths)
        whole = [self._client.path(path) for path in paths]
        for _ in range(TRIES_MAX):
            connections, fired = self._connections, set[str]()
            self._event_paths.append(fired)
            try:
                armed = await self._client.ask_all(set_watches.requests(whole))
                if any(isinstance(answer, ZookeeperError) for answer in armed.results):
                    self._arms_many = False
                    break
                nodes = await self._client.read_all(paths)
            finally:
                self._event_paths = [recorded for recorded in self._event_paths if recorded is not fired]
            if connections != self._connections:
                continue  # the armed watches were lost with their connection
            for path, node in zip(paths, nodes, strict=True):
                if path not in fired:
                    self.record_read(path, Kind.DATA, node)
            changed = [index for index, path in enumerate(paths) if path in fired]
            again = await self._read_each([paths[index] for index in changed])
            for index, node in zip(changed, again, strict=True):
                nodes[index] = node
            return nodes
        return await self._read_each(paths)

    async def _read_each(self, paths: Sequence[str]) -> list[Any]:
        return await self._ask_each(paths, [self._client.get(path, watch=True) for path in paths])

    async def _ask_each(self, paths: Sequence[str], reads: list[Any]) -> list[Any]:
        return await self.ask(reads, [(path, Kind.DATA) for path in paths])

    async def ask(self, reads: Sequence[Any], watched: Sequence[tuple[str, Kind]]) -> list[Any]:
        """Returns the results of reads that are sent together. The first ones watch the nodes in `watched`."""
        connections = self._connections
        results = (await self._client.ask_all(reads)).results
        for (path, kind), result in zip(watched, results, strict=False):
            self.record_read(path, kind, result)
        if connections != self._connections:
            # The watches of the first responses were lost with their connection, before `rearm` knew of them.
            self._arm([key for key in watched if key in self._armed])
        return results

    async def watch_leaderships(self, partitions: Mapping[str, TopicPartition]) -> list[Any]:
        """Keep the watches of these partitions armed, by the path of their state, and no others.

        Returns the stat of each node, None if it does not exist, or an error as an object.
        """
        self._name_leaderships(partitions)
        return await self._ask_each([*partitions], [self._client.exists(path, watch=True) for path in partitions])

    def _name_leaderships(self, partitions: Mapping[str, TopicPartition]) -> None:
        for path in self._leaderships.keys() - partitions.keys():
            self._armed.pop((path, Kind.DATA), None)
            self._reported.pop(path, None)
        events = {path: StoreEvent(Changed.LEADERSHIP, str(name)) for path, name in partitions.items()}
        self._leaderships = events

    def on_watch(self, event: str, path: str) -> None:
        """Handle an event of a watch."""
        for recorded in self._event_paths:
            recorded.add(path)
        if path in _REQUESTED:
            self._arm([(path, Kind.DATA)])  # and report it if it is a new request
            return
        if path in self._leaderships:
            before = self._armed.pop((path, Kind.DATA), None)
            self._reported[path] = _version_after(event, before)
            self._arm([(path, Kind.DATA)])  # before the partition is read again
            self._fired(self._leaderships[path])
            return
        if event in (EventType.CHILD, EventType.DELETED):
            self._armed.pop((path, Kind.CHILDREN), None)
        if event != EventType.CHILD:
            before, topic = self._armed.pop((path, Kind.DATA), None), _topic(path)
            if event == EventType.CREATED and topic is not None and before is not None and before != _ABSENT:
                # Deleted while there was no connection. The watch was armed again before it was created, and fires
                # before the result of arming it is compared.
                self.topics.record_deletion(topic)
        self._report(event, path)

    def forget(self) -> None:
        """Discard all watches: the session has ended."""
        self._armed.clear()
        self._leaderships = {}
        self._reported.clear()
        self.topics.forget()

    def disconnected(self) -> None:
        """Handle the loss of the connection, and of all watches armed over it."""
        self._connections += 1

    def rearm(self) -> None:
        """Arm all watches again over a new connection, and report changes made in between."""
        topics = [key for key, mark in self._armed.items() if _topic(key[0]) is not None and mark != _ABSENT]
        if len(topics) < set_watches.PATHS_MIN or not (self._arms_many and self._client.reads_many):
            topics = []
        together = set(topics)
        self._arm_many(topics)
        self._arm([key for key in self._armed if key not in together])

    def _arm_many(self, watched: list[tuple[str, Kind]]) -> None:
        """Arm the watches of nodes that existed when they were read."""
        paths = [self._client.path(path) for path, _ in watched]
        blocks = [MultiRead(tuple(paths[begin : begin + READ_BATCH])) for begin in range(0, len(paths), READ_BATCH)]
        arms = set_watches.requests(paths)

        def compare(responses: Responses) -> None:
            if responses.error is not None:
                return  # see `_arm`
            if any(isinstance(result, ZookeeperError) for result in responses.results):
                self._arm(watched)
                return
            nodes = chain.from_iterable(responses.results[len(arms) :])
            for (path, kind), result in zip(watched, nodes, strict=True):
                self._compare(path, kind, result)

        self._client.submit([*arms, *blocks], compare)

    def _arm(self, watched: list[tuple[str, Kind]]) -> None:
        requests = [
            self._client.exists(path, watch=True) if kind is Kind.DATA else self._client.children(path, watch=True)
            for path, kind in watched
        ]

        def compare(responses: Responses) -> None:
            # Interrupted by another loss: unchecked watches still count as armed, and are armed at the next connection.
            for (path, kind), result in zip(
                watched, responses.results if responses.error is None else (), strict=False
            ):
                self._compare(path, kind, result)

        self._client.submit(requests, compare)

    def _compare(self, path: str, kind: Kind, result: Any) -> None:
        before = self._armed.get((path, kind))
        if isinstance(result, ZookeeperError) and not isinstance(result, NoNodeError):
            log.warning("the watch of %s could not be armed again: %r", path, result)
            now = None
        else:
            now = _mark(kind, None if isinstance(result, ZookeeperError) else result)
        if path in _REQUESTED or path in self._leaderships:
            self._keep(path, before, now)
            return
        if before is None or now == before:
            return  # fired meanwhile, or unchanged
        del self._armed[path, kind]
        topic = _topic(path)
        if topic is not None and now is not None and now.created != before.created:
            self.topics.record_deletion(topic)
        if kind is Kind.CHILDREN:
            self._report(EventType.CHILD, path)
        else:
            self._report(EventType.DELETED if now == _ABSENT else EventType.CHANGED, path)

    def _keep(self, path: str, before: _Mark | None, now: _Mark | None) -> None:
        """Handle the result for a watch that is kept armed; `now` is None if it could not be armed."""
        if now is None:
            self._armed.pop((path, Kind.DATA), None)
        else:
            self._armed[path, Kind.DATA] = now
        if path in self._leaderships:
            reported = self._reported.pop(path, None)
            # Writes that followed the reported one before the watch was armed.
            is_later = reported is not None and now is not None and now.version != reported
            if now is None or is_later or (before is not None and now != before):
                self._fired(self._leaderships[path])
        elif now is None or (now != _ABSENT and (before is None or now.created != before.created)):
            self._fired(_REQUESTED[path])

    def _report(self, event: str, path: str) -> None:
        if event == EventType.CHILD:
            if path == layout.CONFIG_CHANGES:
                self._config_changed()
            elif path in _CHILDREN_CHANGED:
                self._fired(StoreEvent(_CHILDREN_CHANGED[path]))
        elif path in (layout.CONTROLLER, layout.LOCK):
            gone = event == EventType.DELETED
            self._fired(StoreEvent(Changed.CONTROLLER_GONE if gone else Changed.CONTROLLER))
        elif event == EventType.DELETED:
            # The deletion of a broker or a topic is reported by its parent, unless a new one of the same name exists.
            topic = _topic(path)
            if topic is not None:
                self.topics.record_deletion(topic)
        elif event == EventType.CHANGED:
            parent, _, name = path.rpartition("/")
            if parent == layout.BROKERS:
                self._fired(StoreEvent(Changed.BROKER, name))
            elif parent == layout.TOPICS:
                self._fired(StoreEvent(Changed.TOPIC, name))


async def ask(
    client: Client, watches: Watches | None, reads: Sequence[Any], watched: Sequence[tuple[str, Kind]]
) -> list[Any]:
    """Returns the results of reads; without `watches` none of them may watch. See `Watches.ask`."""
    return (await client.ask_all(reads)).results if watches is None else await watches.ask(reads, watched)


def _version_after(event: str, before: _Mark | None) -> int | None:
    """Returns the version of a node's data after an event, if it is known."""
    if event == EventType.DELETED:
        return _ABSENT.version
    if event == EventType.CREATED:
        return 0
    return None if before is None or before == _ABSENT else before.version + 1


def _topic(path: str) -> str | None:
    """Returns the topic of a topic node, or None for other paths."""
    parent, _, name = path.rpartition("/")
    return name if parent == layout.TOPICS else None


def _mark(kind: Kind, result: Any) -> _Mark:
    if result is None:
        return _ABSENT
    stat: Any = result[1] if isinstance(result[1], ZnodeStat) else result
    if kind is Kind.CHILDREN:
        return _Mark(int(stat.pzxid), int(stat.czxid), 0)
    return _Mark(int(stat.mzxid), int(stat.czxid), int(stat.version))
