"""Users that Kafka's own tool creates through kactl log in at real brokers, until they are deleted."""

import time
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.processes import POLL_S
from tests.support.zookeeper_server import ZooKeeperServer

from .brokers import Cluster
from .kactl_process import KactlController
from .tools import Tools

MARGIN_S: Final = 60.0
PASSWORD: Final = "a-secret-of-alice"
BROKERS: Final = {
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.client.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}


def logs_in(bootstrap: str) -> bool:
    """Returns whether the user can log in at a broker."""
    client = AdminClient(
        {
            "bootstrap.servers": bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice", "sasl.password": PASSWORD, "log_level": 0,
        },
        logger=None,
    )  # fmt: skip
    try:
        client.list_topics(timeout=5)
    except KafkaException:
        return False
    return True


def until_login(bootstrap: str, expected: bool) -> None:
    """Wait until brokers know a change, which they are notified of."""
    deadline = time.monotonic() + MARGIN_S
    while logs_in(bootstrap) is not expected:
        assert time.monotonic() < deadline, f"the login does not become {expected}"
        time.sleep(POLL_S)


@pytest.mark.slow
def test_user_created_through_kactl_logs_in_at_brokers(jars: str, tmp_path: Path) -> None:
    zookeeper = ZooKeeperServer(tmp_path / "zookeeper", tick_ms=300)
    connect = zookeeper.connect("/users")
    kactl = KactlController(900_001, folder=tmp_path / "kactl", zookeeper=connect, ibp="3.9", takeover=True)
    cluster = Cluster(tmp_path, zookeeper=connect, racks=[None], ibp="3.9", overrides=BROKERS)
    tools = Tools(tmp_path, bootstrap=f"127.0.0.1:{cluster[1].internal_port}")
    user = ("--alter", "--entity-type", "users", "--entity-name", "alice")
    try:
        with zookeeper, tools:
            kactl.start()
            with cluster:
                kactl.until(lambda: kactl.get("/v1/cluster")["brokers"] == 1, "the broker", MARGIN_S)
                assert not logs_in(cluster.bootstrap)

                created = tools.configs(*user, "--add-config", f"SCRAM-SHA-512=[iterations=8192,password={PASSWORD}]")
                created.well()
                until_login(cluster.bootstrap, expected=True)
                described = tools.configs("--describe", "--entity-type", "users", "--entity-name", "alice").well()
                tools.configs(*user, "--delete-config", "SCRAM-SHA-512").well()
                until_login(cluster.bootstrap, expected=False)
    finally:
        kactl.kill()

    assert "iterations=8192" in described.text
    assert PASSWORD not in kactl.log
