"""What the benchmark of ownership makes of the lines of its workers, and a small run of kactl."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import ownership
from bench.figures import read
from bench.ownership_fleet import Event, Fleet
from bench.run import main


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    empty = Fleet("kactl", "127.0.0.1:1", 2, 6_000, tmp_path, "python")
    yield empty
    empty.close()


def test_begins_of_work_and_changes_of_owner_are_counted(fleet: Fleet) -> None:
    fleet.events = [
        Event(1.0, 1, True, 0),
        Event(10.0, 1, False, 0),
        Event(15.0, 2, True, 0),
        Event(20.0, 2, False, 0),
        Event(21.0, 2, True, 0),
    ]

    found = fleet.window(5.0)

    assert found.calls == {0: 2}
    assert found.changes.total() == 1
    assert found.gaps_ms == [5.0, 1.0]
    assert found.twice == 0


def test_second_owner_at_a_time_is_counted(fleet: Fleet) -> None:
    fleet.events = [Event(1.0, 1, True, 0), Event(15.0, 2, True, 0), Event(16.0, 1, False, 0)]

    assert fleet.window(0.0).twice == 1


def test_begins_before_the_window_are_not_counted(fleet: Fleet) -> None:
    fleet.events = [Event(1.0, 1, True, 0), Event(2.0, 1, False, 0), Event(3.0, 2, True, 0)]

    assert fleet.window(5.0).calls.total() == 0


@pytest.mark.slow  # processes that start and are killed, with sessions that expire
def test_small_run_of_kactl(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    options = ["--sizes", "2x4", "--contenders", "kactl", "--runs", "1", "--away", "0.5", "--settle", "1"]

    main(ownership, [*options, "--step", "0.1", "--look", "0.1", "--session", "3000", "--output", str(file)])

    figures = read(file).figures
    assert set(figures) == {f"2x4/kactl/{name}" for name in ownership.FIGURES}
    assert figures["2x4/kactl/twice"].median == 0
    assert figures["2x4/kactl/deploy/changes mean"].median >= 1
