"""Columns that grow, for values that are kept by row number."""

from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from kactl.model import NO_BROKER
from kactl.state.rows import Ints, RowNumbers

T = TypeVar("T", bound=np.generic)

ROWS_MIN: Final = 16


def lengthened(column: npt.NDArray[T], capacity: int, fill: object) -> npt.NDArray[T]:
    """`column`, [..., n], or a longer one that begins with it if it is shorter than `capacity`. Twice as long at
    least, so that rows that come one by one do not copy it each time."""
    length = column.shape[-1]
    if length >= capacity:
        return column
    longer = np.full((*column.shape[:-1], max(capacity, 2 * length, ROWS_MIN)), fill, column.dtype)
    longer[..., :length] = column
    return longer


def put_lists(column: Ints, rows: RowNumbers, lists: Ints) -> Ints:
    """`column`, [W, n], with `lists`, [K, m], in m of its rows; a wider column if they need one.

    Free places hold NO_BROKER.
    """
    width = lists.shape[0]
    if width > column.shape[0]:
        wider = np.full((width, column.shape[1]), NO_BROKER, np.int32)
        wider[: column.shape[0]] = column
        column = wider
    column[:width, rows] = lists
    column[width:, rows] = NO_BROKER
    return column


def one_list(column: Ints, row: int) -> tuple[int, ...]:
    """The brokers of one row, in their order."""
    brokers = column[:, row]
    return tuple(brokers[brokers != NO_BROKER].tolist())
