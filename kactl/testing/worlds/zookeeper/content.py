"""The stored cluster as values, past all clients; see `kactl.testing.stored`."""

from collections.abc import Collection, Mapping
from typing import Any

from kactl.model import NO_EPOCH, Assignment, ControllerRecord, Leadership, TopicPartition, TopicRef

from .ensemble import Ensemble
from .entries import Entry, entries


class Content:
    """Content of an ensemble: all transactions that are decided.

    Args:
        chroot: of the store.
    """

    def __init__(self, ensemble: Ensemble, chroot: str) -> None:
        self._ensemble = ensemble
        self._chroot = chroot
        self._zxid = -1
        self._entries: dict[str, Entry] = {}

    def _read(self) -> dict[str, Entry]:
        """Returns all entries; they are read again after each transaction."""
        tree = max((server.tree for server in self._ensemble.servers), key=lambda tree: tree.zxid)
        if tree.zxid != self._zxid:
            self._entries, self._zxid = dict(entries(tree, self._chroot)), tree.zxid
        return self._entries

    def _below(self, prefix: str) -> dict[str, Entry]:
        return {key[len(prefix) :]: entry for key, entry in self._read().items() if key.startswith(prefix)}

    def topics(self) -> dict[str, TopicRef]:
        return {
            name: TopicRef(name, bytes.fromhex(entry.value["id"]))
            for name, entry in sorted(self._below("topics/").items())
        }

    def assignments(self) -> dict[TopicPartition, Assignment]:
        return {
            TopicPartition(name, int(index)): Assignment(*map(tuple, held))
            for name, entry in sorted(self._below("topics/").items())
            for index, held in entry.value["partitions"].items()
        }

    def leaderships(self) -> dict[TopicPartition, Leadership]:
        stored = self._below("leadership/")
        found: dict[TopicPartition, Leadership] = {}
        for name in sorted(self.assignments()):
            entry = stored.get(f"{name.topic}/{name.partition}")
            if entry is not None:
                found[name] = _leadership(entry)
        return found

    def registrations(self) -> dict[int, int]:
        return dict(sorted((int(name), entry.value["epoch"]) for name, entry in self._below("brokers/").items()))

    def controller(self) -> ControllerRecord | None:
        entry = self._read().get("controller")
        return None if entry is None else ControllerRecord(entry.value["id"], entry.value["epoch"], 0)

    @property
    def controller_epoch(self) -> int:
        entry = self._read().get("epoch")
        return entry.value["epoch"] or NO_EPOCH if entry else NO_EPOCH

    def deletions(self) -> Collection[str]:
        return sorted(self._below("deletions/"))

    def requests(self) -> tuple[str, ...]:
        waiting = {"reassignment": "requests/reassignment", "preferred election": "requests/preferred"}
        return tuple(name for name, key in waiting.items() if key in self._read())

    def config(self, topic: str) -> Mapping[str, str]:
        entry = self._read().get(f"configs/{topic}")
        return {} if entry is None else entry.value


def _leadership(entry: Entry) -> Leadership:
    value: dict[str, Any] = entry.value
    return Leadership(
        leader=value["leader"],
        leader_epoch=value["leader_epoch"],
        isr=tuple(value["isr"]),
        controller_epoch=value["controller_epoch"],
        partition_epoch=entry.version,
        recovering=value["recovering"],
    )
