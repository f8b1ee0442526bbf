"""Plug-in that lists the acceptance checklist items of the collected tests, by protocol level.

`pytest -p tests.support.checklist --checklist-to FILE` writes JSON: the ids of the tests by item, by protocol level.
"""

import collections
import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--checklist-to", type=Path, help="where the items of the collected tests are written")


def pytest_collection_finish(session: pytest.Session) -> None:
    told: dict[str, dict[int, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for item in session.items:
        for marker in item.iter_markers("checklist"):
            if marker.kwargs or not marker.args or not all(type(number) is int for number in marker.args):
                raise pytest.UsageError(f"{item.nodeid}: an item is marked by its number, as in checklist(6)")
            if not isinstance(item, pytest.Function) or "level" not in item.callspec.params:
                raise pytest.UsageError(f"{item.nodeid}: an item of the checklist is told at a protocol level")
            for number in marker.args:
                told[str(item.callspec.params["level"])][number].append(item.nodeid)
    session.config.getoption("--checklist-to").write_text(json.dumps(told), encoding="utf-8")
