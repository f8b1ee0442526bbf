"""Topics: listing, assignments, and creation.

Source: KafkaZkClient.getFullReplicaAssignmentForTopics, AdminZkClient.createTopicWithAssignment.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, ZookeeperError

from kactl.model import TOPIC_NAME_LENGTH_MAX, ZERO_ID, Assignment, Fence, TopicRef, check_topic_name
from kactl.model.errors import InvalidPartitions, NotFound, StoreDamaged, StoreError, TopicExists
from kactl.runtime.escaping import escaped
from kactl.runtime.logs import logger
from kactl.stores.base import Assignments, Outcome
from kactl.stores.formats import records, topic_columns

from . import config_node, fenced_writes, layout, request
from .client import Client
from .topic_lives import TopicLives
from .watches import Kind, Watches, ask

log = logger(__name__)

# A server accepts requests of 1 MB; a part of it is needed for the path and for what is written along with the node.
NODE_BYTES_MAX: Final = 1_000_000
# Writes of one assignment, each after another client's. Tools do not write one topic several times in a row.
ATTEMPTS_MAX: Final = 10


async def names(client: Client, path: str, watches: Watches | None) -> list[str]:
    """Returns the children of a top-level node, sorted."""
    listing = [client.children(path, watch=watches is not None)]
    (listed,) = await ask(client, watches, listing, [(path, Kind.CHILDREN)])
    if isinstance(listed, ZookeeperError):
        raise StoreError(f"{path} could not be listed: {listed!r}")
    return sorted(listed[0])


async def listed(client: Client, watches: Watches | None) -> list[str]:
    """Returns the names of all topics, sorted. A name that Kafka does not allow is logged and left out."""
    topics = await names(client, layout.TOPICS, watches)
    invalid = {name: reason for name in topics if (reason := check_topic_name(name))}
    for name, reason in invalid.items():
        path = layout.topic(escaped(name, TOPIC_NAME_LENGTH_MAX))
        log.warning("%s is left out, it cannot be a topic: %s", path, reason)
    return [name for name in topics if name not in invalid]


async def assignments(
    client: Client, topics: Collection[str], watches: Watches | None, lives: TopicLives
) -> Assignments:
    """See `Store.assignments`. Records the topics that were read."""
    wanted = list(dict.fromkeys(topics))
    paths = [layout.topic(name) for name in wanted]
    nodes = await client.read_all(paths) if watches is None else await watches.read(paths)
    found = columns(wanted, nodes)
    stats = dict(zip(wanted, nodes, strict=True))
    lives.record(found.topics, [stats[topic.name][1].czxid for topic in found.topics])
    return found


def columns(wanted: Sequence[str], nodes: Sequence[Any]) -> Assignments:
    """Returns the assignments of some topics, ascending by partition within each.

    Args:
        wanted: the names of the topics.
        nodes: (data, stat), or an error, for each. Missing and unreadable topics are left out; the latter are logged.
    """
    return topic_columns.columns(_decoded(wanted, nodes))


def _decoded(wanted: Sequence[str], nodes: Sequence[Any]) -> Iterator[tuple[TopicRef, records.TopicNode]]:
    for name, node in zip(wanted, nodes, strict=True):
        if isinstance(node, NoNodeError):
            continue
        if isinstance(node, ZookeeperError):
            log.warning("%s could not be read, the topic is left out: %r", layout.topic(name), node)
            continue
        try:
            topic_id, topic = records.decode_topic_node(node[0])
        except records.Malformed as error:
            log.warning("%s is no assignment, the topic is left out: %s", layout.topic(name), error)
            continue
        yield TopicRef(name, topic_id), topic


async def create(
    client: Client, topic: TopicRef, assignment: Mapping[int, Assignment], config: Mapping[str, str]
) -> None:
    """See `Store.create_topic`. Configuration and assignment are one multi, so a rejected one leaves nothing."""
    path, config_path = layout.topic(topic.name), layout.topic_config(topic.name)
    there, config_there = (await client.ask_all([client.exists(path), client.exists(config_path)])).results
    if there is not None:
        raise TopicExists(topic.name)
    data = encode(topic.name, topic.id, assignment)
    responses = await client.ask_all(
        [
            request.multi(
                [
                    config_node.put_or_create(client, config_path, config, exists=config_there is not None),
                    client.create(path, data),
                ]
            )
        ]
    )
    error = request.first_error(responses.results[0])
    if error is None:
        return
    if isinstance(error, NodeExistsError):
        (node,) = await client.read_all([path])
        if responses.repeated and not isinstance(node, ZookeeperError) and node[0] == data and not node[1].version:
            return  # written before the connection broke
        if not isinstance(node, NoNodeError):
            raise TopicExists(topic.name)
    raise StoreError(f"topic {topic.name!r} could not be created, another client changes it: {error!r}; try again")


async def write_assignment(
    client: Client, topic: TopicRef, assignment: Mapping[int, Assignment], fence: Fence | None, lives: TopicLives
) -> None:
    """See `Store.write_assignment`. A topic that is written without an id keeps its id.

    The node is written at the version that it had when it was found to be of this topic. A topic of the same name that
    replaces this one meanwhile may have that version, and has no leadership: a write is rejected then.
    """
    path, container = layout.topic(topic.name), layout.partitions(topic.name)
    for _ in range(ATTEMPTS_MAX):
        is_led = fence is not None and await _exists(client, container)
        (stat,) = await lives.current(client, [topic])
        if stat is None:
            raise NotFound("topic", topic.name)
        topic_id = topic.id
        if topic_id == ZERO_ID:
            (node,) = await client.read_all([path])
            topic_id = _stored_id(topic.name, node)
        data = encode(topic.name, topic_id, assignment)
        if await _replaced(client, topic.name, data, stat.version, fence, is_led=is_led):
            lives.record([TopicRef(topic.name, topic_id)], [stat.czxid])
            return
    raise StoreError(f"the assignment of topic {topic.name!r} could not be written: other clients change it; try again")


async def _exists(client: Client, path: str) -> bool:
    found = await client.ask(client.exists(path))
    return found is not None and not isinstance(found, ZookeeperError)


async def _replaced(
    client: Client, topic: str, data: bytes, version: int, fence: Fence | None, *, is_led: bool
) -> bool:
    """Replace a topic's node. Returns False if it is missing, has another version, or lacks the leadership it had."""
    path = layout.topic(topic)
    if fence is not None:
        led = [fenced_writes.exists(layout.partitions(topic))] if is_led else []
        group = [*led, fenced_writes.put(path, data, version)]
        (outcome,) = await fenced_writes.commit(client, [group], fence, batch=len(group))
        if outcome == Outcome.FAILED:
            raise StoreError(f"the assignment of topic {topic!r} could not be written")
        return outcome == Outcome.COMMITTED
    result = await client.ask(request.put(client.path(path), data, version))
    if isinstance(result, ZookeeperError) and not isinstance(result, NoNodeError | BadVersionError):
        raise StoreError(f"the assignment of topic {topic!r} could not be written: {result!r}")
    return not isinstance(result, ZookeeperError)


def encode(name: str, topic_id: bytes, assignment: Mapping[int, Assignment]) -> bytes:
    """Returns the topic's node, or raises if it is too large: a server would close the connection, at each attempt."""
    data = records.encode_topic(topic_id, assignment)
    if len(data) > NODE_BYTES_MAX:
        size = f"{len(assignment)} partitions make a node of {len(data)} bytes"
        raise InvalidPartitions(
            f"topic {name!r}", f"{size}, and ZooKeeper accepts {NODE_BYTES_MAX}: use fewer partitions"
        )
    return data


def _stored_id(name: str, node: Any) -> bytes:
    if isinstance(node, NoNodeError):
        return ZERO_ID  # the write will fail
    if isinstance(node, ZookeeperError):
        raise StoreError(f"topic {name!r} could not be read: {node!r}")
    try:
        return records.decode_topic(node[0])[0]
    except records.Malformed as error:
        # It may contain the topic's id, which would be lost by overwriting it.
        raise StoreDamaged(
            layout.topic(name), str(error), "repair it, or write the assignment together with the topic's id"
        ) from None
