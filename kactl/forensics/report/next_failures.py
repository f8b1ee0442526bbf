"""Further failures: partitions that would be offline if brokers failed where the logs end."""

from collections.abc import Iterator
from typing import Final

from kactl.decide.whatif.analysis import answer
from kactl.decide.whatif.assumptions import Assumptions
from kactl.decide.whatif.outcomes import Answer, Kind
from kactl.forensics import progress
from kactl.forensics.jobs.catalog import Results
from kactl.forensics.whatif.snapshots.logs import of_logs
from kactl.forensics.whatif.tables import BadSnapshot

from .facts import Facts
from .rows import micros_of
from .section import Section, field_table

_SETS: Final = {
    Kind.BROKERS: "any one broker",
    Kind.PAIRS: "any two brokers",
}
# Outcomes per sweep.
_TOP: Final = 3


def next_failures(results: Results, facts: Facts, on_progress: progress.ProgressCallback) -> Answer | None:
    """Returns the failures that would take partitions offline next.

    None if no partition's replicas and ISR are known, as in many logs.
    """
    states, absences, deletions, timed = (results[name] for name in ("states", "absences", "deletions", "timed"))
    at = facts.asked.end
    end_us = None if facts.sources.end is None else micros_of(facts.sources.end)
    try:
        snapshot = of_logs(
            states, absences, deletions, results.folder, Assumptions(), at=at, end_us=end_us, named=timed
        )
    except BadSnapshot:
        return None
    return answer(snapshot, sweeps=tuple(_SETS), top=_TOP, on_progress=on_progress)


def next_section(next_: Answer | None) -> Iterator[Section]:
    """Yields a section with the worst scenarios of each sweep, or nothing if too little is known of the cluster."""
    if next_ is None:
        return
    nothing = "nothing" if next_.coverage.is_whole else "no known partition"
    unknown = f" (nothing here is about the other {next_.now.unknown:,})" if next_.now.unknown else ""
    yield Section(
        name="next",
        title="What would be next",
        paragraphs=(
            f"{next_.coverage.stated}{unknown}, as the logs end. {next_.now.outcome.explained}",
            *(
                f"Of {sweep.scenarios:,} ways to lose {_SETS[sweep.kind]} {sweep.harmless:,} would "
                f"take {nothing} offline."
                for sweep in next_.sweeps
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
            [outcome for sweep in next_.sweeps for outcome in sweep.worst],
            "The worst of them",
        ),
    )
