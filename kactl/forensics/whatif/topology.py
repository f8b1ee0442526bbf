"""Topology of a snapshot: its brokers, which of them are alive, and their racks."""

import dataclasses
import difflib
import functools
import itertools
from collections.abc import Iterable, Mapping

from kactl.errors import BadRequest

from .engine import BrokerPositions
from .partitions import Assumptions
from .sweep import Scenario

_RACK = "rack="
# Number of existing names that an error for an unknown name lists.
_NAMED = 20


class UnknownBroker(BadRequest):
    """The broker is not in the snapshot."""


class UnknownRack(BadRequest):
    """The rack is not known, or no racks are known."""


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerUsage:
    """What a snapshot has of one broker.

    Attributes:
        held: how many partitions are assigned to it; `leads`: how many it leads.
        in_sync: in how many ISRs of partitions that have a leader it is.
        back: whether something later than its last absence shows that it is there again.
    """

    broker: int
    assigned: int
    leads: int
    in_sync: int
    back: bool = False


@dataclasses.dataclass(frozen=True)
class Topology:
    """All brokers of a snapshot.

    Attributes:
        brokers: ascending; elsewhere they are known by their position in it.
        away: those that are not alive.
        racks: the brokers of each rack that hold anything, ascending, racks in the order of their names.
        unsure: of `away`, those that are taken for away only because nobody has them in sync.
    """

    brokers: tuple[int, ...]
    away: frozenset[int]
    racks: Mapping[str, tuple[int, ...]]
    unsure: tuple[int, ...] = ()

    @functools.cached_property
    def alive(self) -> tuple[int, ...]:
        """Those that can die; ascending."""
        return tuple(broker for broker in self.brokers if broker not in self.away)

    @functools.cached_property
    def _position(self) -> dict[int, int]:
        return {broker: at for at, broker in enumerate(self.brokers)}

    def positions(self, brokers: Iterable[int]) -> BrokerPositions:
        """Of brokers that there are."""
        return tuple(self._position[broker] for broker in brokers)

    def dying(self, brokers: Iterable[int] = (), racks: Iterable[str] = ()) -> Scenario:
        """The scenario in which brokers and whole racks die; those that are away already have no part in it."""
        named = tuple(racks)
        inside = {broker for rack in named for broker in self.racks[rack]} - self.away
        alone = sorted(set(brokers) - inside - self.away)
        return Scenario(brokers=tuple(sorted(inside | set(alone))), racks=named, alone=tuple(alone))

    def parse(self, text: str) -> Scenario:
        """What `3,4` or `rack=a,7` stands for.

        Raises:
            UnknownBroker: one that there is not, or no number.
            UnknownRack: one that nobody named.
        """
        brokers, racks = set(), []
        for word in filter(None, (part.strip() for part in text.split(","))):
            if word.startswith(_RACK):
                racks.append(self._rack(word.removeprefix(_RACK)))
            else:
                brokers.add(self.named(word))
        if not brokers and not racks:
            raise UnknownBroker("--kill", f"{text!r} names nobody: write 3,4 or rack=a")
        return self.dying(brokers, dict.fromkeys(racks))

    def named(self, word: str, option: str = "--kill") -> int:
        """A broker by its id, as it was typed.

        Raises:
            UnknownBroker: there is none.
        """
        if not (word.isascii() and word.isdecimal()):
            raise UnknownBroker(option, f"{word!r} is no broker's id: write 3,4; of a rack, rack={word}")
        if int(word) not in self._position:
            raise UnknownBroker(option, f"there is no broker {word} in the snapshot; it has {_few(self.brokers)}")
        return int(word)

    def _rack(self, name: str) -> str:
        if not self.racks:
            raise UnknownRack("--kill", f"which brokers stand in rack {name!r} is not known: say so with --racks")
        if name not in self.racks:
            close = difflib.get_close_matches(name, self.racks, 1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise UnknownRack("--kill", f"there is no rack {name!r}; there are {_few(self.racks)}{meant}")
        return name


def topology_of(broker_usage: Iterable[BrokerUsage], assumed: Assumptions, away: Iterable[int] = ()) -> Topology:
    """The brokers of a snapshot.

    Away is who is said to be. Beyond that, who leads nothing and is in no ISR of a partition that has a leader: leaders
    and the controller take those out of ISRs who are gone. `assumed` goes before both.

    Args:
        away: those that the logs say are away; whoever is back by other signs is not.
    """
    known = {role.broker: role for role in broker_usage}
    gone = {broker for broker in away if broker in known and not known[broker].back}
    unsure = {each.broker for each in known.values() if not each.leads and not each.in_sync} - gone
    gone |= unsure
    gone = (gone - assumed.alive) | (assumed.away & known.keys())
    brokers = tuple(sorted(known))
    by_rack = sorted((assumed.racks[broker], broker) for broker in brokers if broker in assumed.racks)
    racks = {rack: tuple(each for _, each in group) for rack, group in itertools.groupby(by_rack, lambda pair: pair[0])}
    return Topology(brokers, frozenset(gone), racks, tuple(sorted((unsure & gone) - assumed.away)))


def _few(names: Iterable[object]) -> str:
    listed = [str(each) for each in names]
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more
