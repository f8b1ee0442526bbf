"""Columns that grow, for values that are stored by row number."""

from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from kactl.model import NO_BROKER
from kactl.state.rows import Ints, RowNumbers

T = TypeVar("T", bound=np.generic)

ROWS_MIN: Final = 16


def grow(column: npt.NDArray[T], capacity: int, fill: object) -> npt.NDArray[T]:
    """Returns `column`, [..., n]; if it is shorter than `capacity`, a longer copy with `fill` in the new rows.

    The copy is at least twice as long, so that adding rows one by one does not copy the column each time.
    """
    length = column.shape[-1]
    if length >= capacity:
        return column
    longer = np.full((*column.shape[:-1], max(capacity, 2 * length, ROWS_MIN)), fill, column.dtype)
    longer[..., :length] = column
    return longer


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
