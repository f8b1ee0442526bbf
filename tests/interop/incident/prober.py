"""Prober that requests from every broker, fifty times a second, which partitions it leads.

It requests the earliest offset of each partition, as clients do. Only a leader answers, from the moment it leads. A
refused connection counts as a response without partitions; a missing response does not count.

Layout, numbers big-endian: int32 length. A request has int16 2, int16 version 1, int32 number, text client id, int32
-1, and topics with partitions with int32 partition, int64 -2. A response has int32 number, and topics with partitions
with int32 partition, int16 error, int64 time, int64 offset. Lists begin with an int32 count, texts with an int16
length.

Source: the protocol's ListOffsets, version 1.
"""

import bisect
import itertools
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from .facts import Pause

EVERY_S: Final = 0.02
# A running broker responds within a millisecond or two; a starting one may take longer.
ANSWER_S: Final = 1.0
JOIN_S: Final = 10.0
# Shorter changes of leaders cannot be distinguished from changes without a gap.
GAP_S: Final = 0.3

_WHO: Final = b"prober"
_EARLIEST: Final = -2
_HEADER: Final = struct.Struct(">hhi")


class Look(NamedTuple):
    """One request and its result.

    Attributes:
        asked, answered: times of request and response, seconds since 1970. The result was true at some moment between.
        led: the partitions led by the broker; empty if it refused the connection, None without a response.
    """

    asked: float
    answered: float
    led: frozenset[str] | None


class Gap(NamedTuple):
    """A time in which no broker was available as leader of a partition. Seconds since 1970.

    Attributes:
        begin_low: time of the last request to the old leader that it answered as leader.
        begin_high: time by which it had responded, or refused the connection, as non-leader.
        end_low: time of the last request that the next leader answered as non-leader.
        end_high: time by which it had responded as leader.
        leaders: leaders before and after.
    """

    partition: str
    begin_low: float
    begin_high: float
    end_low: float
    end_high: float
    leaders: tuple[int, int]


class Prober:
    """Sends requests within the `with` block, in a thread for each broker.

    Args:
        ports: of each broker, by its id; they do not change.

    Attributes:
        looks: of each broker, in the order of time.
    """

    def __init__(self, ports: Mapping[int, int]) -> None:
        self.looks: dict[int, list[Look]] = {broker: [] for broker in ports}
        self._question = b""
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(port, self.looks[broker]), daemon=True, name=f"prober-{broker}")
            for broker, port in ports.items()
        ]

    def watch(self, partitions: Iterable[str]) -> None:
        """Add partitions to all further requests."""
        by_topic: dict[str, list[int]] = {}
        for partition in partitions:
            topic, _, number = partition.rpartition("-")
            by_topic.setdefault(topic, []).append(int(number))
        question = struct.pack(">ii", -1, len(by_topic))
        for topic, numbers in by_topic.items():
            question += _text(topic.encode()) + struct.pack(">i", len(numbers))
            question += b"".join(struct.pack(">iq", number, _EARLIEST) for number in numbers)
        self._question = question

    def leads(self, partition: str) -> int | None:
        """Return the broker with the latest response as leader; None if no broker leads now."""
        for broker, looks in self.looks.items():
            last = looks[-1:]
            if last and partition in (last[0].led or ()):
                return broker
        return None

    def _ask(self, port: int, looks: list[Look]) -> None:
        connection: socket.socket | None = None
        for number in itertools.count(1):
            if self._ended.is_set():
                break
            asked_s = time.time()
            led: frozenset[str] | None = frozenset()
            try:
                if connection is None:
                    connection = socket.create_connection(("127.0.0.1", port), ANSWER_S)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._question:
                    led = _led(_answer(connection, number, self._question))
            except OSError as error:
                if connection is not None:
                    connection.close()
                connection = None
                led = None if isinstance(error, TimeoutError) else frozenset()
            answered = time.time()
            looks.append(Look(asked_s, answered, led))
            self._ended.wait(max(0.0, asked_s + EVERY_S - answered))
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(JOIN_S)


def gaps(looks: Mapping[int, list[Look]], partition: str, pauses: "Sequence[Pause]" = ()) -> list[Gap]:
    """Return the times in which no broker led for more than GAP_S, with certainty.

    A missing response counts only while the broker is known to be paused: a busy broker may be slow.
    """
    led = sorted(
        (look.asked, look.answered, broker)
        for broker, broker_looks in looks.items()
        for look in broker_looks
        if look.led is not None and partition in look.led
    )
    gaps_found = []
    for (asked_s, _, before), (next_asked, next_answered, after) in itertools.pairwise(led):
        lost = _not_leading(looks[before], partition, asked_s, next_answered, _of(pauses, before))
        not_yet = _not_leading(looks[after], partition, asked_s, next_asked, _of(pauses, after))
        if lost and not_yet and not_yet[-1].asked - lost[0].answered > GAP_S:
            gaps_found.append(
                Gap(partition, asked_s, lost[0].answered, not_yet[-1].asked, next_answered, (before, after))
            )
    return gaps_found


def _of(pauses: "Sequence[Pause]", broker: int) -> list[tuple[float, float]]:
    return [(pause.before, pause.resumed_after) for pause in pauses if pause.broker == broker]


def _not_leading(
    looks: list[Look], partition: str, since: float, until: float, pauses: list[tuple[float, float]]
) -> list[Look]:
    """Return the looks within a time that show that a broker does not lead, or cannot respond because it is paused."""

    def shows(look: Look) -> bool:
        if look.led is None:
            return any(begin <= look.asked and look.answered <= end for begin, end in pauses)
        return partition not in look.led

    # Requests are sequential, so looks are in order; there are many.
    begin = bisect.bisect_right(looks, since, key=lambda look: look.asked)
    end = bisect.bisect_right(looks, until, lo=begin, key=lambda look: look.answered)
    return [look for look in looks[begin:end] if shows(look)]


def _answer(connection: socket.socket, number: int, question: bytes) -> bytes:
    content = _HEADER.pack(2, 1, number & 0x7FFFFFFF) + _text(_WHO) + question
    connection.sendall(struct.pack(">i", len(content)) + content)
    (length,) = struct.unpack(">i", _receive(connection, 4))
    return _receive(connection, length)


def _led(answer: bytes) -> frozenset[str]:
    """Return the partitions of a response that have no error."""
    led = set()
    offset = 4
    (topics,) = struct.unpack_from(">i", answer, offset)
    offset += 4
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", answer, offset)
        topic = answer[offset + 2 : offset + 2 + length].decode()
        offset += 2 + length
        (partitions,) = struct.unpack_from(">i", answer, offset)
        offset += 4
        for _ in range(partitions):
            partition, error = struct.unpack_from(">ih", answer, offset)
            offset += 22
            if error == 0:
                led.add(f"{topic}-{partition}")
    return frozenset(led)


def _receive(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise ConnectionResetError("closed by the broker")
        received += piece
    return bytes(received)


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value
