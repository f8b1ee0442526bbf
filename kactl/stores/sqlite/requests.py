"""Deletion marks, admin requests, features, maintenance, and blocks of producer ids.

Everything in this module runs in the database's thread.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from kactl.model import Features, Fence, Maintenance, ProducerIdBlock, TopicPartition
from kactl.model.errors import BeingDeleted, RequestWaits
from kactl.runtime.logs import logger
from kactl.stores.base import Changed

from .catalog import ID_COPY
from .database import Database
from .frame import seal, unseal

log = logger(__name__)

_ENCODER: Final = msgspec.msgpack.Encoder()
_TARGETS: Final = msgspec.msgpack.Decoder(tuple[tuple[TopicPartition, tuple[int, ...]], ...])
_PARTITIONS: Final = msgspec.msgpack.Decoder(tuple[TopicPartition, ...])
_FEATURES: Final = msgspec.msgpack.Decoder(Features)
_MAINTENANCE: Final = msgspec.msgpack.Decoder(Maintenance)
_BLOCK: Final = msgspec.msgpack.Decoder(ProducerIdBlock)

# The names of records.
_REASSIGNMENT: Final = "reassignment request"
_PREFERRED_ELECTION: Final = "preferred election request"
_FEATURES_RECORD: Final = "features"
_MAINTENANCE_RECORD: Final = "maintenance"
PRODUCER_IDS: Final = "producer ids"


class Requests:
    """Admin data of one database; see `kactl.stores.base.Store` for the methods."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- marks for deletion

    def mark_deletion(self, topic: str) -> None:
        with self._database.writing() as connection:
            if self._database.one("SELECT 1 FROM deletions WHERE topic = ?", topic):
                raise BeingDeleted(topic)
            connection.execute("INSERT INTO deletions VALUES (?)", (topic,))
            self._database.stamp(Changed.DELETIONS)

    def deletions(self) -> list[str]:
        with self._database.reading() as connection:
            return [topic for (topic,) in connection.execute("SELECT topic FROM deletions ORDER BY topic")]

    def unmark_deletions(self, topics: Collection[str], fence: Fence) -> None:
        with self._database.writing():
            self._database.check_fence(fence)
            self._unmark(topics)

    def delete_topics(self, topics: Sequence[str], fence: Fence) -> None:
        """Delete topics in one transaction."""
        database = self._database
        with database.writing() as connection:
            database.check_fence(fence)
            removals: list[tuple[int, int, int]] = []
            for topic in topics:
                number = database.one("SELECT number FROM topics WHERE name = ?", topic)
                connection.execute("DELETE FROM configs WHERE topic = ?", (topic,))
                if number is None:
                    continue
                connection.execute("DELETE FROM topics WHERE name = ?", (topic,))
                connection.execute("DELETE FROM records WHERE name = ?", (f"{ID_COPY}{number}",))
                removals.append((number, *database.journal.append_removal(connection, number, behind=len(removals))))
                stamps = (topic, Changed.TOPIC.value, Changed.TOPIC_CONFIG.value)
                connection.execute("DELETE FROM stamps WHERE name = ? AND what IN (?, ?)", stamps)
            self._unmark(topics)
            if removals:
                database.stamp(Changed.TOPICS)
        for number, seq, size in removals:
            database.journal.removed(seq, number, size)
            database.count_log_bytes(size)

    def _unmark(self, topics: Collection[str]) -> None:
        delete = "DELETE FROM deletions WHERE topic = ?"
        if sum(self._database.connection.execute(delete, (topic,)).rowcount for topic in topics):
            self._database.stamp(Changed.DELETIONS)

    # -- admin requests

    def request_reassignment(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        self._request(_REASSIGNMENT, tuple(targets.items()), Changed.REASSIGNMENT_REQUEST, "reassignments")

    def reassignment_request(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        data = self._read(_REASSIGNMENT)[0]
        return None if data is None else dict(_TARGETS.decode(data))

    def set_reassignment_request(self, targets: Mapping[TopicPartition, tuple[int, ...]], fence: Fence) -> None:
        with self._database.writing():
            self._database.check_fence(fence)
            self._drop(_REASSIGNMENT)
            if targets:
                self._write(_REASSIGNMENT, tuple(targets.items()), version=0)

    def request_preferred_election(self, partitions: Collection[TopicPartition]) -> None:
        content = tuple(dict.fromkeys(partitions))
        self._request(_PREFERRED_ELECTION, content, Changed.PREFERRED_ELECTION_REQUEST, "preferred elections")

    def preferred_election_request(self) -> list[TopicPartition] | None:
        data = self._read(_PREFERRED_ELECTION)[0]
        return None if data is None else list(_PARTITIONS.decode(data))

    def delete_preferred_election_request(self, fence: Fence) -> None:
        with self._database.writing():
            self._database.check_fence(fence)
            self._drop(_PREFERRED_ELECTION)

    def _request(self, record: str, content: Sequence[Any], kind: Changed, description: str) -> None:
        with self._database.writing():
            if self._read(record)[0] is not None:
                raise RequestWaits(description)
            self._write(record, content, version=0)
            self._database.stamp(kind)

    # -- features, maintenance and producer ids

    def features(self) -> Features | None:
        data, version = self._read(_FEATURES_RECORD)
        return None if data is None else msgspec.structs.replace(_FEATURES.decode(data), version=version)

    def write_features(self, features: Features, fence: Fence) -> Features:
        with self._database.writing():
            self._database.check_fence(fence)
            data, version = self._read(_FEATURES_RECORD)
            version = 0 if data is None else version + 1
            self._write(_FEATURES_RECORD, features, version=version)
        return msgspec.structs.replace(features, version=version)

    def maintenance(self) -> Maintenance:
        data, _ = self._read(_MAINTENANCE_RECORD)
        try:
            return Maintenance() if data is None else _MAINTENANCE.decode(data)
        except (msgspec.MsgspecError, ValueError) as error:
            log.error("the record of the maintenance is malformed and counts as none: %s", error)
            return Maintenance()

    def write_maintenance(self, maintenance: Maintenance, fence: Fence) -> None:
        with self._database.writing():
            self._database.check_fence(fence)
            self._write(_MAINTENANCE_RECORD, maintenance, version=self._read(_MAINTENANCE_RECORD)[1] + 1)

    def producer_ids(self) -> tuple[ProducerIdBlock | None, int]:
        data, version = self._read(PRODUCER_IDS)
        return (None if data is None else _BLOCK.decode(data)), version

    def write_producer_ids(self, block: ProducerIdBlock, *, expected: int) -> bool:
        with self._database.writing():
            if self._read(PRODUCER_IDS)[1] != expected:
                return False
            self._write(PRODUCER_IDS, block, version=expected + 1)
        return True

    # -- records

    def _read(self, name: str) -> tuple[memoryview | None, int]:
        """Returns a record's content and version; None and 0 if it was never written."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT data, version FROM records WHERE name = ?", (name,)).fetchone()
        return (None, 0) if row is None else (unseal(row[0]), row[1])

    def _write(self, name: str, content: Any, *, version: int) -> None:
        data = seal(_ENCODER.encode(content))
        self._database.connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (name, version, data))

    def _drop(self, name: str) -> None:
        self._database.connection.execute("DELETE FROM records WHERE name = ?", (name,))
