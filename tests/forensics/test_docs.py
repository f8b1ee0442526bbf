"""The page about the tables says what they are."""

import re

import pytest

from kactl.forensics.columns import Column
from kactl.forensics.event_types import Kind
from kactl.forensics.events import COLUMNS
from kactl.forensics.jobs import catalog, timed
from kactl.forensics.tables import FILE_COLUMNS, LEVEL_COLUMNS
from tests.support.tree import ROOT

PAGE = (ROOT / "docs" / "forensics.md").read_text()


TABLES = [("Events", COLUMNS), ("Files", FILE_COLUMNS), ("Levels", LEVEL_COLUMNS), ("timed", timed.COLUMNS)]
TABLES += [(job.name, job.columns) for job in catalog.JOBS if job is not timed.JOB]


@pytest.mark.parametrize(("title", "columns"), TABLES, ids=[title for title, _ in TABLES])
def test_every_column_stands_there_as_it_is(title: str, columns: tuple[Column, ...]) -> None:
    _, _, section = PAGE.partition(f"### {title}\n")

    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (.+) \|$", section.split("\n### ")[0], re.MULTILINE)

    assert rows == [
        (each.name, re.sub(r"list<element: (\w+)>", r"list of \1", str(each.type)), each.description)
        for each in columns
    ]


def test_every_kind_of_log_stands_there() -> None:
    told = set(re.findall(r"^\| `([\w-]+)` \| [^|]+ \|$", PAGE, re.MULTILINE))

    assert told == {str(each) for each in Kind} - {"empty", "foreign", "unreadable"}
