"""Further failures: partitions that would be offline if brokers failed where the logs end."""

from collections.abc import Iterator
from typing import Final

from kactl.forensics import progress
from kactl.forensics.jobs.catalog import Results
from kactl.forensics.whatif import advise
from kactl.forensics.whatif.outcomes import Answer, Kind
from kactl.forensics.whatif.partitions import BadSnapshot

from .facts import Facts
from .rows import micros_of
from .section import Section, field_table

_SETS: Final = {
    Kind.BROKERS: "any one broker",
    Kind.PAIRS: "any two brokers",
    Kind.RACKS: "any one rack",
}


def next_failures(results: Results, facts: Facts, on_progress: progress.ProgressCallback) -> Answer | None:
    """Returns the failures that would take partitions offline next.

    None if no partition's replicas and ISR are known, as in many logs.
    """
    end = facts.sources.end
    try:
        return advise(
            *(results[name] for name in ("states", "absences", "deletions")),
            source=results.folder,
            named=results["timed"],
            at=facts.asked.end,
            end_us=None if end is None else micros_of(end),
            on_progress=on_progress,
        )
    except BadSnapshot:
        return None


def next_section(answer: Answer | None) -> Iterator[Section]:
    """Yields a section with the worst scenarios of each sweep, or nothing if too little is known of the cluster."""
    if answer is None:
        return
    nothing = "nothing" if answer.coverage.is_whole else "no known partition"
    unknown = f" (nothing here is about the other {answer.now.unknown:,})" if answer.now.unknown else ""
    yield Section(
        name="next",
        title="What would be next",
        paragraphs=(
            f"{answer.coverage.stated}{unknown}, as the logs end. {answer.now.outcome.explained}",
            *(
                f"Of {sweep.scenarios:,} ways to lose {_SETS.get(sweep.kind, sweep.kind)} {sweep.harmless:,} would "
                f"take {nothing} offline."
                for sweep in answer.sweeps
            ),
        ),
        tables=field_table(
            (
                ("if these fail", lambda outcome: outcome.scenario.name),
                ("more offline", lambda outcome: outcome.offline_more),
                ("more under min ISR", lambda outcome: outcome.under_min_more),
                ("more with one left", lambda outcome: outcome.lone_more),
                ("consequences", lambda outcome: outcome.explained),
            ),
            [outcome for sweep in answer.sweeps for outcome in sweep.worst],
            "The worst of them",
        ),
    )
