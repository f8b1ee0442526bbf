"""Report section about leader changes without an explaining line: usually short, and notable otherwise."""

from collections.abc import Iterator

from .facts import Facts
from .incident_sections import PARTITION_HEADER, partition_row
from .section import Section, table
from .wording import Moments, count, duration


def unexplained_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Returns None if there were none."""
    sums = facts.unexplained
    if not sums.outages:
        return
    yield Section(
        name="unexplained",
        title="Changes of leaders that no line explains",
        paragraphs=(
            f"{count(sums.outages, 'time')} a leader was moved that was alive as far as these logs tell, and no line "
            "says whether somebody wanted it, or why it had to be. Until the next one led, "
            f"{count(sums.partitions, 'partition')} had no leader: for {duration(sums.duration.max)} at the most, "
            f"{duration(sums.total_ms)} added up. They are in no incident.",
        ),
        tables=table(
            PARTITION_HEADER,
            (partition_row(each, moments) for each in facts.moved),
            "Partitions that were away for longest",
        ),
    )
