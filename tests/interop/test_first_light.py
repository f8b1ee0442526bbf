"""kactl rules three real, unmodified Kafka 3.9 brokers, while ordinary clients write and read.

One cluster serves the whole file; the tests build on each other in the order in which they stand.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from .brokers import Cluster
from .kactl_process import KactlController
from .traffic import Traffic
from .zookeeper import ZooKeeperServer

SESSION_TIMEOUT_MS = 6_000
# What the controller may take once the session has ended.
FAILOVER_S = 1.0
TOPIC = "orders"
KACTL = 900_001


class Bench:
    """ZooKeeper, kactl, three brokers and what goes on over them."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperServer) -> None:
        self.zookeeper = zookeeper
        self.connect = zookeeper.connect("/first-light")
        self.folder = folder
        self.kactl = KactlController(KACTL, folder=folder / "kactl", zookeeper=self.connect)
        self.cluster = Cluster(folder, zookeeper=self.connect, session_timeout_ms=SESSION_TIMEOUT_MS)

    def led(self, *, without: int | None = None) -> bool:
        """Whether all partitions have a leader, and none of them is `without`."""
        partitions = self.kactl.partitions().values()
        return bool(partitions) and all(each["leader"] not in (-1, without) for each in partitions)

    def shrunk(self, *, without: int) -> bool:
        """Whether no ISR holds `without`."""
        return all(without not in each["isr"] for each in self.kactl.partitions().values())

    def whole(self) -> bool:
        """Whether all ISRs hold all replicas."""
        return all(set(each["isr"]) == set(each["replicas"]) for each in self.kactl.partitions().values())

    def node(self, path: str) -> bytes:
        client = KazooClient(self.connect)
        client.start(timeout=15)
        try:
            data, _ = client.get(path)
            return bytes(data)
        finally:
            client.stop()
            client.close()


@pytest.fixture(scope="module")
def bench(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("first-light"), zookeeper)
    try:
        made.kactl.start()  # before any broker: it makes the paths that it watches
        with made.cluster:
            yield made
    finally:
        made.kactl.kill()


@pytest.fixture(scope="module")
def traffic(bench: Bench) -> Iterator[Traffic]:
    with Traffic(bench.cluster.bootstrap, TOPIC) as traffic:
        yield traffic


def test_it_holds_the_controllership_before_brokers_come_and_keeps_it(bench: Bench) -> None:
    bench.kactl.until(lambda: bool(bench.kactl.get("/v1/cluster")["brokers"] == 3), "three brokers", 30)

    assert b'"brokerid":900001' in bench.node("/controller").replace(b" ", b"")
    assert bench.node("/controller_epoch") == b"1"


def test_a_topic_that_nobody_created_is_written_and_read(bench: Bench, traffic: Traffic) -> None:
    traffic.wait_acknowledged(200, timeout_s=60)

    orders = {name: each for name, each in bench.kactl.partitions().items() if name.startswith(f"{TOPIC}-")}
    assert len(orders) == 3
    assert bench.led()


def test_when_a_leader_is_killed_others_lead_in_time_and_its_isrs_shrink(bench: Bench, traffic: Traffic) -> None:
    victim = bench.kactl.partitions()[f"{TOPIC}-0"]["leader"]
    led_before = sum(each["leader"] == victim for each in bench.kactl.partitions().values())

    bench.cluster[victim].kill()
    moved_s = bench.kactl.until(lambda: bench.led(without=victim), "new leaders", SESSION_TIMEOUT_MS / 1000 + 20)

    print(f"\n{led_before} partitions of broker {victim} had new leaders {moved_s:.2f} s after SIGKILL")
    assert moved_s <= SESSION_TIMEOUT_MS / 1000 + FAILOVER_S
    # Elections come first; right after them the dead broker is taken out of the ISRs of those that it followed.
    shrunk_s = bench.kactl.until(lambda: bench.shrunk(without=victim), "shrunk ISRs", 5)
    assert moved_s + shrunk_s <= SESSION_TIMEOUT_MS / 1000 + FAILOVER_S
    traffic.wait_acknowledged(200, timeout_s=60)

    bench.cluster[victim].start()
    bench.kactl.until(bench.whole, "whole ISRs after the broker's return", 60)


def test_every_acknowledged_record_is_read(bench: Bench, traffic: Traffic) -> None:
    traffic.finish(timeout_s=60)

    assert len(traffic.acknowledged) > 400
    assert traffic.acknowledged <= traffic.read


def test_when_kactl_is_killed_a_second_instance_takes_over_with_a_higher_epoch(bench: Bench) -> None:
    epoch = int(bench.node("/controller_epoch"))
    second = KactlController(KACTL + 1, folder=bench.folder / "second", zookeeper=bench.connect, takeover=True)
    bench.kactl.kill()
    try:
        second.start()
        bench.kactl = second

        info: dict[str, Any] = second.get("/v1/controller")
        assert info["is_active"]
        assert info["epoch"] > epoch
        assert b'"brokerid":900002' in bench.node("/controller").replace(b" ", b"")

        # It rules: a broker that dies under it is followed by others, and its clients go on.
        with Traffic(bench.cluster.bootstrap, TOPIC, group="more-readers") as traffic:
            traffic.wait_acknowledged(100, timeout_s=60)
            victim = second.partitions()[f"{TOPIC}-0"]["leader"]
            bench.cluster[victim].kill()
            second.until(lambda: bench.led(without=victim), "new leaders", SESSION_TIMEOUT_MS / 1000 + 20)
            traffic.wait_acknowledged(100, timeout_s=60)
            bench.cluster[victim].start()
            second.until(bench.whole, "whole ISRs", 60)
            traffic.finish(timeout_s=60)
    except BaseException:
        second.kill()
        raise


def test_the_failover_of_a_thousand_partitions_is_measured(bench: Bench) -> None:
    before = len(bench.kactl.partitions())
    for number in range(10):
        bench.kactl.post("/v1/topics", name=f"bulk-{number}", partitions=100, replication_factor=3)
    bench.kactl.until(lambda: len(bench.kactl.partitions()) == before + 1000 and bench.led(), "1000 partitions", 120)
    bench.kactl.until(lambda: _queues(bench.kactl) == 0, "all brokers to have answered", 120)
    third = KactlController(KACTL + 2, folder=bench.folder / "third", zookeeper=bench.connect, takeover=True)
    old = bench.kactl
    old.kill()
    try:
        began = time.monotonic()
        third.start()
        active_s = time.monotonic() - began
        bench.kactl = third
        third.until(lambda: _queues(third) == 0, "all brokers to have answered", 120)
        told_s = time.monotonic() - began

        log = third.process.text if third.process is not None else ""
        print(f"\n1,000 partitions on three brokers: active {active_s:.2f} s after the start of the process, ")
        print(f"all requests answered after {told_s:.2f} s")
        assert len(third.partitions()) == before + 1000
        assert bench.led()
        assert "Traceback" not in log
    except BaseException:
        third.kill()
        raise


def _queues(kactl: KactlController) -> int:
    return sum(each["queue_size"] for each in kactl.get("/v1/brokers")["items"])
