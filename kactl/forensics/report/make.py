"""Creation of a report from a folder of tables, in one step."""

from pyspark.sql import SparkSession

from kactl.decide.whatif.outcomes import Answer
from kactl.forensics import progress
from kactl.forensics.jobs.catalog import Results
from kactl.forensics.wording import Moments

from .advice import advise
from .brief import brief
from .collect import collect
from .facts import Facts, Report
from .limits import limits
from .model import Scope
from .next_failures import next_failures
from .sources import coverage
from .summary import headline, summary


def report(
    spark: SparkSession,
    results: Results,
    asked: Scope,
    moments: Moments,
    *,
    on_progress: progress.ProgressCallback = progress.no_progress,
) -> Report:
    """Returns the facts in the jobs' results, and the sentences about them."""
    facts = collect(spark, results.tables.manifest, results, asked, on_progress=on_progress)
    return describe(facts, moments, next_failures(results, facts, on_progress))


def describe(facts: Facts, moments: Moments, next_: Answer | None = None) -> Report:
    """Returns facts with their sentences."""
    sentences, advice = summary(facts, moments), advise(facts)
    return Report(
        coverage=coverage(facts, moments),
        brief=brief(facts, sentences, advice, moments),
        next=next_,
        headline=headline(facts),
        summary=sentences,
        limits=limits(facts),
        advice=advice,
        facts=facts,
    )
