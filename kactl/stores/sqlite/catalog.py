"""Topics and their assignments, configurations, notifications, and leadership by topic name.

Everything in this module runs in the database's thread.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from kactl.decide.state.records import named
from kactl.model import NO_BROKER, ZERO_ID, Fence, TopicPartition, TopicRef
from kactl.model.errors import NotFound, TopicExists
from kactl.stores.base import Assignments, Changed, Changes, Committed, Leaderships, Names, Notification, Write
from kactl.stores.entries import topic_numbers
from kactl.stores.topic_assignment import TopicAssignment, join

from .database import Database
from .frame import pack, seal, unpack, unseal

# Records with the copies of topic ids are named by this and the number of the topic.
ID_COPY: Final = "topic id "
_ENCODER = msgspec.msgpack.Encoder()
_CONFIG = msgspec.msgpack.Decoder(dict[str, str])
_BYTES = msgspec.msgpack.Decoder(bytes)
_PARTITIONS = msgspec.msgpack.Decoder(tuple[TopicPartition, ...])


class Catalog:
    """Topics, configurations, notifications and leadership of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._numbers: dict[str, int] = {}
        self._ids: dict[str, bytes] = {}
        self._numbers_stamp = -1

    # -- topics

    def topics(self) -> dict[str, int]:
        """Returns the number of each topic."""
        with self._database.reading() as connection:
            return dict(connection.execute("SELECT name, number FROM topics").fetchall())

    def assignments(self, topics: Collection[str]) -> tuple[Assignments, list[int]]:
        """Returns the assignments, and the number of each of their topics."""
        refs, parts, numbers = [], [], []
        with self._database.reading() as connection:
            for topic in topics:
                query = "SELECT number, id, assignment FROM topics WHERE name = ?"
                row = connection.execute(query, (topic,)).fetchone()
                if row:
                    number, topic_id, frame = row
                    refs.append(TopicRef(topic, topic_id))
                    parts.append(_assignment(unpack("assignment", number, frame)))
                    numbers.append(number)
        return join(refs, parts), numbers

    def create_topics(
        self, topics: Sequence[TopicRef], parts: Sequence[TopicAssignment], configs: Mapping[str, Mapping[str, str]]
    ) -> None:
        with self._database.writing() as connection:
            for topic, assignment in zip(topics, parts, strict=True):
                if self._database.one("SELECT 1 FROM topics WHERE name = ?", topic.name):
                    raise TopicExists(topic.name)
                query = "UPDATE meta SET topic_number = topic_number + 1 RETURNING topic_number"
                (number,) = connection.execute(query).fetchone()
                frame = pack("assignment", number, _columns(assignment))
                connection.execute("INSERT INTO topics VALUES (?, ?, ?, ?)", (topic.name, number, topic.id, frame))
                self._database.count_log_bytes(len(frame))
            for name, config in configs.items():
                self._write_config(name, config)
            self._database.stamp(Changed.TOPICS)

    def write_assignment(self, topic: TopicRef, assignment: TopicAssignment, fence: Fence | None) -> None:
        with self._database.writing() as connection:
            if fence:
                self._database.check_fence(fence)
            query = "SELECT number, id FROM topics WHERE name = ?"
            number, topic_id = connection.execute(query, (topic.name,)).fetchone() or (None, ZERO_ID)
            if number is None or topic.is_other(topic_id):
                raise NotFound("topic", topic.name)
            connection.execute(
                "UPDATE topics SET id = iif(? = ?, id, ?), assignment = ? WHERE number = ?",
                (topic.id, ZERO_ID, topic.id, pack("assignment", number, _columns(assignment)), number),
            )
            self._database.stamp(Changed.TOPIC, topic.name)

    def topic_id_copies(self, topics: Collection[str]) -> dict[str, bytes]:
        copies = {}
        with self._database.reading():
            for name in topics:
                data = self._database.one(
                    "SELECT data FROM records JOIN topics ON records.name = ? || number WHERE topics.name = ?",
                    ID_COPY, name,
                )  # fmt: skip
                if data is not None:
                    copies[name] = _BYTES.decode(unseal(data))
        return copies

    def write_topic_ids(self, topics: Sequence[TopicRef], fence: Fence, *, copies_only: bool) -> None:
        database = self._database
        with database.writing() as connection:
            database.check_fence(fence)
            for topic in topics:
                row = connection.execute("SELECT number, id FROM topics WHERE name = ?", (topic.name,)).fetchone()
                if row is None or not database.journal.entries.partitions_of(row[0]):
                    continue
                copy = (f"{ID_COPY}{row[0]}", seal(_ENCODER.encode(topic.id)))
                connection.execute("INSERT OR REPLACE INTO records VALUES (?, 0, ?)", copy)
                if not copies_only and row[1] != topic.id:
                    connection.execute("UPDATE topics SET id = ? WHERE number = ?", (topic.id, row[0]))
                    database.stamp(Changed.TOPIC, topic.name)
                    database.stamp(Changed.TOPICS)  # for the ids that `_known` keeps

    def configs(self, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        configs: dict[str, dict[str, str] | None] = {}
        with self._database.reading():
            for topic in topics:
                data = self._database.one("SELECT data FROM configs WHERE topic = ?", topic)
                configs[topic] = {} if data is None else _CONFIG.decode(unseal(data))
        return configs

    def set_config(self, topic: str, config: Mapping[str, str]) -> None:
        with self._database.writing():
            self._write_config(topic, config)
            self._database.stamp(Changed.TOPIC_CONFIG, topic)

    def default_config(self) -> dict[str, str]:
        with self._database.reading():
            data = self._database.one("SELECT data FROM default_config")
            return {} if data is None else _CONFIG.decode(unseal(data))

    def set_default_config(self, config: Mapping[str, str]) -> None:
        data = seal(_ENCODER.encode(dict(config)))
        with self._database.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO default_config VALUES (1, ?)", (data,))
            self._database.stamp(Changed.DEFAULT_CONFIG)

    def _write_config(self, topic: str, config: Mapping[str, str]) -> None:
        data = seal(_ENCODER.encode(dict(config)))
        self._database.connection.execute("INSERT OR REPLACE INTO configs VALUES (?, ?)", (topic, data))

    # -- leadership

    def leaderships(self, names: Names) -> Leaderships:
        with self._database.reading():
            topic = topic_numbers(names, self._known())
        return self._database.journal.entries.read(topic, names.partition)

    def commit(self, write: Write, fence: Fence | None, *, controller_epoch: int) -> Committed:
        """Commit new leadership as one change, with the fence checked in the same transaction."""
        database = self._database
        with database.writing() as connection:
            if fence:
                database.check_fence(fence)
            topic = topic_numbers(write.names, self._known(), lambda name: self._ids[name])
            committed, entries, rows = database.journal.entries.plan_write(write, topic, controller_epoch)
            if not len(entries):
                return committed
            seq, size = database.journal.append(connection, entries)
        database.journal.applied(seq, entries, size, rows)
        database.count_log_bytes(size)
        return committed

    def partitions_begun(self, topic: str) -> list[int]:
        """Returns the partitions of a topic that have leadership, ascending."""
        with self._database.reading():
            number = self._database.one("SELECT number FROM topics WHERE name = ?", topic)
        return [] if number is None else self._database.journal.entries.partitions_of(number)

    def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        """Report later writes of these partitions by any process; partitions of missing topics are skipped."""
        with self._database.reading():
            known = self._known()
            keys = {(known[name.topic], name.partition): name for name in names if name.topic in known}
            self._database.journal.watches.watch(keys)

    def changes(self, since: tuple[int, ...] | None) -> Changes:
        """Returns the changes since a position; see `Store.changes`.

        A position is the number of a change, a stamp, and the number of a topic.
        """
        journal = self._database.journal
        with self._database.reading() as connection:
            stamp, number = connection.execute("SELECT stamp, topic_number FROM meta").fetchone()
            position = (journal.seq, stamp, number)
            entries = None if since is None else journal.log.since(since[0])
            if since is None or entries is None:
                return Changes.unknown(position)
            created = connection.execute("SELECT name FROM topics WHERE number > ?", (since[2],)).fetchall()
            query = "SELECT name FROM stamps WHERE what = ? AND stamp > ?"
            written = connection.execute(query, (Changed.TOPIC.value, since[1])).fetchall()
            names = {topic: name for name, topic in self._known().items()}
        return Changes(position, False, frozenset(name for (name,) in (*created, *written)), named(*entries, names))

    def _known(self) -> dict[str, int]:
        """The number of each topic, cached in memory, since one call may name many topics."""
        stamp = self._database.one("SELECT stamp FROM stamps WHERE what = ?", Changed.TOPICS.value) or 0
        if stamp != self._numbers_stamp:
            rows = self._database.connection.execute("SELECT name, number, id FROM topics").fetchall()
            self._numbers = {name: number for name, number, _ in rows}
            # A topic gets its id once. ZERO_ID may have been replaced meanwhile, and matches every id.
            self._ids = {name: topic_id for name, _, topic_id in rows}
            self._numbers_stamp = stamp
        return self._numbers

    # -- notifications

    def notify(self, kind: Changed, partitions: Sequence[TopicPartition], broker: int) -> None:
        data = seal(_ENCODER.encode(tuple(partitions)))
        with self._database.writing() as connection:
            connection.execute("INSERT INTO notifications (broker, data) VALUES (?, ?)", (broker, data))
            self._database.stamp(kind)

    def notifications(self, kind: Changed) -> list[Notification]:
        condition = "broker = ?" if kind is Changed.ISR_NOTIFICATIONS else "broker <> ?"
        query = f"SELECT id, broker, data FROM notifications WHERE {condition} ORDER BY id"
        with self._database.reading() as connection:
            rows = connection.execute(query, (NO_BROKER,)).fetchall()
        return [Notification(str(key), _PARTITIONS.decode(unseal(data)), broker) for key, broker, data in rows]

    def delete_notifications(self, notifications: Sequence[Notification], fence: Fence) -> None:
        with self._database.writing() as connection:
            self._database.check_fence(fence)
            for notification in notifications:
                if connection.execute("DELETE FROM notifications WHERE id = ?", (notification.key,)).rowcount:
                    isr = notification.broker == NO_BROKER
                    self._database.stamp(Changed.ISR_NOTIFICATIONS if isr else Changed.LOG_DIR_NOTIFICATIONS)


def _columns(assignment: TopicAssignment) -> dict[str, npt.NDArray[Any]]:
    return {
        "partition": assignment.partition,
        "replicas": assignment.replicas,
        "adding": assignment.adding,
        "removing": assignment.removing,
    }


def _assignment(columns: dict[str, npt.NDArray[np.int32]]) -> TopicAssignment:
    adding, removing = columns["adding"].astype(np.bool_), columns["removing"].astype(np.bool_)
    return TopicAssignment(columns["partition"], columns["replicas"], adding, removing)
