"""Report section about further failures: partitions that would be offline if brokers failed where the logs end."""

from collections.abc import Iterator
from typing import Final

from kactl.forensics.whatif.sweep import Answer, Kind

from .section import Section, table

_EACH: Final = {
    Kind.BROKERS: "any one broker",
    Kind.PAIRS: "any two brokers",
    Kind.RACKS: "any one rack",
}


def next_section(answer: Answer | None) -> Iterator[Section]:
    """Yields a section with the worst scenarios of each sweep; nothing if too little is known of the cluster."""
    if answer is None:
        return
    nothing = "nothing" if answer.coverage.is_whole else "no known partition"
    rows = [
        (outcome.scenario.name, outcome.offline_more, outcome.under_min_more, outcome.lone_more, outcome.explained)
        for sweep in answer.sweeps
        for outcome in sweep.worst
    ]
    yield Section(
        name="next",
        title="What would be next",
        paragraphs=(
            f"{answer.coverage.stated}{_unknown(answer)}, as the logs end. {answer.now.outcome.explained}",
            *(
                f"Of {sweep.scenarios:,} ways to lose {_EACH.get(sweep.kind, sweep.kind)} {sweep.harmless:,} would "
                f"take {nothing} offline."
                for sweep in answer.sweeps
            ),
        ),
        tables=table(
            ("if these die", "more offline", "more under min ISR", "more with one left", "what it would mean"),
            rows,
            "The worst of them",
        ),
    )


def _unknown(answer: Answer) -> str:
    return f" (nothing here is about the other {answer.now.unknown:,})" if answer.now.unknown else ""
