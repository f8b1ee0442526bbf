"""Topology of a snapshot: its brokers, which of them are alive, and their racks."""

import dataclasses
import difflib
import functools
import itertools
from collections.abc import Iterable, Mapping

from kactl.model.errors import BadRequest

from .assumptions import Assumptions
from .outcomes import Scenario

# Brokers by their position in `Topology.brokers`.
BrokerPositions = tuple[int, ...]

_RACK = "rack="
# Number of existing names that an error for an unknown name lists.
_NAMED = 20


class UnknownBroker(BadRequest):
    """The broker is not in the snapshot."""


class UnknownRack(BadRequest):
    """The rack is not known, or no racks are known."""


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerUsage:
    """Numbers of a broker's replicas in a snapshot.

    Attributes:
        assigned: partitions assigned to it; `leads`: partitions that it leads.
        in_sync: partitions with a leader that have it in their ISR.
    """

    broker: int
    assigned: int
    leads: int
    in_sync: int


@dataclasses.dataclass(frozen=True)
class Topology:
    """All brokers of a snapshot.

    Attributes:
        brokers: ids, ascending; the engines use positions in this tuple.
        away: those of them that are not alive.
        racks: the brokers of each rack that have replicas, ascending; racks in the order of their names.
        unsure: brokers that are considered away only because they are in no ISR.
    """

    brokers: tuple[int, ...]
    away: frozenset[int]
    racks: Mapping[str, tuple[int, ...]]
    unsure: tuple[int, ...] = ()

    @functools.cached_property
    def alive(self) -> tuple[int, ...]:
        """Brokers that can fail; ascending."""
        return tuple(broker for broker in self.brokers if broker not in self.away)

    @functools.cached_property
    def _position(self) -> dict[int, int]:
        return {broker: position for position, broker in enumerate(self.brokers)}

    def positions(self, brokers: Iterable[int]) -> BrokerPositions:
        """Return the positions of existing brokers."""
        return tuple(self._position[broker] for broker in brokers)

    def failing(self, brokers: Iterable[int] = (), racks: Iterable[str] = ()) -> Scenario:
        """Return the scenario in which brokers and whole racks fail, without brokers that are already away."""
        named = tuple(racks)
        inside = {broker for rack in named for broker in self.racks[rack]} - self.away
        alone = sorted(set(brokers) - inside - self.away)
        return Scenario(brokers=tuple(sorted(inside | set(alone))), racks=named, alone=tuple(alone))

    def parse(self, text: str) -> Scenario:
        """Return the scenario for text such as `3,4` or `rack=a,7`.

        Raises:
            UnknownBroker: a broker does not exist, or an id is not a number.
            UnknownRack: a rack is not known.
        """
        brokers, racks = set(), []
        for word in filter(None, (part.strip() for part in text.split(","))):
            if word.startswith(_RACK):
                racks.append(self._rack(word.removeprefix(_RACK)))
            else:
                brokers.add(self.named(word))
        if not brokers and not racks:
            raise UnknownBroker("--kill", f"{text!r} names no broker: write 3,4 or rack=a")
        return self.failing(brokers, dict.fromkeys(racks))

    def named(self, word: str, option: str = "--kill") -> int:
        """Return the broker with an id given as text.

        Raises:
            UnknownBroker: it does not exist, or the text is not an id.
        """
        if not (word.isascii() and word.isdecimal()):
            raise UnknownBroker(option, f"{word!r} is not a broker id: write 3,4, or rack={word} for a rack")
        if int(word) not in self._position:
            raise UnknownBroker(option, f"there is no broker {word} in the snapshot; it has {_few(self.brokers)}")
        return int(word)

    def _rack(self, name: str) -> str:
        if not self.racks:
            raise UnknownRack("--kill", f"the brokers of rack {name!r} are not known: set them with --racks")
        if name not in self.racks:
            close = difflib.get_close_matches(name, self.racks, 1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise UnknownRack("--kill", f"there is no rack {name!r}; there are {_few(self.racks)}{meant}")
        return name


def topology_of(broker_usage: Iterable[BrokerUsage], assumed: Assumptions, away: Iterable[int] = ()) -> Topology:
    """Return the brokers of a snapshot.

    A broker is away according to the logs, or if it leads no partition and is in no ISR of a partition with a leader,
    because stopped brokers are removed from ISRs. `assumed` overrides both.

    Args:
        away: brokers that are away according to the logs.
    """
    known = {usage.broker: usage for usage in broker_usage}
    gone = set(away) & known.keys()
    unsure = {usage.broker for usage in known.values() if not usage.leads and not usage.in_sync} - gone
    gone |= unsure
    gone = (gone - assumed.alive) | (assumed.away & known.keys())
    brokers = tuple(sorted(known))
    by_rack = sorted((assumed.racks[broker], broker) for broker in brokers if broker in assumed.racks)
    racks = {
        rack: tuple(broker for _, broker in group) for rack, group in itertools.groupby(by_rack, lambda pair: pair[0])
    }
    return Topology(brokers, frozenset(gone), racks, tuple(sorted((unsure & gone) - assumed.away)))


def _few(names: Iterable[object]) -> str:
    listed = [str(name) for name in names]
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more
