"""Collect the facts of a report from the jobs' tables. The result is bounded, however long the logs are."""

from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kactl.forensics import progress
from kactl.forensics.jobs.losses import sums as loss_sums
from kactl.forensics.jobs.outages.totals import FORCED, PLANNED, UNEXPLAINED, totals

from . import incidents, loss_facts, objective_facts, other_facts, outage_facts, scope
from .facts import Facts, Sources
from .incidents import Interval
from .model import Asked, Incident, Lost, Objectives, Partition, Series
from .outage_facts import NO_SUMS
from .rows import micros_of, moment
from .source_facts import sources as sources_of

if TYPE_CHECKING:
    from kactl.forensics.tables import Manifest

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
    manifest: "Manifest",
    tables: Mapping[str, DataFrame],
    asked: Asked,
    *,
    on_progress: progress.ProgressCallback = progress.no_progress,
) -> Facts:
    """Returns all facts of a report.

    Args:
        manifest: manifest of the ingest.
        tables: those of `NEEDS`, by name.
        asked: the requested time and topics.
    """
    found = scope.cut({name: tables[name] for name in NEEDS}, asked)
    with progress.step(spark, "report: sources", on_progress):
        sources = sources_of(manifest, found)
    ends = [micros_of(each) for each in (sources.end, asked.end) if each is not None]
    outages = outage_facts.prepared(found["outages"], min(ends, default=None)).persist()
    counted = objective_facts.counted(scope.of_topics(found["leadership"], asked), outages).persist()
    losses = loss_facts.by_partition(found["losses"]).persist()
    unclean = loss_facts.placed(found["unclean"]).persist()
    try:
        with progress.step(spark, "report: incidents", on_progress):
            known = objective_facts.known(counted)
            made = _Incidents(spark, _of(FORCED, outages), losses, unclean, known)
            shown, others = made.all()
            sums = {row["kind"]: outage_facts.as_sums(row) for row in totals(outages, "kind", times=True).collect()}
            moved = _moved(_of(UNEXPLAINED, outages)) if UNEXPLAINED in sums else ()
        with progress.step(spark, "report: objectives", on_progress):
            objectives = _objectives(outages, known, sources, asked)
        with progress.step(spark, "report: losses", on_progress):
            lost = loss_facts.as_lost(loss_sums.sums(losses).collect()[0])
            worst = loss_facts.worst(losses) if lost.partitions else ()
            topics = loss_facts.by_topic(losses) if worst else ()
            unclean_rows = unclean.groupBy("certain").count().collect()
            explained = loss_facts.explained(unclean) if unclean_rows else ()
    finally:
        for table in (outages, counted, losses, unclean):
            table.unpersist()
    counts = {bool(row["certain"]): row["count"] for row in unclean_rows}
    with progress.step(spark, "report: the rest", on_progress):
        flapping_all, flapping = other_facts.flapping(found["flapping"])
        deletions_all, deletions = other_facts.deletions(found["deletions"])
        reassignments_all, reassignments = other_facts.reassignments(found["reassignments"])
        return Facts(
            made_by=metadata.version("kactl"),
            asked=asked,
            sources=sources,
            forced=sums.get(FORCED, NO_SUMS),
            planned=sums.get(PLANNED, NO_SUMS),
            unexplained=sums.get(UNEXPLAINED, NO_SUMS),
            moved=moved,
            objectives=objectives,
            incidents_all=len(made.intervals),
            incidents=shown,
            others=others,
            lost=lost,
            losses=worst,
            lost_topics=topics,
            unclean_all=sum(counts.values()),
            unclean_sure=counts.get(True, 0),
            unclean=explained,
            unclean_enabled=other_facts.unclean_enabled(found["events"]),
            flapping_all=flapping_all,
            flapping=flapping,
            churn=other_facts.churn(found["churn"]),
            controllers=other_facts.controllers(found["controllers"]),
            requests=other_facts.requests(found["requests"]),
            absences=other_facts.absences(found["absences"]),
            deletions_all=deletions_all,
            deletions=deletions,
            reassignments_all=reassignments_all,
            reassignments=reassignments,
            audit=other_facts.audit(found["audit"], found["files"]),
        )


def _of(kind: str, outages: DataFrame) -> DataFrame:
    return outages.where(f.col("kind") == kind)


def _moved(outages: DataFrame) -> tuple[Partition, ...]:
    """Of the partitions without an incident, those that were unavailable for longest."""
    return outage_facts.partitions(outages.withColumn("incident", f.lit(0))).get(0, ())


def _objectives(outages: DataFrame, known: objective_facts.Known, sources: Sources, asked: Asked) -> Objectives | None:
    """The consumption of error budgets, by cause."""
    if not known.partitions:
        return None
    period_ms = objective_facts.period_of(sources, asked)
    given = objective_facts.spent(outages, "kind", str, of=known, period_ms=period_ms)
    return Objectives(period_ms=period_ms, partitions=known.partitions, **given)


class _Incidents:
    """The incidents of one report: first their begins and ends, then their contents."""

    def __init__(
        self,
        spark: SparkSession,
        outages: DataFrame,
        losses: DataFrame,
        unclean: DataFrame,
        known: objective_facts.Known,
    ) -> None:
        self._spark = spark
        self._outages = outages
        self._known = known
        self._points = {"losses": losses, "unclean": unclean}
        found = incidents.intervals(outages, (losses, unclean))
        self.intervals = dict(enumerate(found, start=1))

    def all(self) -> tuple[tuple[Incident, ...], tuple[Incident, ...]]:
        """Returns those shown in full, and the first of the others; each in order of time."""
        if not self.intervals:
            return (), ()
        plain = self._summed()
        worst = sorted(plain, key=_rank, reverse=True)[: incidents.SHOWN]
        numbers = {each.number for each in worst}
        shown = self._in_full([each for each in plain if each.number in numbers])
        others = [each for each in plain if each.number not in numbers]
        return shown, tuple(others[: incidents.LISTED])

    def _joined(self, table: DataFrame, numbers: "Mapping[int, Interval]") -> DataFrame:
        return table.join(incidents.numbered(self._spark, numbers), "bucket")

    def _summed(self) -> list[Incident]:
        """All incidents, with their sums."""
        sums = {
            row["incident"]: outage_facts.as_sums(row)
            for row in totals(self._joined(self._outages, self.intervals), "incident", times=True).collect()
        }
        lost = {
            row["incident"]: loss_facts.as_lost(row)
            for row in loss_sums.sums(self._joined(self._points["losses"], self.intervals), "incident").collect()
        }
        unclean = {
            row["incident"]: row["count"]
            for row in self._joined(self._points["unclean"], self.intervals).groupBy("incident").count().collect()
        }
        return [
            Incident(
                number=number,
                begin=_moment(each.begin),
                end=_moment(each.end),
                sums=sums.get(number),
                lost=lost.get(number, Lost()),
                unclean=unclean.get(number, 0),
            )
            for number, each in self.intervals.items()
        ]

    def _in_full(self, chosen: list[Incident]) -> tuple[Incident, ...]:
        """Add the worst of each incident, and its course."""
        import msgspec

        intervals = {each.number: self.intervals[each.number] for each in chosen}
        outages = self._joined(self._outages, intervals)
        shares = outage_facts.shares(outages)
        partitions = outage_facts.partitions(outages)
        bands = outage_facts.bands(outages, {each.number: each.sums for each in chosen if each.sums is not None})
        spent = objective_facts.spent(outages, "incident", int, of=self._known)
        series = self._series(outages, intervals)
        return tuple(
            msgspec.structs.replace(
                each,
                causes=shares.get((each.number, "cause"), ()),
                topics=shares.get((each.number, "topic"), ()),
                brokers=shares.get((each.number, "broker"), ()),
                partitions=partitions.get(each.number, ()),
                spent=spent.get(each.number, ()),
                bands=bands.get(each.number, ()),
                series=series[each.number],
            )
            for each in chosen
        )

    def _series(self, outages: DataFrame, intervals: dict[int, Interval]) -> dict[int, Series]:
        """The series of incidents. Spark counts by slot; here the counts are only added up."""
        counts: dict[tuple[int, str], dict[int, int]] = {}
        for row in outage_facts.slots(outages).collect():
            what = row["what"] if row["what"] == outage_facts.ELECTIONS else f"{row['what']} {row['observed']}"
            into = counts.setdefault((row["incident"], what), {})
            into[row["slot"]] = into.get(row["slot"], 0) + row["number"]
        for what, table in self._points.items():
            slot = f.floor((f.col("at_us") - f.col("incident_begin_us")) / f.col("slot_us")).cast("int").alias("slot")
            for row in self._joined(table, intervals).groupBy("incident", slot).count().collect():
                counts.setdefault((row["incident"], what), {})[row["slot"]] = row["count"]
        return {number: series(number, each, counts) for number, each in intervals.items()}


def series(number: int, interval: Interval, counts: Mapping[tuple[int, str], Mapping[int, int]]) -> Series:
    """Returns the values of an incident for each slot, from the begins and ends in it."""

    def plain(what: str) -> tuple[int, ...]:
        found = counts.get((number, what), {})
        return tuple(found.get(slot, 0) for slot in range(incidents.SLOTS))

    def going_on(observed: bool) -> tuple[int, ...]:
        running, made = 0, []
        begins, ends = (plain(f"{what} {observed}") for what in (outage_facts.BEGINS, outage_facts.ENDS))
        for begun, ended in zip(begins, ends, strict=True):
            made.append(running + begun)
            running += begun - ended
        return tuple(made)

    return Series(
        begin=_moment(interval.begin),
        slot_ms=incidents.slot_us(interval) / 1000,
        observed=going_on(True),
        guessed=going_on(False),
        elections=plain(outage_facts.ELECTIONS),
        losses=plain("losses"),
        unclean=plain("unclean"),
    )


def _rank(incident: Incident) -> tuple[int, ...]:
    """Sort key: lost records first, then time; of equals the later one."""
    total = incident.sums.total_ms if incident.sums is not None else 0
    return (incident.lost.committed, incident.lost.tail, total, incident.unclean, incident.number)


def _moment(time_us: int) -> Any:
    made = moment(time_us)
    assert made is not None
    return made
