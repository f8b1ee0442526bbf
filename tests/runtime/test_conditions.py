"""Conditions in the log: a line at the beginning, once a minute the number of times, and a line at the end."""

import asyncio
import logging

import pytest

from kactl.runtime import conditions as module
from kactl.runtime import logs
from kactl.runtime.conditions import CONDITIONS_MAX, REPEAT_MS, Conditions, FailureLog

log = logs.logger("kactl.tests.conditions")


class Minutes:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


async def all_ended(conditions: Conditions) -> None:
    async with asyncio.timeout(60):
        while len(conditions):  # noqa: ASYNC110  # a timer ends them
            await asyncio.sleep(0.001)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_condition_has_a_line_at_its_beginning_each_minute_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    now = Minutes()
    conditions = Conditions(log, now)

    for now.ms in range(0, int(2.5 * REPEAT_MS), 1_000):
        conditions.add("db", logging.WARNING, "%s does not answer: %s", "db", f"attempt {now.ms / 1000:.0f}")
    conditions.end("db", "%s answers again", "db")

    assert lines(caplog) == [
        "db does not answer: attempt 0",
        "db does not answer: attempt 60 (61 times in 60 s)",
        "db does not answer: attempt 120 (121 times in 120 s)",
        "db answers again (150 times in 149 s)",
    ]


def test_condition_that_has_ended_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    conditions = Conditions(log, Minutes())

    for _ in range(2):
        conditions.add("db", logging.WARNING, "away")
        conditions.end("db", "back")
    conditions.end("db", "back")

    assert lines(caplog) == ["away", "back (1 time in 0 s)"] * 2
    assert len(conditions) == 0


def test_conditions_of_different_keys_are_logged_apart(caplog: pytest.LogCaptureFixture) -> None:
    conditions = Conditions(log, Minutes())

    for broker in (1, 2, 1, 2):
        conditions.add(broker, logging.WARNING, "broker %d is refused", broker)
    conditions.end(1, "broker %d is accepted", 1)

    assert lines(caplog) == ["broker 1 is refused", "broker 2 is refused", "broker 1 is accepted (2 times in 0 s)"]


def test_another_kind_of_a_condition_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    conditions = Conditions(log, Minutes())

    for kind in ("refused", "unreachable", "refused", "unreachable"):
        conditions.add("db", logging.WARNING, "db: %s", kind, kind=kind)

    assert lines(caplog) == ["db: refused", "db: unreachable"]


def test_another_kind_delays_the_next_line_of_the_condition(caplog: pytest.LogCaptureFixture) -> None:
    now = Minutes()
    conditions = Conditions(log, now)

    for now.ms, kind in ((0, "soon"), (6_000, "late"), (REPEAT_MS, "late"), (REPEAT_MS + 6_000, "late")):
        conditions.add("start", logging.WARNING, "%s", kind, kind=kind)

    assert lines(caplog) == ["soon", "late", "late (4 times in 66 s)"]


def test_repetitions_between_two_lines_are_in_the_log_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    conditions = Conditions(log, Minutes())

    with caplog.at_level(logging.DEBUG, log.name):
        for attempt in range(3):
            conditions.add("db", logging.WARNING, "attempt %d", attempt)

    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "DEBUG"]


def test_flood_is_counted_after_its_end_without_another_peer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPEAT_MS", 20)

    async def flood() -> None:
        conditions = Conditions(log, ends_alone=True)
        for _ in range(1000):
            conditions.add("tls", logging.WARNING, "a connection failed")
        await all_ended(conditions)

    asyncio.run(flood())

    first, *_, repeated, last = lines(caplog)
    assert first == "a connection failed"
    assert repeated.startswith("a connection failed (1,000 times in")
    assert last.startswith("a connection failed: not repeated for a minute (1,000 times in")


def test_single_failure_of_a_stranger_has_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPEAT_MS", 20)

    async def connect() -> None:
        conditions = Conditions(log, ends_alone=True)
        conditions.add("tls", logging.WARNING, "a connection failed")
        await all_ended(conditions)

    asyncio.run(connect())

    assert lines(caplog) == ["a connection failed"]


def test_number_of_conditions_is_bounded() -> None:
    conditions = Conditions(log, Minutes())

    for number in range(CONDITIONS_MAX + 10):
        conditions.add(number, logging.DEBUG, "broker %d", number)

    assert len(conditions) == CONDITIONS_MAX


def test_failures_of_a_handler_end_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog(log, Minutes())

    for _ in range(3):
        failures.add(logging.ERROR, ValueError("boom"), "lead of %s has failed", "jobs-3")
    failures.end("lead of %s runs again", "jobs-3")

    assert lines(caplog) == ["lead of jobs-3 has failed", "lead of jobs-3 runs again (3 times in 0 s)"]
