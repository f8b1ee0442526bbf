"""A target of the fuzzer, and the oracles of one input."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kactl.security.access import PrincipalRules

# The `rarity` of targets that take some hundred microseconds, and some milliseconds.
SLOW: Final = 30
VERY_SLOW: Final = 300
# What decoding one byte of input may allocate at the same time, and what any input may.
MEMORY_PER_BYTE: Final = 32
MEMORY_FIXED: Final = 64 * 1024


class Target(NamedTuple):
    """A decoder.

    Attributes:
        errors: the exceptions that it documents.
        seeds: valid inputs, which are changed.
        rarity: it gets one of this many inputs of a target that takes microseconds, so that all take a similar time.
        memory_fixed: the bytes that it may allocate for any input.
    """

    name: str
    decode: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...]
    seeds: Sequence[bytes]
    rarity: int = 1
    memory_fixed: int = MEMORY_FIXED

    def memory_max(self, content: bytes) -> int:
        """Returns the bytes that decoding may allocate."""
        return self.memory_fixed + MEMORY_PER_BYTE * len(content)


class Violation(Exception):
    """An oracle is violated."""


def outcome(target: Target, content: bytes) -> tuple[bool, str]:
    """Returns whether an input is accepted, and the text of the value or the type of the error.

    Raises:
        Violation: an oracle is violated. Any other exception is one that the decoder does not document.
    """
    try:
        return True, _shown(target.decode(content))
    except target.errors as error:
        return False, type(error).__name__


def check(target: Target, content: bytes) -> bool:
    """Returns whether an input is accepted, both times that it is decoded.

    Raises:
        Violation: as `outcome`, or the outcomes differ.
    """
    outcomes = [outcome(target, content) for _ in range(2)]
    if outcomes[0] != outcomes[1]:
        raise Violation(f"it had two outcomes: {outcomes}")
    return outcomes[0][0]


def _shown(value: Any) -> str:
    """Returns the text of a decoded value; it has no addresses of objects."""
    if isinstance(value, memoryview):
        return repr(bytes(value))
    return "" if isinstance(value, PrincipalRules) else repr(value)
