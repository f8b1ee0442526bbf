"""Topics: their numbers, assignments and configurations, and their deletion."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from kactl.decide.state.rows import Ints
from kactl.model import TOPIC_NAME_LENGTH_MAX, ZERO_ID, Assignment, Fence, TopicRef, check_topic_name
from kactl.model.errors import (
    BadRequest,
    BeingDeleted,
    InvalidPartitions,
    NotFound,
    StoreDamaged,
    StoreError,
    TopicExists,
)
from kactl.runtime.escaping import escaped
from kactl.runtime.logs import logger
from kactl.stores.base import Assignments
from kactl.stores.formats import records, topic_columns

from . import messages
from .calls import UNAVAILABLE, EtcdError
from .client import OPERATIONS_DEFAULT, Client, batches
from .keys import name_in
from .messages import DeleteRange, KeyValue, Put, Range

log = logger(__name__)

# A server accepts requests of 1.5 MiB, base64 and whatever is written along included.
VALUE_BYTES_MAX: Final = 1024 * 1024
# Each attempt fails only if another client writes the same key at that moment.
TRIES_MAX: Final = 20
# Above this number, all topics are read in place of the ones that are wanted.
SINGLE_READS_MAX: Final = 512
# A deletion of a range is one step of the server, which answers no other request meanwhile.
DELETED_AT_ONCE: Final = 10_000
MISSING: Final = 0


class Topics:
    """Topics of one cluster.

    The number of a topic is the revision at which its assignment was created. The last known numbers are kept: a write
    under an outdated one fails, since its keys do not exist any longer, and is tried again with the present number.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers: dict[str, int] = {}
        self._ids: dict[int, bytes] = {}  # by number; a topic gets its id once

    # -- numbers

    async def known_numbers(self, topics: Sequence[str]) -> list[int]:
        """Returns the numbers of topics, which may be outdated; MISSING if there is no such topic."""
        unknown = [name for name in topics if name not in self._numbers]
        if unknown:
            await self.read_numbers(unknown)
        return [self._numbers.get(name, MISSING) for name in topics]

    async def read_numbers(self, topics: Collection[str]) -> dict[str, int]:
        """Returns the present numbers of those topics that exist."""
        numbers = {name: kv.create_revision for name, kv in (await self._read(topics, keys_only=True)).items()}
        for name in topics:
            self.note(name, numbers.get(name, MISSING))
        return numbers

    async def other_topics(self, topics: Sequence[TopicRef], numbers: Sequence[int]) -> list[bool]:
        """Returns which of some topics have another id than the stored topics of these numbers: they were deleted."""
        unread = [
            topic.name
            for topic, number in zip(topics, numbers, strict=True)
            if number != MISSING and topic.id != ZERO_ID and number not in self._ids
        ]
        if unread:
            await self.assignments(unread)
        return [topic.is_other(self._ids.get(number, ZERO_ID)) for topic, number in zip(topics, numbers, strict=True)]

    def note(self, topic: str, number: int) -> None:
        """Keep the number of a topic; MISSING if it was deleted."""
        if number == MISSING:
            self._ids.pop(self._numbers.pop(topic, MISSING), None)
        else:
            self._numbers[topic] = number

    def forget(self) -> None:
        """Discard everything: numbers may belong to other topics now."""
        self._numbers.clear()
        self._ids.clear()

    def names(self) -> dict[int, str]:
        """Returns the names of topics by their last known numbers."""
        return {number: name for name, number in self._numbers.items()}

    async def all_numbers(self) -> dict[str, int]:
        """Returns the numbers of all topics. A name that Kafka does not allow is logged and left out."""
        topics = self._client.keys.topics
        listed = await self._client.read_interval(topics, keys_only=True)
        numbers = {name_in(topics, kv.key): kv.create_revision for kv in listed}
        for name in [name for name in numbers if check_topic_name(name)]:
            path = escaped(name, TOPIC_NAME_LENGTH_MAX)
            log.warning("assignments/%s is left out, it cannot be a topic: %s", path, check_topic_name(name))
            del numbers[name]
        self._numbers = dict(numbers)
        return numbers

    async def _read(self, topics: Collection[str], *, keys_only: bool) -> dict[str, KeyValue]:
        keys = self._client.keys
        if len(topics) > SINGLE_READS_MAX:
            wanted = set(topics)
            listed = await self._client.read_interval(keys.topics, keys_only=keys_only)
            return {name: kv for kv in listed if (name := name_in(keys.topics, kv.key)) in wanted}
        names = list(dict.fromkeys(topics))
        found = await self._client.read_all([Range(keys.topic(name), keys_only=keys_only) for name in names])
        return {name: kvs[0] for name, kvs in zip(names, found, strict=True) if kvs}

    # -- assignments

    async def assignments(self, topics: Collection[str]) -> tuple[Assignments, dict[str, int]]:
        """Returns the assignments, and the numbers of their topics. Unreadable ones are logged and left out."""
        read = await self._read(topics, keys_only=False)
        for name in topics:
            self.note(name, read[name].create_revision if name in read else MISSING)
        columns = topic_columns.columns(_decoded((name, read[name]) for name in dict.fromkeys(topics) if name in read))
        numbers = {ref.name: read[ref.name].create_revision for ref in columns.topics}
        self._ids.update((numbers[ref.name], ref.id) for ref in columns.topics if ref.id != ZERO_ID)
        return columns, numbers

    async def create(self, topic: TopicRef, assignment: Mapping[int, Assignment], config: Mapping[str, str]) -> None:
        """See `Store.create_topic`."""
        keys = self._client.keys
        key = keys.topic(topic.name)
        response = await self._client.txn(
            [messages.created_at(key, 0)],
            [
                Put(key, _encode(topic.name, topic.id, assignment)),
                Put(keys.topic_config(topic.name), bounded("config", records.encode_config(config))),
            ],
        )
        if not response.succeeded:
            raise TopicExists(topic.name)
        self.note(topic.name, response.header.revision)

    async def write_assignment(
        self, topic: TopicRef, assignment: Mapping[int, Assignment], fence: Fence | None
    ) -> None:
        """See `Store.write_assignment`. A topic that is written without an id keeps its id."""
        client, key = self._client, self._client.keys.topic(topic.name)
        for _ in range(TRIES_MAX):
            stored = await client.get(key)
            if stored is None:
                if fence is not None:
                    await client.check(fence)
                raise NotFound("topic", topic.name)
            stored_id = _stored_id(topic, stored)
            if topic.is_other(stored_id):
                raise NotFound("topic", topic.name)
            topic_id = stored_id if topic.id == ZERO_ID else topic.id
            compare = [messages.written_at(key, stored.mod_revision)]
            put = Put(key, _encode(topic.name, topic_id, assignment))
            response = await (client.txn(compare, [put]) if fence is None else client.fenced(fence, compare, [put]))
            if response.succeeded:
                return
        raise StoreError(f"the assignment of topic {topic.name!r} could not be written: others keep writing it")

    async def id_copies(self, topics: Collection[str]) -> dict[str, bytes]:
        """See `Store.topic_id_copies`."""
        names = list(topics)
        numbers = await self.known_numbers(names)
        found = await self._client.read_all([Range(self._client.keys.id_copy(number)) for number in numbers])
        return {name: kvs[0].value for name, kvs in zip(names, found, strict=True) if kvs}

    async def write_ids(self, topics: Sequence[TopicRef], fence: Fence, *, copies_only: bool) -> None:
        """See `Store.write_topic_ids`."""
        client = self._client
        numbers = await self.known_numbers([topic.name for topic in topics])
        led = await client.read_all(
            [Range(*client.keys.states_of(number), limit=1, keys_only=True) for number in numbers]
        )
        await client.each(
            lambda wanted: self._write_id(*wanted, fence, copies_only=copies_only),
            [(topic, number) for topic, number, kvs in zip(topics, numbers, led, strict=True) if kvs],
        )

    async def _write_id(self, topic: TopicRef, number: int, fence: Fence, *, copies_only: bool) -> None:
        client, key = self._client, self._client.keys.topic(topic.name)
        for _ in range(TRIES_MAX):
            compare, puts = [messages.created_at(key, number)], [Put(client.keys.id_copy(number), topic.id)]
            stored = None if copies_only else await client.get(key)
            if stored is not None:
                try:
                    stored_id, assignment = records.decode_topic(stored.value)
                except records.Malformed as error:
                    log.warning("assignments/%s is no assignment, its id is not written: %s", topic.name, error)
                    return
                if stored_id != topic.id:
                    compare.append(messages.written_at(key, stored.mod_revision))
                    puts.append(Put(key, _encode(topic.name, topic.id, assignment)))
            if (await client.fenced(fence, compare, puts)).succeeded:
                self._ids[number] = topic.id
                return
            if (await self.read_numbers([topic.name])).get(topic.name, MISSING) != number:
                return  # it was deleted
        raise StoreError(f"the id of topic {topic.name!r} could not be written: others keep writing its assignment")

    # -- configurations

    async def configs(self, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        """See `Store.topic_configs`."""
        keys, client = self._client.keys, self._client
        names = list(dict.fromkeys(topics))
        if len(names) > SINGLE_READS_MAX:
            listed = {kv.key: kv for kv in await client.read_interval(keys.topic_configs)}
            found = [listed.get(keys.topic_config(name)) for name in names]
        else:
            read = await client.read_all([Range(keys.topic_config(name)) for name in names])
            found = [kvs[0] if kvs else None for kvs in read]
        return {name: _config(f"topic {name}", kv) for name, kv in zip(names, found, strict=True)}

    async def set_config(self, topic: str, config: Mapping[str, str]) -> None:
        await self._put(self._client.keys.topic_config(topic), config)

    async def default_config(self) -> dict[str, str]:
        return _config("all brokers", await self._client.get(self._client.keys.default_config)) or {}

    async def set_default_config(self, config: Mapping[str, str]) -> None:
        await self._put(self._client.keys.default_config, config)

    async def _put(self, key: bytes, config: Mapping[str, str]) -> None:
        await self._client.txn([], [Put(key, bounded("config", records.encode_config(config)))])

    # -- deletion

    async def mark_deletion(self, topic: str) -> None:
        """See `Store.mark_deletion`."""
        key = self._client.keys.deletion(topic)
        if not (await self._client.txn([messages.created_at(key, 0)], [Put(key, b"")])).succeeded:
            raise BeingDeleted(topic)

    async def deletions(self) -> list[str]:
        deletions = self._client.keys.deletions
        return sorted(name_in(deletions, kv.key) for kv in await self._client.read_interval(deletions, keys_only=True))

    async def unmark_deletions(self, topics: Collection[str], fence: Fence) -> None:
        """See `Store.unmark_deletions`."""
        keys = self._client.keys
        for part in batches(topics, OPERATIONS_DEFAULT) or [[]]:
            await self._client.fenced(fence, [], [DeleteRange(keys.deletion(name)) for name in part])

    async def delete(self, topics: Mapping[str, Ints], fence: Fence) -> dict[str, StoreError]:
        """See `Store.delete_topics`. Each topic is deleted by one transaction, a large one by several."""

        async def delete_one(name: str) -> StoreError | None:
            try:
                await self._delete(name, int(topics[name].max(initial=0)), fence)
            except EtcdError as error:
                return error
            return None

        names = list(topics)
        results = await self._client.each(delete_one, names) if names else []
        return {name: error for name, error in zip(names, results, strict=True) if error is not None}

    async def _delete(self, topic: str, last: int, fence: Fence) -> None:
        client, keys = self._client, self._client.keys
        key = keys.topic(topic)
        for _ in range(TRIES_MAX):
            number = (await self.read_numbers([topic])).get(topic, MISSING)
            states = [] if number == MISSING else [await self._delete_blocks(number, last, fence)]
            response = await client.fenced(
                fence,
                [messages.created_at(key, number)],
                [
                    *states,
                    DeleteRange(key),
                    DeleteRange(keys.topic_config(topic)),
                    DeleteRange(keys.deletion(topic)),
                    DeleteRange(keys.id_copy(number)),
                ],
            )
            if response.succeeded:
                self.note(topic, MISSING)
                return
        raise EtcdError(f"topic {topic!r} could not be deleted: others keep creating it", UNAVAILABLE)

    async def _delete_blocks(self, number: int, last: int, fence: Fence) -> DeleteRange:
        """Delete the leadership of a topic but for the last block. Returns what deletes that one, and all above it."""
        keys = self._client.keys
        begin, end = keys.states_of(number)
        for partition in range(DELETED_AT_ONCE, last, DELETED_AT_ONCE):
            block_end = keys.state(number, partition)
            await self._client.fenced(fence, [], [DeleteRange(begin, block_end)])
            begin = block_end
        return DeleteRange(begin, end)

    async def partitions_begun(self, topic: str) -> list[int]:
        """See `Store.partitions_begun`."""
        number = (await self.read_numbers([topic])).get(topic, MISSING)
        if number == MISSING:
            return []
        keys = self._client.keys
        listed = await self._client.read_interval(keys.states_of(number), keys_only=True)
        return [state[1] for kv in listed if (state := keys.state_of_key(kv.key)) is not None]


def _decoded(topics: Iterator[tuple[str, KeyValue]]) -> Iterator[tuple[TopicRef, records.TopicNode]]:
    for name, kv in topics:
        try:
            topic_id, node = records.decode_topic_node(kv.value)
        except records.Malformed as error:
            log.warning("assignments/%s is no assignment, the topic is left out: %s", name, error)
            continue
        yield TopicRef(name, topic_id), node


def _stored_id(topic: TopicRef, stored: KeyValue) -> bytes:
    try:
        return records.decode_topic(stored.value)[0]
    except records.Malformed as error:
        if topic.id != ZERO_ID:
            return ZERO_ID  # replaced as a whole
        # It may contain the topic's id, which would be lost by overwriting it.
        remedy = "repair it, or write the assignment together with the topic's id"
        raise StoreDamaged(f"assignments/{topic.name}", str(error), remedy) from None


def _config(owner: str, kv: KeyValue | None) -> dict[str, str] | None:
    try:
        return {} if kv is None else records.decode_config(kv.value)
    except records.Malformed as error:
        log.warning("the configuration of %s is malformed: %s", owner, error)
        return None


def _encode(name: str, topic_id: bytes, assignment: Mapping[int, Assignment]) -> bytes:
    """Returns the stored form of an assignment, or raises if it is too large for a request."""
    data = records.encode_topic(topic_id, assignment)
    if len(data) > VALUE_BYTES_MAX:
        size = f"{len(assignment)} partitions make a value of {len(data)} bytes"
        raise InvalidPartitions(f"topic {name!r}", f"{size}, and at most {VALUE_BYTES_MAX} fit: use fewer partitions")
    return data


def bounded(field: str, data: bytes) -> bytes:
    """Returns a value, or raises if it is too large for a request."""
    if len(data) > VALUE_BYTES_MAX:
        raise BadRequest(field, f"makes a value of {len(data)} bytes, and at most {VALUE_BYTES_MAX} fit: write less")
    return data
