"""Text output of `kactl forensics whatif`: tables of outcomes, and explanations of the worst ones."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import click

from . import output
from .output import BAD, NONE, PLAIN, WARN, Cell, harmless

if TYPE_CHECKING:
    from kactl.decide.whatif import Answer, Now, Outcome, Rolling, Sweep
    from kactl.decide.whatif.coverage import Coverage

_HEADER: Final = ("DIES", "OFFLINE", "RECOVERABLE", "LOSSY", "UNDER MIN", "ONE LEFT", "MOVED", "BUSIEST", "TOPICS")
_ROLLING: Final = ("ORDER", "STEPS", "BAD STEPS", "WORST", "OFFLINE", "UNDER MIN", "MOVES", "BUSIEST AFTER")
_NAMES: Final = {
    "brokers": "Any one broker",
    "pairs": "Any two brokers",
    "racks": "Any one rack",
    "rack+broker": "Any one rack and one other broker",
}
# Maximum number of topics in one line.
_TOPICS: Final = 2


def lines(result: "Answer") -> Iterator[str]:
    """Yield the output, beginning with the coverage."""
    yield _coverage(result.coverage)
    yield from _now(result.now)
    if result.killed:
        yield ""
        yield from _outcomes(result.killed)
        yield from (harmless(outcome.explained) for outcome in result.killed)
    for sweep in result.sweeps:
        yield ""
        yield from _sweep(sweep, result.coverage)
    if result.rolling:
        yield ""
        yield from _rolling(result.rolling)


def _coverage(coverage: "Coverage") -> str:
    if coverage.is_whole:
        return f"{coverage.stated}."
    rest = coverage.partitions - coverage.known
    text = f"{coverage.stated}: the results do not cover the other {output.count(rest, 'partition')}."
    return click.style(text, **(BAD if coverage.is_partial else WARN))


def _now(now: "Now") -> Iterator[str]:
    time = "" if now.at_us is None else f" as of {output.moment(now.at_us // 1000)}"
    brokers = output.count(len(now.brokers), "broker")
    away = f", {output.numbers(now.away)} away" if now.away else ""
    size = f"{output.count(now.partitions, 'partition')} of {output.count(now.topics, 'topic')}"
    yield f"{click.style(harmless(now.source), bold=True)}{time}: {size} on {brokers}{away}."
    yield harmless(now.outcome.explained)


def _sweep(sweep: "Sweep", coverage: "Coverage") -> Iterator[str]:
    name = click.style(_NAMES.get(sweep.kind, sweep.kind), bold=True)
    if not sweep.scenarios:
        yield f"{name}: no case."
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
    yield click.style("Rolling restarts, each broker back in all ISRs before the next one stops", bold=True)
    orders = list(rolling)
    yield from output.table(_ROLLING, map(_rolling_row, orders))
    yield from (harmless(order.explained) for order in orders)


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
    shown = [f"{topic.topic} ({topic.partitions:,})" for topic in item.worst_topics[:_TOPICS]]
    more = item.topics - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _number(number: int) -> str:
    # Without thousands separators, so that the column is aligned as numbers.
    return str(number)
