"""Marks of generated test cases."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings


def at_most(examples: int) -> int:
    """Returns the number of examples of a property with another one than most: fewer if the profile has fewer."""
    most = settings().max_examples
    return min(examples, most) if most < settings.get_profile("default").max_examples else examples


def kept_and_long(values: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """Returns cases for `parametrize`: those of `kept` run in `make test`, all others are left to `make truth`."""
    return [value if value in kept else pytest.param(value, marks=pytest.mark.long) for value in values]


def fast_and_slow(values: Iterable[Any], fast: int) -> list[Any]:
    """Returns cases for `parametrize`: the first ones are fast tests, all others are slow and left to `make test`."""
    return [
        value if number < fast else pytest.param(value, marks=pytest.mark.slow) for number, value in enumerate(values)
    ]
