"""The whole race at its smallest size: real servers, both contenders, every phase, and complete cleanup."""

import signal
import sys
from pathlib import Path

import pytest

from bench.figures import Results, read
from bench.race.phases import PHASES
from tests.support.processes import Process
from tests.support.zookeeper_fixtures import jars

__all__ = ["jars"]

pytestmark = [pytest.mark.interop, pytest.mark.slow]

BROKERS, PARTITIONS, REPLICAS = 3, 60, 3
SMALL = ["--sizes", f"{BROKERS}x{PARTITIONS}", "--runs", "1", "--zookeeper-heap", "128"]
SMALL += ["--stand-by", "0.5", "--rest", "0.2"]  # enough at this size
RACE_S = 300.0
LAST = list(PHASES)[-1]
STOP_S = 60.0

TOLD = {"isr", "metadata", "total", "first request"}
# Timings that each phase must report, and its least number of transactions.
MOMENTS = {
    "cold start": TOLD | {"election", "after election"},
    "standby failover": TOLD | {"election"},
    "warm failover": TOLD | {"election"},
    "broker failure": TOLD | {"shrink", "shrink metadata", "last election written"},
    "broker return": TOLD,
    "isr notification": {"metadata", "total", "first request"},
    "preferred election": TOLD | {"last election written"},
    "topic deletion": {"stop", "metadata", "total", "first request"},
}


def raced(folder: Path, *words: str) -> Process:
    """Run the race as a process, with its files in `folder`."""
    return Process(
        [sys.executable, "-m", "bench.race", *SMALL, "--keep", str(folder / "kept"), *words],
        output=folder / "race.log",
    )


@pytest.fixture(scope="module")
def results(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Results of one run of both contenders."""
    folder = tmp_path_factory.mktemp("race")
    output = folder / "race.json"
    with raced(folder, "--warm-failovers", "1", "--output", str(output)) as race:
        assert race.wait(RACE_S) == 0, race.text
    return read(output)


@pytest.mark.parametrize("phase", MOMENTS)
@pytest.mark.parametrize("contender", ["stock", "kactl"])
def test_every_phase_is_completed_and_timed(results: Results, contender: str, phase: str) -> None:
    figures = results.under(f"{BROKERS}x{PARTITIONS}/{contender}/{phase}")

    moments = {name for name, figure in figures.items() if figure.unit == "s" and not name.startswith("processor")}
    assert moments - {"others metadata"} == MOMENTS[phase]
    assert all(len(figures[name].runs) == 1 and 0 < figures[name].median < RACE_S for name in moments)
    assert figures["first request"].median <= min(
        figures[name].median for name in moments & {"isr", "metadata", "stop"}
    )
    assert figures["peak memory"].median > 10
    assert figures["strange requests"].runs == (0.0,)


@pytest.mark.parametrize("contender", ["stock", "kactl"])
def test_counts_match_the_cluster(results: Results, contender: str) -> None:
    figures = results.under(f"{BROKERS}x{PARTITIONS}/{contender}")

    def count(name: str) -> float:
        return figures[name].median

    # With three brokers and three replicas each broker hosts every partition and leads a third.
    assert count("broker failure/led") == count("preferred election/partitions") == PARTITIONS / BROKERS
    assert count("broker failure/followed") == PARTITIONS * (REPLICAS - 1) / BROKERS
    assert count("topic deletion/topics") == 1
    assert count("topic deletion/topics left") == 2
    for phase in ("standby failover", "warm failover"):
        assert count(f"{phase}/LeaderAndIsr requests") >= BROKERS
        assert count(f"{phase}/UpdateMetadata requests") >= BROKERS
        assert count(f"{phase}/StopReplica requests") == 0
    # A dead broker receives nothing; only a returning broker receives the leaderships.
    assert count("broker failure/LeaderAndIsr requests") >= BROKERS - 1
    assert count("broker return/LeaderAndIsr requests") == 1
    assert count("broker return/ZooKeeper transactions") == 2  # its session and its registration
    assert count("topic deletion/StopReplica requests") >= BROKERS


def test_results_name_the_machine_and_the_settings(results: Results) -> None:
    assert results.what == "race"
    assert results.versions["kafka"].startswith("3.9")
    assert {"zookeeper", "java", "kactl", "commit"} <= set(results.versions)
    assert results.settings["protocol level"] == "3.9"
    assert results.settings["contenders"] == ("stock", "kactl")
    assert results.machine.cores > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_stopped_race_leaves_no_process(jars: str, number: signal.Signals, tmp_path: Path) -> None:
    # The standby phase is longer than the time until the stop.
    with raced(tmp_path, "--contenders", "kactl", "--stand-by", f"{RACE_S}") as race:
        race.wait_for_line("the cluster is there", RACE_S)
        mine = processes_of(tmp_path)
        race.signal(number)
        code = race.wait(STOP_S)

    assert code == 130
    assert "every process of the race has ended" in race.text
    assert len(mine) > 2  # the race, ZooKeeper, the stub brokers
    assert not processes_of(tmp_path)


def test_incomplete_run_is_reported_and_fails_the_race(jars: str, tmp_path: Path) -> None:
    output = tmp_path / "race.json"
    words = ("--contenders", "kactl", "--phase-limit", "0.001", "--skip", "cold start", "--output", str(output))
    with raced(tmp_path, *words) as race:
        code = race.wait(RACE_S)

    assert code == 1
    assert f"not completed: {BROKERS}x{PARTITIONS} kactl, run 1" in race.text
    # The first look of a phase may come after everything has been received, if the machine is busy.
    assert not [name for name in read(output).figures if f"/{LAST}/" in name]
    assert not processes_of(tmp_path)


def processes_of(folder: Path) -> list[int]:
    """Return the processes with a file of `folder` in their command line."""
    process_ids = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if entry.name.isdigit() and str(folder).encode() in words:
            process_ids.append(int(entry.name))
    return process_ids
