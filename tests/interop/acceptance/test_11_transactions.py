"""Transactions: committed records are read, aborted ones are not."""

import time
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from .bench import MARGIN_S, Bench

TOPIC: Final = "payments"
IN: Final = "requests"
_ASK_AGAIN: Final = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.mark.checklist(11)
def test_committed_records_are_read_and_aborted_are_not(bench: Bench) -> None:
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
        producer.flush(MARGIN_S)  # an abort would discard unsent records
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
    """Return the offset committed by the group.

    Leaders may be returning to their preferred replicas at this time, including the leader of the group's partition.
    The library leaves the retry to the caller.
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
    """Read from the beginning to the end. Returns at least `count` records, or those that arrived within MARGIN_S."""
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
