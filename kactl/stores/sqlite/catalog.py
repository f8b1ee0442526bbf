"""Topics and their assignments, configurations, notifications, and leadership by the names of topics.

Everything here runs in the database's thread.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from kactl.errors import NotFound, TopicExists
from kactl.model import NO_BROKER, ZERO_ID, Fence, TopicPartition, TopicRef
from kactl.state.records import named
from kactl.stores.base import Assignments, Changed, Changes, Committed, Leaderships, Names, Notification, Write
from kactl.stores.entries import topic_numbers
from kactl.stores.topic_assignment import TopicAssignment, join

from .database import Database
from .frame import pack, seal, unpack, unseal

_ENCODER = msgspec.msgpack.Encoder()
_CONFIG = msgspec.msgpack.Decoder(dict[str, str])
_PARTITIONS = msgspec.msgpack.Decoder(tuple[TopicPartition, ...])


class Catalog:
    """See the module."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._numbers: dict[str, int] = {}
        self._numbers_stamp = -1

    # -- topics

    def topics(self) -> dict[str, int]:
        """The number of each topic."""
        with self._database.reading() as connection:
            return dict(connection.execute("SELECT name, number FROM topics").fetchall())

    def assignments(self, topics: Collection[str]) -> tuple[Assignments, list[int]]:
        """What is assigned, and the number of each of its topics."""
        refs, pieces, numbers = [], [], []
        with self._database.reading() as connection:
            for topic in topics:
                query = "SELECT number, id, assignment FROM topics WHERE name = ?"
                row = connection.execute(query, (topic,)).fetchone()
                if row:
                    number, topic_id, frame = row
                    refs.append(TopicRef(topic, topic_id))
                    pieces.append(_piece(unpack("assignment", number, frame)))
                    numbers.append(number)
        return join(refs, pieces), numbers

    def create_topics(
        self, topics: Sequence[TopicRef], pieces: Sequence[TopicAssignment], configs: Mapping[str, Mapping[str, str]]
    ) -> None:
        with self._database.writing() as connection:
            for topic, piece in zip(topics, pieces, strict=True):
                if self._database.one("SELECT 1 FROM topics WHERE name = ?", topic.name):
                    raise TopicExists(topic.name)
                query = "UPDATE meta SET topic_number = topic_number + 1 RETURNING topic_number"
                (number,) = connection.execute(query).fetchone()
                frame = pack("assignment", number, _columns(piece))
                connection.execute("INSERT INTO topics VALUES (?, ?, ?, ?)", (topic.name, number, topic.id, frame))
                self._database.wrote(len(frame))
            for name, config in configs.items():
                self._write_config(name, config)
            self._database.stamp(Changed.TOPICS)

    def write_assignment(self, topic: TopicRef, piece: TopicAssignment, fence: Fence | None) -> None:
        with self._database.writing() as connection:
            if fence:
                self._database.check_fence(fence)
            number = self._database.one("SELECT number FROM topics WHERE name = ?", topic.name)
            if number is None:
                raise NotFound("topic", topic.name)
            connection.execute(
                "UPDATE topics SET id = iif(? = ?, id, ?), assignment = ? WHERE number = ?",
                (topic.id, ZERO_ID, topic.id, pack("assignment", number, _columns(piece)), number),
            )
            self._database.stamp(Changed.TOPIC, topic.name)

    def configs(self, topics: Collection[str]) -> dict[str, dict[str, str] | None]:
        found: dict[str, dict[str, str] | None] = {}
        with self._database.reading():
            for topic in topics:
                data = self._database.one("SELECT data FROM configs WHERE topic = ?", topic)
                found[topic] = {} if data is None else _CONFIG.decode(unseal(data))
        return found

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
        """Keep new leadership: one change, with the fence checked in the same transaction."""
        database = self._database
        with database.writing() as connection:
            if fence:
                database.check_fence(fence)
            topic = topic_numbers(write.names, self._known())
            committed, made, rows = database.journal.entries.judge(write, topic, controller_epoch)
            if not len(made):
                return committed
            seq, size = database.journal.append(connection, made)
        database.journal.applied(seq, made, size, rows)
        database.wrote(size)
        return committed

    def partitions_begun(self, topic: str) -> list[int]:
        """The partitions of a topic that have leadership, ascending."""
        with self._database.reading():
            number = self._database.one("SELECT number FROM topics WHERE name = ?", topic)
        return [] if number is None else self._database.journal.entries.partitions_of(number)

    def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        """Note from now on when these partitions are written, whoever does it; topics that are not there are not."""
        with self._database.reading():
            known = self._known()
            keys = {(known[name.topic], name.partition): name for name in names if name.topic in known}
            self._database.journal.watched.watch(keys)

    def changes(self, since: tuple[int, ...] | None) -> Changes:
        """What was written since; see `Store.changes`. A position is a change, a stamp, and the number of a topic."""
        journal = self._database.journal
        with self._database.reading() as connection:
            stamp, number = connection.execute("SELECT stamp, topic_number FROM meta").fetchone()
            position = (journal.seq, stamp, number)
            found = None if since is None else journal.log.since(since[0])
            if since is None or found is None:
                return Changes.unknown(position)
            made = connection.execute("SELECT name FROM topics WHERE number > ?", (since[2],)).fetchall()
            query = "SELECT name FROM stamps WHERE what = ? AND stamp > ?"
            written = connection.execute(query, (Changed.TOPIC.value, since[1])).fetchall()
            names = {topic: name for name, topic in self._known().items()}
        return Changes(position, False, frozenset(name for (name,) in (*made, *written)), named(*found, names))

    def _known(self) -> dict[str, int]:
        """The number of each topic, in memory: there may be many in one call."""
        stamp = self._database.one("SELECT stamp FROM stamps WHERE what = ?", Changed.TOPICS.value) or 0
        if stamp != self._numbers_stamp:
            self._numbers = dict(self._database.connection.execute("SELECT name, number FROM topics").fetchall())
            self._numbers_stamp = stamp
        return self._numbers

    # -- notifications

    def notify(self, what: Changed, partitions: Sequence[TopicPartition], broker: int) -> None:
        data = seal(_ENCODER.encode(tuple(partitions)))
        with self._database.writing() as connection:
            connection.execute("INSERT INTO notifications (broker, data) VALUES (?, ?)", (broker, data))
            self._database.stamp(what)

    def notifications(self, what: Changed) -> list[Notification]:
        condition = "broker = ?" if what is Changed.ISR_NOTIFICATIONS else "broker <> ?"
        query = f"SELECT id, broker, data FROM notifications WHERE {condition} ORDER BY id"
        with self._database.reading() as connection:
            rows = connection.execute(query, (NO_BROKER,)).fetchall()
        return [Notification(str(key), _PARTITIONS.decode(unseal(data)), broker) for key, broker, data in rows]

    def delete_notifications(self, notifications: Sequence[Notification], fence: Fence) -> None:
        with self._database.writing() as connection:
            self._database.check_fence(fence)
            for one in notifications:
                if connection.execute("DELETE FROM notifications WHERE id = ?", (one.key,)).rowcount:
                    isr = one.broker == NO_BROKER
                    self._database.stamp(Changed.ISR_NOTIFICATIONS if isr else Changed.LOG_DIR_NOTIFICATIONS)


def _columns(piece: TopicAssignment) -> dict[str, npt.NDArray[Any]]:
    return {
        "partition": piece.partition,
        "replicas": piece.replicas,
        "adding": piece.adding,
        "removing": piece.removing,
    }


def _piece(columns: dict[str, npt.NDArray[np.int32]]) -> TopicAssignment:
    adding, removing = columns["adding"].astype(np.bool_), columns["removing"].astype(np.bool_)
    return TopicAssignment(columns["partition"], columns["replicas"], adding, removing)
