"""Answers about topics are true when they arrive: a look at any broker right afterwards shows the change."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ..metadata import MetadataClient
from .bench import MARGIN_S, Bench
from .test_03_visible_to_clients import restart

COUNT = 10
PARTITIONS = 6


@pytest.fixture
def admin(bench: Bench) -> Iterator[AdminClient]:
    """A client that finds kactl among the brokers."""
    if bench.is_secure:
        pytest.skip("the metadata of a broker is read without a login")
    restart(bench, "INTERNAL", "CLIENT")
    yield AdminClient({"bootstrap.servers": bench.cluster.bootstrap})
    restart(bench, "INTERNAL")


def incomplete(bench: Bench, topic: str, count: int) -> list[int]:
    """Return the brokers on which a topic does not have a number of partitions with leaders."""
    found = []
    for broker in bench.cluster.brokers:
        with MetadataClient(broker.client_port) as client:
            leaders = client.look().leaders.get(f"{topic}-{count - 1}")
        if leaders is None or leaders < 0:
            found.append(broker.id)
    return found


def known(bench: Bench, topic: str) -> list[int]:
    """Return the brokers that still list a topic."""
    found = []
    for broker in bench.cluster.brokers:
        with MetadataClient(broker.client_port) as client:
            if f"{topic}-0" in client.look().leaders:
                found.append(broker.id)
    return found


@pytest.mark.checklist(7)
def test_every_broker_knows_a_change_when_it_is_answered(bench: Bench, admin: AdminClient) -> None:
    behind: dict[str, list[int]] = {}
    for number in range(COUNT):
        name = f"answered-{number}"
        admin.create_topics([NewTopic(name, PARTITIONS, 3)], operation_timeout=MARGIN_S)[name].result(MARGIN_S)
        behind[f"{name} created"] = incomplete(bench, name, PARTITIONS)
        admin.create_partitions([NewPartitions(name, 9)], operation_timeout=MARGIN_S)[name].result(MARGIN_S)
        behind[f"{name} grown"] = incomplete(bench, name, 9)
        admin.delete_topics([name], operation_timeout=MARGIN_S)[name].result(MARGIN_S)
        behind[f"{name} deleted"] = known(bench, name)
    bench.tools.topics("--create", "--topic", "by-java", "--partitions", "6", "--replication-factor", "3").well()
    behind["by-java created"] = incomplete(bench, "by-java", PARTITIONS)
    bench.tools.topics("--delete", "--topic", "by-java").well()

    assert not {change: brokers for change, brokers in behind.items() if brokers}


@pytest.mark.checklist(7)
def test_topic_is_used_right_after_its_creation(bench: Bench, admin: AdminClient) -> None:
    """Without the retries of the producer and the consumer, which hide a broker that does not know the topic."""
    admin.create_topics([NewTopic("used", 3, 3)], operation_timeout=MARGIN_S)["used"].result(MARGIN_S)
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bench.cluster.bootstrap, "retries": 0, "acks": "all"})
    for partition in range(3):
        producer.produce("used", b"record", partition=partition, on_delivery=lambda error, _: errors.append(error))
    producer.flush(MARGIN_S)
    consumer = Consumer(
        {
            "bootstrap.servers": bench.cluster.bootstrap,
            "group.id": "used",
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
        }
    )
    consumer.subscribe(["used"])
    read, deadline = 0, time.monotonic() + MARGIN_S
    while read < 3 and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None:
            errors.append(message.error())
            read += 1
    consumer.close()
    admin.delete_topics(["used"], operation_timeout=MARGIN_S)["used"].result(MARGIN_S)

    assert errors == [None] * 6
