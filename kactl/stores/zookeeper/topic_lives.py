"""Topics that a client has read: which of several topics of one name, each deleted before the next, a write is about.

A write names a topic with its id. The id is in the topic's node, which has all partitions and may be large; so a write
compares the transaction that created the node with that of the node that was read. Between the comparison and the
write the topic can still be replaced: ZooKeeper has no condition on it. A first leadership then fails, because it is
written below a node that a new topic does not have; so does an assignment, unless the earlier topic had no leadership
either, and both nodes have the same version.
"""

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import NoNodeError, ZookeeperError

from kactl.errors import StoreError
from kactl.model import ZERO_ID, TopicRef
from kactl.stores.formats import records

from . import layout
from .client import Client


class TopicLives:
    """The topics that one client has read last: id and creation by name."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[bytes, int]] = {}
        self._containers: set[str] = set()  # topics whose node `partitions` this client has created

    def record(self, topics: Sequence[TopicRef], created: Sequence[int]) -> None:
        """Record topics that were read, and the transactions that created their nodes."""
        for topic, number in zip(topics, created, strict=True):
            self._put(topic.name, topic.id, number)

    def _put(self, topic: str, topic_id: bytes, created: int) -> None:
        if self._read.get(topic, (ZERO_ID, created))[1] != created:
            self._containers.discard(topic)
        self._read[topic] = (topic_id, created)

    def forget(self, topic: str) -> None:
        """Discard the record of a deleted topic."""
        self._read.pop(topic, None)
        self._containers.discard(topic)

    def begin_container(self, topic: str) -> bool:
        """Whether the node `partitions` of a topic is to be created now; once in each life of the topic.

        A commit that has compared the topic before it was replaced would find the node of another commit, which runs
        concurrently, below the new topic.
        """
        is_first = topic not in self._containers
        self._containers.add(topic)
        return is_first

    def forget_container(self, topic: str) -> None:
        """Let the next commit create the node `partitions`, after a write below it has failed."""
        self._containers.discard(topic)

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
