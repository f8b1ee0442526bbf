"""Records whose every byte is known beforehand, so that what is read can be held against what was written.

acknowledged: number -> where the cluster says it is          what a group has read: numbers
                    └────────── at the end, all that is in the log, from its beginning ──────┘
"""

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.processes import HarnessError

# Slow enough to be read by the way, fast enough that every fault meets records on their way.
EVERY_S: Final = 0.004
# Longer than any fault: a record that is given up is no loss, but also no proof.
DELIVERY_S: Final = 180.0
READ_S: Final = 120.0
PARTITIONS: Final = 6


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


def record(seed: int, number: int) -> bytes:
    """What is written: its number, and bytes that follow from seed and number; 40 to 300 bytes."""
    head = f"{number}:".encode()
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return head + digest * (1 + digest[0] % 8)


class Records:
    """Writes without a pause, and reads in a group, in a thread each, between `start` and `stop`.

    Attributes:
        acknowledged: where each record is that the cluster has taken.
        refused: what was said of those that it did not take.
        read: the numbers that the group has read.
        wrong: what is not as it should be; nothing, if all is well.
    """

    def __init__(self, bootstrap: str, topic: str, *, seed: int) -> None:
        self.acknowledged: dict[int, Place] = {}
        self.refused: list[str] = []
        self.read: set[int] = set()
        self.wrong: list[str] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._seed = seed
        self._writing = threading.Event()
        self._reading = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._reader = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        self._writing.set()
        self._reading.set()
        self._writer.start()
        self._reader.start()

    def stop(self) -> None:
        """Write no more, wait until all is acknowledged or refused, and until the group has read what was taken.

        Raises:
            HarnessError: one of them did not come to an end.
        """
        self._writing.clear()
        self._writer.join(DELIVERY_S + READ_S)
        deadline = time.monotonic() + READ_S
        while not self.acknowledged.keys() <= self.read and time.monotonic() < deadline:
            time.sleep(0.1)
        self._reading.clear()
        self._reader.join(READ_S)
        if self._writer.is_alive() or self._reader.is_alive():
            raise HarnessError("a client did not come to its end")
        if missing := sorted(self.acknowledged.keys() - self.read):
            self.wrong.append(f"the group did not read {len(missing)} acknowledged records: {missing[:10]}")

    def check_log(self) -> int:
        """Read the whole log by a new reader, and hold it against what was acknowledged; how many records it has."""
        found: dict[int, Place] = {}
        latest: dict[int, int] = {}
        for message in self._log():
            number = self._number(message)
            if number is None:
                continue
            place = Place(message.partition() or 0, message.offset() or 0)
            if number <= latest.get(place.partition, 0):
                self.wrong.append(f"record {number} follows {latest[place.partition]} in partition {place.partition}")
            latest[place.partition] = number
            found[number] = place
        for number, place in self.acknowledged.items():
            at = found.get(number)
            # A producer that is told of a second try that the record is there already is not told where, and says 0.
            if at is None or at.partition != place.partition or place.offset not in (0, at.offset):
                self.wrong.append(f"record {number} was acknowledged at {place}, and is at {at}")
        return len(found)

    def _write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "delivery.timeout.ms": round(DELIVERY_S * 1000),
                "topic.metadata.refresh.interval.ms": 1_000,
                "log_level": 0,
            }
        )
        number = 0
        while self._writing.is_set():
            number += 1
            try:
                producer.produce(
                    self._topic,
                    record(self._seed, number),
                    partition=number % PARTITIONS,
                    on_delivery=partial(self._delivered, number),
                )
            except BufferError:
                number -= 1
            producer.poll(EVERY_S)
        producer.flush(DELIVERY_S + READ_S)

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        self.acknowledged[number] = Place(message.partition() or 0, message.offset() or 0)

    def _read(self) -> None:
        with self._consumer("soak-readers") as consumer:
            consumer.subscribe([self._topic])
            while self._reading.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None and (number := self._number(message)) is not None:
                    self.read.add(number)

    def _number(self, message: Message) -> int | None:
        """The number of a record, if it is one of ours, as it was written."""
        value = message.value() or b""
        number = int(value.partition(b":")[0] or b"0") if value[:1].isdigit() else 0
        if value == record(self._seed, number):
            return number
        self.wrong.append(
            f"partition {message.partition()} holds at {message.offset()} what nobody wrote: {value[:60]!r}"
        )
        return None

    def _log(self) -> Iterator[Message]:
        """Everything that is in the log now."""
        with self._consumer("soak-auditor") as consumer:
            ends = {}
            for partition in range(PARTITIONS):
                first, end = self._ends(consumer, partition)
                if end > first:
                    ends[partition] = end
            consumer.assign([TopicPartition(self._topic, partition, OFFSET_BEGINNING) for partition in ends])
            deadline = time.monotonic() + READ_S
            while ends:
                if time.monotonic() > deadline:
                    raise HarnessError(f"the log could not be read to its end: {ends}")
                for message in consumer.consume(1000, 0.2):
                    if message.error() is None:
                        yield message
                for at in consumer.position([TopicPartition(self._topic, partition) for partition in ends]):
                    if at.offset >= ends[at.partition]:
                        del ends[at.partition]

    def _ends(self, consumer: Consumer, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the one behind its last."""
        deadline = time.monotonic() + READ_S
        while True:
            try:
                first, end = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), READ_S)
            except KafkaException as failed:
                # A leader that has just been elected does not know yet; it was the last fault's turn to elect one.
                if failed.args[0].code() != KafkaError.OFFSET_NOT_AVAILABLE or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return first, end

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "topic.metadata.refresh.interval.ms": 1_000,
                "log_level": 0,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()
