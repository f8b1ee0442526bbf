"""The test harness with stock servers and no kactl. A failure here is not caused by kactl."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer
from kazoo.client import KazooClient

from tests.support.jars import java_command
from tests.support.processes import HarnessError
from tests.support.zookeeper_server import ZooKeeperServer

from .brokers import Cluster, KafkaBroker

# From a new topic's first record to the last record read back, including a new group.
CLIENT_S = 30.0
SESSION_TIMEOUT_MS = 6000


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, one of them the controller."""
    with Cluster(
        tmp_path_factory.mktemp("cluster"),
        zookeeper=zookeeper.connect("/stock"),
        racks=("a", "b", "c"),
        session_timeout_ms=SESSION_TIMEOUT_MS,
    ) as brokers:
        yield brokers


@pytest.fixture
def client(zookeeper: ZooKeeperServer) -> Iterator[Callable[[str], KazooClient]]:
    """Creates ZooKeeper clients below a chroot."""
    clients: list[KazooClient] = []

    def connected(chroot: str) -> KazooClient:
        clients.append(KazooClient(zookeeper.connect(chroot)))
        clients[-1].start(timeout=60)
        return clients[-1]

    yield connected
    for connection in clients:
        connection.stop()
        connection.close()


def test_zookeeper_takes_a_session_below_a_new_chroot(client: Callable[[str], KazooClient], chroot: str) -> None:
    session = client(chroot)

    session.create("/seen", b"yes", makepath=True)

    assert client("").get(f"{chroot}/seen")[0] == b"yes"


def test_killed_zookeeper_restarts_with_data_and_sessions(jars: str, tmp_path: Path) -> None:
    # On a busy machine its start may take the ten seconds of the longest session with short ticks.
    with ZooKeeperServer(tmp_path, tick_ms=3000) as zookeeper:
        session = KazooClient(zookeeper.connect(), timeout=60)
        session.start(timeout=60)
        try:
            session.create("/kept", b"yes")
            session.create("/mine", ephemeral=True)
            before = session.client_id

            zookeeper.kill()
            assert not zookeeper.serving()
            zookeeper.start()

            assert session.retry(session.get, "/kept")[0] == b"yes"
            assert session.retry(session.exists, "/mine") is not None
            assert session.client_id == before
        finally:
            session.stop()
            session.close()


@pytest.mark.usefixtures("jars")
def test_classes_of_servers_are_loaded_from_the_archive() -> None:
    command = java_command("kafka.Kafka", ["--version"], heap_mb=128, options=["-Xlog:class+load"])

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert re.search(r" kafka\.Kafka source: shared objects file$", done.stdout, re.MULTILINE), done.stdout[-2000:]


def test_failed_start_of_zookeeper_quotes_its_output(jars: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")

    with pytest.raises(HarnessError, match="ended at its start"):
        ZooKeeperServer(tmp_path).start()


def test_stock_brokers_serve_ordinary_clients(cluster: Cluster) -> None:
    sent = {f"record {n}" for n in range(100)}
    refused: list[object] = []

    def on_delivery(error: object, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "acks": "all"})
    for value in sorted(sent):
        producer.produce("greetings", value, on_delivery=on_delivery)
    unsent = producer.flush(CLIENT_S)

    assert (unsent, refused) == (0, [])
    assert read(cluster.bootstrap, "greetings", count=len(sent)) == sent


def test_killed_broker_returns_once_its_registration_expires(
    cluster: Cluster, client: Callable[[str], KazooClient]
) -> None:
    zookeeper = client("/stock")
    broker = cluster[3]
    before = zookeeper.exists("/brokers/ids/3")
    broker.kill()
    killed = time.monotonic()
    assert zookeeper.exists("/brokers/ids/3") is not None  # its session has not expired yet

    broker.restart()

    after = zookeeper.exists("/brokers/ids/3")
    assert after.czxid > before.czxid
    assert time.monotonic() - killed > SESSION_TIMEOUT_MS / 1000 / 2
    assert "NodeExists" not in broker.log


def test_id_in_use_is_rejected(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.interop.brokers.REGISTRATION_MARGIN_S", 0.0)
    double = KafkaBroker(1, folder=tmp_path, zookeeper=cluster[1].zookeeper, session_timeout_ms=200)

    with pytest.raises(HarnessError, match="broker id 1 is still registered"):
        double.start()


def read(bootstrap: str, topic: str, *, count: int) -> set[str]:
    """Return the values that a new group reads from the beginning: `count` of them, or those read within CLIENT_S."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    deadline = time.monotonic() + CLIENT_S
    values: set[str] = set()
    try:
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.add((message.value() or b"").decode())
    finally:
        consumer.close()
    return values
