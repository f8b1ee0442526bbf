"""Attempts of peers to change something, and requests that were denied, on their way to the audit trail.

Interfaces of a controller instance report them when their outcome is known. The admin API has the trail.
"""

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from kactl.model.errors import ActionTimedOut, KactlError, Remedy

if TYPE_CHECKING:
    from kactl.security.access import Principal

# done: completely. partly: some of several parts. failed: nothing was changed. unfinished: begun and still running.
# unknown: no response says what happened. denied: it was not carried out, because the peer may not do it.
Outcome = Literal["done", "partly", "failed", "unfinished", "unknown", "denied"]

# Attempts before a trail is attached, which is a moment after the interfaces are open.
_EARLY_MAX: Final = 1000


class Attempt(NamedTuple):
    """One attempt.

    Attributes:
        operation: the interface and the type of the request, such as `kafka CreateTopics`.
        target: what would be changed.
        detail: the cause, if it is not done.
    """

    principal: "Principal"
    operation: str
    outcome: Outcome
    target: str = ""
    detail: str = ""


class Recorded(NamedTuple):
    """An attempt, and when it was reported to which controllership."""

    attempt: Attempt
    time_ms: int
    controller_epoch: int


Audit = Callable[[Attempt], None]
Trail = Callable[[Recorded], None]


def no_audit(attempt: Attempt) -> None:
    """Record nothing."""


class Attempts:
    """The attempts on one controller instance. The first ones wait until a trail takes them."""

    def __init__(self) -> None:
        self._trails: list[Trail] = []
        self._early: collections.deque[Recorded] = collections.deque(maxlen=_EARLY_MAX)

    def add(self, recorded: Recorded) -> None:
        """Pass an attempt on to the trails."""
        if not self._trails:
            self._early.append(recorded)
        for trail in self._trails:
            trail(recorded)

    def attach(self, trail: Trail) -> None:
        """Pass attempts on to a trail from now on, and those that wait."""
        self._trails.append(trail)
        while self._early:
            trail(self._early.popleft())

    def detach(self, trail: Trail) -> None:
        """Pass nothing on to a trail any more."""
        self._trails.remove(trail)


def outcome_of_error(error: BaseException) -> Outcome:
    """Returns the outcome of an attempt that has ended by an exception."""
    if isinstance(error, ActionTimedOut):
        return "unfinished"
    if isinstance(error, KactlError) and error.remedy in (Remedy.REPORT, Remedy.RETRY):
        return "failed"
    return "unknown"
