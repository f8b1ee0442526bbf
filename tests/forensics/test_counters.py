"""Counters of events, compared with counting line by line, with any column null."""

import collections
import datetime
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kactl.forensics.event_types import EventType
from kactl.forensics.events import SCHEMA
from kactl.forensics.parquet_writer import COUNTER_SCHEMA, count_events

BEGIN = datetime.datetime(2024, 5, 1, 9, 30, tzinfo=datetime.UTC)

EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "file_id": st.integers(0, 1),
            "type": st.sampled_from([EventType.OTHER, EventType.BROKEN, EventType.PARTITION]),
            "format": st.sampled_from(["P1", None]),
            "level": st.sampled_from(["INFO", None]),
            "speaker": st.sampled_from([1, None]),
            "role": st.just("broker"),
            "controller": st.sampled_from([2, None]),
            "reason": st.sampled_from(["why", "because", None]),
            "lines": st.integers(0, 3),
            "took_ms": st.none() | st.integers(0, 9),
            "ts": st.none() | st.integers(0, 7200).map(lambda s: BEGIN + datetime.timedelta(seconds=s)),
        }
    ),
    max_size=30,
)


def expected_counts(events: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Returns the counters by counting line by line."""
    alike = collections.defaultdict(list)
    for event in events:
        hour = event["ts"] and event["ts"].replace(minute=0, second=0)
        reason = event["reason"] if event["type"] == EventType.BROKEN else None
        key = (event["file_id"], event["type"], event["format"], event["level"], event["speaker"], event["controller"])
        alike[(*key, hour, reason)].append(event)

    def known(rows: list[dict[str, Any]], name: str) -> list[Any]:
        return [row[name] for row in rows if row[name] is not None]

    return {
        key: {
            "lines": sum(row["lines"] for row in rows),
            "rows": len(rows),
            "begin": min(known(rows, "ts"), default=None),
            "end": max(known(rows, "ts"), default=None),
            "took_ms": max(known(rows, "took_ms"), default=None),
        }
        for key, rows in alike.items()
    }


@given(EVENTS)
def test_counters_equal_counting_line_by_line(events: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(events, SCHEMA)

    made = count_events(table, part="a", kind="server")

    assert made.schema.equals(COUNTER_SCHEMA)
    rows = made.to_pylist()
    assert {(row.pop("part"), row.pop("kind"), row.pop("role")) for row in rows} <= {("a", "server", "broker")}
    keys = ("file_id", "type", "format", "level", "speaker", "controller", "hour", "reason")
    told = {tuple(row.pop(key) for key in keys): row for row in rows}
    assert len(told) == made.num_rows
    assert told == expected_counts(events)
