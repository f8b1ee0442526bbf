"""Create a report from a folder of tables, in one step."""

from typing import TYPE_CHECKING

from kactl.forensics import progress
from kactl.forensics.whatif.sweep import Answer

from .advice import advise
from .collect import collect
from .covered import covered
from .facts import Facts, Report
from .limits import limits
from .model import Asked
from .rows import micros_of
from .wording import Moments
from .words import headline, summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kactl.forensics.jobs.catalog import Results


def report(
    spark: "SparkSession",
    results: "Results",
    asked: Asked,
    moments: Moments,
    *,
    on_progress: progress.ProgressCallback = progress.no_progress,
) -> Report:
    """Returns the facts in the jobs' results, and the sentences about them."""
    facts = collect(spark, results.tables.manifest, results, asked, on_progress=on_progress)
    return describe(facts, moments, _next(results, facts, on_progress))


def _next(results: "Results", facts: Facts, on_progress: progress.ProgressCallback) -> Answer | None:
    """The failures that would take partitions offline next; None if no partition's replicas and ISR are known, as in
    many logs.
    """
    from kactl.forensics.whatif import advise as next_worst
    from kactl.forensics.whatif.partitions import BadSnapshot

    end = facts.sources.end
    try:
        return next_worst(
            *(results[name] for name in ("states", "absences", "deletions")),
            source=results.folder,
            named=results["timed"],
            at=facts.asked.end,
            end_us=None if end is None else micros_of(end),
            on_progress=on_progress,
        )
    except BadSnapshot:
        return None


def describe(facts: Facts, moments: Moments, next_: Answer | None = None) -> Report:
    """Returns facts with their sentences."""
    return Report(
        coverage=covered(facts, moments),
        next=next_,
        headline=headline(facts),
        summary=summary(facts, moments),
        limits=limits(facts),
        advice=advise(facts),
        facts=facts,
    )
