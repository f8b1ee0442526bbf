"""A target of the fuzzer."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

RARELY: Final = 10


class Target(NamedTuple):
    """A decoder.

    Attributes:
        errors: the exceptions that it documents.
        seeds: valid inputs, which are changed.
        is_slow: it takes a millisecond, and gets one of RARELY times as many inputs.
    """

    name: str
    decode: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...]
    seeds: Sequence[bytes]
    is_slow: bool = False
