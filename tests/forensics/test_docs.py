"""The page docs/forensics.md lists the tables, columns and jobs as they are declared."""

import re

import pytest

from kactl.forensics.columns import Column
from kactl.forensics.event_types import NO_LOG, Kind
from kactl.forensics.events import COLUMNS
from kactl.forensics.jobs import catalog, timed
from kactl.forensics.jobs.job import Job
from kactl.forensics.tables import FILE_COLUMNS, LEVEL_COLUMNS
from tests.support.tree import ROOT

PAGE = (ROOT / "docs" / "forensics.md").read_text()


TABLES = [("Events", COLUMNS), ("Files", FILE_COLUMNS), ("Levels", LEVEL_COLUMNS), ("timed", timed.COLUMNS)]
TABLES += [(job.name, job.columns) for job in catalog.JOBS if job is not timed.JOB]


def section_of(title: str) -> str:
    _, _, section = PAGE.partition(f"### {title}\n")
    return section.split("\n### ")[0]


@pytest.mark.parametrize(("title", "columns"), TABLES, ids=[title for title, _ in TABLES])
def test_columns_are_documented_as_declared(title: str, columns: tuple[Column, ...]) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (.+) \|$", section_of(title), re.MULTILINE)

    assert rows == [
        (column.name, re.sub(r"list<element: (\w+)>", r"list of \1", str(column.type)), column.description)
        for column in columns
    ]


@pytest.mark.parametrize("job", catalog.JOBS, ids=lambda job: job.name)
def test_section_of_a_job_begins_with_its_description(job: Job) -> None:
    assert " ".join(section_of(job.name).split()).startswith(job.description)


def test_kinds_of_logs_are_documented() -> None:
    documented = set(re.findall(r"^\| `([\w-]+)` \| [^|]+ \|$", PAGE, re.MULTILINE))

    assert documented == {str(kind) for kind in Kind if kind not in NO_LOG}
