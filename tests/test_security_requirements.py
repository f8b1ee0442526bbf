"""The page of security requirements: every number once, and only tests that exist."""

import ast
import re
from functools import cache
from typing import Final

import pytest

from tests.support import tree

PAGE: Final = tree.ROOT / "docs" / "evidence" / "security-requirements.md"
ROW: Final = re.compile(r"^\| (S-\d+) \| (.+) \| (yes|part|no) \| (.*) ?\|$")
TEST: Final = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
NUMBERS: Final = 102


def rows() -> list[tuple[str, str, str, str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [ROW.match(line) for line in lines if line.startswith("| S-")]
    assert all(found), "a row has another form"
    return [(row[1], row[2], row[3], row[4]) for row in found if row]


@cache
def names_in(file: str) -> frozenset[str]:
    path = tree.ROOT / "tests" / file
    if not path.exists():
        return frozenset()
    nodes = ast.walk(ast.parse(path.read_bytes()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_number_is_listed_once() -> None:
    assert [number for number, *_ in rows()] == [f"S-{number:02}" for number in range(1, NUMBERS + 1)]


def test_listed_tests_exist() -> None:
    missing = [
        f"{number}: {file}::{name}"
        for number, _, _, tests in rows()
        for file, name in TEST.findall(tests)
        if name not in names_in(file)
    ]
    assert missing == []


@pytest.mark.parametrize("state", ["yes", "part", "no"])
def test_state_agrees_with_the_row(state: str) -> None:
    """Built requirements have a test; those built in part name the missing part."""
    for number, text, own, tests in rows():
        if own != state:
            continue
        assert state != "yes" or (TEST.search(tests) and "Missing" not in text), number
        assert state != "part" or "Missing: " in text, number
        assert state != "no" or not tests, number
