"""A plug-in that says which numbered stories the collected tests tell: `pytest -p tests.scenarios --scenarios-to FILE`.

The file is JSON: the ids of the tests by the number of the story.
"""

import collections
import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--scenarios-to", type=Path, help="where the numbers of the collected stories are written")


def pytest_collection_finish(session: pytest.Session) -> None:
    told: dict[int, list[str]] = collections.defaultdict(list)
    for item in session.items:
        for marker in item.iter_markers("scenario"):
            if marker.kwargs or not marker.args or not all(type(number) is int for number in marker.args):
                raise pytest.UsageError(f"{item.nodeid}: a scenario is marked by its number, as in scenario(37)")
            for number in marker.args:
                told[number].append(item.nodeid)
    session.config.getoption("--scenarios-to").write_text(json.dumps(told), encoding="utf-8")
