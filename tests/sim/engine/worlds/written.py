"""Entries that an operation of a simulated store has written."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Op(NamedTuple):
    """One entry that a commit of a simulated store wrote, in the field `ops` of its event.

    Attributes:
        old: version before; -1 if the entry did not exist.
        new: version after; -1 if the entry was removed. Entries without versions of their own use 0.
        value: the stored record afterwards; None if the entry was removed.
    """

    key: str
    old: int
    new: int
    value: dict[str, Any] | None


class Written(NamedTuple):
    """What an operation wrote, and the keys that it did not write."""

    ops: list[Op]
    conflicts: list[str]


After = Callable[[Any], Written]
# Called before an operation, with the stored data and the operation's arguments. Returns a function that receives the
# result and returns what was written.
Writes = Callable[..., After]
