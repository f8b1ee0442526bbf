"""Frames of the tcp network, without I/O.

    u32 length of the rest │ u8 kind │ u8 flags │ u16 zero │ u32 stream │ u32 head length │ head │ tail

Numbers are big-endian. A message that is longer than a part is a sequence of frames of one stream; frames of other
streams may come between them. Its head is the concatenation of the heads of its parts, and so is its tail. An answer
has the stream of its request. Streams of the two directions are independent.

A decoder stores the bytes that have arrived and nothing else: it never allocates what a length only announces.
"""

import enum
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kactl.model.errors import MalformedMessage

HEADER: Final = struct.Struct(">IBBHII")
_LENGTH: Final = struct.Struct(">I")
# Bytes of the header after the length, which the length counts.
_COUNTED: Final = HEADER.size - _LENGTH.size
_MORE, _ANSWER, _ERROR, _TAIL = 1, 2, 4, 8
_FLAGS: Final = _MORE | _ANSWER | _ERROR | _TAIL
STREAM_MAX: Final = 2**32 - 1

Buffer = bytes | memoryview


class Kind(enum.IntEnum):
    """Kind of a frame. Numbers are part of the protocol."""

    HANDSHAKE = 1
    PING = 2  # nothing but a sign of life
    SESSION = 3
    ORDER = 4
    ASK = 5  # a request to the controller
    PEER = 6  # from one participant to another, relayed by the controller
    METADATA = 7
    READY = 8  # a registration has been made: the link serves it from now on


class Lane(enum.IntEnum):
    """Priority of a message among those that wait to be written; lower numbers go first."""

    SESSION = 0
    ANSWERS = 1
    ORDERS = 2
    REQUESTS = 3
    METADATA = 4


_KINDS: Final = frozenset(Kind)
_LANES: Final = {
    Kind.HANDSHAKE: Lane.SESSION,
    Kind.PING: Lane.SESSION,
    Kind.SESSION: Lane.SESSION,
    Kind.READY: Lane.SESSION,
    Kind.ORDER: Lane.ORDERS,
    Kind.ASK: Lane.REQUESTS,
    Kind.PEER: Lane.REQUESTS,
    Kind.METADATA: Lane.METADATA,
}


class Message(NamedTuple):
    """A whole message.

    Attributes:
        stream: number of the request, which its answer repeats; other messages only need a number of their own.
        error: an answer that is an error.
        pieces: buffers that follow `head` and belong to it; empty if the message was received.
    """

    kind: Kind
    stream: int = 0
    head: Buffer = b""
    tail: Buffer = b""
    answer: bool = False
    error: bool = False
    pieces: Sequence[Buffer] = ()

    @property
    def size(self) -> int:
        return HEADER.size + len(self.head) + sum(map(len, self.pieces)) + len(self.tail)

    @property
    def lane(self) -> Lane:
        lane = _LANES[self.kind]
        return Lane.ANSWERS if self.answer and lane is not Lane.SESSION else lane


class Bounds(NamedTuple):
    """Bounds of frames and messages of a peer.

    Attributes:
        frame: bytes of one frame, header included.
        message: bytes of one message.
        streams: messages of which only a part has arrived.
        frames: frames in all; None for any number.
        part_min: bytes of a frame that is not the last one of its message, header included.
        kinds: bytes of a message that is no answer, of kinds that have a bound of their own.
    """

    frame: int
    message: int
    streams: int
    frames: int | None = None
    part_min: int = 0
    kinds: Mapping[Kind, int] = {}

    def of(self, kind: int, flags: int) -> int:
        """Returns the bytes that a message of that kind may have."""
        return self.message if flags & _ANSWER else self.kinds.get(Kind(kind), self.message)


def frames_of(message: Message, part: int) -> Iterator[bytes]:
    """Yields the frames of a message.

    Args:
        part: size of a frame, header included; larger than a header.
    """
    room = part - HEADER.size
    flags = (_ANSWER if message.answer else 0) | (_ERROR if message.error else 0)
    head, tail = _Cutter((message.head, *message.pieces)), _Cutter((message.tail,))
    while True:
        of_head = head.cut(room)
        of_tail = tail.cut(room - of_head.size)
        more = _MORE if head.left or tail.left else 0
        has_tail = _TAIL if of_tail.size else 0
        length = _COUNTED + of_head.size + of_tail.size
        start = HEADER.pack(length, message.kind, flags | more | has_tail, 0, message.stream, of_head.size)
        yield b"".join((start, *of_head.buffers, *of_tail.buffers))
        if not more:
            return


class _Cut(NamedTuple):
    buffers: list[Buffer]
    size: int


class _Cutter:
    """Takes bytes from the front of some buffers, without copying them."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._buffers = [memoryview(buffer) for buffer in reversed(buffers) if len(buffer)]
        self.left = sum(map(len, buffers))

    def cut(self, room: int) -> _Cut:
        """Returns at most `room` bytes."""
        taken: list[Buffer] = []
        size = 0
        while self._buffers and size < room:
            front = self._buffers.pop()
            piece = front[: room - size]
            if len(piece) < len(front):
                self._buffers.append(front[len(piece) :])
            taken.append(piece)
            size += len(piece)
        self.left -= size
        return _Cut(taken, size)


class Partial:
    """Parts of a message that have arrived. Many small ones take no more memory than their bytes."""

    def __init__(self, kind: int, flags: int) -> None:
        self.kind = kind
        self.flags = flags
        self.head = bytearray()
        self.tail = bytearray()

    @property
    def size(self) -> int:
        return len(self.head) + len(self.tail)


class FrameDecoder:
    """Finds messages in a stream of bytes. After an error it must not be used any more.

    Attributes:
        bounds: may be changed at any moment.
        frames: frames so far.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.frames = 0
        self._bytes = bytearray()
        self._partial: dict[tuple[int, bool], Partial] = {}
        self._partial_bytes = 0

    @property
    def incomplete(self) -> list[Partial]:
        """The messages of which only a part has arrived."""
        return list(self._partial.values())

    def feed(self, data: Buffer) -> None:
        """Add bytes that have arrived."""
        self._bytes += data

    def next(self) -> Message | None:
        """Returns the next message that is complete; None if there is none.

        Raises:
            MalformedMessage: the bytes are no frames, or a bound is exceeded.
        """
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            if not _COUNTED <= length <= self.bounds.frame - _LENGTH.size:
                limit = self.bounds.frame
                raise MalformedMessage(f"a frame has a length of {length}: at most {limit} bytes are accepted here")
            size = _LENGTH.size + length
            if len(self._bytes) < size:
                return None
            frame = bytes(memoryview(self._bytes)[:size])
            del self._bytes[:size]
            message = self._frame(frame)
            if message is not None:
                return message
        return None

    def _frame(self, frame: bytes) -> Message | None:
        _, kind, flags, zero, stream, head_length = HEADER.unpack_from(frame)
        self.frames += 1
        if self.bounds.frames is not None and self.frames > self.bounds.frames:
            raise MalformedMessage(f"more than {self.bounds.frames} frames before the handshake was complete")
        if kind not in _KINDS or flags & ~_FLAGS or zero:
            raise MalformedMessage(f"a frame of kind {kind} with flags {flags:#x} and {zero}, which are not defined")
        if head_length > len(frame) - HEADER.size:
            raise MalformedMessage(f"a head of {head_length} bytes is longer than its frame")
        end = HEADER.size + head_length
        if bool(flags & _TAIL) != (len(frame) > end):
            raise MalformedMessage("a frame has a tail without its flag, or the flag without a tail")
        key, is_last = (stream, bool(flags & _ANSWER)), not flags & _MORE
        if is_last and key not in self._partial:
            self._check_size(kind, flags, len(frame) - HEADER.size)
            return self._message(kind, flags, stream, memoryview(frame)[HEADER.size : end], memoryview(frame)[end:])
        return self._part(key, kind, flags, frame, end)

    def _part(self, key: tuple[int, bool], kind: int, flags: int, frame: bytes, end: int) -> Message | None:
        partial = self._partial.get(key)
        meaning = flags & (_ANSWER | _ERROR)
        if partial is None:
            if len(self._partial) >= self.bounds.streams:
                raise MalformedMessage(f"more than {self.bounds.streams} messages are incomplete")
            partial = self._partial[key] = Partial(kind, meaning)
        if (partial.kind, partial.flags) != (kind, meaning):
            raise MalformedMessage(f"parts of stream {key[0]} belong to different messages")
        size = len(frame) - HEADER.size
        if not size:
            raise MalformedMessage(f"a part of stream {key[0]} is empty")
        if flags & _MORE and len(frame) < self.bounds.part_min:
            least = self.bounds.part_min
            raise MalformedMessage(f"a part of stream {key[0]} has {len(frame)} bytes: all but the last have {least}")
        self._partial_bytes += size
        self._check_size(kind, flags, partial.size + size)
        # All incomplete messages together may take twice the size of one: a large one may pass another.
        if self._partial_bytes > 2 * self.bounds.message:
            raise MalformedMessage(f"incomplete messages have more than {2 * self.bounds.message} bytes")
        if partial.tail and end > HEADER.size:
            raise MalformedMessage(f"a head of stream {key[0]} goes on after its tail has begun")
        partial.head += memoryview(frame)[HEADER.size : end]
        partial.tail += memoryview(frame)[end:]
        if flags & _MORE:
            return None
        del self._partial[key]
        self._partial_bytes -= partial.size
        return self._message(kind, flags, key[0], bytes(partial.head), bytes(partial.tail))

    def _check_size(self, kind: int, flags: int, size: int) -> None:
        limit = self.bounds.of(kind, flags)
        if size > limit:
            raise MalformedMessage(f"a message of kind {Kind(kind).name} is longer than the {limit} bytes accepted")

    @staticmethod
    def _message(kind: int, flags: int, stream: int, head: Buffer, tail: Buffer) -> Message:
        return Message(Kind(kind), stream, head, tail, bool(flags & _ANSWER), bool(flags & _ERROR))


def recognised(first: bytes) -> str | None:
    """Returns the name of another protocol that begins with some bytes; None if they may be a frame.

    A frame begins with the length of a short message, so its first two bytes are zero.
    """
    if len(first) >= 2 and first[0] == 0x16 and first[1] == 0x03:
        return "TLS"
    if len(first) >= 2 and first[0] == 0x15 and first[1] == 0x03:
        return "a TLS alert"
    if first[:4] in (b"GET ", b"POST", b"PUT ", b"HEAD", b"HTTP", b"PRI "):
        return "HTTP"
    if first[:4] == b"SSH-":
        return "SSH"
    return None
