"""Collect the facts of a report from the jobs' tables. The result is bounded, however long the logs are."""

import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kactl.forensics import progress
from kactl.forensics.jobs.losses import sums as loss_sums
from kactl.forensics.jobs.outages.totals import FORCED, PLANNED, UNEXPLAINED, totals
from kactl.forensics.tables import Manifest, kept_or_persisted

from . import incidents, losses, objectives, other_findings, outages, scope
from .facts import Facts, Sources
from .incidents import Interval
from .model import Incident, Lost, Objectives, Scope, Series
from .objectives import BudgetScope
from .outages import NO_SUMS
from .rows import known_moment, micros_of
from .sources import sources as sources_of

# Tables that a report needs; all but the first three are results of jobs.
NEEDS: Final = (
    "events",
    "files",
    "levels",
    "skew",
    "leadership",
    "absences",
    "outages",
    "losses",
    "unclean",
    "audit",
    "churn",
    "flapping",
    "controllers",
    "requests",
    "deletions",
    "reassignments",
)


def collect(
    spark: SparkSession,
    manifest: Manifest,
    all_tables: Mapping[str, DataFrame],
    asked: Scope,
    *,
    on_progress: progress.ProgressCallback = progress.no_progress,
) -> Facts:
    """Returns all facts of a report.

    Args:
        manifest: manifest of the ingest.
        all_tables: those of `NEEDS`, by name.
        asked: the requested time and topics.
    """
    tables = scope.cut({name: all_tables[name] for name in NEEDS}, asked)
    tag = f"kactl-{uuid.uuid4().hex}"
    # Spark plans a query in the thread that submits it, which takes most of the time of a small report.
    with ThreadPoolExecutor(1, "kactl-report", _begin_thread, (spark, tag)) as pool:
        other = pool.submit(_other_findings, tables)
        try:
            facts = _failures(spark, manifest, tables, asked, on_progress)
            with progress.step(spark, "report: the rest", on_progress):
                return Facts(made_by=metadata.version("kactl"), asked=asked, **facts, **other.result())
        except BaseException:
            spark.sparkContext.cancelJobsWithTag(tag)
            raise


def _begin_thread(spark: SparkSession, tag: str) -> None:
    """Prepare a thread that submits queries. Tags are per thread."""
    spark.sparkContext.addJobTag(tag)


def _failures(
    spark: SparkSession,
    manifest: Manifest,
    tables: dict[str, DataFrame],
    asked: Scope,
    on_progress: progress.ProgressCallback,
) -> dict[str, Any]:
    """Returns the facts about sources, outages and losses."""
    with progress.step(spark, "report: sources", on_progress):
        sources = sources_of(manifest, tables)
    ends = [micros_of(time) for time in (sources.end, asked.end) if time is not None]
    away = kept_or_persisted(outages.prepared(tables["outages"], min(ends, default=None)))
    counts = kept_or_persisted(objectives.count_partitions(scope.of_topics(tables["leadership"], asked), away))
    lost = kept_or_persisted(losses.by_partition(tables["losses"]))
    unclean = kept_or_persisted(losses.with_bucket(tables["unclean"]))
    try:
        with progress.step(spark, "report: incidents", on_progress):
            budgets = objectives.budget_scope(counts)
            grouped = _Incidents(spark, away.where(f.col("kind") == FORCED), lost, unclean, budgets)
            shown, others = grouped.collect()
            rows = totals(away, "kind", times=True).collect()
            sums = {row["kind"]: outages.as_sums(row) for row in rows}
            moved = outages.partitions(away.where(f.col("kind") == UNEXPLAINED).withColumn("incident", f.lit(0)))
        with progress.step(spark, "report: objectives", on_progress):
            spent = _objectives(away, budgets, sources, asked)
        with progress.step(spark, "report: losses", on_progress):
            lost_all = losses.as_lost(loss_sums.sums(lost).collect()[0])
            worst = losses.worst(lost) if lost_all.partitions else ()
            lost_topics = losses.by_topic(lost) if worst else ()
            rows = unclean.groupBy("certain").count().collect()
            unclean_counts = {bool(row["certain"]): row["count"] for row in rows}
            first_unclean = losses.first_unclean(unclean) if rows else ()
    finally:
        for table in (away, counts, lost, unclean):
            table.unpersist()
    return {
        "sources": sources,
        "forced": sums.get(FORCED, NO_SUMS),
        "planned": sums.get(PLANNED, NO_SUMS),
        "unexplained": sums.get(UNEXPLAINED, NO_SUMS),
        "moved": moved.get(0, ()),
        "objectives": spent,
        "incidents_all": len(grouped.intervals),
        "incidents": shown,
        "others": others,
        "lost": lost_all,
        "losses": worst,
        "lost_topics": lost_topics,
        "unclean_all": sum(unclean_counts.values()),
        "unclean_sure": unclean_counts.get(True, 0),
        "unclean": first_unclean,
    }


def _other_findings(tables: dict[str, DataFrame]) -> dict[str, Any]:
    """Returns the facts that need only one table each."""
    flapping_all, flapping = other_findings.flapping(tables["flapping"])
    deletions_all, deletions = other_findings.deletions(tables["deletions"])
    reassignments_all, reassignments = other_findings.reassignments(tables["reassignments"])
    return {
        "unclean_enabled": other_findings.unclean_enabled(tables["events"]),
        "flapping_all": flapping_all,
        "flapping": flapping,
        "churn": other_findings.churn(tables["churn"]),
        "controllers": other_findings.controllers(tables["controllers"]),
        "requests": other_findings.requests(tables["requests"]),
        "absences": other_findings.absences(tables["absences"]),
        "deletions_all": deletions_all,
        "deletions": deletions,
        "reassignments_all": reassignments_all,
        "reassignments": reassignments,
        "audit": other_findings.audit(tables["audit"], tables["files"]),
    }


def _objectives(away: DataFrame, budgets: BudgetScope, sources: Sources, asked: Scope) -> Objectives | None:
    """Returns the consumption of error budgets, by cause."""
    if not budgets.partitions:
        return None
    period_ms = objectives.period_of(sources, asked)
    by_kind = objectives.spent(away, "kind", str, of=budgets, period_ms=period_ms)
    return Objectives(period_ms=period_ms, partitions=budgets.partitions, **by_kind)


class _Incidents:
    """The incidents of one report: first their begins and ends, then their contents."""

    def __init__(
        self, spark: SparkSession, forced: DataFrame, lost: DataFrame, unclean: DataFrame, budgets: BudgetScope
    ) -> None:
        self._spark = spark
        self._outages = forced
        self._budgets = budgets
        self._points = {"losses": lost, "unclean": unclean}
        self.intervals = dict(enumerate(incidents.intervals(forced, (lost, unclean)), start=1))

    def collect(self) -> tuple[tuple[Incident, ...], tuple[Incident, ...]]:
        """Returns those shown in full, and the first of the others; each in order of time."""
        if not self.intervals:
            return (), ()
        plain = self._summed()
        worst = {incident.number for incident in sorted(plain, key=_rank, reverse=True)[: incidents.SHOWN]}
        shown = self._in_full([incident for incident in plain if incident.number in worst])
        others = [incident for incident in plain if incident.number not in worst]
        return shown, tuple(others[: incidents.LISTED])

    def _joined(self, table: DataFrame, numbers: Mapping[int, Interval]) -> DataFrame:
        return table.join(incidents.numbered(self._spark, numbers), "bucket")

    def _summed(self) -> list[Incident]:
        """Returns all incidents, with their sums."""
        times = totals(self._joined(self._outages, self.intervals), "incident", times=True).collect()
        lost = loss_sums.sums(self._joined(self._points["losses"], self.intervals), "incident").collect()
        unclean = self._joined(self._points["unclean"], self.intervals).groupBy("incident").count().collect()
        sums_of = {row["incident"]: outages.as_sums(row) for row in times}
        lost_of = {row["incident"]: losses.as_lost(row) for row in lost}
        unclean_of = {row["incident"]: row["count"] for row in unclean}
        return [
            Incident(
                number=number,
                begin=known_moment(interval.begin),
                end=known_moment(interval.end),
                sums=sums_of.get(number),
                lost=lost_of.get(number, Lost()),
                unclean=unclean_of.get(number, 0),
            )
            for number, interval in self.intervals.items()
        ]

    def _in_full(self, chosen: list[Incident]) -> tuple[Incident, ...]:
        """Add the worst of each incident, and its course."""
        intervals = {incident.number: self.intervals[incident.number] for incident in chosen}
        away = self._joined(self._outages, intervals)
        shares = outages.shares(away)
        partitions = outages.partitions(away)
        bands = outages.bands(
            away, {incident.number: incident.sums for incident in chosen if incident.sums is not None}
        )
        spent = objectives.spent(away, "incident", int, of=self._budgets)
        counts = self._counts(away, intervals)
        return tuple(
            msgspec.structs.replace(
                incident,
                causes=shares.get((incident.number, "cause"), ()),
                topics=shares.get((incident.number, "topic"), ()),
                brokers=shares.get((incident.number, "broker"), ()),
                partitions=partitions.get(incident.number, ()),
                spent=spent.get(incident.number, ()),
                bands=bands.get(incident.number, ()),
                series=series(intervals[incident.number], counts.get(incident.number, {})),
            )
            for incident in chosen
        )

    def _counts(self, away: DataFrame, intervals: dict[int, Interval]) -> dict[int, dict[str, dict[int, int]]]:
        """Returns, for each incident and kind of event, the number of events by slot."""
        counts: dict[int, dict[str, dict[int, int]]] = {}

        def add(incident: int, event: str, slot: int, number: int) -> None:
            by_slot = counts.setdefault(incident, {}).setdefault(event, {})
            by_slot[slot] = by_slot.get(slot, 0) + number

        for row in outages.slots(away).collect():
            event = row["event"] if row["event"] == outages.ELECTIONS else f"{row['event']} {row['observed']}"
            add(row["incident"], event, row["slot"], row["number"])
        for event, points in self._points.items():
            slot = outages.slot_of(f.col("at_us"))
            for row in self._joined(points, intervals).groupBy("incident", slot).count().collect():
                add(row["incident"], event, row["slot"], row["count"])
        return counts


def series(interval: Interval, counts: Mapping[str, Mapping[int, int]]) -> Series:
    """Returns the values of an incident for each slot, from the number of events of each kind by slot."""

    def by_slot(event: str) -> tuple[int, ...]:
        return tuple(counts.get(event, {}).get(slot, 0) for slot in range(incidents.SLOTS))

    def in_progress(observed: bool) -> tuple[int, ...]:
        running, numbers = 0, []
        begins, ends = by_slot(f"{outages.BEGINS} {observed}"), by_slot(f"{outages.ENDS} {observed}")
        for begun, ended in zip(begins, ends, strict=True):
            numbers.append(running + begun)
            running += begun - ended
        return tuple(numbers)

    return Series(
        begin=known_moment(interval.begin),
        slot_ms=incidents.slot_us(interval) / 1000,
        observed=in_progress(True),
        guessed=in_progress(False),
        elections=by_slot(outages.ELECTIONS),
        losses=by_slot("losses"),
        unclean=by_slot("unclean"),
    )


def _rank(incident: Incident) -> tuple[int, ...]:
    """Sort key: lost records first, then time; of equals the later one."""
    total = incident.sums.total_ms if incident.sums is not None else 0
    return (incident.lost.committed, incident.lost.tail, total, incident.unclean, incident.number)
