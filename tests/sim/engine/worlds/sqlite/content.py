"""Logical content of a SQLite store's file, read from its tables without the store.

Keys and values are those of `tests.sim.engine.checkers.events`. Versions are those of the file: leadership entries and
records have their own, all other entries 0.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from kactl.model import NO_BROKER, Broker
from kactl.stores.sqlite.frame import kind_of, unpack, unseal
from tests.sim.engine.stored import Entry
from tests.sim.engine.worlds.written import Op

# Version of an entry that does not exist.
ABSENT: Final = -1

_BROKER: Final = msgspec.msgpack.Decoder(Broker)
_RECORDS: Final[dict[object, str]] = {
    "reassignment request": "requests/reassignment",
    "preferred election request": "requests/preferred",
}

Execute = Callable[[str], Iterable[tuple[Any, ...]]]


Content = dict[str, Entry]


def difference(before: Content, after: Content) -> list[Op]:
    """Returns the entries to write for the second content to follow from the first, ordered by key."""
    ops = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old is not new and old != new:
            version = ABSENT if old is None else old.version
            ops.append(Op(key, version, ABSENT, None) if new is None else Op(key, version, new.version, new.value))
    return ops


def digest(content: Content) -> str:
    """Returns a hash of the content."""
    ordered = [(key, *content[key]) for key in sorted(content)]
    return hashlib.blake2b(msgspec.json.encode(ordered, order="deterministic"), digest_size=16).hexdigest()


class ContentReader:
    """Reads the content again and again; decodes only the rows that have changed since the last call."""

    def __init__(self) -> None:
        self._seq = 0
        self._leadership: dict[tuple[int, int], Entry] = {}
        self._decoded: dict[tuple[str, object], tuple[object, Entry]] = {}

    def read(self, execute: Execute) -> Content:
        """Returns the whole content. Its entries are shared with earlier results and must not be changed.

        Args:
            execute: runs a query; the caller makes sure that all of them see one state of the file.
        """
        content: Content = {}
        ((epoch, controller, snapshot_seq, parts),) = execute(
            "SELECT epoch, controller, snapshot_seq, snapshot_parts FROM meta"
        )
        if epoch:
            content["epoch"] = Entry(epoch, {"epoch": epoch})
        if controller is not None:
            content["controller"] = Entry(0, {"id": controller, "epoch": epoch})
        for broker, data in execute("SELECT id, data FROM brokers"):
            content[f"brokers/{broker}"] = self._decode("brokers", broker, data, _broker)
        topics = self._read_topics(execute, content)
        self._read_small_tables(execute, content)
        self._follow(execute, snapshot_seq, parts)
        for (number, partition), entry in self._leadership.items():
            if number in topics:  # the entries of a topic that was removed by hand stay, and no client reads them
                content[f"leadership/{topics[number]}/{partition}"] = entry
        return content

    def _read_topics(self, execute: Execute, content: Content) -> dict[int, str]:
        """Returns the name of each topic by its number."""
        names = {}
        for name, number, topic_id, assignment in execute("SELECT name, number, id, assignment FROM topics"):
            names[number] = name
            content[f"topics/{name}"] = self._decode("topics", number, (topic_id, assignment), _topic)
        return names

    def _read_small_tables(self, execute: Execute, content: Content) -> None:
        for topic, data in execute("SELECT topic, data FROM configs"):
            content[f"configs/{topic}"] = self._decode("configs", topic, data, _plain)
        for (data,) in execute("SELECT data FROM default_config"):
            content["config"] = self._decode("config", 0, data, _plain)
        for (topic,) in execute("SELECT topic FROM deletions"):
            content[f"deletions/{topic}"] = Entry(0, {})
        for number, broker, data in execute("SELECT id, broker, data FROM notifications"):
            content[f"notifications/{number}"] = self._decode("notifications", number, (broker, data), _notification)
        for name, version, data in execute("SELECT name, version, data FROM records"):
            content[_RECORDS.get(name, str(name))] = self._decode("records", name, (version, data), _record)

    def _follow(self, execute: Execute, snapshot_seq: int, parts: int) -> None:
        """Bring `_leadership` up to date with the journal, from the snapshot on if the journal begins later."""
        if snapshot_seq > self._seq:
            self._leadership.clear()
            ((base,),) = execute("SELECT coalesce(min(part), 0) FROM snapshot")
            query = f"SELECT part, frame FROM snapshot WHERE part >= {base} AND part < {base + parts}"
            for part, frame in execute(query):
                self._put(unpack("part", part, frame))
            self._seq = snapshot_seq
        for seq, frame in execute(f"SELECT seq, frame FROM journal WHERE seq > {self._seq} ORDER BY seq"):
            if kind_of(frame) == "removal":
                removed = int(unpack("removal", seq, frame)["topic"][0])
                for key in [key for key in self._leadership if key[0] == removed]:
                    del self._leadership[key]
            else:
                self._put(unpack("change", seq, frame))
            self._seq = seq

    def _put(self, columns: Mapping[str, Any]) -> None:
        plain = {name: column.tolist() for name, column in columns.items() if name != "isr"}
        isr = columns["isr"]
        for row, (topic, partition) in enumerate(zip(plain["topic"], plain["partition"], strict=True)):
            value = {
                "leader": plain["leader"][row],
                "leader_epoch": plain["leader_epoch"][row],
                "isr": [broker for broker in isr[:, row].tolist() if broker != NO_BROKER],
                "recovering": bool(plain["recovering"][row]),
                "controller_epoch": plain["controller_epoch"][row],
            }
            self._leadership[topic, partition] = Entry(plain["version"][row], value)

    def _decode(self, table: str, key: object, stored: Any, decode: Callable[[Any, Any], Entry]) -> Entry:
        """Returns the entry of a row, decoded now or when the row was last seen with the same bytes."""
        if (known := self._decoded.get((table, key))) is not None and known[0] == stored:
            return known[1]
        entry = decode(key, stored)
        self._decoded[table, key] = stored, entry
        return entry


def _broker(_: int, data: bytes) -> Entry:
    broker = _BROKER.decode(unseal(data))
    return Entry(0, {"epoch": broker.epoch, **({"evicted": True} if broker.evicted else {})})


def _topic(number: int, stored: tuple[bytes, bytes]) -> Entry:
    topic_id, frame = stored
    columns = unpack("assignment", number, frame)
    replicas, marks = columns["replicas"], (columns["adding"], columns["removing"])
    partitions = {}
    for row, partition in enumerate(columns["partition"].tolist()):
        present = [(slot, broker) for slot, broker in enumerate(replicas[:, row].tolist()) if broker != NO_BROKER]
        marked = [[broker for slot, broker in present if mark[slot, row]] for mark in marks]
        partitions[str(partition)] = [[broker for _, broker in present], *marked]
    return Entry(0, {"id": topic_id.hex(), "partitions": partitions})


def _plain(_: object, data: bytes) -> Entry:
    return Entry(0, msgspec.msgpack.decode(unseal(data)))


def _notification(_: int, stored: tuple[int, bytes]) -> Entry:
    broker, data = stored
    return Entry(0, {"broker": broker, "partitions": msgspec.msgpack.decode(unseal(data))})


def _record(_: str, stored: tuple[int, bytes]) -> Entry:
    version, data = stored
    return Entry(version, {"content": msgspec.to_builtins(msgspec.msgpack.decode(unseal(data)))})
