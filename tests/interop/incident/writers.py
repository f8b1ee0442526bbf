"""Two producers that write numbered records into every partition and note the result of each."""

import threading
import time
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.processes import HarnessError

# Pause between two records of a writer, over all partitions.
EVERY_S: Final = 0.004
# Longer than any fault here. A record that timed out may be stored or not, and is no evidence.
DELIVERY_S: Final = 120.0
READ_S: Final = 60.0


class Acknowledged(NamedTuple):
    """A record acknowledged by a leader. Seconds since 1970; the partition by its name."""

    partition: str
    offset: int
    sent: float
    at: float


class Writer:
    """Writes within the `with` block.

    Args:
        acks: "1": stored by the leader; "all": stored by all in-sync replicas.

    Attributes:
        sent: the time of sending of each record, by its number.
        acknowledged: accepted records, by their number.
        refused: errors of the others.
    """

    def __init__(self, bootstrap: str, *, acks: str) -> None:
        self.acks = acks
        self.sent: dict[int, tuple[str, float]] = {}
        self.acknowledged: dict[int, Acknowledged] = {}
        self.refused: list[str] = []
        self._partitions: tuple[tuple[str, int], ...] = ()
        self._latest: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(bootstrap,), daemon=True, name=f"writer-{acks}")

    def write_to(self, partitions: Iterable[str]) -> None:
        """Write to these partitions from now on."""
        split = (name.rpartition("-") for name in partitions)
        self._partitions = tuple((topic, int(number)) for topic, _, number in split)

    def has_written(self, partition: str, since: float) -> bool:
        """Return whether a record sent after `since` is acknowledged."""
        return self._latest.get(partition, 0.0) > since

    def value(self, number: int) -> bytes:
        """Return the value of a record."""
        return f"{self.acks}:{number}".encode()

    def _write(self, bootstrap: str) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": self.acks,
                # It would stop where a leader has lost what an earlier one acknowledged.
                "enable.idempotence": False,
                "linger.ms": 0,
                "delivery.timeout.ms": round(DELIVERY_S * 1000),
                "topic.metadata.refresh.interval.ms": 1_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        number = 0
        due = time.monotonic()
        while not self._ended.is_set():
            due = max(due + EVERY_S, time.monotonic() - EVERY_S)  # missed records are not sent later
            if self._partitions:
                topic, partition = self._partitions[number % len(self._partitions)]
                number += 1
                now = time.time()
                self.sent[number] = f"{topic}-{partition}", now
                try:
                    producer.produce(
                        topic, self.value(number), partition=partition, on_delivery=partial(self._delivered, number)
                    )
                except BufferError as error:
                    self.refused.append(str(error))
            producer.poll(0)
            while (wait := due - time.monotonic()) > 0:
                producer.poll(wait)
        producer.flush(DELIVERY_S)

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        partition, sent = self.sent[number]
        offset = message.offset()
        assert offset is not None
        self.acknowledged[number] = Acknowledged(partition, offset, sent, time.time())
        self._latest[partition] = max(self._latest.get(partition, 0.0), sent)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(DELIVERY_S + 10)


def read_all(bootstrap: str, partitions: Iterable[str]) -> dict[str, dict[bytes, int]]:
    """Return the content of partitions: value -> the last offset that has it.

    Raises:
        HarnessError: it cannot be read to the end.
    """
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "auditor", "enable.auto.commit": False, "log_level": 0}
    )
    values: dict[str, dict[bytes, int]] = {partition: {} for partition in partitions}
    deadline = time.monotonic() + READ_S
    try:
        ends: dict[tuple[str, int], int] = {}
        for partition in values:
            topic, _, number = partition.rpartition("-")
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, int(number)), READ_S)
            ends[topic, int(number)] = end
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place, end in ends.items() if end])
        left = {place for place, end in ends.items() if end}
        while left:
            if time.monotonic() > deadline:
                raise HarnessError(f"what was written could not be read to its end: {left} of {ends}")
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    values[f"{message.topic()}-{message.partition()}"][message.value() or b""] = message.offset() or 0
            positions = consumer.position([TopicPartition(*place) for place in left])
            left -= {
                (position.topic, position.partition)
                for position in positions
                if position.offset >= ends[position.topic, position.partition]
            }
    finally:
        consumer.close()
    return values
