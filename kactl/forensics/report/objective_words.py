"""Sentences and table cells about error budgets.

A budget is the time without a leader that an objective allows: to each partition, and to all of them added up.
"""

from collections.abc import Iterator
from typing import Final

from .model import Budget, Objectives, Spent
from .wording import amount, count, duration, listed, percent, share

_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000


def period_said(period_ms: int) -> str:
    """Returns text such as '30 days'."""
    return count(round(period_ms / _DAY_MS), "day")


def allowed_said(objectives: Objectives, budgets: tuple[Budget, ...]) -> str:
    """Returns the allowance of each objective, for a partition and for all of them."""
    each = [
        f"{duration(budget.minutes * _MINUTE_MS / objectives.partitions)} at {percent(budget.objective)}"
        for budget in budgets
    ]
    return (
        f"What an objective of availability allows is an error budget: in {period_said(objectives.period_ms)} a "
        f"partition may be without a leader for {listed(each)}. The budget of the cluster is that of its partitions "
        f"added up; the logs know of {objectives.partitions:,}."
    )


def used_said(spent: tuple[Spent, ...], period_ms: int) -> Iterator[str]:
    """Returns the used share of the cluster budget, and that of the topic that used most of its own, if higher."""
    if not spent:
        return
    all_, *topics = spent
    yield (
        f"Of the error budget of {count(all_.partitions, 'partition')} for {period_said(period_ms)}, these outages "
        f"used {_shares(all_)}."
    )
    if topics and topics[0].budgets[0].used > all_.budgets[0].used:
        yield f"Topic {topics[0].topic} used most of its own: {_shares(topics[0])}."


def over_said(all_: Spent, period_ms: int) -> str:
    """Returns the number of partitions that exceed the allowance of a single partition."""
    over = [f"{each.partitions_over:,} at {percent(each.objective)}" for each in all_.budgets if each.partitions_over]
    if over:
        return (
            f"Partitions that alone were away for longer than an objective allows one in {period_said(period_ms)}: "
            f"{listed(over)}."
        )
    strictest = all_.budgets[-1]
    return (
        f"No partition alone was away for longer than {percent(strictest.objective)} allows one in "
        f"{period_said(period_ms)}."
    )


def header(budgets: tuple[Budget, ...]) -> tuple[str, ...]:
    """Returns the header of the columns that `cells` returns."""
    return ("partition-minutes", *(f"of {percent(each.objective)}" for each in budgets))


def cells(spent: Spent) -> tuple[str, ...]:
    """Returns minutes without a leader, and the share of each budget."""
    return (amount(spent.lost_minutes), *(share(each.used, 1) for each in spent.budgets))


def _shares(spent: Spent) -> str:
    """Text such as '1 % of 36 h (at an objective of 99.9 %), and 10 % of 3 h 36 min (99.99 %)'."""
    said = [f"{share(each.used, 1)} of {duration(each.minutes * _MINUTE_MS)}" for each in spent.budgets]
    at = [percent(each.objective) for each in spent.budgets]
    at[0] = f"at an objective of {at[0]}"
    return listed([f"{part} ({objective})" for part, objective in zip(said, at, strict=True)])
