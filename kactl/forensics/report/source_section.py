"""Report section about sources: the files, what each can show, and the clocks."""

from collections.abc import Iterator
from typing import Final

from .facts import Facts
from .section import Section, Table, table
from .wording import Moments, count, known_id, writers


def source_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    sources = facts.sources
    cut = sources.files > len(sources.listed) > 0
    more = f" The first {len(sources.listed)} are shown." if cut else ""
    yield Section(
        name="sources",
        title="What this rests on",
        paragraphs=(
            f"{count(sources.files, 'file')} with {count(sources.lines, 'line')}, {sources.unparsed:,} of them not "
            f"understood.{more} Times are of {moments.name}.",
        ),
        tables=(*_files(facts, moments), *_clocks(facts)),
    )


def _files(facts: Facts, moments: Moments) -> tuple[Table, ...]:
    return table(
        ("file", "kind", "broker", "version", "levels", "begin", "end", "lines", "understood", "to know"),
        (
            (
                each.path,
                each.kind,
                known_id(each.broker),
                each.version,
                ", ".join(each.levels) or None,
                moments.seconds(each.begin),
                moments.seconds(each.end),
                each.lines,
                None if each.coverage is None else f"{each.coverage:.1%}",
                "; ".join([*([each.error] if each.error else []), *each.warnings]) or None,
            )
            for each in facts.sources.listed
        ),
        "Files",
    )


def _clocks(facts: Facts) -> tuple[Table, ...]:
    """None for a single clock."""
    clocks = facts.sources.clocks
    if len(clocks) < 2:
        return ()
    return table(
        ("whose", "clock is off by", "no less", "no more", "how it is known"),
        (
            (writers([each.broker]), *map(_off, (each.offset_us, each.low_us, each.high_us)), _HOW[each.how])
            for each in clocks
        ),
        f"Clocks, against that of {writers([clocks[0].reference])}; it is taken off before anything is compared",
    )


_HOW: Final = {
    "reference": "all are measured against it",
    "bounds": "bounded from both sides",
    "one-sided": "bounded from one side",
    "contradictory": "it drifted or jumped",
    "unknown": "not known",
}


def _off(us: int | None) -> str | None:
    return None if us is None else f"{us / 1000:+,.1f} ms"
