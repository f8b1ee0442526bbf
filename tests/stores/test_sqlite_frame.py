"""Packed columns are unpacked unchanged; damage is detected."""

import tracemalloc

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from kactl.stores.sqlite.frame import FrameDamagedError, pack, seal, unpack, unseal

numbers = st.one_of(
    st.integers(-1, 3), st.integers(-128, 127), st.integers(-40_000, 40_000), st.integers(-(2**31), 2**31 - 1)
)


@given(st.integers(0, 30), st.integers(0, 4), st.data())
def test_columns_are_unpacked_unchanged(rows: int, slots: int, data: st.DataObject) -> None:
    one = data.draw(nps.arrays(np.int32, rows, elements=numbers))
    two = data.draw(nps.arrays(np.int32, (slots, rows), elements=numbers))
    flags = data.draw(nps.arrays(np.bool_, rows))

    columns = unpack("change", 7, pack("change", 7, {"one": one, "two": two, "flags": flags}))

    assert (columns["one"] == one).all()
    assert columns["two"].shape == (slots, rows)
    assert (columns["two"] == two).all()
    assert (columns["flags"].astype(np.bool_) == flags).all()
    assert columns["one"].dtype == columns["two"].dtype == np.int32


def test_narrow_columns_are_small_and_uniform_ones_empty() -> None:
    small, same = np.arange(1000, dtype=np.int32) % 100, np.full(1000, 123_456, np.int32)

    assert len(pack("change", 1, {"same": same})) < 100
    assert 1000 < len(pack("change", 1, {"small": small, "same": same})) < 1100


def test_equal_values_take_no_memory_until_they_are_used() -> None:
    same = pack("change", 1, {"same": np.full(1_000_000, 123_456, np.int32)})

    tracemalloc.start()
    try:
        column = unpack("change", 1, same)["same"]
        _, largest = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert largest < 10_000
    assert column.shape == (1_000_000,)
    assert (column == 123_456).all()


def test_wide_values_are_not_truncated() -> None:
    with pytest.raises(OverflowError):
        pack("change", 1, {"large": np.array([0, 2**31], np.int64)})


FRAME = pack("change", 7, {"one": np.arange(50, dtype=np.int32)})


@pytest.mark.parametrize("at", range(0, len(FRAME), 3))
def test_every_flipped_bit_is_detected(at: int) -> None:
    damaged = FRAME[:at] + bytes([FRAME[at] ^ 4]) + FRAME[at + 1 :]

    with pytest.raises(FrameDamagedError):
        unpack("change", 7, damaged)


@given(st.binary(max_size=60))
def test_random_bytes_are_rejected_with_the_same_error(payload: bytes) -> None:
    for frame in (payload, seal(payload)):
        with pytest.raises(FrameDamagedError):
            unpack("change", 7, frame)


@pytest.mark.parametrize("frame", [None, 7, "text", b"", FRAME[:7], FRAME[:-1], FRAME + b"x"])
def test_invalid_frame_is_rejected(frame: object) -> None:
    with pytest.raises(FrameDamagedError):
        unpack("change", 7, frame)


@pytest.mark.parametrize(("kind", "key"), [("part", 7), ("change", 8)])
def test_misplaced_frame_is_rejected(kind: str, key: int) -> None:
    with pytest.raises(FrameDamagedError, match="it is change 7"):
        unpack(kind, key, FRAME)


def test_sealed_bytes_are_unsealed() -> None:
    assert bytes(unseal(seal(b"abc"))) == b"abc"
    assert bytes(unseal(seal(b""))) == b""


@pytest.mark.parametrize(
    ("rows", "column"),
    [
        (3, ["leader", -1, "01", 0]),  # numpy evaluates it
        (3, ["leader", -1, "O", 0]),
        (3, ["leader", -1, "<f4", 0]),
        (2**40, ["leader", -1, "", 0]),  # terabytes of equal values
        (2**20, ["replicas", 2**20, "", 0]),
        (-1, ["leader", -1, "", 0]),
        (3, ["leader", -1, "", 2**40]),
    ],
)
def test_header_of_another_program_is_rejected(rows: int, column: list[object]) -> None:
    """A checksum proves no origin."""
    header = msgspec.msgpack.encode(["change", 7, rows, [column]])
    with pytest.raises(FrameDamagedError):
        unpack("change", 7, seal(len(header).to_bytes(4, "little") + header + bytes(64)))
