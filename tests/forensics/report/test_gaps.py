"""Gaps in the logs of brokers: missing beginnings, pauses and ends."""

from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from kactl.forensics.events import COLUMNS
from kactl.forensics.report.brief import brief, severity
from kactl.forensics.report.facts import Facts, Jump, LeftOut
from kactl.forensics.report.gaps import Gap, _Log, _of_broker
from kactl.forensics.report.limits import limits
from kactl.forensics.report.make import describe
from kactl.forensics.report.model import Scope
from kactl.forensics.report.page import page
from kactl.forensics.report.sources import _jumps, _unnamed, coverage
from kactl.forensics.tables import FILE_COLUMNS
from kactl.forensics.wording import Moments
from tests.forensics.jobs.tables import moment, table

from .builders import QUIET, SOURCES

UTC = Moments("UTC")
MINUTE = 60_000_000
DAY = (0, 180 * MINUTE)
# Twelve pauses of five minutes.
REGULAR = (12, 300_000)


def log(begin: int, end: int, *, file_id: int = 0, summed: int = 0) -> _Log:
    return _Log(file_id, 1, begin * MINUTE, end * MINUTE, summed)


def found(*logs: _Log, pauses: Any = (), usual: Any = REGULAR, away: Any = ()) -> list[tuple[float, float]]:
    of_first = [(begin * MINUTE, end * MINUTE) for begin, end in pauses]
    absent: list[Any] = [tuple(None if time is None else time * MINUTE for time in times) for times in away]
    result = _of_broker(logs, {0: of_first}, {each.file_id: usual for each in logs}, DAY, absent)
    return [(begin / MINUTE, end / MINUTE) for begin, end in result]


def test_complete_log_has_no_gap() -> None:
    assert found(log(0, 180), pauses=[(100, 130)]) == []


@pytest.mark.parametrize(
    ("logs", "pauses", "expected"),
    [
        ([log(60, 180)], (), [(0, 60)]),
        ([log(0, 100)], (), [(100, 180)]),
        ([log(0, 180)], [(20, 90)], [(20, 90)]),
        ([log(0, 55), log(125, 175, file_id=1)], (), [(55, 125)]),
    ],
    ids=["begins late", "ends early", "pauses", "file is missing"],
)
def test_time_without_lines_is_a_gap(logs: list[_Log], pauses: Any, expected: list[tuple[float, float]]) -> None:
    assert found(*logs, pauses=pauses) == expected


def test_pause_of_one_file_is_no_gap_if_another_goes_on() -> None:
    assert found(log(0, 180), log(0, 180, file_id=1), pauses=[(20, 90)]) == []


def test_absent_broker_had_nothing_to_log() -> None:
    assert found(log(0, 20), log(90, 180, file_id=1), away=[(20, 90)]) == []
    assert found(log(0, 20), away=[(20, None)]) == []
    assert found(log(60, 180), away=[(None, 60)]) == []


def test_absence_that_the_log_does_not_reach_is_part_of_the_gap() -> None:
    assert found(log(100, 180), away=[(50, 75)]) == [(0, 100)]


def test_log_without_a_usual_pause_may_pause_for_an_hour() -> None:
    assert found(log(50, 180), usual=(2, 1000)) == []
    assert found(log(70, 180), usual=(2, 1000)) == [(0, 70)]


def test_busy_log_may_end_an_hour_later_than_its_known_end() -> None:
    assert found(log(0, 121, summed=1000)) == []


# -- in the report -----------------------------------------------------------------------------------------------------


def quiet(**sources: Any) -> Facts:
    return msgspec.structs.replace(QUIET, sources=msgspec.structs.replace(SOURCES, **sources))


JUMP = Jump(broker=3, at=moment(0), ms=180_000)
GAPS = tuple(Gap(broker=broker, begin=moment(-3600), end=moment(0)) for broker in (1, 2))


def test_gaps_reduce_the_coverage_and_are_stated_in_the_first_line() -> None:
    result = coverage(quiet(gaps=GAPS), UTC)

    assert result.time_share == pytest.approx(1 - 2 * 3600 / 7800 / 3, abs=0.001)
    assert result.is_partial
    assert "no lines of brokers 1 and 2 from 2024-05-01 09:00:00 to 2024-05-01 10:00:00" in result.stated


def test_gap_outside_of_the_requested_time_does_not_count() -> None:
    facts = msgspec.structs.replace(quiet(gaps=GAPS), asked=Scope(begin=moment(60)))

    result = coverage(facts, UTC)

    assert (result.time_share, "no lines" in result.stated) == (1, False)


def test_epochs_in_no_log_make_the_severity_unknown() -> None:
    facts = quiet(epochs_missing=4, epochs_missing_of=("pay-0",))

    level, because = severity(facts)

    assert (level, brief(facts, (), (), UTC).is_over) == ("unknown", None)
    assert because.endswith("4 leader epochs of pay-0 are in no log")
    assert coverage(facts, UTC).epochs_share == pytest.approx(100 / 104, abs=0.001)
    assert "4 leader epochs of pay-0 in no log" in coverage(facts, UTC).stated


@pytest.mark.parametrize("outages", [0, 1])
def test_changes_that_name_no_partition_make_the_severity_unknown(outages: int) -> None:
    facts = msgspec.structs.replace(
        quiet(unnamed=3), forced=msgspec.structs.replace(QUIET.forced, outages=outages, open=0)
    )

    level, because = severity(facts)

    found = brief(facts, (), (), UTC)
    assert (level, found.is_over) == ("unknown", None)
    assert found.lines[1].text.startswith("Not known from these logs: the controller changed 3 partitions")
    assert because.endswith("the controller changed 3 partitions without naming them, as KRaft's does at INFO")
    assert any("org.apache.kafka.controller.ReplicationControlManager to DEBUG" in limit for limit in limits(facts))


@pytest.mark.parametrize(("jumps", "expected"), [((), ("critical", False)), ((JUMP,), ("unknown", None))])
def test_outage_may_have_ended_if_a_clock_was_set_back(jumps: tuple[Jump, ...], expected: tuple[str, bool]) -> None:
    facts = msgspec.structs.replace(quiet(jumps=jumps), forced=msgspec.structs.replace(QUIET.forced, outages=1, open=1))

    found = brief(facts, (), (), UTC)

    assert (found.severity, found.is_over) == expected
    assert any("The clock of broker 3 was set back by 3 min" in limit for limit in limits(facts)) == bool(jumps)


def test_steps_of_clocks_and_unnamed_changes_are_found_in_the_tables(spark: SparkSession) -> None:
    back = {"type": "clock-back", "ts": moment(60), "speaker": 3}
    changed = {"type": "partitions-changed", "role": "controller", "count": 3, "took_ms": None}
    rows = [
        back | {"file_id": 0, "took_ms": 180_000},
        back | {"file_id": 0, "took_ms": 2_000},
        back | {"file_id": 1, "took_ms": 900_000},
        changed | {"file_id": 0, "ts": moment(0)},
    ]
    named = {"type": "leadership", "role": "controller", "file_id": 0, "ts": moment(0)}
    files = [{"file_id": 0, "path": "a", "broker": 3}, {"file_id": 1, "path": "b", "broker": None}]
    events = table(spark, COLUMNS, rows)

    jumps = _jumps({"events": events, "files": table(spark, FILE_COLUMNS, files)}).collect()

    assert [(row["broker"], row["ms"]) for row in jumps] == [(3, 180_000)]
    assert _unnamed(events) == 3
    assert _unnamed(table(spark, COLUMNS, [*rows, named])) == 0


def test_file_of_kafka_that_is_not_understood_is_named_first() -> None:
    facts = quiet(unreadable=1, broken=1, not_understood=("broker-3/server.log",))

    report = describe(facts, UTC)

    assert "3 of 4 files read to the end (broker-3/server.log not understood)" in report.coverage.stated
    assert (report.coverage.files_not_understood, report.coverage.is_partial) == (("broker-3/server.log",), True)
    assert (report.brief.severity, report.brief.is_over) == ("unknown", None)
    assert report.brief.lines[0].text.startswith("Unknown: no leader was lost according to the lines that were read")
    assert "broker-3/server.log not understood" in page(report, UTC)


def test_other_files_are_listed_once_with_the_reason() -> None:
    facts = quiet(left_out_all=1, left_out=(LeftOut(path="notes.txt", reason="is empty"),))

    html = page(describe(facts, UTC), UTC)

    assert html.count("notes.txt") == 1
    assert "Files that were left out" in html
