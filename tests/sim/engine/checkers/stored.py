"""Folds of a history that several checkers need: the stored entries, and the brokers as each controller knew them."""

import bisect
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kactl.testing.history import Event

NO_LEADER: Final = -1
NO_VERSION: Final = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """What the world of a run allows.

    Attributes:
        recovery: whether leaders that were elected uncleanly are told to recover.
        unclean: whether topics allow unclean elections by default.
        stock_brokers: brokers behave as Kafka's, which forget the replicas that they stopped.
        session_timeout_ms: of controller instances and brokers.
        eviction_ms: how long an evicted participant may still lead; None for the session timeout.
        links: participants keep links to the controller, which fences those without one.
    """

    recovery: bool = True
    unclean: bool = False
    stock_brokers: bool = True
    session_timeout_ms: float = 10_000.0
    eviction_ms: float | None = None
    links: bool = False


class Entry(NamedTuple):
    """A stored entry, and the event that wrote it."""

    version: int
    value: dict[str, Any]
    event: Event


class Stored:
    """Entries of the store, by key, after the commits that were applied."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.epoch = 0

    def apply(self, event: Event) -> None:
        """Apply a `store.commit`."""
        for key, _, version, value in event.fields["ops"]:
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = Entry(version, value, event)
                if key == "epoch":
                    self.epoch = value["epoch"]

    def value(self, key: str) -> dict[str, Any] | None:
        entry = self.entries.get(key)
        return None if entry is None else entry.value

    def topic_id(self, topic: str) -> str:
        """Returns the id of a stored topic in hex; empty if there is none."""
        value = self.value(f"topics/{topic}")
        return "" if value is None else str(value["id"])

    def assignment(self, topic: str, partition: int | str) -> tuple[list[int], list[int], list[int]] | None:
        """Returns replicas, adding and removing of a stored partition."""
        value = self.value(f"topics/{topic}")
        found = None if value is None else value["partitions"].get(str(partition))
        return None if found is None else (list(found[0]), list(found[1]), list(found[2]))

    def grows(self, topic: str, value: dict[str, Any] | None) -> bool:
        """Returns whether the next write of a topic adds partitions and changes none.

        A controller adds requested partitions to the assignment that is stored, which may differ from the one that it
        knows.
        """
        before = self.value(f"topics/{topic}")
        if before is None or value is None or before["id"] != value["id"]:
            return False
        was, now = before["partitions"], value["partitions"]
        return len(now) > len(was) and all(now.get(partition) == lists for partition, lists in was.items())

    def leadership(self, topic: str, partition: int | str) -> Entry | None:
        return self.entries.get(f"leadership/{topic}/{partition}")


def leadership_writes(event: Event) -> Iterator[tuple[str, str, int, int, dict[str, Any] | None]]:
    """Yields topic, partition, old and new version and value of each leadership entry in a `store.commit`."""
    for key, old, new, value in event.fields["ops"]:
        if key.startswith("leadership/"):
            _, topic, partition = key.split("/")
            yield topic, partition, old, new, value


def topic_writes(event: Event) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yields name and value of each topic in a `store.commit`."""
    for key, _, _, value in event.fields["ops"]:
        if key.startswith("topics/"):
            yield key.removeprefix("topics/"), value


def is_failure(event: Event) -> bool:
    """Returns whether a replica has failed, by a `role.apply` or a `handler.report`."""
    return event.fields.get("outcome") == "storage" or event.fields.get("status", "READY") not in ("READY", "BUSY")


def is_ownership(topic_id: str) -> bool:
    """Returns whether an id, in hex, is that of an ownership topic: a UUID of version 8 with `own` in it."""
    return topic_id[12:13] == "8" and topic_id[18:24] == b"own".hex()


def is_zero(topic_id: str) -> bool:
    """Returns whether a topic has no id."""
    return not topic_id.strip("0")


class View(NamedTuple):
    """Brokers as a controller instance knew them from `seq` on."""

    seq: int
    brokers: Mapping[int, int]
    shutting_down: frozenset[int]

    @property
    def live(self) -> frozenset[int]:
        return frozenset(self.brokers) - self.shutting_down


class Views:
    """The views of all instances, at each moment of the history so far."""

    def __init__(self) -> None:
        self._of: dict[str, list[View]] = {}

    def add(self, event: Event) -> None:
        """Add a `ctl.brokers` event."""
        brokers = dict(event.fields["brokers"])
        view = View(event.seq, brokers, frozenset(event.fields["shutting_down"]))
        self._of.setdefault(event.node, []).append(view)

    def at(self, node: str, seq: int) -> View | None:
        """Returns the view of an instance just before event `seq`; None if it has recorded none."""
        views = self._of.get(node, [])
        position = bisect.bisect_left(views, seq, key=lambda view: view.seq)
        return views[position - 1] if position else None

    def since(self, node: str, begin: int, end: int) -> list[View]:
        """Returns the views of an instance from before event `begin` to event `end`."""
        views = self._of.get(node, [])
        first = bisect.bisect_left(views, begin, key=lambda view: view.seq)
        last = bisect.bisect_left(views, end, key=lambda view: view.seq)
        return views[max(0, first - 1) : last]
