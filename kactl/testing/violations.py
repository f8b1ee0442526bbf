"""Checkers of a history, and the violations that they find."""

from collections.abc import Iterable
from typing import ClassVar

from .history import Event


class Violation(Exception):
    """A run broke an invariant.

    Attributes:
        invariant: its number, for example `INV-19`.
        text: what is wrong, with the values that show it.
        event: the event that broke it; None if it was found outside an event.
        contradicts: the earlier event that it contradicts, if there is one.
    """

    def __init__(
        self, invariant: str, text: str, *, event: Event | None = None, contradicts: Event | None = None
    ) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text
        self.event = event
        self.contradicts = contradicts

    @property
    def signature(self) -> str:
        """What makes two violations the same: the invariant, and the kinds of the two events."""
        kinds = [event.kind for event in (self.contradicts, self.event) if event is not None]
        return " ".join((self.invariant, *kinds))


class Checker:
    """Base class of checkers. A checker keeps its own state and never calls the code that it judges.

    Attributes:
        kinds: events that `check` reads.
        invariants: numbers that it can report.
    """

    kinds: ClassVar[tuple[str, ...]] = ()
    invariants: ClassVar[tuple[str, ...]] = ()

    def check(self, event: Event) -> Violation | None:
        """Returns the violation that this event makes, or None. Called in the order of the events."""
        return None

    def at_end(self) -> Violation | None:
        """Returns a violation that only the whole history shows, or None."""
        return None


def check(events: Iterable[Event], checkers: Iterable[Checker]) -> None:
    """Read a recorded history with new checkers.

    Raises:
        Violation: the first one.
    """
    every = list(checkers)
    readers: dict[str, list[Checker]] = {}
    for checker in every:
        for kind in checker.kinds:
            readers.setdefault(kind, []).append(checker)
    for event in events:
        for checker in readers.get(event.kind, ()):
            if (violation := checker.check(event)) is not None:
                raise violation
    for checker in every:
        if (violation := checker.at_end()) is not None:
            raise violation
