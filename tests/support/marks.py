"""Marks of generated test cases."""

from collections.abc import Iterable
from typing import Any

import pytest


def fast_and_slow(values: Iterable[Any], fast: int) -> list[Any]:
    """Returns cases for `parametrize`: the first ones are fast tests, all others are slow and left to `make test`."""
    return [
        value if number < fast else pytest.param(value, marks=pytest.mark.slow) for number, value in enumerate(values)
    ]
