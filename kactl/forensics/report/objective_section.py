"""Report section about availability objectives: the error budgets, and the consumption by cause.

A budget is the time without a leader that an objective allows: to each partition, and to all of them added up.
"""

from collections.abc import Iterator
from typing import Final

from .facts import Facts
from .model import Budget, Objectives, Spent
from .objective_facts import PERIOD_MS
from .section import Section, Table, table
from .wording import Moments, amount, count, duration, listed, percent, share

_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000
# Kinds of time without a leader, as they are printed.
_KINDS: Final = {
    "forced": "outages: the leader was lost",
    "unexplained": "unexplained: a live leader was moved, and no line gives the reason",
    "planned": "planned: the change was requested",
}


def objective_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Yields nothing if every partition always had a leader."""
    objectives = facts.objectives
    taken = {} if objectives is None else _taken(objectives)
    if objectives is None or not taken:
        return
    first = next(iter(taken.values()))
    sentences = [describe_budgets(objectives, first[0].budgets)]
    if objectives.forced:
        sentences.append(describe_exceeded(objectives.forced[0], objectives.period_ms))
    sentences.append("Uncertain times count as the best estimate, and open outages up to the end of the logs.")
    yield Section(
        name="objectives",
        title="Objectives of availability",
        paragraphs=tuple(sentences),
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
        f"Error budget of {describe_period(objectives.period_ms)}, all topics together",
    )


def _incidents(facts: Facts, moments: Moments) -> tuple[Table, ...]:
    """None for a single incident, because its own section has the values."""
    found = [each for each in facts.incidents if each.spent]
    if facts.incidents_all < 2 or not found:
        return ()
    return table(
        ("incident", "begin", *header(found[0].spent[0].budgets)),
        ((each.number, moments.seconds(each.begin), *cells(each.spent[0])) for each in found),
        f"By incident, of the error budget of {describe_period(PERIOD_MS)}",
    )


def _topics(facts: Facts, objectives: Objectives) -> tuple[Table, ...]:
    if facts.incidents_all < 2:
        return ()
    return by_topic(
        objectives.forced, f"By topic, outages only, of the error budget of {describe_period(objectives.period_ms)}"
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


# -- sentences and cells -----------------------------------------------------------------------------------------------


def describe_period(period_ms: int) -> str:
    """Returns text such as '30 days'."""
    return count(round(period_ms / _DAY_MS), "day")


def describe_budgets(objectives: Objectives, budgets: tuple[Budget, ...]) -> str:
    """Returns the allowance of each objective, for a partition and for all of them."""
    allowances = [
        f"{duration(budget.minutes * _MINUTE_MS / objectives.partitions)} at {percent(budget.objective)}"
        for budget in budgets
    ]
    return (
        f"An availability objective allows an error budget: in {describe_period(objectives.period_ms)} a "
        f"partition may be without a leader for {listed(allowances)}. The cluster's budget is their sum over "
        f"partitions; the logs contain {objectives.partitions:,}."
    )


def describe_used(spent: tuple[Spent, ...], period_ms: int) -> Iterator[str]:
    """Returns the used share of the cluster budget, and that of the topic that used most of its own, if higher."""
    if not spent:
        return
    all_, *topics = spent
    yield (
        f"Of the error budget of {count(all_.partitions, 'partition')} for {describe_period(period_ms)}, these outages "
        f"used {_shares(all_)}."
    )
    if topics and topics[0].budgets[0].used > all_.budgets[0].used:
        yield f"Topic {topics[0].topic} used most of its own: {_shares(topics[0])}."


def describe_exceeded(all_: Spent, period_ms: int) -> str:
    """Returns the number of partitions that exceed the allowance of a single partition."""
    over = [f"{each.partitions_over:,} at {percent(each.objective)}" for each in all_.budgets if each.partitions_over]
    if over:
        return f"Partitions beyond the budget of a single partition in {describe_period(period_ms)}: {listed(over)}."
    strictest = all_.budgets[-1]
    return (
        f"No partition exceeded the budget of a single partition at {percent(strictest.objective)} in "
        f"{describe_period(period_ms)}."
    )


def header(budgets: tuple[Budget, ...]) -> tuple[str, ...]:
    """Returns the header of the columns that `cells` returns."""
    return ("partition-minutes", *(f"of {percent(each.objective)}" for each in budgets))


def cells(spent: Spent) -> tuple[str, ...]:
    """Returns minutes without a leader, and the share of each budget."""
    return (amount(spent.lost_minutes), *(share(each.used, 1) for each in spent.budgets))


def _shares(spent: Spent) -> str:
    """Text such as '1 % of 36 h (at an objective of 99.9 %), and 10 % of 3 h 36 min (99.99 %)'."""
    shares = [f"{share(each.used, 1)} of {duration(each.minutes * _MINUTE_MS)}" for each in spent.budgets]
    objectives = [percent(each.objective) for each in spent.budgets]
    objectives[0] = f"at an objective of {objectives[0]}"
    return listed([f"{part} ({objective})" for part, objective in zip(shares, objectives, strict=True)])
