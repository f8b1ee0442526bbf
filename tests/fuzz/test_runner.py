"""The loop of the fuzzer finds planted bugs, divides inputs by cost, and repeats them by its seed."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.processor_time import unit_s

from . import runner
from .mutation import changed
from .target import SLOW, Target, Violation, check

SEED = b"some bytes that are changed"


def _planted(decode: Callable[[bytes], Any], *errors: type[Exception], rarity: int = 1) -> Target:
    return Target("planted", decode, errors, [SEED], rarity)


def test_undocumented_exception_is_found_with_its_input() -> None:
    with pytest.raises(IndexError) as error:
        runner.fuzz(_planted(lambda data: data[20], ValueError), 10_000, "1")

    assert len(bytes.fromhex(error.value.__notes__[0].removeprefix("planted "))) <= 20


def test_outcome_that_changes_is_found() -> None:
    calls = itertools.count()
    with pytest.raises(Violation, match="two outcomes"):
        check(_planted(lambda data: next(calls)), b"")


def test_outcome_that_depends_on_earlier_inputs_is_found() -> None:
    """Decoded twice in a row, each input has the same outcome both times."""
    lengths = [0]

    def decode(data: bytes) -> int:
        if len(data) != lengths[-1]:
            lengths.append(len(data))
        return lengths[-2]

    assert check(_planted(decode), SEED)
    with pytest.raises(Violation, match="two outcomes"):
        runner.fuzz(_planted(decode), 1_000, "1")


def test_missing_cap_of_memory_is_found() -> None:
    target = _planted(lambda data: len(bytes(data[0] << 16)) if data else 0)
    with pytest.raises(Violation, match="allocated"):
        runner.fuzz(target, 1_000, "1")


def test_rare_large_allocation_is_measured_outside_of_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    peak_kib = [0]
    monkeypatch.setattr(runner, "_peak_kib", lambda: peak_kib[0])

    def decode(data: bytes) -> int:
        if data[:2] != b"\xff\xff":
            return 0
        peak_kib[0] += 4096
        return len(bytes(4 << 20))

    with pytest.raises(Violation, match="allocated"):
        runner.fuzz(_planted(decode), 30_000, "1")


def test_slow_input_is_found() -> None:
    def decode(data: bytes) -> int:
        if data[:1] == b"\0":
            for _ in range(3 * round(runner.TIME_S * 1000)):
                unit_s()
        return len(data)

    with pytest.raises(Violation, match="it took"):
        runner.fuzz(_planted(decode), 20_000, "1")


def test_same_seed_has_the_same_inputs() -> None:
    def inputs(seed: str) -> list[bytes]:
        decoded: list[bytes] = []
        runner.fuzz(_planted(lambda data: decoded.append(data)), 600, seed)
        return decoded

    assert inputs("1") == inputs("1")
    assert inputs("1") != inputs("2")


def test_expensive_targets_get_fewer_inputs() -> None:
    cheap = _planted(len)._replace(name="cheap")
    slow = _planted(len, rarity=SLOW)._replace(name="slow")

    shares = runner.shares([cheap, slow], 310_000)

    assert shares == {"cheap": 300_000, "slow": 10_000}
    assert sum(count for _, _, count in runner.chunks([cheap, slow], 310_000)) == 310_000


def test_changes_reach_every_byte_and_the_end() -> None:
    chance = random.Random(1)
    inputs = [changed(b"abcd", b"wxyz", chance) for _ in range(5_000)]

    for place in range(4):
        assert any(len(data) > place and data[place] not in b"abcdwxyz" for data in inputs)
    assert any(data.startswith(b"abcd") and len(data) > 4 for data in inputs)
    assert b"" in inputs
    assert b"abyz" in inputs
    assert changed(b"", b"", chance) is not None
