"""Somebody who asks every broker, fifty times a second, which partitions it leads.

Asked is for the earliest offset of each partition, which is what a client asks for and only a leader answers, from the
moment it has become one. A broker that is not there refuses the connection, which is an answer, too; one that says
nothing is none.

Layout, numbers big-endian: int32 length; then of a request int16 2, int16 version 1, int32 number, text who asks,
int32 -1, and topics with partitions with int32 partition, int64 -2. Of an answer int32 number, and topics with
partitions with int32 partition, int16 error, int64 time, int64 offset. Lists begin with an int32 count, texts with an
int16 length.

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
# A broker that runs answers within a millisecond or two; one that is busy with its start may take its time.
ANSWER_S: Final = 1.0
JOIN_S: Final = 10.0
# Brokers that hand over to each other take less; then nobody can say whether there was a moment without a leader.
GAP_S: Final = 0.3

_WHO: Final = b"prober"
_EARLIEST: Final = -2
_HEADER: Final = struct.Struct(">hhi")


class Look(NamedTuple):
    """One question and what came of it.

    Attributes:
        asked, answered: when, seconds since 1970. What is said was so at some moment between them.
        led: the partitions that the broker leads; nothing if it is not there. None if it did not answer.
    """

    asked: float
    answered: float
    led: frozenset[str] | None


class Gap(NamedTuple):
    """A time in which no broker could be used as leader of a partition. Seconds since 1970.

    Attributes:
        begin_low: the last leader was asked then, and led.
        begin_high: by then it had answered, or refused the connection, and did not lead.
        end_low: the next leader was asked then, and did not lead.
        end_high: by then it had answered that it leads.
        leaders: who led before, and who after.
    """

    partition: str
    begin_low: float
    begin_high: float
    end_low: float
    end_high: float
    leaders: tuple[int, int]


class Prober:
    """Asks for as long as the `with` block lasts, in a thread for each broker.

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
        """From now on, ask for these."""
        by_topic: dict[str, list[int]] = {}
        for each in partitions:
            topic, _, number = each.rpartition("-")
            by_topic.setdefault(topic, []).append(int(number))
        question = struct.pack(">ii", -1, len(by_topic))
        for topic, numbers in by_topic.items():
            question += _text(topic.encode()) + struct.pack(">i", len(numbers))
            question += b"".join(struct.pack(">iq", number, _EARLIEST) for number in numbers)
        self._question = question

    def leads(self, partition: str) -> int | None:
        """Who said so last; None if nobody says so now."""
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
            asked = time.time()
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
            looks.append(Look(asked, answered, led))
            self._ended.wait(max(0.0, asked + EVERY_S - answered))
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
    """The times of which it is certain that no broker led for more than GAP_S.

    A question without an answer counts only while the broker is known to have been paused: a busy one may be slow.
    """
    led = sorted(
        (look.asked, look.answered, broker)
        for broker, asked in looks.items()
        for look in asked
        if look.led is not None and partition in look.led
    )
    found = []
    for (asked, _, before), (next_asked, next_answered, after) in itertools.pairwise(led):
        lost = _not_leading(looks[before], partition, asked, next_answered, _of(pauses, before))
        not_yet = _not_leading(looks[after], partition, asked, next_asked, _of(pauses, after))
        if lost and not_yet and not_yet[-1].asked - lost[0].answered > GAP_S:
            found.append(Gap(partition, asked, lost[0].answered, not_yet[-1].asked, next_answered, (before, after)))
    return found


def _of(pauses: "Sequence[Pause]", broker: int) -> list[tuple[float, float]]:
    return [(each.before, each.resumed_after) for each in pauses if each.broker == broker]


def _not_leading(
    looks: list[Look], partition: str, since: float, until: float, pauses: list[tuple[float, float]]
) -> list[Look]:
    """The looks within a time that show that a broker does not lead, or cannot answer since it is paused."""

    def shows(look: Look) -> bool:
        if look.led is None:
            return any(begin <= look.asked and look.answered <= end for begin, end in pauses)
        return partition not in look.led

    # One is answered before the next is asked: all are in order, and there are many.
    begin = bisect.bisect_right(looks, since, key=lambda each: each.asked)
    end = bisect.bisect_right(looks, until, lo=begin, key=lambda each: each.answered)
    return [each for each in looks[begin:end] if shows(each)]


def _answer(connection: socket.socket, number: int, question: bytes) -> bytes:
    content = _HEADER.pack(2, 1, number & 0x7FFFFFFF) + _text(_WHO) + question
    connection.sendall(struct.pack(">i", len(content)) + content)
    (length,) = struct.unpack(">i", _receive(connection, 4))
    return _receive(connection, length)


def _led(answer: bytes) -> frozenset[str]:
    """The partitions of an answer that have no error."""
    led = set()
    at = 4
    (topics,) = struct.unpack_from(">i", answer, at)
    at += 4
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", answer, at)
        topic = answer[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (partitions,) = struct.unpack_from(">i", answer, at)
        at += 4
        for _ in range(partitions):
            partition, error = struct.unpack_from(">ih", answer, at)
            at += 22
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
