"""The page of promises and the checkers are in step."""

import re
from pathlib import Path

import pytest

from tests.sim.engine.checkers import PROBES, Probes, Rules, checkers
from tests.support.tree import ROOT

PAGE = (ROOT / "docs" / "evidence" / "reliability.md").read_text()
HERE = Path(__file__).parent
CHECKED = re.findall(r"^\| (INV-\d+) \| [^|]+ \| `(\w+)` \| `(\w+\.py)` \|$", PAGE, re.MULTILINE)
LISTED = set(re.findall(r"^\| ([A-Z]+-\d+) \|", PAGE, re.MULTILINE))


def _ranges() -> set[str]:
    """Numbers that the page lists as ranges."""
    found = re.findall(r"^\| INV-(\d+)…(\d+) \|", PAGE, re.MULTILINE)
    return {f"INV-{number}" for begin, end in found for number in range(int(begin), int(end) + 1)}


def test_each_checker_is_listed_with_exactly_its_numbers() -> None:
    listed: dict[str, list[str]] = {}
    for number, checker, _ in CHECKED:
        listed.setdefault(checker, []).append(number)

    assert listed == {type(checker).__name__: sorted(checker.invariants) for checker in checkers(Rules())}


@pytest.mark.parametrize(("number", "file"), [(number, file) for number, _, file in CHECKED])
def test_each_promise_has_a_test_that_names_it(number: str, file: str) -> None:
    text = (HERE / file).read_text()

    assert re.search(rf"^def test_\w*break\w*_{number.lower().replace('-', '_')}\b", text, re.MULTILINE), number
    assert f'"{number}"' in text, number


def test_probes_are_listed_with_title_and_minimum() -> None:
    rows = re.findall(r"^\| (PRB-\d+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)

    assert rows == [
        (number, probe.title, str(probe.minimum or "not reachable yet")) for number, probe in sorted(PROBES.items())
    ]
    assert not Probes().invariants


@pytest.mark.parametrize("folder", ["kactl", "actors", "transports", "tests"])
def test_numbers_that_code_cites_are_listed(folder: str) -> None:
    cited: dict[str, str] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        if path.is_symlink() or path == Path(__file__):
            continue
        for number in re.findall(r"\b(?:INV|LIV|PRB)-\d{2}\b", path.read_text()):
            cited.setdefault(number, str(path.relative_to(ROOT)))

    missing = {number: path for number, path in cited.items() if number not in LISTED | _ranges()}
    assert not missing
