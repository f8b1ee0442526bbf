"""Drains ordered on the command line, over controllers and participants in processes of their own that are killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kactl.admin.schema import BrokerInfo, PartitionInfo
from tests.support.etcd_server import EtcdServer, require_etcd
from tests.support.fork_server import Program
from tests.support.processes import Process
from tests.support.zookeeper_fixtures import jars, zookeeper

from .instances import Instances, over_etcd, over_zookeeper
from .server import IMPORTS

__all__ = ["jars", "zookeeper"]

pytestmark = pytest.mark.slow

BROKERS = (1, 2, 3)


class Cluster(Instances):
    """Two instances over one store, and participants in other processes."""

    def start_participant(self, broker: int) -> None:
        addresses = ",".join(f"127.0.0.1:{port}" for port in self.network.values())
        arguments = ["", "participant", str(broker), addresses, "controller", "--session-ms", "8000"]
        command = Program("tests.transports.tcp.cluster_program", arguments, IMPORTS)
        self.running[broker] = Process(command, output=self.folder / f"participant-{broker}.log")

    def restart_participant(self, broker: int) -> None:
        """Kill a participant, and start it again once its registration is gone."""
        epoch = self.broker(broker).epoch
        self.running[broker].kill()
        self.start_participant(broker)
        self.until(lambda: self.broker(broker).epoch not in (None, epoch), f"broker {broker} has registered anew")

    def broker(self, broker: int) -> BrokerInfo:
        infos = self("get", "brokers", "-o", "jsonl").jsonl(BrokerInfo)
        return next(info for info in infos if info.id == broker)

    def drain(self, broker: int, *options: str) -> None:
        """Drain a broker, and wait until others lead what it led."""
        answer = self("broker", "drain", str(broker), "--yes", *options)
        assert answer.code in (0, 1), answer.err  # 1: it still leads some
        self.until(lambda: self.leaders() == set(BROKERS) - {broker}, f"broker {broker} leads nothing")

    def live(self) -> set[int]:
        infos = self("get", "brokers", "-o", "jsonl").jsonl(BrokerInfo)
        return {info.id for info in infos if info.state == "live"}

    def leaders(self) -> set[int]:
        return {info.leader for info in self("get", "partitions", "-o", "jsonl").jsonl(PartitionInfo)}

    def in_sync(self) -> bool:
        return all(
            len(info.isr) == len(BROKERS) for info in self("get", "partitions", "-o", "jsonl").jsonl(PartitionInfo)
        )

    def until_live(self, broker: int) -> None:
        """Wait until a broker is not drained any more, is in sync, and leads."""
        self.until(lambda: self.broker(broker).state == "live", f"broker {broker} is live")
        self.until(self.in_sync, "all replicas are in sync")
        assert self("elect", "preferred", "--all", "--yes").code == 0
        assert self.leaders() == set(BROKERS)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    require_etcd()
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Two instances over one store, SQLite without a parameter, three participants, and a topic that all three lead."""
    kind, store = getattr(request, "param", "sqlite"), None
    if kind == "etcd":
        store = over_etcd(request.getfixturevalue("etcd"))
    elif kind == "zookeeper":
        store = over_zookeeper(request.getfixturevalue("zookeeper"))
    cluster = Cluster(tmp_path, store)
    try:
        for broker in BROKERS:
            cluster.start_participant(broker)
        cluster.until(lambda: cluster.live() == set(BROKERS), "all brokers are live")
        topic = cluster("topic", "create", "orders", "--partitions", "6", "--replication-factor", "3", "--yes")
        assert topic.code == 0, topic.err
        cluster.until(lambda: cluster.leaders() == set(BROKERS) and cluster.in_sync(), "all brokers lead")
        yield cluster
    finally:
        cluster.close()


@pytest.mark.parametrize(
    "cluster",
    ["sqlite", *(pytest.param(kind, marks=pytest.mark.interop) for kind in ("etcd", "zookeeper"))],
    indirect=True,
)
def test_drain_outlives_killed_controllers_until_it_is_undone(cluster: Cluster) -> None:
    cluster.drain(2, "--reason", "a new disk")
    order = cluster.broker(2).drain
    for _ in range(2):
        cluster.replace_controller()
        cluster.restart_participant(2)

        info = cluster.broker(2)
        assert (info.state, info.drain) == ("drained", order)
        assert cluster.leaders() == {1, 3}
    told = cluster("get", "brokers").err
    assert "Broker 2 is drained by " in told
    assert told.rstrip().endswith(": a new disk.")

    assert cluster("broker", "drain", "2", "--undo", "--yes").code == 0
    cluster.until_live(2)
    cluster.replace_controller()

    assert cluster.broker(2).drain is None


def test_drain_ends_under_a_later_controller_at_its_time(cluster: Cluster) -> None:
    answer = cluster("broker", "drain", "3", "--until", "5s", "--yes")
    assert "until " in answer.err

    cluster.replace_controller()
    cluster.replace_controller()

    cluster.until_live(3)


def test_drain_ends_when_the_broker_returns_under_a_later_controller(cluster: Cluster) -> None:
    cluster.drain(1, "--until-restart")

    cluster.replace_controller()
    cluster.replace_controller()
    assert cluster.broker(1).state == "drained"
    cluster.restart_participant(1)

    cluster.until_live(1)
