"""Columns that grow, for values that are stored by row number."""

from typing import Any, Final

import numpy as np

from kactl.decide.state.columns import grown
from kactl.decide.state.rows import Ints, RowNumbers
from kactl.model import NO_BROKER

ROWS_MIN: Final = 16


def grow(column: Any, capacity: int, fill: object) -> Any:
    """Returns `column`, [..., n]; if it is shorter than `capacity`, a longer copy with `fill` in the new rows.

    The copy is at least twice as long, so that adding rows one by one does not copy the column each time.
    """
    length = column.shape[-1]
    return column if length >= capacity else grown(column, max(capacity, 2 * length, ROWS_MIN), fill)


def put_lists(column: Ints, rows: RowNumbers, lists: Ints) -> Ints:
    """Write `lists`, [K, m], to m rows of `column`, [W, n]; free slots contain NO_BROKER.

    Returns:
        the column, or a wider copy if K > W.
    """
    width = lists.shape[0]
    if width > column.shape[0]:
        wider = np.full((width, column.shape[1]), NO_BROKER, np.int32)
        wider[: column.shape[0]] = column
        column = wider
    column[:width, rows] = lists
    column[width:, rows] = NO_BROKER
    return column


def broker_list(column: Ints, row: int) -> tuple[int, ...]:
    """Returns the brokers of one row, in their order."""
    brokers = column[:, row]
    return tuple(brokers[brokers != NO_BROKER].tolist())
