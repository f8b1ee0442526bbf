"""Topics that a client has read: which of several topics of one name, each deleted before the next, a write is about.

A write names a topic with its id. The id is in the topic's node, which has all partitions and may be large; so a write
compares the transaction that created the node with that of the node that was read. Between the comparison and the
write the topic can still be replaced: ZooKeeper has no condition on it. A first leadership then fails, because it is
written below a node that a new topic does not have; so does an assignment, unless the earlier topic had no leadership
either, and both nodes have the same version.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import anyio
from kazoo.exceptions import NoNodeError, ZookeeperError

from kactl.model import ZERO_ID, TopicRef
from kactl.model.errors import StoreError
from kactl.stores.formats import records

from . import layout
from .client import Client


class TopicLives:
    """The topics that one client has read last: id and creation by name."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[bytes, int]] = {}
        # Topics whose node `partitions` this client has created, or creates until the event is set.
        self._containers: dict[str, anyio.Event] = {}

    def record(self, topics: Sequence[TopicRef], created: Sequence[int]) -> None:
        """Record topics that were read, and the transactions that created their nodes."""
        for topic, number in zip(topics, created, strict=True):
            self._put(topic.name, topic.id, number)

    def _put(self, topic: str, topic_id: bytes, created: int) -> None:
        if self._read.get(topic, (ZERO_ID, created))[1] != created:
            self._containers.pop(topic, None)
        self._read[topic] = (topic_id, created)

    def forget(self, topic: str) -> None:
        """Discard the record of a deleted topic."""
        self._read.pop(topic, None)
        self._containers.pop(topic, None)

    @contextlib.contextmanager
    def creating(self, topics: Sequence[str]) -> Iterator[list[str]]:
        """Create the nodes `partitions` of some topics in the block, which receives those to create.

        Each is created once in each life of its topic. A commit that had compared the topic before it was replaced
        would find the node of another commit, which runs concurrently, below the new topic.
        """
        created = anyio.Event()
        missing = [topic for topic in topics if topic not in self._containers]
        self._containers |= dict.fromkeys(missing, created)
        try:
            yield missing
        except BaseException:
            self.forget_containers(missing)
            raise
        finally:
            created.set()

    async def created(self, topics: Sequence[str]) -> None:
        """Wait until concurrent commits have created the nodes `partitions` of some topics, or have failed."""
        for creation in [self._containers[topic] for topic in topics if topic in self._containers]:
            await creation.wait()

    def forget_containers(self, topics: Iterable[str]) -> None:
        """Let the next commit create the nodes `partitions`, after a write below them has failed."""
        for topic in topics:
            self._containers.pop(topic, None)

    async def others(self, client: Client, topics: Sequence[TopicRef]) -> list[bool]:
        """Returns for each topic whether it does not exist with its id. Topics without ids are not looked up."""
        wanted = [topic for topic in topics if topic.id != ZERO_ID]
        stats = dict(zip(wanted, await self.current(client, wanted), strict=True)) if wanted else {}
        return [topic in stats and stats[topic] is None for topic in topics]

    async def current(self, client: Client, topics: Sequence[TopicRef]) -> list[Any]:
        """Returns the stat of the node of each topic that exists with this id; None for the others.

        A topic without an id is found by its name.
        """
        stats = (await client.ask_all([client.exists(layout.topic(topic.name)) for topic in topics])).results
        for topic, stat in zip(topics, stats, strict=True):
            if isinstance(stat, ZookeeperError):
                raise StoreError(f"topic {topic.name!r} could not be looked up: {stat!r}")
        unread = [topic for topic, stat in zip(topics, stats, strict=True) if self._is_unknown(topic, stat)]
        if unread:
            await self._read_again(client, unread)
        return [stat if self._is_same(topic, stat) else None for topic, stat in zip(topics, stats, strict=True)]

    def _is_unknown(self, topic: TopicRef, stat: Any) -> bool:
        known = self._read.get(topic.name)
        return stat is not None and topic.id != ZERO_ID and (known is None or known[1] != stat.czxid)

    def _is_same(self, topic: TopicRef, stat: Any) -> bool:
        if stat is None or topic.id == ZERO_ID:
            return stat is not None
        topic_id, created = self._read.get(topic.name, (ZERO_ID, -1))
        return created == stat.czxid and not topic.is_other(topic_id)

    async def _read_again(self, client: Client, topics: Sequence[TopicRef]) -> None:
        """Read the ids of topics that were created since they were read, or never read."""
        nodes = await client.read_all([layout.topic(topic.name) for topic in topics])
        for topic, node in zip(topics, nodes, strict=True):
            if isinstance(node, NoNodeError):
                continue
            if isinstance(node, ZookeeperError):
                raise StoreError(f"topic {topic.name!r} could not be read: {node!r}")
            try:
                topic_id = records.decode_topic(node[0])[0]
            except records.Malformed:
                topic_id = ZERO_ID  # it is judged by its name
            self._put(topic.name, topic_id, node[1].czxid)
