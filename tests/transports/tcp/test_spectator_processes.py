"""A spectator in a process, through changes of the controller and a cut."""

import itertools
from pathlib import Path
from typing import NamedTuple

import pytest

from .process_cluster import Cluster, three_participants, until

pytestmark = [pytest.mark.slow, pytest.mark.long]

CHANGES = 3
CUT_MS = 10_000.0
# A spectator with a link requests changes more often.
FRESH_MS = 3_000.0


class Table(NamedTuple):
    """A table that a spectator has printed.

    Attributes:
        epochs: leader epochs by number of the partition.
    """

    at_ms: float
    age_ms: float
    version: tuple[int, ...]
    epochs: dict[int, int]


def tables(text: str) -> list[Table]:
    """Returns the tables in complete lines of the output."""
    found = []
    for line in text.splitlines(keepends=True):
        match line.split():
            case ["table", at, age, version, *epochs] if line.endswith("\n"):
                pairs = (pair.split("=") for pair in epochs)
                known = {int(number): int(epoch) for number, epoch in pairs}
                found.append(Table(float(at), float(age), tuple(map(int, version.split("."))), known))
    return found


def check_ages(cluster: Cluster, shown: list[Table]) -> None:
    """Check that each table has every leadership that had begun before the time that its age states."""
    for led in cluster.led():
        number, epoch = int(led.name.rpartition("-")[2]), int(led.token.split(".")[1])
        for table in shown:
            if led.began_ms <= table.at_ms - table.age_ms:
                assert table.epochs.get(number, -1) >= epoch, (led, table)


def test_spectator_is_as_new_as_its_age_through_failovers_and_a_cut(tmp_path: Path) -> None:
    """The active controller is killed three times, and then the spectator is cut off while leaders change."""
    cluster = three_participants(tmp_path, "controller")
    try:
        cluster.until_led(1, 2, 3)
        cluster.until_in_sync(1, 2, 3)
        behind = [cluster.proxy(address) for address in cluster.addresses.values()]
        spectator = cluster.start_spectator(1, behind=behind)

        def last() -> Table:
            return tables(spectator.text)[-1]

        until(lambda: tables(spectator.text) and len(last().epochs) == len(cluster.leaders()), "it has all leaders")
        for _ in range(CHANGES):
            killed, before = cluster.active(), last().version
            cluster.controllers[killed].kill()
            until(lambda: cluster.active() not in (-1, killed), "the standby is active")  # noqa: B023 - waits here
            until(lambda: last().version[0] > before[0] and last().age_ms < FRESH_MS, "it has found it")  # noqa: B023
            cluster.start_controller(killed)
            until(lambda: cluster.linked() == "1 2 3", "all participants have found it")

        for proxy in behind:
            proxy.tell("freeze")
        cluster.kill(3)
        cluster.until_led(1, 2)
        until(lambda: last().age_ms >= CUT_MS, "it is cut off for long")
        for proxy in behind:
            proxy.tell("heal")
        leaderships = {int(led.name[-1]): int(led.token.split(".")[1]) for led in cluster.led() if led.broker != 3}
        until(lambda: last().age_ms < FRESH_MS and last().epochs == leaderships, "it has what changed")

        shown = [table for table in tables(spectator.text) if table.epochs]
        assert all(earlier.version <= later.version for earlier, later in itertools.pairwise(shown))
        assert len({table.version[0] for table in shown}) == CHANGES + 1
        assert spectator.text.count("reset") == 1  # at the beginning: it knows nothing of that version
        check_ages(cluster, shown)
    finally:
        cluster.close()
