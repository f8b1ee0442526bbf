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
def test_frames_are_the_same_wherever_they_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    frames = Frames()

    found = [frame for piece in pieces(wire(bodies), cuts) for frame in frames.feed(piece)]

    assert found == bodies
    assert all(type(frame) is bytes for frame in found)


@given(BODIES)
def test_frames_may_come_byte_by_byte(bodies: list[bytes]) -> None:
    frames = Frames()
    text = wire(bodies)

    found = [frame for at in range(len(text)) for frame in frames.feed(text[at : at + 1])]

    assert found == bodies


@given(BODIES, st.integers(1, 300), st.integers(0, 10_000))
def test_an_unfinished_frame_is_not_given(bodies: list[bytes], size: int, cut: int) -> None:
    frames = Frames()
    last = wire([bytes(size)])

    found = list(frames.feed(wire(bodies) + last[: cut % len(last)]))

    assert found == bodies


def test_a_frame_of_ten_megabytes_is_joined_once_and_not_piece_by_piece() -> None:
    body = random.Random(1).randbytes(10_000_000)
    text = wire([body, b"next"])
    frames = Frames()

    found: list[bytes] = []
    for at in range(0, len(text), 65_536):
        found += frames.feed(text[at : at + 65_536])
        # What is kept is what came: nothing is put together before it is whole.
        assert all(len(piece) <= 65_536 for piece in frames._pieces)

    assert found == [body, b"next"]


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_length_that_no_frame_has_is_refused_after_all_that_stood_before_it(length: int) -> None:
    frames = Frames(bytes_max=1000)
    found: list[bytes] = []

    with pytest.raises(MalformedFrame, match=f"a frame of {length} bytes"):
        found.extend(frames.feed(wire([b"fine", bytes(1000)]) + struct.pack("!i", length) + b"x"))

    assert found == [b"fine", bytes(1000)]


def test_a_length_is_refused_as_soon_as_it_is_known() -> None:
    frames = Frames(bytes_max=1000)
    head = struct.pack("!i", 1001)
    assert list(frames.feed(head[:3])) == []

    with pytest.raises(MalformedFrame):
        list(frames.feed(head[3:]))
