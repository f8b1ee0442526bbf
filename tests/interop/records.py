"""Records with predictable bytes, so that every record read can be verified.

acknowledged: number -> its place in the log              read by the group: numbers
                    └────────── at the end, everything in the log, from its beginning ──────┘
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

# Slow enough to be read concurrently, fast enough that every fault meets records in transit.
EVERY_S: Final = 0.004
# Longer than any fault. A record that timed out is neither a loss nor evidence.
DELIVERY_S: Final = 180.0
READ_S: Final = 120.0
# Errors that end by themselves after an election, which the last fault may have caused: a new leader does not have the
# offsets yet, or the client asks the earlier leader.
_ELECTED: Final = (KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)
PARTITIONS: Final = 6


class Place(NamedTuple):
    """Position of a record."""

    partition: int
    offset: int


def record(seed: int, number: int) -> bytes:
    """Return the value of a record: its number, and 40 to 300 bytes derived from seed and number."""
    head = f"{number}:".encode()
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return head + digest * (1 + digest[0] % 8)


class Records:
    """Writes continuously, and reads in a group, each in a thread, between `start` and `stop`.

    Attributes:
        acknowledged: the position of each acknowledged record.
        refused: the errors of rejected records.
        read: the numbers that the group has read.
        wrong: violations; empty if there are none.
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
        """Stop writing. Wait for the result of every record, and until the group has read the acknowledged ones.

        Raises:
            HarnessError: one of these did not finish.
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
        """Read the whole log with a new consumer, and compare it with the acknowledgements. Returns its number of
        records."""
        places: dict[int, Place] = {}
        latest: dict[int, int] = {}
        for message in self._log():
            number = self._number(message)
            if number is None:
                continue
            place = Place(message.partition() or 0, message.offset() or 0)
            if number <= latest.get(place.partition, 0):
                self.wrong.append(f"record {number} follows {latest[place.partition]} in partition {place.partition}")
            latest[place.partition] = number
            places[number] = place
        for number, place in self.acknowledged.items():
            stored = places.get(number)
            # A producer whose retry is a duplicate does not receive the offset, and reports 0.
            if stored is None or stored.partition != place.partition or place.offset not in (0, stored.offset):
                self.wrong.append(f"record {number} was acknowledged at {place}, and is at {stored}")
        return len(places)

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
        """Return the number of a record; None if it is not one of these records, as it was written."""
        value = message.value() or b""
        number = int(value.partition(b":")[0] or b"0") if value[:1].isdigit() else 0
        if value == record(self._seed, number):
            return number
        self.wrong.append(f"partition {message.partition()} has a foreign record at {message.offset()}: {value[:60]!r}")
        return None

    def _log(self) -> Iterator[Message]:
        """Return the content of the log now."""
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
                for position in consumer.position([TopicPartition(self._topic, partition) for partition in ends]):
                    if position.offset >= ends[position.partition]:
                        del ends[position.partition]

    def _ends(self, consumer: Consumer, partition: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after its last."""
        deadline = time.monotonic() + READ_S
        while True:
            try:
                first, end = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), READ_S)
            except KafkaException as failed:
                if failed.args[0].code() not in _ELECTED or time.monotonic() > deadline:
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
