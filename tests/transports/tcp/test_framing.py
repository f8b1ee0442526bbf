"""Frames: parts, streams, flags, bounds, and hostile bytes."""

import itertools
import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.model.errors import MalformedMessage
from kactl.transports.tcp.framing import HEADER, Bounds, FrameDecoder, Kind, Lane, Message, frames_of, recognised
from kactl.transports.tcp.lanes import LaneFull, Lanes

BOUNDS = Bounds(frame=4096, message=1 << 20, streams=10)
PART = 1024


def plain(message: Message) -> tuple[object, ...]:
    head = b"".join([message.head, *message.pieces])
    return (*message[:2], head, bytes(message.tail), *message[4:6])


def decoded(data: bytes, bounds: Bounds = BOUNDS) -> list[Message]:
    decoder = FrameDecoder(bounds)
    decoder.feed(data)
    return list(iter(decoder.next, None))


messages = st.builds(
    Message,
    kind=st.sampled_from(Kind),
    stream=st.integers(0, 2**32 - 1),
    head=st.binary(max_size=5_000),
    tail=st.binary(max_size=5_000),
    answer=st.booleans(),
    error=st.booleans(),
    pieces=st.lists(st.binary(max_size=1_500), max_size=3),
)


@given(sent=st.lists(messages, max_size=5), cuts=st.lists(st.integers(0, 60_000), max_size=20))
def test_messages_arrive_unchanged_however_the_bytes_are_cut(sent: list[Message], cuts: list[int]) -> None:
    data = b"".join(frame for message in sent for frame in frames_of(message, PART))
    decoder, arrived = FrameDecoder(BOUNDS), []

    for start, end in itertools.pairwise(sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})):
        decoder.feed(data[start:end])
        arrived += list(iter(decoder.next, None))

    assert [plain(message) for message in arrived] == [plain(message) for message in sent]


def test_no_frame_is_longer_than_a_part() -> None:
    frames = list(frames_of(Message(Kind.ORDER, 1, b"h" * 5_000, b"t" * 5_000), PART))

    assert [len(frame) for frame in frames[:-1]] == [PART] * 9
    assert len(frames[-1]) <= PART


def test_parts_of_different_streams_may_alternate() -> None:
    first, second = Message(Kind.ORDER, 1, b"a" * 3_000), Message(Kind.METADATA, 2, b"b" * 3_000)
    short = Message(Kind.SESSION, 3, b"c")
    parts = itertools.zip_longest(frames_of(first, PART), frames_of(second, PART), fillvalue=b"")

    arrived = decoded(b"".join(b"".join([*pair, *frames_of(short, PART)]) for pair in parts))

    assert [message.stream for message in arrived if message.stream != 3] == [1, 2]
    assert {bytes(message.head) for message in arrived} == {bytes(first.head), bytes(second.head), b"c"}


def test_request_and_answer_may_have_the_same_stream() -> None:
    request, answer = Message(Kind.ASK, 1, b"a" * 3_000), Message(Kind.ORDER, 1, b"b" * 3_000, answer=True)
    pairs = zip(frames_of(request, PART), frames_of(answer, PART), strict=True)

    assert len(decoded(b"".join(frame for pair in pairs for frame in pair))) == 2


def frame(
    *, length: int | None = None, kind: int = 4, flags: int = 0, zero: int = 0, stream: int = 1, head: int = 1
) -> bytes:
    length = HEADER.size - 4 + 1 if length is None else length
    return HEADER.pack(length, kind, flags, zero, stream, head) + b"x"


@pytest.mark.parametrize(
    "data",
    [
        frame(length=11),
        frame(length=4093),
        frame(length=2**32 - 1),
        frame(kind=0),
        frame(kind=99),
        frame(flags=16),
        frame(zero=1),
        frame(head=2),
        frame(head=0),  # a tail without its flag
        frame(flags=8),  # the flag without a tail
        frame(flags=1) + frame(flags=1, kind=5),  # parts of different messages
        frame(flags=1) + frame(flags=5),
        HEADER.pack(12, 4, 1, 0, 1, 0),  # an empty part
        frame(flags=1 | 8, head=0) + frame(flags=1),  # a head after the tail
    ],
)
def test_invalid_frame_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decoded(data)


def test_valid_frame_is_accepted() -> None:
    """The counterpart of the invalid ones, which differ from it in one field each."""
    assert len(decoded(frame())) == 1
    assert len(decoded(frame(flags=1) + frame())) == 1
    assert len(decoded(frame(flags=8, head=0))) == 1


def test_incomplete_messages_are_bounded_in_number() -> None:
    with pytest.raises(MalformedMessage, match="more than 10 messages"):
        decoded(b"".join(frame(flags=1, stream=stream) for stream in range(11)))


def test_messages_are_bounded_in_size() -> None:
    bounds = BOUNDS._replace(message=5_000)
    whole = b"".join(frames_of(Message(Kind.ORDER, 1, b"x" * 5_000), PART))
    assert len(decoded(whole, bounds)) == 1

    with pytest.raises(MalformedMessage, match="longer than the 5000 bytes"):
        decoded(b"".join(frames_of(Message(Kind.ORDER, 1, b"x" * 5_001), PART)), bounds)
    with pytest.raises(MalformedMessage, match="incomplete messages have more than 10000 bytes"):
        decoded(b"".join(next(frames_of(Message(Kind.ORDER, s, b"x" * 2_000), PART)) for s in range(10)), bounds)


def test_kinds_have_bounds_of_their_own_but_answers_do_not() -> None:
    bounds = BOUNDS._replace(kinds={Kind.SESSION: 2_000})
    for kind, answer in ((Kind.ORDER, False), (Kind.SESSION, True)):
        message = Message(kind, 1, b"x" * 2_001, answer=answer)
        assert len(decoded(b"".join(frames_of(message, PART)), bounds)) == 1

    for part in (PART, 4_096):  # in parts, and in one
        with pytest.raises(MalformedMessage, match="SESSION is longer than the 2000 bytes"):
            decoded(b"".join(frames_of(Message(Kind.SESSION, 1, b"x" * 2_001), part)), bounds)


def test_only_the_last_part_may_be_small() -> None:
    bounds = BOUNDS._replace(part_min=PART)
    first, last = frames_of(Message(Kind.ORDER, 1, b"x" * PART), PART)
    assert len(last) < PART
    assert len(decoded(first + last, bounds)) == 1

    with pytest.raises(MalformedMessage, match="all but the last have 1024"):
        decoded(next(frames_of(Message(Kind.ORDER, 1, b"x" * PART), PART - 1)), bounds)


def test_small_parts_take_no_more_memory_than_their_bytes() -> None:
    part, count = 64, 50_000
    decoder = FrameDecoder(BOUNDS._replace(message=8 << 20))
    frame = next(frames_of(Message(Kind.ORDER, 1, b"x" * 1_000), HEADER.size + part))

    tracemalloc.start()
    for _ in range(count // 100):
        decoder.feed(frame * 100)
        assert decoder.next() is None
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [one.size for one in decoder.incomplete] == [part * count]
    assert held < 2 * part * count


def test_frames_are_bounded_in_number_before_authentication() -> None:
    with pytest.raises(MalformedMessage, match="more than 2 frames"):
        decoded(frame() * 3, BOUNDS._replace(frames=2))


def mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed)) if changed else 0
        match rng.randrange(4):
            case 0 if changed:
                changed[at] = rng.randrange(256)
            case 1:
                changed[at:at] = rng.randbytes(rng.randint(1, 8))
            case 2:
                del changed[at : at + rng.randint(1, 8)]
            case _:
                changed[at : at + 4] = rng.choice((0, 12, 4096, 2**31, 2**32 - 1)).to_bytes(4, "big")
    return bytes(changed)


def test_mutated_frames_are_messages_or_malformed() -> None:
    """Also: a decoder allocates no more than a small multiple of what has arrived."""
    rng = random.Random(38)
    seed = b"".join(
        one
        for message in (
            Message(Kind.ORDER, 1, b"h" * 1_500, b"t" * 500),
            Message(Kind.SESSION, 2, b"s", answer=True),
            Message(Kind.ASK, 3, b"a", error=True, answer=True),
        )
        for one in frames_of(message, PART)
    )
    accepted = rejected = peak = 0
    tracemalloc.start()
    try:
        for _ in range(4_000):
            data = mutated(seed, rng)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                accepted += len(decoded(data))
            except MalformedMessage:
                rejected += 1
            peak = max(peak, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()

    assert accepted
    assert rejected
    assert peak < 20 * len(seed)


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (b"\x16\x03\x01\x02", "TLS"),
        (b"\x15\x03\x03\x00", "a TLS alert"),
        (b"GET / HTTP/1.1", "HTTP"),
        (b"SSH-2.0", "SSH"),
        (b"\x00\x00\x00\x20\x01", None),
        (b"\x16", None),
        (b"", None),
    ],
)
def test_other_protocols_are_recognised(first: bytes, name: str | None) -> None:
    assert recognised(first) == name


# -- lanes -------------------------------------------------------------------------------------------------------------


def written(lanes: Lanes) -> Iterator[bytes]:
    while (taken := lanes.take()) is not None:
        yield taken[1]


def test_urgent_messages_wait_for_one_part_at_most() -> None:
    lanes = Lanes(part=PART, limit=1 << 20)
    lanes.put(Message(Kind.ORDER, 1, bytes(10_000)))
    assert lanes.take() is not None
    lanes.put(Message(Kind.ASK, 2, b"ask"))
    lanes.put(Message(Kind.ORDER, 3, b"answer", answer=True))
    lanes.put(Message(Kind.SESSION, 4, b"heartbeat"))

    taken = [lanes.take() for _ in range(2)]

    assert [lane for lane, _ in filter(None, taken)] == [Lane.SESSION, Lane.ANSWERS]
    rest = [lane for lane, _ in iter(lanes.take, None)]
    assert rest == [Lane.ORDERS] * 9 + [Lane.REQUESTS]
    assert not lanes


def test_messages_of_a_lane_keep_their_order() -> None:
    lanes = Lanes(part=PART, limit=1 << 20)
    for stream in range(1, 20):
        lanes.put(Message(Kind.ORDER, stream, bytes(100 * stream)))

    assert [message.stream for message in decoded(b"".join(written(lanes)))] == list(range(1, 20))


def test_full_lane_rejects_messages_and_others_do_not() -> None:
    lanes = Lanes(part=PART, limit=10_000)
    lanes.put(Message(Kind.ORDER, 1, bytes(50_000)))  # a single one may be larger

    with pytest.raises(LaneFull, match="50016 bytes wait in the lane of orders"):
        lanes.put(Message(Kind.ORDER, 2))
    lanes.put(Message(Kind.SESSION, 3))

    assert [message.stream for message in decoded(b"".join(written(lanes)))] == [3, 1]
    lanes.put(Message(Kind.ORDER, 4))
    assert lanes.queued[Lane.ORDERS] == HEADER.size


def test_request_can_be_withdrawn_until_its_first_part_is_written() -> None:
    lanes = Lanes(part=PART, limit=1 << 20)
    lanes.put(Message(Kind.ORDER, 1, bytes(5_000)))
    lanes.put(Message(Kind.ORDER, 2, bytes(5_000)))
    first = lanes.take()
    assert first is not None

    assert not lanes.withdraw(Kind.ORDER, 1)
    assert lanes.withdraw(Kind.ORDER, 2)
    assert not lanes.withdraw(Kind.ORDER, 2)

    assert [message.stream for message in decoded(first[1] + b"".join(written(lanes)))] == [1]
    assert lanes.queued[Lane.ORDERS] == 0


def test_cleared_lanes_are_empty() -> None:
    lanes = Lanes(part=PART, limit=1 << 20)
    lanes.put(Message(Kind.ORDER, 1, bytes(5_000)))
    lanes.take()

    lanes.clear()

    assert lanes.take() is None
    assert not any(lanes.queued.values())
