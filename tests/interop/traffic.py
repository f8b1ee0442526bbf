"""Ordinary clients: a producer and a group consumer that run while faults are injected into the cluster."""

import threading
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.processes import HarnessError

_FLUSH_S = 60.0
_JOIN_S = 90.0


class Traffic:
    """Writes numbered records with a producer, and reads them in a group, each in a separate thread.

    Args:
        topic: a new topic; records of another instance would be counted.
        idempotent: whether the producer takes a producer id, so that brokers recognize repeated records.
    """

    def __init__(self, bootstrap: str, topic: str, *, group: str = "readers", idempotent: bool = True) -> None:
        self.topic = topic
        self._idempotent = idempotent
        self.acknowledged: set[int] = set()
        self.read: set[int] = set()
        # Partition and offset of each record, as acknowledged, and where the group began each partition.
        self.places: dict[int, tuple[int, int]] = {}
        self.began: dict[int, int] = {}
        self.errors: list[str] = []
        self._bootstrap = bootstrap
        self._group = group
        self._writing = threading.Event()
        self._reading = threading.Event()
        self._progress = threading.Condition()
        self._threads = [threading.Thread(target=self._write), threading.Thread(target=self._read)]

    def __enter__(self) -> Self:
        self._writing.set()
        self._reading.set()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writing.clear()
        self._reading.clear()
        with self._progress:
            self._progress.notify_all()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def wait_acknowledged(self, more: int, timeout_s: float) -> None:
        """Wait until `more` additional records are acknowledged and read.

        Raises:
            HarnessError: they were not within `timeout_s`.
        """
        with self._progress:
            acknowledged, read = len(self.acknowledged) + more, len(self.read) + more
            if not self._progress.wait_for(
                lambda: len(self.acknowledged) >= acknowledged and len(self.read) >= read, timeout_s
            ):
                raise HarnessError(
                    f"traffic stands still: {len(self.acknowledged)} of {acknowledged} acknowledged, "
                    f"{len(self.read)} of {read} read after {timeout_s:g} s; errors: {self.errors[-3:]}"
                )

    def finish(self, timeout_s: float) -> None:
        """Stop writing, and wait until every acknowledged record has been read.

        Raises:
            HarnessError: a record was not read within `timeout_s`.
        """
        self._writing.clear()
        self._threads[0].join(_FLUSH_S + 5)
        with self._progress:
            if not self._progress.wait_for(lambda: self.acknowledged <= self.read, timeout_s):
                lost = sorted(self.acknowledged - self.read)
                places = {number: self.places[number] for number in lost[:10]}
                raise HarnessError(
                    f"{len(lost)} acknowledged records were not read; the first, with partition and offset: {places}; "
                    f"the group began at {self.began}, the log begins and ends at {self._ends()}; {self.errors[-3:]}"
                )

    def _ends(self) -> dict[int, tuple[int, int]]:
        """Return the first offset and the high watermark of each written partition."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": f"{self._group}-ends"})
        try:
            return {
                partition: consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=10)
                for partition in sorted({partition for partition, _ in self.places.values()})
            }
        finally:
            consumer.close()

    def _write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": self._idempotent,
                "acks": "all",
                "linger.ms": 5,
                "delivery.timeout.ms": 60_000,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )
        number = 0
        while self._writing.is_set():
            producer.produce(self.topic, str(number).encode(), on_delivery=self._delivered)
            number += 1
            producer.poll(0.005)
        producer.flush(_FLUSH_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        with self._progress:
            if error is not None:
                self.errors.append(str(error))
                return
            number, place = numbered(message)
            self.acknowledged.add(number)
            self.places[number] = place
            self._progress.notify_all()

    def _read(self) -> None:
        # A consumer that joins its group while the topic is created may receive no partition, and never check again.
        with self._progress:
            self._progress.wait_for(lambda: self.acknowledged or not self._reading.is_set())
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )
        consumer.subscribe([self.topic])
        try:
            while self._reading.is_set():
                message = consumer.poll(0.1)
                if message is None:
                    continue
                with self._progress:
                    error = message.error()
                    if error is not None:
                        # Brokers learn of a new topic at different times.
                        if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART or self.read:
                            self.errors.append(str(error))
                        continue
                    number, (partition, offset) = numbered(message)
                    self.began.setdefault(partition, offset)
                    self.read.add(number)
                    self._progress.notify_all()
        finally:
            consumer.close()


def numbered(message: Message) -> tuple[int, tuple[int, int]]:
    """Return the number that a record carries, and its partition and offset.

    The offset is -1 if an idempotent producer has repeated a record that the broker had: it does not say where it is.
    """
    value, partition, offset = message.value(), message.partition(), message.offset()
    assert value is not None
    assert partition is not None
    return int(value), (partition, -1 if offset is None else offset)
