"""Leadership, one node for each partition: read in bulk, written by compare-and-set under the fence.

Source: KafkaZkClient.getTopicPartitionStatesRaw, updateLeaderAndIsr, createTopicPartitionStatesRaw.
"""

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
from kazoo.exceptions import BadVersionError, NoNodeError, UnimplementedError, ZookeeperError

from kactl.decide.state.rows import Bytes, Ints, RowNumbers
from kactl.model import NO_VERSION, Fence, Leadership, TopicPartition
from kactl.model.errors import StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Committed, Leaderships, Names, Outcome, Write
from kactl.stores.formats import records, states

from . import fenced_writes, layout, request, state_reads, state_writes
from .client import Client
from .topic_lives import TopicLives
from .watches import Watches

log = logger(__name__)

# A completely damaged tree must not flood the log.
LOGGED_MAX: Final = 10


async def read(client: Client, names: Names) -> Leaderships:
    """Returns the stored leadership of some partitions, in their order. A malformed node is logged."""
    reads = state_reads.requests(names, client.chroot)
    responses = (await client.ask_all(reads)).results if client.reads_many else []
    if not client.reads_many or any(isinstance(response, UnimplementedError) for response in responses):
        nodes = await client.read_all([layout.state(name.topic, name.partition) for name in names])
        blocks = [state_reads.block(nodes)]
    else:
        blocks = [
            response if isinstance(response, states.Block) else state_reads.block([response] * len(read))
            for read, response in zip(reads, responses, strict=True)
        ]
    _log_unreadable(names, blocks)
    return states.join([block.states for block in blocks])


def _log_unreadable(names: Names, blocks: Sequence[states.Block]) -> None:
    begin = unreadable = 0
    for block in blocks:
        for index, reason in block.unreadable[: max(0, LOGGED_MAX - unreadable)]:
            row = begin + index
            topic, partition = names.topics[names.topic[row]].name, names.partition[row]
            log.warning("%s contains no leadership: %s", layout.state(topic, partition), reason)
        begin += len(block.states)
        unreadable += len(block.unreadable)
    if unreadable > LOGGED_MAX:
        log.warning("%d more state nodes contain no leadership", unreadable - LOGGED_MAX)


async def commit(client: Client, write: Write, fence: Fence, lives: TopicLives, *, batch: int) -> Committed:
    """Commit new leadership; see `Store.commit`. A partition's container is created along with its first state.

    Commits of other partitions may run concurrently.
    """
    outcome = np.full(len(write), Outcome.FAILED, np.uint8)
    first = write.expected == NO_VERSION
    created, replaced = np.flatnonzero(first), np.flatnonzero(~first)
    if len(created):
        outcome[created] = await _create(client, write, created, fence, lives, batch=batch)
    if len(replaced):
        outcome[replaced] = await _replace(client, write, replaced, fence, batch=batch)
    # A create yields version 0 and every set one more than it expected, selection is the same sum.
    version = np.where(outcome == Outcome.COMMITTED, write.expected + 1, NO_VERSION).astype(np.int32)
    return Committed(outcome, version)


async def _replace(client: Client, write: Write, selection: RowNumbers, fence: Fence, *, batch: int) -> Bytes:
    """Write rows with existing states. Returns the outcome of each."""
    rows = state_writes.Rows(write, selection, epoch=fence.epoch, chroot=client.chroot)
    responses = await client.ask_all(state_writes.requests(rows, fence, chroot=client.chroot, size=batch))
    if all(result == [] for result in responses.results):
        return np.full(len(selection), Outcome.COMMITTED, np.uint8)
    names = zip(write.names.topic[selection].tolist(), write.names.partition[selection].tolist(), strict=True)
    paths = [layout.state(write.names.topics[topic].name, partition) for topic, partition in names]
    expected = write.expected[selection].tolist()
    groups = [[fenced_writes.put(*op)] for op in zip(paths, rows.data, expected, strict=True)]
    return np.array(await fenced_writes.commit(client, groups, fence, batch=batch, tried=responses), np.uint8)


async def _create(
    client: Client, write: Write, selection: RowNumbers, fence: Fence, lives: TopicLives, *, batch: int
) -> Bytes:
    """Write rows without a stored state. Returns the outcome of each.

    The topics are compared between the two writes: the second one fails if a topic has been replaced since, as a new
    topic has no node `partitions`, and this client creates it once. One that was replaced before is found, as a server
    that has answered the first write has applied all that was written before it.
    """
    outcome = np.full(len(selection), Outcome.FAILED, np.uint8)
    topics = [topic.name for topic in write.names.topics]
    data = states.encode(write, selection, fence.epoch)
    indexes = np.unique(write.names.topic[selection])
    orphans: set[int] = set()
    by_name = {topics[index]: index for index in indexes.tolist()}
    with lives.creating(list(by_name)) as missing:
        if missing:
            chosen = np.array([by_name[topic] for topic in missing], indexes.dtype)
            orphans = await _make_containers(client, topics, chosen, fence, batch=batch)
    await lives.created(list(by_name))
    others = await lives.others(client, [write.names.topics[index] for index in indexes.tolist()])
    orphans |= set(indexes[np.array(others, np.bool_)].tolist())
    rows, groups = [], []
    columns = zip(write.names.topic[selection].tolist(), write.names.partition[selection].tolist(), data, strict=True)
    for row, (topic, number, text) in enumerate(columns):
        if topic in orphans:
            continue  # its topic does not exist, or is a later one of that name; FAILED
        container = fenced_writes.create(layout.partition(topics[topic], number), None, optional=True)
        groups.append([container, fenced_writes.create(layout.state(topics[topic], number), text)])
        rows.append(row)
    outcome[rows] = await fenced_writes.commit(client, groups, fence, batch=batch)
    failed = np.unique(write.names.topic[selection[outcome == Outcome.FAILED]])
    lives.forget_containers(topics[index] for index in failed.tolist())
    return outcome


async def _make_containers(client: Client, topics: list[str], selection: Ints, fence: Fence, *, batch: int) -> set[int]:
    """Create the node `partitions` of some topics, by index. Returns the topics for selection that failed."""
    indexes = selection.tolist()
    groups = [[fenced_writes.create(layout.partitions(topics[topic]), None, optional=True)] for topic in indexes]
    outcomes = await fenced_writes.commit(client, groups, fence, batch=batch)
    return {topic for topic, outcome in zip(indexes, outcomes, strict=True) if outcome != Outcome.COMMITTED}


async def write_isr(client: Client, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
    """A leader's own write; see `Store.write_isr`. One that succeeded before its connection broke counts as successful.

    Source: ReplicationUtils.updateLeaderAndIsr.
    """
    path, data = layout.state(name.topic, name.partition), records.encode_leadership(state)
    responses = await client.ask_all([request.put(client.path(path), data, expected)])
    result = responses.results[0]
    if not isinstance(result, ZookeeperError):
        return int(result.version)
    if isinstance(result, BadVersionError | NoNodeError):
        if responses.repeated:
            (node,) = await client.read_all([path])
            if not isinstance(node, ZookeeperError) and (node[0], node[1].version) == (data, expected + 1):
                return expected + 1
        return None
    raise StoreError(f"{path} could not be written: {result!r}")


async def watch(names: Collection[TopicPartition], watches: Watches) -> None:
    """See `Store.watch_leaderships`."""
    partitions = {layout.state(name.topic, name.partition): name for name in names}
    for path, result in zip(partitions, await watches.watch_leaderships(partitions), strict=True):
        if isinstance(result, ZookeeperError):
            raise StoreError(f"{path} could not be watched: {result!r}")
