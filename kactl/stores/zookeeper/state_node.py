"""Leadership, one node for each partition: read in bulk, written by compare-and-set under the fence.

Source: KafkaZkClient.getTopicPartitionStatesRaw, updateLeaderAndIsr, createTopicPartitionStatesRaw.
"""

import logging
from collections.abc import Collection
from typing import Any, Final

import numpy as np
from kazoo.exceptions import BadVersionError, NoNodeError, ZookeeperError

from kactl.errors import StoreError
from kactl.model import NO_BROKER, NO_EPOCH, NO_LEADER, NO_VERSION, Fence, Leadership, TopicPartition
from kactl.rows import Ints
from kactl.store import Committed, Found, Leaderships, Names, Outcome, Write

from . import fenced, layout, request
from .client import Client
from .watches import Kind, Watches

log = logging.getLogger(__name__)

# A tree that was damaged as a whole must not fill the log.
LOGGED_MAX: Final = 10


async def read(client: Client, names: Names) -> Leaderships:
    """What is stored of some partitions, in their order. A node that cannot be read is logged."""
    topics = [topic.name for topic in names.topics]
    paths = [layout.state(topics[t], p) for t, p in zip(names.topic.tolist(), names.partition.tolist(), strict=True)]
    nodes = await client.read_all(paths)

    status = np.full(len(nodes), Found.FOUND, np.uint8)
    states: list[layout.StateNode] = []
    versions: list[int] = []
    unreadable = 0
    for at, node in enumerate(nodes):
        state, version = _NOTHING, NO_VERSION
        if isinstance(node, ZookeeperError):
            status[at] = Found.MISSING if isinstance(node, NoNodeError) else Found.FAILED
        else:
            try:
                state, version = layout.decode_state(node[0]), node[1].version
            except layout.Malformed as error:
                status[at] = Found.UNREADABLE
                unreadable += 1
                if unreadable <= LOGGED_MAX:
                    log.warning("%s holds no leadership information: %s", paths[at], error)
        states.append(state)
        versions.append(version)
    if unreadable > LOGGED_MAX:
        log.warning("%d more state nodes hold no leadership information", unreadable - LOGGED_MAX)
    return _columns(status, states, versions)


_NOTHING: Final = layout.StateNode(NO_EPOCH, NO_LEADER, NO_EPOCH, [])


def _columns(status: Any, states: list[layout.StateNode], versions: list[int]) -> Leaderships:
    members = [state.isr if len(state.isr) < 2 else list(dict.fromkeys(state.isr)) for state in states]
    width = max(map(len, members), default=0)
    padding = [[NO_BROKER] * (width - size) for size in range(width + 1)]
    isr = np.array([row + padding[len(row)] for row in members], np.int32).reshape(len(states), width)
    return Leaderships(
        status=status,
        leader=np.array([state.leader for state in states], np.int32),
        leader_epoch=np.array([state.leader_epoch for state in states], np.int32),
        isr=np.ascontiguousarray(isr.T),
        partition_epoch=np.array(versions, np.int32),
        controller_epoch=np.array([state.controller_epoch for state in states], np.int32),
        recovering=np.array([state.leader_recovery_state == 1 for state in states], np.bool_),
    )


async def commit(client: Client, write: Write, fence: Fence, *, batch: int) -> Committed:
    """Keep new leadership; see `Store.commit`. A partition's container is made along with its first state."""
    outcome = np.full(len(write), Outcome.FAILED, np.uint8)
    topics = [topic.name for topic in write.names.topics]
    numbers = write.names.partition.tolist()
    expected = write.expected.tolist()
    data = _encode(write, fence.epoch)

    first = write.expected == NO_VERSION
    orphans = await _make_containers(client, topics, np.unique(write.names.topic[first]), fence, batch=batch)
    rows, groups = [], []
    for at, topic in enumerate(write.names.topic.tolist()):
        name, number = topics[topic], numbers[at]
        path = layout.state(name, number)
        if expected[at] != NO_VERSION:
            groups.append([fenced.put(path, data[at], expected[at])])
        elif topic not in orphans:
            container = fenced.create(layout.partition(name, number), None, optional=True)
            groups.append([container, fenced.create(path, data[at])])
        else:
            continue  # its topic is gone; FAILED
        rows.append(at)
    outcome[rows] = await fenced.commit(client, groups, fence, batch=batch)
    # A create gives version 0 and every set one more than it expected, which is the same sum.
    version = np.where(outcome == Outcome.KEPT, write.expected + 1, NO_VERSION).astype(np.int32)
    return Committed(outcome, version)


async def _make_containers(client: Client, topics: list[str], which: Ints, fence: Fence, *, batch: int) -> set[int]:
    """Make the node `partitions` of some topics, by index; those which could not get one."""
    wanted = which.tolist()
    groups = [[fenced.create(layout.partitions(topics[topic]), None, optional=True)] for topic in wanted]
    outcomes = await fenced.commit(client, groups, fence, batch=batch)
    return {topic for topic, outcome in zip(wanted, outcomes, strict=True) if outcome != Outcome.KEPT}


def _encode(write: Write, epoch: int) -> list[bytes]:
    members = write.isr.T.tolist()
    columns = zip(write.leader.tolist(), write.leader_epoch.tolist(), members, write.recovering.tolist(), strict=True)
    return [
        layout.encode_state(
            leader,
            leader_epoch=leader_epoch,
            isr=[broker for broker in isr if broker != NO_BROKER],
            controller_epoch=epoch,
            recovering=recovering,
        )
        for leader, leader_epoch, isr, recovering in columns
    ]


async def write_isr(client: Client, name: TopicPartition, state: Leadership, *, expected: int) -> int | None:
    """A leader's own write; see `Store.write_isr`. One that was done before its connection broke counts as done.

    Source: ReplicationUtils.updateLeaderAndIsr.
    """
    path, data = layout.state(name.topic, name.partition), layout.encode_leadership(state)
    answers = await client.ask_all([request.put(client.path(path), data, expected)])
    result = answers.results[0]
    if not isinstance(result, ZookeeperError):
        return int(result.version)
    if isinstance(result, BadVersionError | NoNodeError):
        if answers.repeated:
            (found,) = await client.read_all([path])
            if not isinstance(found, ZookeeperError) and (found[0], found[1].version) == (data, expected + 1):
                return expected + 1
        return None
    raise StoreError(f"{path} could not be written: {result!r}")


async def watch(client: Client, names: Collection[TopicPartition], watches: Watches) -> None:
    """See `Store.watch_leaderships`."""
    partitions = {layout.state(name.topic, name.partition): name for name in names}
    watches.name_leaderships(partitions)
    answers = await client.ask_all([client.exists(path, watch=True) for path in partitions])
    for path, result in zip(partitions, answers.results, strict=True):
        if isinstance(result, ZookeeperError):
            raise StoreError(f"{path} could not be watched: {result!r}")
        watches.saw(path, Kind.DATA, result)
