"""Builders of facts, for tests without Spark."""

from typing import Any, Final

import msgspec

from kactl.forensics.report.facts import Facts, LogDetail, Sources
from kactl.forensics.report.findings import Absence, Controllership
from kactl.forensics.report.incidents import SLOTS
from kactl.forensics.report.model import (
    Bar,
    Budget,
    Incident,
    Lost,
    Objectives,
    Partition,
    Percentiles,
    Scope,
    Series,
    Share,
    Spent,
    Sums,
)
from kactl.forensics.report.objectives import OBJECTIVES, PERIOD_MS
from kactl.forensics.report.outages import NO_SUMS
from tests.forensics.jobs.tables import moment

SOURCES: Final = Sources(
    begin=moment(-3600),
    end=moment(4200),
    time_zone="UTC",
    lines=1000,
    events=400,
    unparsed=0,
    files=3,
    unreadable=0,
    broken=0,
    listed=(),
    levels=(LogDetail(speaker=1, kind="state-change", trace_hours=2, hours=2),),
    clocks=(),
    partitions=50,
    topics=5,
    led=100,
    with_log_end=100,
    brokers=(1, 2, 3),
    silent=(),
    kinds=("controller", "state-change"),
)
QUIET: Final = Facts(
    made_by="0.1.0",
    asked=Scope(),
    sources=SOURCES,
    forced=NO_SUMS,
    planned=NO_SUMS,
    unexplained=NO_SUMS,
    moved=(),
    objectives=None,
    incidents_all=0,
    incidents=(),
    others=(),
    lost=Lost(),
    losses=(),
    lost_topics=(),
    unclean_all=0,
    unclean_sure=0,
    unclean=(),
    unclean_enabled=(),
    flapping_all=0,
    flapping=(),
    churn=(),
    controllers=(),
    requests=(),
    absences=(),
    deletions_all=0,
    deletions=(),
    reassignments_all=0,
    reassignments=(),
    audit=(),
)


def sums(**given: Any) -> Sums:
    """Returns sums of one observed outage of a minute, unless given otherwise."""
    minute = Percentiles(known=1, p50=60_000, p90=60_000, p99=60_000, max=60_000)
    one = {"outages": 1, "partitions": 1, "topics": 1, "observed": 1, "duration": minute}
    times = {"total_ms": 60_000, "least_ms": 60_000, "most_ms": 60_000}
    return msgspec.structs.replace(NO_SUMS, **one | times | given)


def bar(begin: float, end: float | None, **given: Any) -> Bar:
    """Returns an outage, observed unless given otherwise."""
    plain: dict[str, Any] = {
        "begin": moment(begin),
        "begin_low": moment(begin),
        "begin_high": moment(begin),
        "begin_kind": "observed",
        "end": None if end is None else moment(end),
        "end_low": None if end is None else moment(end),
        "end_high": None if end is None else moment(end),
        "end_kind": "open" if end is None else "observed",
        "duration_ms": round(((end or begin) - begin) * 1000),
        "cause": "broker-failure",
        "broker": 1,
        "new_leader": 2,
        "unclean": False,
    }
    return Bar(**plain | given)


def partition(number: int, *bars: Bar, topic: str = "orders") -> Partition:
    total = sum(bar.duration_ms for bar in bars)
    return Partition(topic=topic, partition=number, life=0, outages=len(bars), total_ms=total, bars=bars)


def spent(lost_minutes: float, *, topic: str | None = None, partitions: int = 50, over: int = 0) -> Spent:
    """Returns consumption in 30 days; `over` partitions exceed the strictest objective, none the others."""
    minutes = [(1 - objective) * PERIOD_MS / 60_000 * partitions for objective in OBJECTIVES]
    budgets = [
        Budget(objective=objective, minutes=allowed, used=lost_minutes / allowed, partitions_over=0)
        for objective, allowed in zip(OBJECTIVES, minutes, strict=True)
    ]
    budgets[-1] = msgspec.structs.replace(budgets[-1], partitions_over=over)
    return Spent(topic=topic, partitions=partitions, lost_minutes=lost_minutes, budgets=tuple(budgets))


def objectives(*forced: Spent, **given: Any) -> Objectives:
    return msgspec.structs.replace(Objectives(period_ms=PERIOD_MS, partitions=50, forced=forced), **given)


def incident(*partitions: Partition, begin: float = 0, end: float = 100, **given: Any) -> Incident:
    """Returns an incident from ten o'clock on, with one outage in every slot."""
    none = (0,) * SLOTS
    series = Series(
        begin=moment(begin),
        slot_ms=(end - begin) * 1000 / SLOTS,
        observed=(1,) * SLOTS,
        guessed=none,
        elections=none,
        losses=none,
        unclean=none,
    )
    plain: dict[str, Any] = {
        "number": 1,
        "begin": moment(begin),
        "end": moment(end),
        "sums": sums(partitions=max(1, len(partitions))),
        "lost": Lost(),
        "unclean": 0,
        "partitions": partitions,
        "series": series,
        "causes": (Share(name="broker-failure", outages=1, partitions=1, total_ms=60_000, longest_ms=60_000),),
        "brokers": (Share(name="1", outages=1, partitions=1, total_ms=60_000, longest_ms=60_000),),
    }
    return Incident(**plain | given)


def night(**given: Any) -> Facts:
    """Returns facts with one incident of one minute."""
    one = incident(partition(0, bar(0, 60)), end=60)
    return msgspec.structs.replace(QUIET, **{"incidents": (one,), "incidents_all": 1, "forced": sums()} | given)


def absence(broker: int, **given: Any) -> Absence:
    plain: dict[str, Any] = dict.fromkeys(Absence.__struct_fields__) | {
        "broker": broker,
        "how": "failed",
        "planned": False,
    }
    return Absence(**plain | given)


def controllership(**given: Any) -> Controllership:
    return Controllership(**dict.fromkeys(Controllership.__struct_fields__) | given)
