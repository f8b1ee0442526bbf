"""Controllers that have granted leases to a program, and those that cannot be of the same store.

A controller grants nothing once another one was elected, but for a check of its controllership that is under way. So
two of them that served at one time have two stores: a copy of a store beside the original, or those of two clusters
whose addresses stand in one list. Each would elect leaders, and know nothing of the leases of the other one.

             began        elected at the latest
    later ─────┼────────────────┼──────────────▶ welcome
    last  ──────────────────────────grant───▶            two stores: the grant is younger than the controllership

Both times are ages, as the clocks of two hosts differ. A clock that stood still, as that of a suspended virtual
machine, makes the grant look too young: the wall clock is compared, too, and is right again some time after.
"""

from typing import Final, NamedTuple

from kactl.decide.machines.remote_sessions import CONFIRMED_SHARE, NS_PER_MS
from kactl.model import NO_EPOCH
from kactl.runtime.clock import Clock

# The rates of the clocks of two hosts differ by far less.
_DRIFT: Final = 0.01


class Term(NamedTuple):
    """A controllership, as a program was welcomed by it.

    Attributes:
        asked_ns, welcomed_ns: when the handshake began and ended, by the lease clock of this program.
        active_ms: how long the controllership had lasted then.
    """

    controller: str
    epoch: int
    asked_ns: int
    welcomed_ns: int
    active_ms: int

    @property
    def began_ns(self) -> int:
        """When it began, at the latest."""
        return self.welcomed_ns - self.active_ms * NS_PER_MS

    def may_be(self, other: "Term") -> bool:
        """Returns whether both may be one controllership."""
        if (self.controller, self.epoch) != (other.controller, other.epoch):
            return False
        earlier, later = sorted((self, other), key=lambda term: term.began_ns)
        window_ns = later.welcomed_ns - later.asked_ns + abs(self.welcomed_ns - other.welcomed_ns) * _DRIFT
        return later.began_ns - window_ns <= earlier.began_ns


class _Grant(NamedTuple):
    term: Term
    timeout_ms: int
    sent_ns: int
    wall_ms: int


class Served:
    """The last lease that a controller has granted to one program."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._last: _Grant | None = None
        self._foreign: set[tuple[str, int]] = set()

    def granted(self, term: Term, *, timeout_ms: int, sent_ns: int) -> None:
        """Remember a heartbeat that was sent then, and granted."""
        if term.epoch != NO_EPOCH:
            self._last = _Grant(term, timeout_ms, sent_ns, self.clock.now_ms())

    def why_foreign(self, term: Term) -> str:
        """Returns why the controller of a term uses another store than the one that has served last; empty if unknown.

        This stays, also while that one is gone: its other participants may still have leases.
        """
        last, now_ns = self._last, self.clock.lease_ns()
        if last is None or term.epoch == NO_EPOCH or term.may_be(last.term):
            return ""
        age_ms = (now_ns - last.sent_ns) / NS_PER_MS
        wall_ms = self.clock.now_ms() - last.wall_ms
        tolerance_ms = last.timeout_ms / CONFIRMED_SHARE
        active_ms = (now_ns - term.began_ns) / NS_PER_MS
        if wall_ms - age_ms > tolerance_ms:
            self._foreign.clear()
        key = (term.controller, term.epoch)
        if key not in self._foreign and active_ms <= max(age_ms, wall_ms) * (1 + _DRIFT) + tolerance_ms:
            return ""
        self._foreign.add(key)
        return (
            f"controller {term.controller} has been active for {active_ms / 1000:.1f} s under epoch {term.epoch}, but "
            f"controller {last.term.controller} has granted a lease {age_ms / 1000:.1f} s ago under epoch "
            f"{last.term.epoch}: they use different stores, such as a copy beside the original, or those of two "
            "clusters. Stop the wrong one, or take its address out of controllers=. A participant that has to use it "
            "anyway has to be restarted"
        )
