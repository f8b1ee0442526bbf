"""Reads texts as the pipeline reads files, without Spark."""

import io
from typing import Any

import pyarrow as pa

from kactl.forensics.event_types import Kind
from kactl.forensics.text import zone
from kactl.forensics.text.columns import WRITTEN
from kactl.forensics.text.forms import Forms
from kactl.forensics.text.parser import Parser
from kactl.forensics.text.records import records

from .golden import Golden


def log_line(golden: Golden, *, ts: str = "2024-05-01 10:00:00,123") -> str:
    """Returns the line as log4j writes it, with its following lines."""
    line = f"[{ts}] {golden.level} {golden.message} ({golden.logger})\n"
    return line + (golden.continued + "\n" if golden.continued else "")


def events_of(
    text: str | bytes,
    *,
    layout: str = "standard",
    kind: Kind = Kind.STATE_CHANGE,
    broker: int | None = None,
    tz: str = "UTC",
    start: int = 0,
    end: int | None = None,
) -> list[dict[str, Any]]:
    """Returns the events of a text in order; those of one split if `start` or `end` is given."""
    file = io.BytesIO(text.encode() if isinstance(text, str) else text)
    file.seek(max(0, start - 1))
    parser = Parser(file_id=1, kind=kind, broker=broker, time_zone=zone.zone_of(tz))
    batches = [parser.parse(batch) for batch in records(file, Forms(expected=(layout,)), start=start, end=end)]
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, WRITTEN).to_pylist()
    return sorted(rows, key=lambda row: (row["offset"], row["type"]))
