"""Changes in the tree of topics since an earlier read, for an instance that keeps a copy of it.

One watch on the whole tree, which persists when it fires, makes the server send the path of every write. It costs the
server one message of a few hundred bytes for each write, to each standby instance, and the instance an entry for each
topic and partition written since the last read. A read first lets the server catch up with its leader; all earlier
writes are known then.

The watch is lost with its connection, and writes made meanwhile are unknown. Servers before 3.6 have no such watch;
with these the changes are always unknown.
"""

from typing import Final

from kazoo.exceptions import UnimplementedError, ZookeeperError

from kactl.model import TopicPartition
from kactl.model.errors import StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Changes, Names

from . import layout, request
from .client import Client

log = logger(__name__)

# Above the topics: removing this watch does not remove the watches that reads arm there.
_ROOT: Final = layout.BROKERS.rpartition("/")[0]
_PARTITIONS: Final = "partitions"
_STATE: Final = "state"
# /brokers/topics/<topic>, and /brokers/topics/<topic>/partitions/<partition>/state
_TOPIC_DEPTH: Final = 1
_STATE_DEPTH: Final = 4


class TreeChanges:
    """Topics and partitions written since the last read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._life = 0  # number of the watch; positions of an earlier watch are void
        self._armed = False
        self._known = True  # whether the server supports such a watch
        self._seq = 0
        self._dropped = 0  # changes up to this one were returned and dropped
        # By the number of the last write, the latest at the end.
        self._topics: dict[str, int] = {}
        self._partitions: dict[TopicPartition, int] = {}

    def forget(self) -> None:
        """Discard everything: the connection was lost."""
        self._armed = False
        self._topics.clear()
        self._partitions.clear()

    def on_write(self, path: str) -> None:
        """Record that a node below the root was created, written or deleted."""
        if not self._armed or not path.startswith(layout.TOPICS + "/"):
            return
        names = path[len(layout.TOPICS) + 1 :].split("/")
        self._seq += 1
        if len(names) == _TOPIC_DEPTH:
            self._topics.pop(names[0], None)
            self._topics[names[0]] = self._seq
        elif len(names) == _STATE_DEPTH and names[1::2] == [_PARTITIONS, _STATE] and layout.is_partition(names[2]):
            name = TopicPartition(names[0], int(names[2]))
            self._partitions.pop(name, None)
            self._partitions[name] = self._seq

    async def read(self, since: tuple[int, ...] | None, *, last: bool) -> Changes:
        """See `Store.changes`."""
        if since is None or not self._armed or since[0] != self._life or since[1] < self._dropped:
            if not last:
                await self._arm()
            return Changes.unknown((self._life, self._seq))
        life = self._life
        synced = await self._client.ask(request.sync(self._client.path(_ROOT)))
        if isinstance(synced, ZookeeperError):
            raise StoreError(f"ZooKeeper could not catch up with its leader: {synced!r}")
        if not self._armed or self._life != life:
            return Changes.unknown((self._life, self._seq))
        _drop(self._topics, since[1])
        _drop(self._partitions, since[1])
        self._dropped = since[1]
        changes = Changes((life, self._seq), False, frozenset(self._topics), Names.of(list(self._partitions)))
        if last:
            await self._disarm()
        return changes

    async def _arm(self) -> None:
        if self._armed or not self._known:
            return
        self._life += 1
        # Recording begins before the request is sent, so that no event is missed.
        self._armed = True
        try:
            result = await self._client.watch_tree(_ROOT)
        except BaseException:
            # Without a response nothing may be armed: an outage outlasted the request, and the session survived it.
            self.forget()
            raise
        if isinstance(result, ZookeeperError):
            self._armed = False
            self._known = not isinstance(result, UnimplementedError)
            if self._known:
                raise StoreError(f"{_ROOT} could not be watched as a whole: {result!r}")
            log.info("ZooKeeper at %s cannot watch a tree; version 3.6 or later can", self._client.hosts)

    async def _disarm(self) -> None:
        self.forget()
        result = await self._client.ask(request.unwatch(self._client.path(_ROOT)))
        if isinstance(result, ZookeeperError):
            log.warning("the watch on %s stays until the connection ends: %r", _ROOT, result)


def _drop(written: dict[str, int] | dict[TopicPartition, int], upto: int) -> None:
    """Drop entries that were returned before; the oldest come first."""
    while written:
        name, seq = next(iter(written.items()))
        if seq > upto:
            return
        del written[name]  # type: ignore[arg-type]
