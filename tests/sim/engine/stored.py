"""The stored cluster as values: what checks and selectors read, past all clients and links."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from kactl.model import NO_EPOCH, Assignment, ControllerRecord, Leadership, TopicPartition, TopicRef
from kactl.stores.base import Names
from kactl.stores.entries import topic_numbers
from kactl.stores.memory import MemoryState


class Stored(Protocol):
    """Content of a store at this moment."""

    def topics(self) -> dict[str, TopicRef]: ...

    def assignments(self) -> dict[TopicPartition, Assignment]: ...

    def leaderships(self) -> dict[TopicPartition, Leadership]:
        """Returns the leadership of the assigned partitions that have one."""

    def registrations(self) -> dict[int, int]:
        """Returns the epoch of each registered broker."""

    def controller(self) -> ControllerRecord | None: ...

    @property
    def controller_epoch(self) -> int: ...

    def deletions(self) -> Collection[str]:
        """Returns the topics that are marked for deletion."""

    def requests(self) -> tuple[str, ...]:
        """Returns the kinds of admin requests that wait: `reassignment`, `preferred election`."""

    def notifications(self) -> int:
        """Returns the number of notifications that the controller has not removed."""

    def config(self, topic: str) -> Mapping[str, str]: ...


class Entry(NamedTuple):
    """An entry of a store.

    Attributes:
        value: in the form of `checkers.events`.
    """

    version: int
    value: dict[str, Any]


class EntryStored:
    """Content of a store as entries by their keys; `checkers.events` lists the keys.

    Args:
        read: returns all entries.
    """

    def __init__(self, read: Callable[[], Mapping[str, Entry]]) -> None:
        self._read = read

    def _below(self, kind: str) -> dict[str, Entry]:
        """Returns the entries of a kind by the rest of their keys, sorted."""
        prefix, entries = f"{kind}/", self._read()
        return {key.removeprefix(prefix): entries[key] for key in sorted(entries) if key.startswith(prefix)}

    def topics(self) -> dict[str, TopicRef]:
        return {name: TopicRef(name, bytes.fromhex(entry.value["id"])) for name, entry in self._below("topics").items()}

    def assignments(self) -> dict[TopicPartition, Assignment]:
        return {
            TopicPartition(topic, int(partition)): Assignment(*map(tuple, lists))
            for topic, entry in self._below("topics").items()
            for partition, lists in entry.value["partitions"].items()
        }

    def leaderships(self) -> dict[TopicPartition, Leadership]:
        stored = self._below("leadership")
        keys = {name: f"{name.topic}/{name.partition}" for name in sorted(self.assignments())}
        return {name: _leadership(stored[key]) for name, key in keys.items() if key in stored}

    def registrations(self) -> dict[int, int]:
        return dict(sorted((int(broker), entry.value["epoch"]) for broker, entry in self._below("brokers").items()))

    def controller(self) -> ControllerRecord | None:
        entry = self._read().get("controller")
        return None if entry is None else ControllerRecord(entry.value["id"], entry.value["epoch"], 0)

    @property
    def controller_epoch(self) -> int:
        entry = self._read().get("epoch")
        return entry.value["epoch"] or NO_EPOCH if entry else NO_EPOCH

    def deletions(self) -> Collection[str]:
        return list(self._below("deletions"))

    def requests(self) -> tuple[str, ...]:
        waiting = {"reassignment": "requests/reassignment", "preferred election": "requests/preferred"}
        return tuple(name for name, key in waiting.items() if key in self._read())

    def notifications(self) -> int:
        return len(self._below("notifications"))

    def config(self, topic: str) -> Mapping[str, str]:
        entry = self._read().get(f"configs/{topic}")
        return {} if entry is None else dict(entry.value)


def _leadership(entry: Entry) -> Leadership:
    value = entry.value
    return Leadership(
        leader=value["leader"],
        leader_epoch=value["leader_epoch"],
        isr=tuple(value["isr"]),
        controller_epoch=value["controller_epoch"],
        partition_epoch=entry.version,
        recovering=value["recovering"],
    )


class MemoryStored:
    """Content of the in-memory store."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    def topics(self) -> dict[str, TopicRef]:
        return {name: topic.ref for name, topic in sorted(self._state.topics.items())}

    def assignments(self) -> dict[TopicPartition, Assignment]:
        found: dict[TopicPartition, Assignment] = {}
        for name, topic in sorted(self._state.topics.items()):
            held = topic.assignment
            for row, partition in enumerate(held.partition.tolist()):
                slots = [slot for slot, broker in enumerate(held.replicas[:, row].tolist()) if broker >= 0]
                brokers = held.replicas[:, row].tolist()
                found[TopicPartition(name, partition)] = Assignment(
                    tuple(brokers[slot] for slot in slots),
                    tuple(brokers[slot] for slot in slots if held.adding[slot, row]),
                    tuple(brokers[slot] for slot in slots if held.removing[slot, row]),
                )
        return found

    def leaderships(self) -> dict[TopicPartition, Leadership]:
        wanted = sorted(self.assignments())
        names = Names.of(wanted)
        numbers = topic_numbers(names, self._state.topic_numbers) if wanted else np.zeros(0, np.int32)
        rows = self._state.entries.read(numbers, names.partition)
        return {name: held for row, name in enumerate(wanted) if (held := rows.one(row)) is not None}

    def registrations(self) -> dict[int, int]:
        return {broker: registered.epoch for broker, (registered, _) in sorted(self._state.brokers.items())}

    def controller(self) -> ControllerRecord | None:
        return self._state.controller[0] if self._state.controller else None

    @property
    def controller_epoch(self) -> int:
        return self._state.epoch if self._state.epoch else NO_EPOCH

    def deletions(self) -> Collection[str]:
        return sorted(self._state.deletions)

    def requests(self) -> tuple[str, ...]:
        waiting = []
        if self._state.reassignment_request is not None:
            waiting.append("reassignment")
        if self._state.preferred_election_request is not None:
            waiting.append("preferred election")
        return tuple(waiting)

    def notifications(self) -> int:
        return len(self._state.notifications)

    def config(self, topic: str) -> Mapping[str, str]:
        return dict(self._state.configs.get(topic, {}))
