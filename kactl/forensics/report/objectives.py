"""Availability objectives: queries and report section about the share of error budgets that outages used, by cause.

A budget is the time without a leader that an objective allows: to each partition, and to all partitions in the logs
added up, including those that always had a leader. `jobs/outages/totals.py` defines objectives and how lost time adds
up.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.jobs.expressions import ranked
from kactl.forensics.jobs.outages.totals import slo
from kactl.forensics.wording import Moments, amount, count, duration, listed, percent, share

from .facts import Facts, Sources
from .model import Budget, Objectives, Scope, Spent
from .section import Section, Table, table

# Usual objectives, and their period.
OBJECTIVES: Final = (0.999, 0.9995, 0.9999)
PERIOD_MS: Final = 30 * 86_400_000
TOPICS_SHOWN: Final = 5
_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000
# Kinds of time without a leader, as they are printed.
_KINDS: Final = {
    "forced": "outages: the leader was lost",
    "unexplained": "unexplained: a live leader was moved, and no line gives the reason",
    "planned": "planned: the change was requested",
}
_Key = TypeVar("_Key", int, str)


# -- queries -----------------------------------------------------------------------------------------------------------


class BudgetScope(NamedTuple):
    """Partitions that budgets are computed for.

    Attributes:
        topics: see `count_partitions`.
        partitions: of all topics; 0 if there are none in the logs.
    """

    topics: DataFrame
    partitions: int


def count_partitions(leadership: DataFrame, outages: DataFrame) -> DataFrame:
    """Returns each topic with the number of its partitions in the logs."""
    # A topic that was deleted and created again counts its partitions once.
    keys = ["topic", "partition"]
    both = leadership.select(keys).unionByName(outages.select(keys)).distinct()
    return both.groupBy("topic").agg(f.count("*").alias("partitions"))


def budget_scope(topics: DataFrame) -> BudgetScope:
    """Returns the result of `count_partitions` with its sum."""
    (row,) = topics.agg(f.sum("partitions").alias("partitions")).collect()
    return BudgetScope(topics, row["partitions"] or 0)


def period_of(sources: Sources, asked: Scope) -> int:
    """Returns the period of objectives in milliseconds: the usual one, or the whole time if that is longer."""
    if sources.begin is None or sources.end is None:
        return PERIOD_MS
    begin, end = max(sources.begin, asked.begin or sources.begin), min(sources.end, asked.end or sources.end)
    return max(PERIOD_MS, round((end - begin).total_seconds() * 1000))


def spent(
    outages: DataFrame, by: str, kind: type[_Key], *, of: BudgetScope, period_ms: int = PERIOD_MS
) -> dict[_Key, tuple[Spent, ...]]:
    """Returns, for each value of `by`, of kind `kind`: the consumption in all, and by the topics that used most of
    theirs.

    Args:
        period_ms: period of the objectives.
    """
    if not of.partitions:
        return {}
    all_ = slo(outages, by, objectives=OBJECTIVES, period_ms=period_ms, partitions=of.partitions)
    topics = slo(outages, by, "topic", objectives=OBJECTIVES, period_ms=period_ms, partitions=of.topics)
    # Mean loss of a partition: every objective ranks topics equally, so rows of one rank belong to one topic.
    mean = f.col("lost_minutes") / f.col("partitions")
    order = (f.desc(mean), f.desc("lost_minutes"), "topic")
    worst = ranked(topics, by, "objective", order=order, most=TOPICS_SHOWN)
    rows = all_.withColumns({"topic": f.lit(None).cast("string"), "rank": f.lit(0)}).unionByName(worst).collect()
    by_rank: dict[_Key, dict[int, list[Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["rank"], row["objective"])):
        by_rank.setdefault(kind(row[by]), {}).setdefault(row["rank"], []).append(row)
    return {key: tuple(_spent(rows) for rows in ranks.values()) for key, ranks in by_rank.items()}


def _spent(rows: list[Any]) -> Spent:
    first = rows[0]
    return Spent(
        topic=first["topic"],
        partitions=first["partitions"],
        lost_minutes=first["lost_minutes"],
        budgets=tuple(
            Budget(
                objective=row["objective"],
                minutes=row["budget_minutes"],
                used=row["used"],
                partitions_over=row["partitions_over"],
            )
            for row in rows
        ),
    )


# -- section -----------------------------------------------------------------------------------------------------------


def objective_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Yields nothing if every partition always had a leader."""
    objectives = facts.objectives
    used = {} if objectives is None else _used(objectives)
    if objectives is None or not used:
        return
    first = next(iter(used.values()))
    sentences = [describe_budgets(objectives, first[0].budgets)]
    if objectives.forced:
        sentences.append(describe_exceeded(objectives.forced[0], objectives.period_ms))
    sentences.append("Uncertain times count as the best estimate, and open outages up to the end of the logs.")
    yield Section(
        name="objectives",
        title="Objectives of availability",
        paragraphs=tuple(sentences),
        tables=(*_kinds(objectives, used), *_incidents(facts, moments), *_topics(facts, objectives)),
    )


def _used(objectives: Objectives) -> dict[str, tuple[Spent, ...]]:
    """Consumption by kind, of the kinds that occurred."""
    return {name: getattr(objectives, name) for name in _KINDS if getattr(objectives, name)}


def _kinds(objectives: Objectives, used: dict[str, tuple[Spent, ...]]) -> tuple[Table, ...]:
    """Consumption of the cluster's budget by kind. The kinds are not added up: only one of them is a failure."""
    budgets = next(iter(used.values()))[0].budgets
    rows = [("the budget, in partition-minutes", None, *(amount(budget.minutes) for budget in budgets))]
    return table(
        ("", *header(budgets)),
        [*rows, *((_KINDS[name], *cells(spent[0])) for name, spent in used.items())],
        f"Error budget of {describe_period(objectives.period_ms)}, all topics together",
    )


def _incidents(facts: Facts, moments: Moments) -> tuple[Table, ...]:
    """None for a single incident, because its own section has the values."""
    incidents = [incident for incident in facts.incidents if incident.spent]
    if facts.incidents_all < 2 or not incidents:
        return ()
    return table(
        ("incident", "begin", *header(incidents[0].spent[0].budgets)),
        ((incident.number, moments.seconds(incident.begin), *cells(incident.spent[0])) for incident in incidents),
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
        ((part.topic or "all together", part.partitions, *cells(part)) for part in spent),
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
    over = [
        f"{budget.partitions_over:,} at {percent(budget.objective)}"
        for budget in all_.budgets
        if budget.partitions_over
    ]
    if over:
        return f"Partitions beyond the budget of a single partition in {describe_period(period_ms)}: {listed(over)}."
    strictest = all_.budgets[-1]
    return (
        f"No partition exceeded the budget of a single partition at {percent(strictest.objective)} in "
        f"{describe_period(period_ms)}."
    )


def header(budgets: tuple[Budget, ...]) -> tuple[str, ...]:
    """Returns the header of the columns that `cells` returns."""
    return ("partition-minutes", *(f"of {percent(budget.objective)}" for budget in budgets))


def cells(spent: Spent) -> tuple[str, ...]:
    """Returns minutes without a leader, and the share of each budget."""
    return (amount(spent.lost_minutes), *(share(budget.used, 1) for budget in spent.budgets))


def _shares(spent: Spent) -> str:
    """Text such as '1 % of 36 h (at an objective of 99.9 %), and 10 % of 3 h 36 min (99.99 %)'."""
    return listed(
        [
            f"{share(budget.used, 1)} of {duration(budget.minutes * _MINUTE_MS)} "
            f"({'' if number else 'at an objective of '}{percent(budget.objective)})"
            for number, budget in enumerate(spent.budgets)
        ]
    )
