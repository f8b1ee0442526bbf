"""Plug-in that lists the numbered scenarios of the collected tests.

`pytest -p tests.support.scenarios --scenarios-to FILE` writes JSON: the ids of the tests by the number of the scenario.
"""

import collections
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

# Result of the collection before any test is deselected: scenarios, and the files searched for them.
COLLECTED: Final = pytest.StashKey[tuple[dict[int, list[str]], set[Path]]]()


def told_by(items: Iterable[pytest.Item]) -> dict[int, list[str]]:
    """Returns the ids of the tests of each scenario.

    Raises:
        UsageError: a mark is not a number.
    """
    told: dict[int, list[str]] = collections.defaultdict(list)
    for item in items:
        for marker in item.iter_markers("scenario"):
            if marker.kwargs or not marker.args or not all(type(number) is int for number in marker.args):
                raise pytest.UsageError(f"{item.nodeid}: a scenario is marked by its number, as in scenario(37)")
            for number in marker.args:
                told[number].append(item.nodeid)
    return dict(told)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--scenarios-to", type=Path, help="where the numbers of the collected stories are written")


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.getoption("--scenarios-to").write_text(json.dumps(told_by(session.items)), encoding="utf-8")
