"""Sets of row numbers. NumPy's own sort or hash all they are given, which of a million rows takes tens of milliseconds
in the middle of an event; row numbers are small and dense, so marks do it in one."""

import numpy as np

from .rows import Bools, RowNumbers


def common(at: RowNumbers, others: RowNumbers) -> RowNumbers:
    """The row numbers of `at` that are among `others` too, in the order of `at`."""
    return at[_among(at, others)]


def without(at: RowNumbers, others: RowNumbers) -> RowNumbers:
    """The row numbers of `at` that are not among `others`, in the order of `at`."""
    return at[~_among(at, others)] if len(others) else at


def _among(at: RowNumbers, others: RowNumbers) -> Bools:
    """bool of `at`'s length. Neither may hold NO_ROW."""
    marks = np.zeros(1 + max(at.max(initial=0), others.max(initial=0)), np.bool_)
    marks[others] = True
    found: Bools = marks[at]
    return found
