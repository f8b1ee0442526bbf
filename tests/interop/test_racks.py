"""Brokers with racks, of which each creates topics by itself: internal topics, and those that clients name first."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.zookeeper_server import ZooKeeperServer

from .acceptance.bench import MARGIN_S, until
from .brokers import Cluster
from .kactl_process import KactlController
from .metadata import MetadataClient
from .zookeeper_reader import ZooKeeperReader

pytestmark = pytest.mark.slow

KACTL = 900
CHROOT = "/racks"
RACKS = {1: "a", 2: "b", 3: "c", 4: "a"}


class _Fresh:
    """A cluster in which no topic has been created yet."""

    def __init__(self, folder: Path, ibp: str) -> None:
        self.zookeeper = ZooKeeperServer(folder / "zookeeper", tick_ms=300)
        connect = self.zookeeper.connect(CHROOT)
        self.kactl = KactlController(KACTL, folder=folder / "kactl", zookeeper=connect, ibp=ibp)
        self.cluster = Cluster(folder, zookeeper=connect, racks=list(RACKS.values()), ibp=ibp)

    def kill(self) -> None:
        self.cluster.kill()
        self.kactl.kill()
        self.zookeeper.kill()


@pytest.fixture(params=["2.6", "3.9"])
def fresh(jars: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Fresh]:
    fresh = _Fresh(tmp_path, request.param)
    try:
        fresh.zookeeper.start()
        fresh.kactl.start()
        fresh.cluster.start()
        yield fresh
    finally:
        fresh.kill()


def test_first_group_and_first_transaction_of_a_cluster_with_racks(fresh: _Fresh) -> None:
    bootstrap = {"bootstrap.servers": fresh.cluster.bootstrap}
    producer = Producer({**bootstrap, "transactional.id": "first", "message.timeout.ms": int(MARGIN_S * 1000)})
    consumer = Consumer({**bootstrap, "group.id": "first", "auto.offset.reset": "earliest"})

    producer.init_transactions(MARGIN_S)
    producer.begin_transaction()
    producer.produce("orders", b"record")  # the topic does not exist yet
    producer.commit_transaction(MARGIN_S)
    consumer.subscribe(["orders"])
    message = consumer.poll(MARGIN_S)
    consumer.close()

    assert message is not None
    assert (message.error(), message.value()) == (None, b"record")
    with ZooKeeperReader(fresh.zookeeper.connect(), CHROOT) as reader:
        assert reader.registered() == set(RACKS)
        placed = reader.assignments()
    assert {name.rpartition("-")[0] for name in placed} == {"orders", "__consumer_offsets", "__transaction_state"}
    assert all({RACKS[broker] for broker in replicas} == {"a", "b", "c"} for replicas in placed.values())
    with MetadataClient(fresh.cluster[1].internal_port) as client:
        until(lambda: client.look().brokers.keys() >= {KACTL, *RACKS}, "kactl in the list of brokers", MARGIN_S)
