"""Deletion of topics: the marks that request it, and the order of the deletes.

Many topics are deleted concurrently, children before their parents, in bounded multis, each of which is fenced:

    1. the given partitions, state and container, without reading them
    2. each topic's own two nodes and its configuration, atomically
    3. if that fails: list the nodes below the topic, and delete them one by one
    4. the marks of completely deleted topics

A later controller therefore finds the mark after a crash, and deletes the rest. A failure of one topic delays no other.

Source: KafkaZkClient.deleteTopicZNode, deleteTopicConfigs, deleteTopicDeletions, createDeleteTopicPath.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, ZookeeperError

from kactl.decide.state.rows import Ints
from kactl.model import Fence
from kactl.model.errors import BeingDeleted, ControllerMoved, StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Outcome

from . import fenced_writes, layout
from .client import Client
from .delete_multi import PartitionsDeletion, packed

log = logger(__name__)

# Nodes that other clients add meanwhile are found by listing again. No client does so for long.
LISTINGS_MAX: Final = 5
# Below a topic there is /partitions/<number>/state; deeper nesting than this is malicious.
DEPTH_MAX: Final = 20

# A topic, and a node of it.
_Node = tuple[str, str]


async def mark(client: Client, topic: str) -> None:
    """See `Store.mark_deletion`. A mark that exists after a lost connection may be this client's, and counts as
    such.
    """
    path = layout.deletion(topic)
    responses = await client.ask_all([client.create(path, None)])
    result = responses.results[0]
    if isinstance(result, NodeExistsError):
        if not responses.repeated:
            raise BeingDeleted(topic)
    elif isinstance(result, ZookeeperError):
        raise StoreError(f"topic {topic!r} could not be marked for deletion: {result!r}")


async def unmark(client: Client, topics: Collection[str], fence: Fence, *, batch: int) -> None:
    """See `Store.unmark_deletions`."""
    for error in (await _delete(client, {topic: layout.deletion(topic) for topic in topics}, fence, batch)).values():
        raise error


async def delete(client: Client, topics: Mapping[str, Ints], fence: Fence, *, batch: int) -> dict[str, StoreError]:
    """See `Store.delete_topics`."""
    await _delete_partitions(client, topics, fence, batch)
    outcomes = await fenced_writes.commit(client, [_own(topic) for topic in topics], fence, batch=batch)
    stuck = [topic for topic, outcome in zip(topics, outcomes, strict=True) if outcome != Outcome.COMMITTED]
    failed = await _clear(client, stuck, fence, batch) if stuck else {}
    marks = {topic: layout.deletion(topic) for topic in topics if topic not in failed}
    return failed | await _delete(client, marks, fence, batch)


async def partitions_begun(client: Client, topic: str) -> list[int]:
    """See `Store.partitions_begun`. A child that is not a partition number is logged and skipped."""
    parent = layout.partitions(topic)
    children, failed = await _children(client, [(topic, parent)])
    for error in failed.values():
        raise error
    names = [path.rpartition("/")[2] for _, path in children]
    numbers = [name for name in names if layout.is_partition(name)]
    for name in names:
        if not layout.is_partition(name):
            log.warning("%s/%s is not a partition and is skipped", parent, name)
    return sorted(map(int, numbers))


# -- known partitions --------------------------------------------------------------------------------------------------


def _own(topic: str) -> list[fenced_writes.Op]:
    paths = (layout.partitions(topic), layout.topic(topic), layout.topic_config(topic))
    return [fenced_writes.delete(path) for path in paths]


async def _delete_partitions(client: Client, topics: Mapping[str, Ints], fence: Fence, batch: int) -> None:
    """Delete the partitions of some topics. Those of a rejected multi remain, and so does the topic.

    Raises:
        ControllerMoved: the fence is not the stored one.
    """
    epoch = client.path(layout.CONTROLLER_EPOCH)
    whole = {client.path(layout.partitions(topic)): numbers for topic, numbers in topics.items()}
    batches = packed(whole, max(1, batch // 2))
    responses = await client.ask_all([PartitionsDeletion(epoch, fence.version, numbers) for numbers in batches])
    for result in responses.results:
        if not isinstance(result, ZookeeperError) and result[0] == BadVersionError.code:
            raise ControllerMoved(ours=fence.epoch)


# -- listed nodes ------------------------------------------------------------------------------------------------------


async def _clear(client: Client, topics: Sequence[str], fence: Fence, batch: int) -> dict[str, StoreError]:
    """Delete topics that have more or fewer nodes than expected. Returns the errors of those that remain."""
    begun, failed = await _children(client, [(topic, layout.partitions(topic)) for topic in topics])
    groups = [[fenced_writes.delete(f"{path}/state"), fenced_writes.delete(path)] for _, path in begun]
    # A group fails if there are other nodes below it, which the next step finds.
    await fenced_writes.commit(client, groups, fence, batch=batch)
    left = [topic for topic in topics if topic not in failed]
    for _ in range(LISTINGS_MAX):
        # Normally two nodes for each topic. Requests are executed in order: children are deleted before their parents.
        nodes, unseen = await _trees(client, left)
        failed |= unseen
        outcomes = await fenced_writes.commit(
            client, [[fenced_writes.delete(path)] for _, path in nodes], fence, batch=batch
        )
        stay = dict(node for node, outcome in zip(nodes, outcomes, strict=True) if outcome != Outcome.COMMITTED)
        left = [topic for topic in left if topic in stay]
        if not left:
            break
    else:
        failed |= {topic: _remains(topic, nodes) for topic in left}
    configs = {topic: layout.topic_config(topic) for topic in topics if topic not in failed}
    return failed | await _delete(client, configs, fence, batch)


def _remains(topic: str, nodes: Iterable[_Node]) -> StoreError:
    deepest = next(path for owner, path in nodes if owner == topic)
    return StoreError(f"topic {topic!r} could not be deleted: {deepest} still exists; try again")


async def _trees(client: Client, topics: Sequence[str]) -> tuple[list[_Node], dict[str, StoreError]]:
    """Returns the nodes of topics and all nodes below, children before parents, and the errors of unlisted topics."""
    responses = await client.ask_all([client.exists(layout.topic(topic)) for topic in topics])
    nodes = level = [
        (topic, layout.topic(topic)) for topic, stat in zip(topics, responses.results, strict=True) if stat is not None
    ]
    failed: dict[str, StoreError] = {}
    for _ in range(DEPTH_MAX):
        level, unseen = await _children(client, level)
        failed |= unseen
        if not level:
            break
        nodes = level + nodes
    failed |= {
        topic: StoreError(
            f"{layout.topic(topic)} has nodes below it that are nested deeper than {DEPTH_MAX}: delete them by hand"
        )
        for topic, _ in level
    }
    return [(topic, path) for topic, path in nodes if topic not in failed], failed


async def _children(client: Client, parents: Sequence[_Node]) -> tuple[list[_Node], dict[str, StoreError]]:
    """Returns the children of some nodes, none for missing nodes, and the errors of unlisted ones by topic."""
    children: list[_Node] = []
    failed: dict[str, StoreError] = {}
    responses = await client.ask_all([client.children(path) for _, path in parents])
    for (topic, parent), result in zip(parents, responses.results, strict=True):
        if isinstance(result, NoNodeError):
            continue
        if isinstance(result, ZookeeperError):
            failed[topic] = StoreError(f"{parent} could not be listed: {result!r}")
        else:
            children += [(topic, f"{parent}/{name}") for name in result[0]]
    return children, failed


async def _delete(client: Client, paths: Mapping[str, str], fence: Fence, batch: int) -> dict[str, StoreError]:
    """Delete one node of each topic. Returns the errors of those that remain."""
    outcomes = await fenced_writes.commit(
        client, [[fenced_writes.delete(path)] for path in paths.values()], fence, batch=batch
    )
    return {
        topic: StoreError(f"{path} could not be deleted: check its children and its permissions")
        for (topic, path), outcome in zip(paths.items(), outcomes, strict=True)
        if outcome != Outcome.COMMITTED
    }
