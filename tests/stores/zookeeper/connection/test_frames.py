"""Tests of frames split at arbitrary positions."""

import itertools
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.stores.zookeeper.connection.frames import Frames, MalformedFrame

BODIES = st.lists(st.binary(max_size=300), max_size=20)


def wire(bodies: list[bytes]) -> bytes:
    return b"".join(struct.pack("!i", len(body)) + body for body in bodies)


def pieces(text: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(at) if begin < end]


@given(BODIES, st.lists(st.integers(0, 10_000), max_size=60))
def test_frames_are_equal_for_any_split(bodies: list[bytes], cuts: list[int]) -> None:
    frames = Frames()

    found = [frame for piece in pieces(wire(bodies), cuts) for frame in frames.feed(piece)]

    assert found == bodies
    assert all(type(frame) is bytes for frame in found)


@given(BODIES)
def test_frames_can_arrive_byte_by_byte(bodies: list[bytes]) -> None:
    frames = Frames()
    text = wire(bodies)

    found = [frame for at in range(len(text)) for frame in frames.feed(text[at : at + 1])]

    assert found == bodies


@given(BODIES, st.integers(1, 300), st.integers(0, 10_000))
def test_incomplete_frame_is_not_returned(bodies: list[bytes], size: int, cut: int) -> None:
    frames = Frames()
    last = wire([bytes(size)])

    found = list(frames.feed(wire(bodies) + last[: cut % len(last)]))

    assert found == bodies


def test_large_frame_is_joined_once() -> None:
    body = random.Random(1).randbytes(10_000_000)
    text = wire([body, b"next"])
    frames = Frames()

    found: list[bytes] = []
    for at in range(0, len(text), 65_536):
        found += frames.feed(text[at : at + 65_536])
        # Received chunks are not joined before the frame is complete.
        assert all(len(piece) <= 65_536 for piece in frames._pieces)

    assert found == [body, b"next"]


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_invalid_length_is_rejected_after_earlier_frames(length: int) -> None:
    frames = Frames(bytes_max=1000)
    found: list[bytes] = []

    with pytest.raises(MalformedFrame, match=f"a frame of {length} bytes"):
        found.extend(frames.feed(wire([b"fine", bytes(1000)]) + struct.pack("!i", length) + b"x"))

    assert found == [b"fine", bytes(1000)]


def test_invalid_length_is_rejected_immediately() -> None:
    frames = Frames(bytes_max=1000)
    head = struct.pack("!i", 1001)
    assert list(frames.feed(head[:3])) == []

    with pytest.raises(MalformedFrame):
        list(frames.feed(head[3:]))
