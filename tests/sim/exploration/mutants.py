"""Mutants: the model with one safeguard taken out. The exploration must find a counterexample for each."""

import dataclasses
from collections.abc import Callable
from typing import Final

from kactl.decide.machines.election import Election

from .components import NONE, bit
from .tables import Tables


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A mutant.

    Attributes:
        number: in the list of mutants; empty for the model itself.
        breaks: invariants of which one must be reported.
        edit: changes decision tables.
    """

    number: str = ""
    breaks: tuple[str, ...] = ()
    writes_unfenced: bool = False
    writes_blindly: bool = False
    ignores_controller_epoch: bool = False
    ignores_broker_epoch: bool = False
    ignores_member_epochs: bool = False
    ignores_proposal_epoch: bool = False
    completes_early: bool = False
    keeps_stop_epoch: bool = False
    edit: Callable[[Tables], None] | None = None


MODEL: Final = Mutant()
# A broker that is not to stop any more is sent LeaderAndIsr under the epoch under which it was stopped: a dead end.
DEAD_END: Final = Mutant("dead end", keeps_stop_epoch=True)


def _elects_anyone(tables: Tables) -> None:
    """Elect the first live replica, in sync or not."""
    table = tables.elect[Election.OFFLINE]
    for key, decision in table.items():
        number, _, isr, _, status, _ = key
        for broker in tables.assignments.all[number].replicas:
            if not status[broker]:
                table[key] = decision._replace(
                    refused=False, writes=True, leader=broker, bumps=1, isr=isr | bit(broker), unclean=False
                )
                break


def _removes_the_last(tables: Tables) -> None:
    """Take the last member out of the ISR too."""
    for key, decision in tables.offline.items():
        broker = key[-1]
        if decision.writes and decision.isr == bit(broker):
            tables.offline[key] = decision._replace(isr=0)


def _keeps_the_epoch(tables: Tables) -> None:
    """Do not raise the leader epoch where a leader is elected from none."""
    table = tables.elect[Election.OFFLINE]
    for key, decision in table.items():
        if key[1] == NONE and decision.leader != NONE:
            table[key] = decision._replace(bumps=0)


def _completes_early(tables: Tables) -> None:
    """Complete a reassignment at once."""
    tables.complete = dict.fromkeys(tables.complete, True)


def _stops_at_any_epoch(tables: Tables) -> None:
    for role, _, delete in list(tables.stop):
        tables.stop[role, -1, delete] = tables.stop[role, 0, delete]


MUTANTS: Final[dict[str, Mutant]] = {
    mutant.number: mutant
    for mutant in (
        Mutant("MUT-01", ("INV-03",), writes_unfenced=True),
        Mutant("MUT-02", ("INV-06", "INV-19"), ignores_controller_epoch=True),
        Mutant("MUT-03", ("INV-49",), ignores_broker_epoch=True),
        Mutant("MUT-04", ("INV-23",), ignores_member_epochs=True),
        Mutant("MUT-05", ("INV-24", "INV-07"), ignores_proposal_epoch=True),
        Mutant("MUT-06", ("INV-07",), writes_blindly=True),
        Mutant("MUT-14", ("INV-20",), edit=_elects_anyone),
        Mutant("MUT-15", ("INV-17",), edit=_removes_the_last),
        Mutant("MUT-16", ("INV-18",), edit=_keeps_the_epoch),
        Mutant("MUT-18", ("INV-44",), edit=_stops_at_any_epoch),
        Mutant("MUT-22", ("INV-45",), completes_early=True, edit=_completes_early),
    )
}
