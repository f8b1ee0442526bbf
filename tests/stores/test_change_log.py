"""Tests of the log of recently written entries, and of its limits."""

import numpy as np
import pytest

from kactl.stores import entries
from kactl.stores.entries import ChangeLog


def row_numbers(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


def since(log: ChangeLog, seq: int) -> list[tuple[int, int]] | None:
    found = log.since(seq)
    return None if found is None else sorted(zip(found[0].tolist(), found[1].tolist(), strict=True))


def test_changes_after_a_position_are_returned() -> None:
    log = ChangeLog()
    log.add(1, row_numbers(7, 7), row_numbers(0, 1))
    log.add(3, row_numbers(8), row_numbers(0))

    assert since(log, 0) == [(7, 0), (7, 1), (8, 0)]
    assert since(log, 1) == since(log, 2) == [(8, 0)]
    assert since(log, 3) == []


def test_changes_before_the_beginning_are_unknown() -> None:
    log = ChangeLog()
    log.add(1, row_numbers(7), row_numbers(0))
    log.begin(5)
    log.add(6, row_numbers(8), row_numbers(0))

    assert since(log, 4) is None
    assert since(log, 5) == [(8, 0)]


def test_dropped_changes_are_reported_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "ROWS_MAX", 3)
    log = ChangeLog()
    for seq in range(1, 6):
        log.add(seq, row_numbers(seq), row_numbers(0))

    assert since(log, 1) is None
    assert since(log, 2) == [(3, 0), (4, 0), (5, 0)]


@pytest.mark.parametrize("rows", [0, 1])
def test_number_of_small_changes_is_limited(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(entries, "CHANGES_MAX", 3)
    log = ChangeLog()
    for seq in range(1, 6):
        log.add(seq, row_numbers(*[seq] * rows), row_numbers(*[0] * rows))

    assert since(log, 1) is None
    assert since(log, 2) == [(3, 0), (4, 0), (5, 0)][: 3 * rows]


def test_later_changes_of_the_columns_have_no_effect() -> None:
    log, topic = ChangeLog(), row_numbers(1)
    log.add(1, topic, row_numbers(0))

    topic[0] = 9

    assert since(log, 0) == [(1, 0)]
