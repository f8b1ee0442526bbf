"""The deletion of topics: the marks that ask for it, and what is taken away in which order.

A topic of ten thousand partitions is twenty thousand nodes. They go children first, in bounded multis that each are
fenced, many on their way at a time; then the topic's own node, its configuration, and the mark at the very end. So
whoever comes after a crash finds the mark, and does the rest.

Source: KafkaZkClient.deleteTopicZNode, deleteTopicConfigs, deleteTopicDeletions, createDeleteTopicPath.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Final

from kazoo.exceptions import NodeExistsError, NoNodeError, ZookeeperError

from kactl.errors import BeingDeleted, StoreError
from kactl.model import Fence
from kactl.store import Outcome

from . import fenced, layout, request
from .client import Client

log = logging.getLogger(__name__)

# Nodes that somebody adds while we delete are found by looking again. Nobody does so for long.
LOOKS_MAX: Final = 5
# Below a topic there are /partitions/<number>/state; somebody who nests deeper than this means harm.
DEPTH_MAX: Final = 20


async def mark(client: Client, topic: str) -> None:
    """See `Store.mark_deletion`. One that stands after a lost connection may be our own, and is taken for it."""
    path = layout.deletion(topic)
    answers = await client.ask_all([request.create(client.path(path), None)])
    result = answers.results[0]
    if isinstance(result, NodeExistsError):
        if not answers.repeated:
            raise BeingDeleted(topic)
    elif isinstance(result, ZookeeperError):
        raise StoreError(f"topic {topic!r} could not be marked for deletion: {result!r}")


async def unmark(client: Client, topics: Collection[str], fence: Fence, *, batch: int) -> None:
    """See `Store.unmark_deletions`."""
    await _delete(client, [layout.deletion(topic) for topic in topics], fence, batch=batch)


async def delete(client: Client, topic: str, fence: Fence, *, batch: int) -> None:
    """See `Store.delete_topic`.

    Raises:
        StoreError: something could not be deleted; the mark stands still.
    """
    begun = await _children(client, [layout.partitions(topic)])
    groups = [[fenced.delete(f"{path}/state"), fenced.delete(path)] for path in begun]
    # One that fails has other nodes below it, which the next step finds.
    await fenced.commit(client, groups, fence, batch=batch)
    for _ in range(LOOKS_MAX):
        # Normally these are two nodes. Requests are done in order, so children are gone before their parents' turn.
        left = await _tree(client, layout.topic(topic))
        if not left:
            break
        outcomes = await fenced.commit(client, [[fenced.delete(path)] for path in reversed(left)], fence, batch=batch)
        if all(outcome == Outcome.KEPT for outcome in outcomes):
            break
    else:
        raise StoreError(f"topic {topic!r} could not be deleted: {left[-1]} is still there; try again")
    await _delete(client, [layout.topic_config(topic)], fence, batch=batch)
    await _delete(client, [layout.deletion(topic)], fence, batch=batch)


async def partitions_begun(client: Client, topic: str) -> list[int]:
    """See `Store.partitions_begun`. A child that is no number is logged and passed over."""
    parent = layout.partitions(topic)
    found = [path.rpartition("/")[2] for path in await _children(client, [parent])]
    numbers = [name for name in found if layout.is_partition(name)]
    for name in set(found) - set(numbers):
        log.warning("%s/%s is no partition and is passed over", parent, name)
    return sorted(map(int, numbers))


async def _tree(client: Client, root: str) -> list[str]:
    """A node and all below it, parents before children; empty if it is not there."""
    if await client.ask(client.exists(root)) is None:
        return []
    found = level = [root]
    for _ in range(DEPTH_MAX):
        level = await _children(client, level)
        if not level:
            return found
        found = found + level
    raise StoreError(f"{root} has nodes below it that are nested deeper than {DEPTH_MAX}: delete them by hand")


async def _children(client: Client, parents: Sequence[str]) -> list[str]:
    """The paths of all children of some nodes; those that are gone have none."""
    found: list[str] = []
    answers = await client.ask_all([client.children(parent) for parent in parents])
    for parent, result in zip(parents, answers.results, strict=True):
        if isinstance(result, NoNodeError):
            continue
        if isinstance(result, ZookeeperError):
            raise StoreError(f"{parent} could not be listed: {result!r}")
        found += [f"{parent}/{name}" for name in result[0]]
    return found


async def _delete(client: Client, paths: Sequence[str], fence: Fence, *, batch: int) -> None:
    outcomes = await fenced.commit(client, [[fenced.delete(path)] for path in paths], fence, batch=batch)
    for path, outcome in zip(paths, outcomes, strict=True):
        if outcome != Outcome.KEPT:
            raise StoreError(f"{path} could not be deleted: see what stands below it, and who may delete it")
