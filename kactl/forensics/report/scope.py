"""Restriction of the jobs' tables to the requested time and topics.

A row that overlaps the requested time is included unchanged: an outage that began before keeps its beginning.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from .model import Scope

# Columns with the begin and the end of a row; the first that is not null counts, and an end without any value is open.
# Tables that are not named have no time of their own.
_WHEN: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "outages": (("begin", "begin_high", "end"), ("end",)),
    "losses": (("at", "replica_at"), ("at", "replica_at")),
    "unclean": (("at",), ("at",)),
    "flapping": (("first_at",), ("last_at",)),
    "churn": (("hour",), ("hour",)),
    "controllers": (("elected_at", "ready_at", "started_at"), ("resigned_at", "last_act_at")),
    "absences": (("last_sign_at", "shutdown_at", "detected_at"), ("first_sign_at", "back_at")),
    "deletions": (("asked_at", "started_at"), ("done_at",)),
    "reassignments": (("started_at",), ("done_at",)),
    "audit": (("at",), ("at",)),
}
# A row for an hour is included if any part of that hour is.
_LASTS_S: Final = {"churn": 3600}


def cut(tables: Mapping[str, DataFrame], asked: Scope) -> dict[str, DataFrame]:
    """Returns the restricted tables, under the same names."""
    return {name: _cut(name, table, asked) for name, table in tables.items()}


def _cut(name: str, table: DataFrame, asked: Scope) -> DataFrame:
    if "topic" in table.columns and name in _WHEN:
        table = of_topics(table, asked)
    begins, ends = _WHEN.get(name, ((), ()))
    if begins and asked.end is not None:
        begin = _first(begins)
        table = table.where(begin.isNull() | (begin < f.lit(asked.end)))
    if ends and asked.begin is not None:
        end = _first(ends)
        if name in _LASTS_S:
            end = end + f.make_dt_interval(secs=f.lit(_LASTS_S[name]))
        table = table.where(end.isNull() | (end >= f.lit(asked.begin)))
    return table


def of_topics(table: DataFrame, asked: Scope) -> DataFrame:
    """Returns the rows of the requested topics, whatever their time."""
    return table if asked.topic is None else table.where(f.col("topic").rlike(f"^(?:{asked.topic})$"))


def _first(names: tuple[str, ...]) -> Value:
    return f.coalesce(*names) if len(names) > 1 else f.col(names[0])
