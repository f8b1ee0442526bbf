"""Outcomes of conditions that the calls of a function have, and that they lack."""

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from .branches import Branches, outcomes

SOURCE = textwrap.dedent(
    """
    def grade(value, limits):
        if value is None or value < 0:
            return "none"
        for limit in limits:
            if value > limit:
                return "above"
        try:
            return [limit for limit in limits if limit][0]
        except IndexError:
            return "empty"
    """
)


def missing(tmp_path: Path, *calls: tuple[Any, ...]) -> set[tuple[int, bool]]:
    """Returns the lines of the conditions that lack an outcome, and which it is."""
    path = tmp_path / "graded.py"
    path.write_text(SOURCE)
    code = compile(SOURCE, str(path), "exec")
    space: dict[str, Any] = {}
    exec(code, space)
    branches = Branches(path)
    with branches.watching():
        for call in calls:
            space["grade"](*call)
    assert branches.seen <= outcomes(code)
    return {(outcome.line, outcome.jumps) for outcome in outcomes(code) - branches.seen}


def test_calls_of_every_kind_lack_nothing(tmp_path: Path) -> None:
    assert missing(tmp_path, (None, []), (-1, []), (1, [0]), (0, [0, 2]), (1, [])) == set()


@pytest.mark.parametrize(
    ("calls", "line"),
    [
        ([(-1, []), (1, [0]), (0, [0, 2]), (1, [])], 3),  # never None
        ([(None, []), (1, [0]), (0, [0, 2]), (1, [])], 3),  # never negative
        ([(None, []), (-1, []), (0, [0, 2]), (1, [])], 6),  # never above
        ([(None, []), (-1, []), (1, [0])], 5),  # never at the end
    ],
)
def test_missing_outcome_is_found(calls: list[tuple[Any, ...]], line: int, tmp_path: Path) -> None:
    assert line in {where for where, _ in missing(tmp_path, *calls)}


def test_function_that_is_not_called_lacks_both_outcomes(tmp_path: Path) -> None:
    assert {line for line, _ in missing(tmp_path)} == {3, 5, 6, 9}


def test_failure_of_an_assert_and_answer_of_a_context_manager_are_left_out() -> None:
    source = """
async def first(lock, values):
    async with lock:
        assert values, "some"
        return values[0] or None
"""
    found = {(outcome.line, outcome.jumps) for outcome in outcomes(compile(source, "first.py", "exec"))}

    assert found == {(4, True), (5, True), (5, False)}


def test_watching_goes_on_after_a_block_that_ended_the_tracing(tmp_path: Path) -> None:
    """As an error in the tracing function does, when the stack is exhausted."""
    path = tmp_path / "graded.py"
    space: dict[str, Any] = {}
    exec(compile(SOURCE, str(path), "exec"), space)
    branches = Branches(path)
    with branches.watching():
        with branches.watching():
            sys.settrace(None)
        space["grade"](None, [])

    assert {outcome.line for outcome in branches.seen} == {3}
