"""Sets of row numbers, against NumPy's own, which know nothing of rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kactl.state.row_sets import common, without

ROWS = st.sets(st.integers(0, 60)).map(lambda rows: np.array(sorted(rows), np.intp))


@given(ROWS, ROWS)
def test_common_is_the_intersection(at: np.ndarray, others: np.ndarray) -> None:
    assert common(at, others).tolist() == np.intersect1d(at, others).tolist()


@given(ROWS, ROWS)
def test_without_is_the_difference(at: np.ndarray, others: np.ndarray) -> None:
    assert without(at, others).tolist() == np.setdiff1d(at, others).tolist()


def test_the_order_of_the_first_stays() -> None:
    at, others = np.array([9, 2, 5, 0], np.intp), np.array([5, 7, 9], np.intp)

    assert common(at, others).tolist() == [9, 5]
    assert without(at, others).tolist() == [2, 0]
