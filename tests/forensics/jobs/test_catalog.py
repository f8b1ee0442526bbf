"""Catalog of jobs and of their dependencies."""

import pytest

from kactl.forensics.jobs import catalog
from kactl.forensics.jobs.catalog import GIVEN, JOBS, NoSuchJob


def test_every_job_follows_the_jobs_it_needs() -> None:
    known = set(GIVEN)
    for job in JOBS:
        assert known >= set(job.needs), job.name
        known.add(job.name)


def test_job_names_are_unique() -> None:
    assert len({*GIVEN, *(job.name for job in JOBS)}) == len(GIVEN) + len(JOBS)


def test_wanted_includes_required_jobs() -> None:
    assert [job.name for job in catalog.wanted(["leadership"])] == ["skew", "lives", "timed", "states", "leadership"]
    assert [job.name for job in catalog.wanted(["skew"])] == ["skew"]
    assert catalog.wanted(None) == JOBS


def test_unknown_job_error_lists_all_jobs() -> None:
    with pytest.raises(NoSuchJob, match=r"there is no job weather: the jobs are skew, lives, "):
        catalog.wanted(["skew", "weather"])
