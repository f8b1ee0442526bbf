"""Targets that administrators have requested for partitions: a reassignment has one of them, and ends with it."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kactl.testing.history import Event

# Replicas, adding and removing.
Assignment = Sequence[Sequence[int]]
Name = tuple[str, str]


@dataclasses.dataclass
class _Target:
    """A target of a partition.

    Attributes:
        replicas: None for those before the reassignment.
        asked: when it was requested.
        answered: when the controller answered; None until then, and for ever if the request was left in the store.
    """

    replicas: tuple[int, ...] | None
    asked: int
    answered: int | None = None


@dataclasses.dataclass
class _Partition:
    """Targets of one partition.

    Attributes:
        origin: replicas of its creation, unless a later target has replaced them.
        ends: those that may be its replicas at the end.
        ever: all that were ever requested, for any topic of that name.
        is_born: the topic was created with it.
        is_free: a tool has written the assignment, or the topic was created again: any request may have been lost.
    """

    origin: tuple[int, ...] | None = None
    ends: list[_Target] = dataclasses.field(default_factory=list)
    ever: list[_Target] = dataclasses.field(default_factory=list)
    is_born: bool = False
    is_free: bool = False


class Requested:
    """Requests for the reassignment of partitions, and the writes that they allow the controller."""

    def __init__(self) -> None:
        self._partitions: dict[Name, _Partition] = {}
        self._requests: dict[int, dict[Name, _Target]] = {}
        self._names: set[str] = set()  # of topics that were created

    def _of(self, name: Name) -> _Partition:
        return self._partitions.setdefault(name, _Partition())

    def asked(self, event: Event) -> None:
        """Add the targets of a `reassign.asked`."""
        asked: dict[Name, _Target] = {}
        for text, replicas in event.fields["targets"].items():
            topic, _, partition = text.rpartition("-")
            target = _Target(None if replicas is None else tuple(replicas), event.seq)
            asked[topic, partition] = target
            held = self._of((topic, partition))
            held.ends.append(target)
            held.ever.append(target)
        self._requests[event.fields["request"]] = asked

    def answered(self, event: Event) -> None:
        """An accepted target replaces those that were answered before it was requested."""
        for name, target in self._requests.pop(event.fields["request"], {}).items():
            target.answered = event.seq
            if event.fields["errors"].get("-".join(name)) != "NONE":
                continue
            held = self._of(name)
            held.ends = [each for each in held.ends if each.answered is None or each.answered >= target.asked]
            if target.replicas is not None:
                held.origin = None

    def born(self, topic: str, partitions: Mapping[str, Any]) -> None:
        """A topic is created. Requests for an earlier one of that name may still be carried out."""
        for partition, now in partitions.items():
            held = self._of((topic, partition))
            held.origin, held.is_born = tuple(now[0]), True
            held.is_free = held.is_free or topic in self._names
        self._names.add(topic)

    def written_by_hand(self, topic: str, partitions: Mapping[str, Any]) -> None:
        """A tool has written the assignment of a topic, and may have overwritten the controller's."""
        for partition in partitions:
            self._of((topic, partition)).is_free = True

    def lost(self, topic: str, stored: Iterable[str]) -> list[str]:
        """Returns the partitions with which a topic was created, and that are not stored.

        Those of a topic that was created again, or that a tool has written, may be.
        """
        created = {partition for (name, partition), held in self._partitions.items() if name == topic and held.is_born}
        free = any(held.is_free for (name, _), held in self._partitions.items() if name == topic)
        return [] if free else sorted(created.difference(stored))

    def is_step(self, topic: str, partition: str, was: Assignment | None, now: Assignment) -> str:
        """Returns the fault of a write of the controller; empty if there is none."""
        held = self._of((topic, partition))
        if was is None:
            held.origin = tuple(now[0])
            return ""
        if held.is_free or not (now[1] or now[2]):
            return ""
        target = _target(now)
        if target == _target(was) or any(each.replicas == target for each in held.ever):
            return ""
        return f"a reassignment to {list(target)} begins, and {_listed(held.ever)} were requested"

    def is_end(self, topic: str, partition: str, now: Assignment) -> str:
        """Returns the fault of the assignment of a partition at the end of a run; empty if there is none."""
        held = self._of((topic, partition))
        if held.is_free or now[1] or now[2]:
            return ""
        replicas = tuple(now[0])
        if any(each.replicas in (replicas, None) for each in held.ends):
            return ""  # a cancelled reassignment ends with replicas that are not known here
        if held.origin is not None and set(held.origin) == set(replicas):
            return ""
        return f"{topic}-{partition} ends with {list(replicas)}, and {_listed(held.ends)} were requested last"


def _target(assignment: Assignment) -> tuple[int, ...]:
    replicas, _, removing = assignment
    return tuple(broker for broker in replicas if broker not in removing)


def _listed(targets: list[_Target]) -> str:
    return " or ".join(str(None if each.replicas is None else list(each.replicas)) for each in targets) or "none"
