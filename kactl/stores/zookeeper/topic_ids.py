"""Ids of topics, each with a copy that survives tools which rewrite a topic's node without the id.

The copy is the data of the node `partitions` below the topic. Kafka's controllers and tools create that node with null
data, never read the data, and delete the node with the topic. It exists as soon as the topic has leadership.
"""

from collections.abc import Collection, Sequence
from typing import Any

from kazoo.exceptions import NoNodeError, ZookeeperError

from kactl.model import Fence, TopicRef
from kactl.model.errors import StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Outcome
from kactl.stores.formats import records

from . import fenced_writes, layout, topic_node
from .client import Client
from .topic_lives import TopicLives

log = logger(__name__)


async def copies(client: Client, topics: Collection[str]) -> dict[str, bytes]:
    """See `Store.topic_id_copies`. Data that is no id is logged, and counts as none."""
    found = {}
    names = list(topics)
    for name, node in zip(names, await client.read_all(list(map(layout.partitions, names))), strict=True):
        if isinstance(node, NoNodeError):
            continue
        if isinstance(node, ZookeeperError):
            raise StoreError(f"{layout.partitions(name)} could not be read: {node!r}")
        if not node[0]:
            continue
        try:
            found[name] = records.decode_id(node[0].decode("ascii", "replace"))
        except records.Malformed as error:
            log.warning("%s: %s", layout.partitions(name), error)
    return found


async def write(
    client: Client, topics: Sequence[TopicRef], fence: Fence, lives: TopicLives, *, batch: int, copies_only: bool
) -> None:
    """See `Store.write_topic_ids`. A topic's node is written at the version that was read.

    A later topic of the name has no node `partitions` until this controller has created it: its group fails.
    """
    left = list(topics)
    for _ in range(topic_node.ATTEMPTS_MAX):
        paths = [path for topic in left for path in (layout.topic(topic.name), layout.partitions(topic.name))]
        nodes = await client.read_all(paths)
        writable = [
            (topic, node, container)
            for topic, node, container in zip(left, nodes[::2], nodes[1::2], strict=True)
            if not isinstance(node, ZookeeperError) and not isinstance(container, ZookeeperError)
        ]
        groups = [
            [*_copy(topic, container[0]), *([] if copies_only else _entry(topic, *node))]
            for topic, node, container in writable
        ]
        outcomes = await fenced_writes.commit(client, groups, fence, batch=batch)
        done = [outcome == Outcome.COMMITTED or not group for outcome, group in zip(outcomes, groups, strict=True)]
        if not copies_only:
            committed = [read for read, is_done in zip(writable, done, strict=True) if is_done]
            lives.record([topic for topic, _, _ in committed], [node[1].czxid for _, node, _ in committed])
        left = [topic for (topic, _, _), is_done in zip(writable, done, strict=True) if not is_done]
        if not left:
            return
    raise StoreError(f"the id of topic {left[0].name!r} could not be written: other clients change it; try again")


def _copy(topic: TopicRef, data: bytes | None) -> list[fenced_writes.Op]:
    copy = records.encode_id(topic.id).encode()
    return [] if data == copy else [fenced_writes.put(layout.partitions(topic.name), copy)]


def _entry(topic: TopicRef, data: bytes, stat: Any) -> list[fenced_writes.Op]:
    """Returns the write of an id into a topic's node; nothing if the node has it, or is no assignment."""
    try:
        stored_id, assignment = records.decode_topic(data)
    except records.Malformed as error:
        log.warning("%s is no assignment, its id is not written: %s", layout.topic(topic.name), error)
        return []
    if stored_id == topic.id:
        return []
    put = fenced_writes.put(layout.topic(topic.name), topic_node.encode(topic.name, topic.id, assignment), stat.version)
    return [fenced_writes.exists(layout.partitions(topic.name)), put]
