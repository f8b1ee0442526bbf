"""History of controllerships: the instance, start, end and cause of the end, as far as this instance has seen them.

Start and end of its own terms are exact. Terms of other instances are taken from the store, which a standby instance
reads whenever the controllership changes.
"""

import collections
from collections.abc import Iterable
from typing import Final

import msgspec

from kactl.model import ControllerRecord

# A controllership that moves every minute fills this in a working day.
TERMS_MAX: Final = 500
ENDED_UNSEEN: Final = "the instance ended without giving it up"


class Term(msgspec.Struct, frozen=True):
    """One controllership.

    Attributes:
        epoch: it rises by one from each to the next; one that is missing here came and went unseen.
        began_ms, ended_ms: wall clock; `ended_ms` is None while it lasts, and when its end was seen for one of others.
        cause: why it ended, empty while it lasts.
        ours: whether it was this instance's.
    """

    epoch: int
    controller_id: int
    began_ms: int
    ended_ms: int | None = None
    cause: str = ""
    ours: bool = False


class Controllerships:
    """Terms of controllership, as seen by this instance. The newest TERMS_MAX are kept."""

    def __init__(self) -> None:
        self._terms: collections.deque[Term] = collections.deque(maxlen=TERMS_MAX)

    def all(self) -> list[Term]:
        """Returns the terms, oldest first."""
        return list(self._terms)

    def began_ms(self, epoch: int) -> int | None:
        """Returns when this instance was elected under an epoch; None if the epoch is none of its own."""
        position = self._own(epoch)
        return None if position is None else self._terms[position].began_ms

    def restore(self, terms: Iterable[Term]) -> None:
        """Insert terms of earlier processes, which have all ended, before those of this process."""
        self._terms.extend(terms)

    def elected(self, *, epoch: int, controller_id: int, now_ms: int) -> None:
        """Record the election of this instance."""
        self._end("a later controller was elected", now_ms)
        self._terms.append(Term(epoch, controller_id, now_ms, ours=True))

    def resigned(self, *, epoch: int, cause: str, now_ms: int) -> None:
        """Record the resignation of this instance; ignored if the term has ended already.

        Args:
            now_ms: as the event of the resignation has it, from which a later process restores the term.
        """
        position = self._own(epoch)
        if position is not None:
            self._end(cause, now_ms, position)

    def seen(self, record: ControllerRecord | None, *, now_ms: int) -> None:
        """Record the controller that the store names; None if there is none."""
        latest = self._terms[-1] if self._terms else None
        if record is None:
            if latest is not None and not latest.ours:
                self._end("nobody holds it any more", now_ms)
        elif latest is None or record.epoch > latest.epoch:
            if latest is not None and not latest.ours:  # a term of ours ends when this instance resigns
                self._end("a later controller was elected", now_ms)
            self._terms.append(Term(record.epoch, record.id, record.since_ms))

    def _own(self, epoch: int) -> int | None:
        own = (at for at, term in reversed(list(enumerate(self._terms))) if term.ours and term.epoch == epoch)
        return next(own, None)

    def _end(self, cause: str, now_ms: int, position: int = -1) -> None:
        if self._terms and self._terms[position].ended_ms is None:
            self._terms[position] = msgspec.structs.replace(self._terms[position], ended_ms=now_ms, cause=cause)
