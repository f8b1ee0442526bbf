"""Watches: which are armed, what their firing means, and how they outlive a lost connection.

ZooKeeper's watches fire once, and a read arms them again. They live on the server by connection, not by session, and
kazoo does not bring them to the next one. So we keep what each armed watch had seen; after a reconnection each is
armed again by a read, and if something else stands there now it counts as fired. Nothing is missed, and a blink of the
network does not look like a change of everything.
"""

import enum
import logging
from collections.abc import Callable
from typing import Any, Final

from kazoo.exceptions import NoNodeError, ZookeeperError
from kazoo.protocol.states import EventType, ZnodeStat

from kactl.store import Changed, StoreEvent

from . import layout
from .answers import Answers
from .client import Client

log = logging.getLogger(__name__)


class Kind(enum.Enum):
    """What a watch watches."""

    DATA = enum.auto()
    CHILDREN = enum.auto()


_ABSENT: Final = 0  # no transaction has this number

_CHILDREN_CHANGED: Final = {
    layout.BROKERS: Changed.BROKERS,
    layout.TOPICS: Changed.TOPICS,
    layout.DELETIONS: Changed.DELETIONS,
    layout.ISR_NOTIFICATIONS: Changed.ISR_NOTIFICATIONS,
    layout.LOG_DIR_NOTIFICATIONS: Changed.LOG_DIR_NOTIFICATIONS,
}


class Watches:
    """See the module.

    Args:
        fired: gets what the store's listener is to hear.
        config_changed: called when nodes came or went under /config/changes.
    """

    def __init__(self, fired: Callable[[StoreEvent], None], config_changed: Callable[[], None]) -> None:
        self._fired = fired
        self._config_changed = config_changed
        self._armed: dict[tuple[str, Kind], int] = {}

    def saw(self, path: str, kind: Kind, result: Any) -> None:
        """A watched read was answered: with (something, stat), a stat, or None where `exists` found nothing."""
        if not isinstance(result, ZookeeperError):
            self._armed[path, kind] = _mark(kind, result)

    def on_watch(self, event: str, path: str) -> None:
        """A watch fired."""
        if event in (EventType.CHILD, EventType.DELETED):
            self._armed.pop((path, Kind.CHILDREN), None)
        if event != EventType.CHILD:
            self._armed.pop((path, Kind.DATA), None)
        self._tell(event, path)

    def forget(self) -> None:
        """The session has ended, and all watches with it."""
        self._armed.clear()

    def rearm(self, client: Client) -> None:
        """There is a new connection: arm all watches again, and tell what changed in between."""
        watched = list(self._armed)
        requests = [
            client.exists(path, watch=True) if kind is Kind.DATA else client.children(path, watch=True)
            for path, kind in watched
        ]

        def compare(answers: Answers) -> None:
            # Cut short by another loss: what was not looked at is still held as armed, and the next time comes.
            for (path, kind), result in zip(watched, answers.results if answers.error is None else (), strict=False):
                self._compare(path, kind, result)

        client.submit(requests, compare)

    def _compare(self, path: str, kind: Kind, result: Any) -> None:
        before = self._armed.get((path, kind))
        if before is None:
            return  # fired meanwhile
        if isinstance(result, ZookeeperError) and not isinstance(result, NoNodeError):
            log.warning("the watch of %s could not be armed again: %r", path, result)
            now = None
        else:
            now = _mark(kind, None if isinstance(result, ZookeeperError) else result)
        if now == before:
            return
        del self._armed[path, kind]
        if kind is Kind.CHILDREN:
            self._tell(EventType.CHILD, path)
        else:
            self._tell(EventType.DELETED if now == _ABSENT else EventType.CHANGED, path)

    def _tell(self, event: str, path: str) -> None:
        if event == EventType.CHILD:
            if path == layout.CONFIG_CHANGES:
                self._config_changed()
            elif path in _CHILDREN_CHANGED:
                self._fired(StoreEvent(_CHILDREN_CHANGED[path]))
        elif path == layout.CONTROLLER:
            gone = event == EventType.DELETED
            self._fired(StoreEvent(Changed.CONTROLLER_GONE if gone else Changed.CONTROLLER))
        elif event == EventType.CHANGED:
            # That a broker or a topic vanished is told by its parent.
            parent, _, name = path.rpartition("/")
            if parent == layout.BROKERS:
                self._fired(StoreEvent(Changed.BROKER, name))
            elif parent == layout.TOPICS:
                self._fired(StoreEvent(Changed.TOPIC, name))


def _mark(kind: Kind, result: Any) -> int:
    """The transaction that last changed what is watched."""
    if result is None:
        return _ABSENT
    stat: Any = result[1] if isinstance(result[1], ZnodeStat) else result
    return int(stat.mzxid if kind is Kind.DATA else stat.pzxid)
