"""Each benchmark runs completely at its smallest size, with plausible figures."""

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import (
    channel,
    election,
    encryption,
    failover,
    forensics,
    latency,
    lease,
    outage,
    security,
    store,
    stores,
    tracing,
    whatif,
    wire,
)
from bench.clusters import Racked
from bench.compare import main as compare
from bench.figures import Figure, read
from bench.run import main
from bench.sinks import PROTOCOLS
from tests.support.tree import ROOT
from tests.support.zookeeper_fixtures import jars

__all__ = ["jars"]


@pytest.fixture(autouse=True)
def _alone() -> None:
    """Exclude pytest's objects from the garbage collection before each measurement; it took most of the time.

    They stay excluded after the test: otherwise each test would collect through all of them twice.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit each wait to a minute."""
    for bench in (encryption, failover, latency, channel, outage, stores):
        monkeypatch.setattr(bench, "LIMIT_S", 60)


def measured(bench: Any, tmp_path: Path, *options: str) -> dict[str, Figure]:
    """Run a bench as from the command line. Returns the figures it wrote."""
    file = tmp_path / f"{bench.NAME}.json"
    main(bench, [*options, "--quiet", "--output", str(file)])
    results = read(file)
    assert results.what == bench.NAME
    assert compare([str(file), str(file)]) == 0
    return results.figures


def rises(figures: dict[str, Figure], path: str, names: tuple[str, ...]) -> bool:
    """Return whether these moments follow each other in each run."""
    runs = zip(*(figures[f"{path}/{name}"].runs for name in names), strict=True)
    return all(list(run) == sorted(run) for run in runs)


@pytest.mark.slow
def test_election(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--sizes", "600", "--objects", "600", "--runs", "2", "--rounds", "2")

    figures = measured(election, tmp_path, *options)

    assert len(figures["sqlite/600/first/total"].runs) == 2
    assert len(figures["sqlite/600/repeated/total"].runs) == 4
    assert len(figures["objects/600/total"].runs) == len(figures["objects uncollected/600/total"].runs) == 2
    # Two bytes of state, and five numbers and three flags for each of three replicas.
    assert 20 < figures["sqlite/600/memory/table"].median <= 64
    assert figures["sqlite/600/memory/process"].median > figures["sqlite/600/memory/table"].median
    assert "a failure affects" in capsys.readouterr().out


@pytest.mark.slow
def test_failover(tmp_path: Path) -> None:
    options = ("--sizes", "400", "--runs", "1", "--drift", "10", "--brokers", "6", "--stores", "memory,sqlite")

    figures = measured(failover, tmp_path, *options)

    for kind in ("memory", "sqlite"):
        for how in ("cold", "warm"):
            assert rises(figures, f"{kind}/400/{how}", ("elected", "loaded", "first bytes", "told"))
            assert rises(figures, f"{kind}/400/{how}", ("loaded", "ready"))


@pytest.mark.interop
def test_failover_over_zookeeper(jars: str, tmp_path: Path) -> None:
    figures = measured(failover, tmp_path, "--sizes", "200", "--runs", "1", "--brokers", "3", "--stores", "zookeeper")

    assert rises(figures, "zookeeper/200/warm", ("elected", "loaded", "first bytes", "told"))


@pytest.mark.interop
def test_stores_in_turn(jars: str, tmp_path: Path) -> None:
    figures = measured(stores, tmp_path, "--sizes", "200", "--runs", "1", "--writes", "50")

    assert set(figures) == {f"{kind}/200/{name}" for kind in stores.KINDS for name in stores.FIGURES}
    assert all(figure.median > 0 for figure in figures.values())


@pytest.mark.slow
def test_durable_store_alone(tmp_path: Path) -> None:
    figures = measured(stores, tmp_path, "--sizes", "200", "--runs", "2", "--writes", "50", "--stores", "sqlite")

    assert {name: len(figure.runs) for name, figure in figures.items()} == {
        f"sqlite/200/{name}": 2 for name in stores.FIGURES
    }


def test_lease(tmp_path: Path) -> None:
    figures = measured(lease, tmp_path, "--calls", "1000", "--runs", "2")

    assert len(figures["check"].runs) == 2
    assert figures["check"].median > figures["clock"].median > 0


def test_tracing(tmp_path: Path) -> None:
    figures = measured(tracing, tmp_path, "--size", "300", "--rounds", "3")

    assert {name: len(figure.runs) for name, figure in figures.items()} == {
        "300/bare": 3,
        "300/recorded": 3,
        "300/exported": 3,
    }


@pytest.mark.slow  # processes, and a session timeout
def test_outage(tmp_path: Path) -> None:
    options = ("--partitions", "30", "--layouts", "3x2", "--session", "3000", "--runs", "1")

    figures = measured(outage, tmp_path, *options)

    # The last heartbeat was sent up to a sixth of the session timeout before the kill.
    assert figures["3x2/30/all led"].median >= figures["3x2/30/first led"].median > 2_000


@pytest.mark.slow  # a process for the client, which does handshakes
def test_security(tmp_path: Path) -> None:
    figures = measured(security, tmp_path, "--connections", "3", "--requests", "10", "--runs", "2")

    protocols = {"open", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
    kinds = {"token/unknown id", "token/wrong secret"}
    assert figures.keys() == kinds | {
        f"{protocol}/{what}" for protocol in protocols for what in ("connection", "request")
    }
    # A login has five requests, each with a response, and a handshake the operations of its keys.
    assert figures["SASL_SSL/connection"].median > figures["open/connection"].median > 0


@pytest.mark.slow  # a process for the brokers, which does handshakes
def test_encryption(tmp_path: Path) -> None:
    options = ("--sizes", "200", "--brokers", "4", "--runs", "1", "--store", "memory")

    figures = measured(encryption, tmp_path, *options)

    assert {name: len(figure.runs) for name, figure in figures.items()} == {
        f"200/{protocol}/{name}": 1 for protocol in PROTOCOLS for name in encryption.FIGURES
    }
    assert all(figure.median > 0 for figure in figures.values())


def test_wire(tmp_path: Path) -> None:
    figures = measured(wire, tmp_path, "--partitions", "1000", "--runs", "2")

    assert {"encode", "decode", "again", "cut", "join"} < figures.keys()
    assert figures["encode"].median > figures["again"].median > 0


@pytest.mark.slow
def test_latency(tmp_path: Path) -> None:
    options = ("--partitions", "2000", "--singles", "1000", "--brokers", "12", "--repeats", "1", "--idle-s", "0.5")

    figures = measured(latency, tmp_path, *options, "--rate", "40", "--store", "memory")

    percentiles = ("p50", "p90", "p99", "p99.9", "max")
    for stage in ("durable", "told"):
        assert rises(figures, f"pooled/idle/{stage}", percentiles)
        assert figures[f"pooled/idle/{stage}/p50"].median > 0
    # Half a second at forty a second at any machine speed: late events are counted too.
    assert figures["pooled/idle/durable/elections"].median in (20, 21)
    # A thousand partitions with three replicas on twelve brokers; singly elected partitions are on other brokers.
    assert figures["failure/affected"].runs == (250.0,)


@pytest.mark.slow
def test_channel(tmp_path: Path) -> None:
    figures = measured(channel, tmp_path, "--partitions", "600", "--brokers", "12", "--runs", "1")

    versions = [name.split("/")[1] for name in figures if name.startswith("encode/") and name.endswith("/partition")]
    assert set(versions) == {
        *(f"LeaderAndIsr v{version}" for version in (4, 5, 6, 7)),
        *(f"UpdateMetadata v{version}" for version in (6, 7, 8)),
        *(f"StopReplica v{version}" for version in (3, 4)),
    }
    sent = figures["send/12x600/bytes"].median * 1e6
    metadata = figures["encode/UpdateMetadata v8/size of a partition"].median * 600 * 12
    lead = figures["encode/LeaderAndIsr v7/size of a partition"].median * 600 * 3
    assert sent == pytest.approx(metadata + lead, rel=0.1)
    together, parity = (figures[f"slow broker/600/{how}/bytes"].median for how in ("put together", "parity"))
    assert 0 < together <= parity


@pytest.mark.slow
def test_store(tmp_path: Path) -> None:
    figures = measured(
        store, tmp_path, "--partitions", "400", "--writes", "100", "--runs", "1", "--stores", "memory,sqlite"
    )

    assert {
        f"{kind}/400/{operation}/partition"
        for kind in ("memory", "sqlite")
        for operation in ("read", "topics", "write")
    } < (figures.keys())
    assert not [name for name in figures if name.startswith("warm-up")]


@pytest.mark.interop
def test_store_over_zookeeper(jars: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BATCHES", (50, 100))
    monkeypatch.setattr(store, "WINDOWS", (5, 20))
    options = ("--partitions", "400", "--writes", "200", "--runs", "1", "--stores", "zookeeper,kazoo", "--grid")

    figures = measured(store, tmp_path, *options)

    for name in ("zookeeper/400/read", "kazoo/400/write", "batches/50x5/write", "batches/100x20/write"):
        assert figures[f"{name}/partition"].median > 0
    assert figures["floor/400/read/100"].median > 0
    assert figures["floor/400/write/100"].median > 0


@pytest.mark.java
@pytest.mark.long  # all jobs in a Spark session of its own; `tests/forensics/answers` runs them in the shared session
def test_forensics(tmp_path: Path) -> None:
    options = ("--lines", "20000", "--brokers", "4", "--runs", "1", "--memory", "512m", "--only", "skew")

    figures = measured(forensics, tmp_path, *options)

    assert figures["20000/lines"].median >= 20_000
    for name in ("ingest/first", "ingest/warm", "all jobs", "jobs/skew"):
        assert figures[f"20000/{name}/processor"].median > 0
    assert figures["20000/ingest/warm/line"].median == pytest.approx(
        figures["20000/ingest/warm/time"].median * 1e6 / figures["20000/lines"].median
    )
    assert figures["20000/jobs/skew/rows"].median == 4


@pytest.mark.slow
def test_whatif(tmp_path: Path) -> None:
    figures = measured(whatif, tmp_path, "--sizes", "6x600", "--live-sizes", "6x600", "--runs", "1")

    for placement in ("random", "even"):
        assert figures[f"6x600/{placement}/pairs/scenarios"].median == 15
        for part in ("open", "brokers", "pairs", "racks", "rack+broker", "rolling"):
            assert figures[f"6x600/{placement}/{part}"].median > 0
    assert figures["6x600/even/classes"].median < figures["6x600/random/classes"].median < 600
    assert figures["6x600/random/text"].median > 0
    for part in ("copy", "prepare", "stoppable", "classes", "brokers", "pairs", "rolling", "restart"):
        assert figures[f"live/6x600/{part}"].median > 0


def test_list_of_benchmarks_has_a_description_of_each() -> None:
    done = subprocess.run([sys.executable, "-m", "bench"], cwd=ROOT, capture_output=True, text=True, check=True)

    for name in (
        "election",
        "failover",
        "latency",
        "channel",
        "store",
        "forensics",
        "whatif",
        "race",
        "compare",
        "report",
    ):
        (line,) = (line for line in done.stdout.splitlines() if f"bench.{name} " in line)
        assert len(line.split()) > 8


@pytest.mark.slow
def test_memory_is_measured_in_a_separate_process() -> None:
    command = [sys.executable, "-m", "bench.footprint", "300", "memory"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    taken = json.loads(done.stdout)
    assert 0 < taken["table"] < taken["process"] <= taken["peak"]


@pytest.mark.slow
def test_brokers_of_one_rack_share_no_partition() -> None:
    replicas = Racked(900, 30, 30).replicas()

    racks = (replicas - 1) % 3
    assert all(len(set(column)) == 3 for column in racks.T.tolist())
    replica_counts = [(replicas == broker).sum() for broker in range(1, 31)]
    assert min(replica_counts) == max(replica_counts) == 90
