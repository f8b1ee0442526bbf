"""Seeds and number of storms of a test run."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import storm_seeds

ROOT = Path(__file__).parents[2]


def test_run_draws_its_first_seed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(storm_seeds.FIRST)
    storm_seeds.draw()
    drawn = storm_seeds.first_seed()
    storm_seeds.draw()

    assert storm_seeds.first_seed() == drawn
    assert f"{storm_seeds.FIRST}={drawn}" in storm_seeds.seed_headline()


def test_given_seed_and_count_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(storm_seeds.FIRST, "4000")
    monkeypatch.setenv(storm_seeds.COUNT, "25")
    storm_seeds.draw()

    assert [seed for begin in storm_seeds.block_starts() for seed in storm_seeds.block_of(begin)] == list(
        range(4000, 4030)
    )
    assert list(storm_seeds.block_starts(10)) == [0]


@pytest.mark.slow
def test_failed_run_ends_with_its_first_seed() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "no_such_test"]
    environment = {"PATH": "/usr/bin:/bin", storm_seeds.FIRST: "4711"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)

    assert ended.returncode != 0
    assert f"storms: {storm_seeds.FIRST}=4711" in ended.stdout


@pytest.mark.slow
def test_all_workers_run_the_same_storms() -> None:
    """Workers that collect different tests end the run."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", __file__, "-k", "draws or used"]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", storm_seeds.COUNT: "10"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert ended.returncode == 0, ended.stdout
    assert f"storms: {storm_seeds.FIRST}=" in ended.stdout
