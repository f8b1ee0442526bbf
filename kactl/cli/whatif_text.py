"""What `kactl forensics whatif` prints for people: tables of outcomes, and the worst of them in words."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import click

from . import output
from .output import BAD, NONE, PLAIN, WARN, Cell, harmless

if TYPE_CHECKING:
    from kactl.forensics.coverage import Coverage
    from kactl.forensics.whatif import Answer, Now, Outcome, Rolling, Sweep

_HEADER: Final = ("DIES", "OFFLINE", "RECOVERABLE", "LOSSY", "UNDER MIN", "ONE LEFT", "MOVED", "BUSIEST", "TOPICS")
_ROLLING: Final = ("ORDER", "STEPS", "BAD STEPS", "WORST", "OFFLINE", "UNDER MIN", "MOVES", "BUSIEST AFTER")
_NAMES: Final = {
    "brokers": "Any one broker",
    "pairs": "Any two brokers",
    "racks": "Any one rack",
    "rack+broker": "Any one rack, and one broker more",
}
# So many topics fit into a line.
_TOPICS: Final = 2


def lines(made: "Answer") -> Iterator[str]:
    """All of it; the coverage comes first."""
    yield _coverage(made.coverage)
    yield from _now(made.now)
    if made.killed:
        yield ""
        yield from _outcomes(made.killed)
        yield from (harmless(each.explained) for each in made.killed)
    for sweep in made.sweeps:
        yield ""
        yield from _sweep(sweep, made.coverage)
    if made.rolling:
        yield ""
        yield from _rolling(made.rolling)


def _coverage(coverage: "Coverage") -> str:
    if coverage.is_whole:
        return f"{coverage.stated}."
    rest = coverage.partitions - coverage.known
    text = f"{coverage.stated}: nothing below is about the other {output.count(rest, 'partition')}."
    return click.style(text, **(BAD if coverage.is_partial else WARN))


def _now(now: "Now") -> Iterator[str]:
    at = "" if now.at_us is None else f" as of {output.moment(now.at_us // 1000)}"
    brokers = output.count(len(now.brokers), "broker")
    away = f", {output.numbers(now.away)} away" if now.away else ""
    size = f"{output.count(now.partitions, 'partition')} of {output.count(now.topics, 'topic')}"
    yield f"{click.style(harmless(now.source), bold=True)}{at}: {size} on {brokers}{away}."
    yield harmless(now.outcome.explained)


def _sweep(sweep: "Sweep", coverage: "Coverage") -> Iterator[str]:
    name = click.style(_NAMES.get(sweep.kind, sweep.kind), bold=True)
    if not sweep.scenarios:
        yield f"{name}: there is none."
        return
    bad = sweep.scenarios - sweep.harmless
    whole = coverage.is_whole
    everything = "everything" if whole else f"each of the {coverage.known:,} known partitions"
    if not bad and sweep.writable == sweep.scenarios:
        verdict = f"{everything} keeps a leader and stays writable"
    elif not bad:
        verdict = (
            f"{everything} keeps a leader; {sweep.scenarios - sweep.writable:,} leave too few in sync for acks=all"
        )
    else:
        verdict = f"{bad:,} take partitions offline" if bad > 1 else "1 takes partitions offline"
    yield f"{name} ({output.count(sweep.scenarios, 'case')}): {verdict}."
    yield from _outcomes(sweep.worst)
    yield harmless(sweep.worst[0].explained)


def _rolling(rolling: "Iterable[Rolling]") -> Iterator[str]:
    yield click.style("Rolling restarts, each back in all ISRs before the next one goes", bold=True)
    kept = list(rolling)
    yield from output.table(_ROLLING, map(_rolling_row, kept))
    yield from (harmless(each.explained) for each in kept)


def _outcomes(outcomes: "Iterable[Outcome]") -> list[str]:
    return output.table(_HEADER, map(_row, outcomes))


def _row(item: "Outcome") -> tuple[Cell, ...]:
    return (
        _name(item),
        (_number(item.offline), BAD if item.offline_more else PLAIN),
        _number(item.recoverable),
        (_number(item.lossy), BAD if item.lossy else PLAIN),
        (_number(item.under_min), WARN if item.under_min_more else PLAIN),
        _number(item.lone),
        _number(item.moved),
        NONE if item.busiest is None else f"{item.busiest}: {item.busiest_leads:,.6g} ({item.busiest_led:,.6g} now)",
        _topics(item),
    )


def _rolling_row(item: "Rolling") -> tuple[Cell, ...]:
    worst = item.worst
    return (
        item.order,
        _number(item.steps),
        (_number(item.bad_steps), BAD if item.bad_steps else PLAIN),
        _name(worst),
        (_number(worst.offline), BAD if worst.offline_more else PLAIN),
        (_number(worst.under_min), WARN if worst.under_min_more else PLAIN),
        _number(item.moves),
        NONE if item.busiest is None else f"{item.busiest}: {item.busiest_leads:,.6g}",
    )


def _name(item: "Outcome") -> str:
    scenario = item.scenario
    return ",".join([*(f"rack={rack}" for rack in scenario.racks), *map(str, scenario.alone)]) or NONE


def _topics(item: "Outcome") -> str:
    if not item.topics:
        return NONE
    shown = [f"{each.topic} ({each.partitions:,})" for each in item.worst_topics[:_TOPICS]]
    more = item.topics - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _number(number: int) -> str:
    # Without separators: a column of plain numbers is aligned to the right.
    return str(number)
