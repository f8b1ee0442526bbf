"""Transactions: what is committed is read, what is aborted is not."""

import time
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from .bench import MARGIN_S, Bench

TOPIC: Final = "payments"
IN: Final = "requests"
_ASK_AGAIN: Final = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.mark.checklist(11)
def test_what_is_committed_is_read_and_what_is_aborted_is_not(bench: Bench) -> None:
    for topic in (TOPIC, IN):
        bench.create(topic, "--partitions", "3", "--replication-factor", "3", partitions=3)
    producer = Producer(
        {"bootstrap.servers": bench.cluster.bootstrap, "transactional.id": "cashier", "transaction.timeout.ms": 60_000}
    )
    member = Consumer({"bootstrap.servers": bench.cluster.bootstrap, "group.id": "cashiers"})

    producer.init_transactions(MARGIN_S)
    for number in range(4):
        producer.begin_transaction()
        for record in range(10):
            producer.produce(TOPIC, f"{number}/{record}")
        producer.flush(MARGIN_S)  # an abort would take away what had not been sent yet
        producer.send_offsets_to_transaction(
            [TopicPartition(IN, 0, number + 1)], member.consumer_group_metadata(), MARGIN_S
        )
        if number % 2:
            producer.abort_transaction(MARGIN_S)
        else:
            producer.commit_transaction(MARGIN_S)
    taken = committed_by(member)
    member.close()

    committed = {f"{number}/{record}" for number in (0, 2) for record in range(10)}
    aborted = {f"{number}/{record}" for number in (1, 3) for record in range(10)}
    assert read(bench, "read_committed", count=20) == committed
    assert read(bench, "read_uncommitted", count=40) == committed | aborted
    assert taken == 3
    bench.rest()


def committed_by(member: Consumer) -> int:
    """The offset that its group has committed.

    Leaders may return to where they are preferred just now, that of the group's partition as well; the library leaves
    it to us to ask again.
    """
    deadline = time.monotonic() + MARGIN_S
    while True:
        try:
            (taken,) = member.committed([TopicPartition(IN, 0)], timeout=MARGIN_S)
        except KafkaException as error:
            if error.args[0].code() not in _ASK_AGAIN or time.monotonic() >= deadline:
                raise
        else:
            return int(taken.offset)


def read(bench: Bench, isolation: str, *, count: int) -> set[str]:
    """What there is from the beginning to the end; at least `count` records, or what came within MARGIN_S."""
    consumer = Consumer(
        {
            "bootstrap.servers": bench.cluster.bootstrap,
            "group.id": isolation,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([TOPIC])
    values: set[str] = set()
    ended: set[int] = set()
    deadline = time.monotonic() + MARGIN_S
    try:
        while (len(values) < count or len(ended) < 3) and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                values.add((message.value() or b"").decode())
            else:
                ended.add(message.partition() or 0)
    finally:
        consumer.close()
    return values
