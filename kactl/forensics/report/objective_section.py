"""Report section about availability objectives: the error budgets, and the consumption by cause."""

from collections.abc import Iterator
from typing import Final

from .facts import Facts
from .model import Objectives, Spent
from .objective_facts import PERIOD_MS
from .objective_words import allowed_said, cells, header, over_said, period_said
from .section import Section, Table, table
from .wording import Moments, amount

# Kinds of time without a leader, as they are printed.
_KINDS: Final = {
    "forced": "outages: the leader was lost",
    "unexplained": "unexplained: a leader that lived was moved, and no line says why",
    "planned": "planned: somebody wanted the change",
}


def objective_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Returns None if every partition always had a leader."""
    objectives = facts.objectives
    taken = {} if objectives is None else _taken(objectives)
    if objectives is None or not taken:
        return
    first = next(iter(taken.values()))
    said = [allowed_said(objectives, first[0].budgets)]
    if objectives.forced:
        said.append(over_said(objectives.forced[0], objectives.period_ms))
    said.append("Times that are not certain count as the best guess, and what had not ended up to the end of the logs.")
    yield Section(
        name="objectives",
        title="Objectives of availability",
        paragraphs=tuple(said),
        tables=(*_kinds(objectives, taken), *_incidents(facts, moments), *_topics(facts, objectives)),
    )


def _taken(objectives: Objectives) -> dict[str, tuple[Spent, ...]]:
    """Consumption by kind, of the kinds that occurred."""
    found = {name: getattr(objectives, name) for name in _KINDS}
    return {name: spent for name, spent in found.items() if spent}


def _kinds(objectives: Objectives, taken: dict[str, tuple[Spent, ...]]) -> tuple[Table, ...]:
    """Consumption of the cluster's budget by kind. The kinds are not added up: only one of them is a failure."""
    budgets = next(iter(taken.values()))[0].budgets
    rows = [("the budget, in partition-minutes", None, *(amount(each.minutes) for each in budgets))]
    return table(
        ("", *header(budgets)),
        [*rows, *((_KINDS[name], *cells(spent[0])) for name, spent in taken.items())],
        f"Error budget of {period_said(objectives.period_ms)}, all topics together",
    )


def _incidents(facts: Facts, moments: Moments) -> tuple[Table, ...]:
    """None for a single incident, because its own section has the values."""
    found = [each for each in facts.incidents if each.spent]
    if facts.incidents_all < 2 or not found:
        return ()
    return table(
        ("incident", "begin", *header(found[0].spent[0].budgets)),
        ((each.number, moments.seconds(each.begin), *cells(each.spent[0])) for each in found),
        f"By incident, of the error budget of {period_said(PERIOD_MS)}",
    )


def _topics(facts: Facts, objectives: Objectives) -> tuple[Table, ...]:
    if facts.incidents_all < 2:
        return ()
    return by_topic(
        objectives.forced, f"By topic, outages only, of the error budget of {period_said(objectives.period_ms)}"
    )


def by_topic(spent: tuple[Spent, ...], caption: str) -> tuple[Table, ...]:
    """Returns all topics together, then those that used most of their own budget."""
    if not spent:
        return ()
    return table(
        ("topic", "partitions", *header(spent[0].budgets)),
        ((each.topic or "all together", each.partitions, *cells(each)) for each in spent),
        caption,
    )
