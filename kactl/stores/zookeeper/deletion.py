"""The deletion of topics: the marks that ask for it, and what is taken away in which order.

Many topics go at a time, children before their parents, in bounded multis that each are fenced, many on their way:

    1. the partitions of which we are told, state and container, without a look at them
    2. each topic's own two nodes and its configuration, together or not at all
    3. where that fails: whatever a look finds below the topic, and then the same, node by node
    4. the marks of those of which nothing is left

So whoever comes after a crash finds the mark, and does the rest. What is true of one topic holds up no other.

Source: KafkaZkClient.deleteTopicZNode, deleteTopicConfigs, deleteTopicDeletions, createDeleteTopicPath.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, ZookeeperError

from kactl.errors import BeingDeleted, ControllerMoved, StoreError
from kactl.model import Fence
from kactl.runtime.logs import logger
from kactl.state.rows import Ints
from kactl.stores.base import Outcome

from . import fenced_writes, layout, request
from .client import Client
from .delete_multi import PartitionsDeletion, packed

log = logger(__name__)

# Nodes that somebody adds while we delete are found by looking again. Nobody does so for long.
LOOKS_MAX: Final = 5
# Below a topic there are /partitions/<number>/state; somebody who nests deeper than this means harm.
DEPTH_MAX: Final = 20

# A node, with the topic that it belongs to.
_Node = tuple[str, str]


async def mark(client: Client, topic: str) -> None:
    """See `Store.mark_deletion`. One that stands after a lost connection may be our own, and is taken for it."""
    path = layout.deletion(topic)
    responses = await client.ask_all([request.create(client.path(path), None)])
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
    """See `Store.partitions_begun`. A child that is no number is logged and passed over."""
    parent = layout.partitions(topic)
    children, failed = await _children(client, [(topic, parent)])
    for error in failed.values():
        raise error
    found = [path.rpartition("/")[2] for _, path in children]
    numbers = [name for name in found if layout.is_partition(name)]
    for name in set(found) - set(numbers):
        log.warning("%s/%s is no partition and is passed over", parent, name)
    return sorted(map(int, numbers))


# -- what we are told of -----------------------------------------------------------------------------------------------


def _own(topic: str) -> list[fenced_writes.Op]:
    paths = (layout.partitions(topic), layout.topic(topic), layout.topic_config(topic))
    return [fenced_writes.delete(path) for path in paths]


async def _delete_partitions(client: Client, topics: Mapping[str, Ints], fence: Fence, batch: int) -> None:
    """Delete the partitions of some topics. Those of a multi that is refused stay: the topic is stuck then.

    Raises:
        ControllerMoved: the fence is not the stored one.
    """
    epoch = client.path(layout.CONTROLLER_EPOCH)
    whole = {client.path(layout.partitions(topic)): numbers for topic, numbers in topics.items()}
    pieces = packed(whole, max(1, batch // 2))
    responses = await client.ask_all([PartitionsDeletion(epoch, fence.version, piece) for piece in pieces])
    for result in responses.results:
        if not isinstance(result, ZookeeperError) and result[0] == BadVersionError.code:
            raise ControllerMoved(ours=fence.epoch)


# -- what a look finds -------------------------------------------------------------------------------------------------


async def _clear(client: Client, topics: Sequence[str], fence: Fence, batch: int) -> dict[str, StoreError]:
    """Delete topics of which more is there than we were told of, or less; why some of them are still there."""
    begun, failed = await _children(client, [(topic, layout.partitions(topic)) for topic in topics])
    groups = [[fenced_writes.delete(f"{path}/state"), fenced_writes.delete(path)] for _, path in begun]
    # One that fails has other nodes below it, which the next step finds.
    await fenced_writes.commit(client, groups, fence, batch=batch)
    left = [topic for topic in topics if topic not in failed]
    for _ in range(LOOKS_MAX):
        # Normally these are two nodes for each. Requests are done in order: children are gone before their parents.
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
        failed |= {topic: _still_there(topic, nodes) for topic in left}
    configs = {topic: layout.topic_config(topic) for topic in topics if topic not in failed}
    return failed | await _delete(client, configs, fence, batch)


def _still_there(topic: str, nodes: Iterable[_Node]) -> StoreError:
    deepest = next(path for owner, path in nodes if owner == topic)
    return StoreError(f"topic {topic!r} could not be deleted: {deepest} is still there; try again")


async def _trees(client: Client, topics: Sequence[str]) -> tuple[list[_Node], dict[str, StoreError]]:
    """The nodes of topics and all below them, children before parents, and why those of some could not be seen."""
    responses = await client.ask_all([client.exists(layout.topic(topic)) for topic in topics])
    found = level = [
        (topic, layout.topic(topic)) for topic, stat in zip(topics, responses.results, strict=True) if stat is not None
    ]
    failed: dict[str, StoreError] = {}
    for _ in range(DEPTH_MAX):
        level, unseen = await _children(client, level)
        failed |= unseen
        if not level:
            break
        found = level + found
    failed |= {
        topic: StoreError(
            f"{layout.topic(topic)} has nodes below it that are nested deeper than {DEPTH_MAX}: delete them by hand"
        )
        for topic, _ in level
    }
    return [(topic, path) for topic, path in found if topic not in failed], failed


async def _children(client: Client, parents: Sequence[_Node]) -> tuple[list[_Node], dict[str, StoreError]]:
    """All children of some nodes, those that are gone have none; and why some could not be listed, by topic."""
    found: list[_Node] = []
    failed: dict[str, StoreError] = {}
    responses = await client.ask_all([client.children(path) for _, path in parents])
    for (topic, parent), result in zip(parents, responses.results, strict=True):
        if isinstance(result, NoNodeError):
            continue
        if isinstance(result, ZookeeperError):
            failed[topic] = StoreError(f"{parent} could not be listed: {result!r}")
        else:
            found += [(topic, f"{parent}/{name}") for name in result[0]]
    return found, failed


async def _delete(client: Client, paths: Mapping[str, str], fence: Fence, batch: int) -> dict[str, StoreError]:
    """Delete one node of each topic; why some of them are still there."""
    outcomes = await fenced_writes.commit(
        client, [[fenced_writes.delete(path)] for path in paths.values()], fence, batch=batch
    )
    return {
        topic: StoreError(f"{path} could not be deleted: see what stands below it, and who may delete it")
        for (topic, path), outcome in zip(paths.items(), outcomes, strict=True)
        if outcome != Outcome.COMMITTED
    }
