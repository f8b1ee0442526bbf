"""Programs that configure no logging: warnings and errors of kactl, and failures of their own code, reach stderr."""

import itertools
import logging
import subprocess
import sys

import pytest

from kactl.runtime.conditions import FAILURES_MAX, REPEAT_MS, TRACEBACK_EACH, FailureLog
from tests.support.tree import ROOT

# A busy machine starts an interpreter in seconds.
PROGRAM_S = 120.0
PROGRAM = """
import logging
import sys
import anyio
import kactl

if "own" in sys.argv:
    logging.basicConfig(stream=sys.stdout, level=logging.CRITICAL)


class Broken(kactl.PartitionHandler):
    async def lead(self, leader):
        raise RuntimeError("boom in lead \\x1b[31m\\r\\n<b>")


async def main():
    async with (
        kactl.Controller(100) as controller,
        kactl.Participant(1, store=controller.store, hub=controller.hub, handler=Broken) as participant,
    ):
        failures = controller.events(kinds=["handler"])
        await controller.create_topic("jobs", partitions=3, replication_factor=1, timeout_ms=0)
        seen = 0
        async for event in failures:
            seen += event.status == "failed"
            if seen >= 6:  # each of them twice
                break
        for caller in (participant, controller):
            while True:
                try:
                    await caller.ensure_topic("jobs", partitions=3, replication_factor=1, wait="led", timeout_ms=50)
                except kactl.ActionTimedOut as error:
                    if "boom" in str(error):
                        print("ensure_topic:", error)
                        break


anyio.run(main)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=True)


def test_failure_of_a_handler_reaches_stderr_once_with_its_traceback() -> None:
    lines = run().stderr.splitlines()

    failures = [line for line in lines if "lead of the handler of jobs-" in line]
    assert len(failures) == 3  # one line for each partition, which has failed twice
    assert sum("Traceback" in line for line in lines) == 1
    assert sum("boom in lead" in line and line.startswith("    | RuntimeError") for line in lines) == 1
    assert all("RuntimeError('boom in lead" in line for line in failures[1:])
    assert all(line.isprintable() for line in lines)


def test_reason_of_a_handler_is_in_the_error_of_ensure_topic() -> None:
    told = run().stdout

    assert told.count("ensure_topic:") == 2
    assert "its handler has failed" in told
    assert "(lead: boom in lead \\u001b[31m\\u000d\\u000a<b>)" in told
    assert "the log of the process of broker 1 has the traceback" in told
    assert "give it more time" not in told


def test_program_with_logging_of_its_own_decides_what_is_printed() -> None:
    assert run("own").stderr == ""


def failure(text: str, error: type[Exception] = ValueError) -> Exception:
    try:
        raise error(text)
    except error as raised:
        return raised


def test_failures_of_different_kinds_have_a_traceback_each(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog(logging.getLogger("kactl.tests"))

    failures.add(logging.ERROR, failure("a"), "%s has failed", "x")
    failures.add(logging.ERROR, failure("b"), "%s has failed", "y")
    for error in (failure("a", KeyError), ValueError("not raised"), ValueError("another")):
        failures.add(logging.ERROR, error, "%s has failed", "x")
    failures.add(logging.ERROR, failure("a"), "%s has failed otherwise", "x")

    assert [record.exc_info is not None for record in caplog.records] == [True, False, True, True, True, True]
    assert caplog.messages[1].startswith("y has failed: ValueError('b') (the first line of this failure has")


def test_lasting_failure_repeats_its_traceback_seldom(caplog: pytest.LogCaptureFixture) -> None:
    minutes = itertools.count()
    failures = FailureLog(logging.getLogger("kactl.tests"), lambda: next(minutes) * REPEAT_MS)

    for _ in range(2 * TRACEBACK_EACH + 1):
        failures.add(logging.WARNING, failure("again"), "%s has failed", "x")

    assert len(caplog.records) == 2 * TRACEBACK_EACH + 1
    assert sum(record.exc_info is not None for record in caplog.records) == 3


def test_number_of_remembered_failures_is_bounded() -> None:
    failures = FailureLog(logging.getLogger("kactl.tests"))

    for number in range(2 * FAILURES_MAX):
        failures.add(logging.DEBUG, ValueError(str(number)), "x has failed")

    assert len(failures._counts) == FAILURES_MAX
