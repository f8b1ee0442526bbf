"""Deadlines of leases: how long a renewal lets a participant act as a leader.

A renewal that was sent at S on the participant's clock keeps the session alive until the store has counted the timeout
T from a moment after S. Two clocks run at different rates, by at most the part ρ (`clock_drift`). The participant
therefore counts at most T·(1 − ρ) from S, and is done before any other participant can begin:

    bound     B = S + T·(1 − ρ)
    deadline  E = B − m

Between E and B the participant has the margin m to end its tasks. Offsets between clocks do not matter, a lost response
shortens the lease, and a response that arrives late moves nothing. A store that only proves that the session existed
after S is used with the time W for which the next leader waits, in place of T.

Nothing here reads a clock.
"""

import math
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from kactl.model.errors import BadRequest
from kactl.stores.base import SessionBound

NS_PER_MS: Final = 1_000_000
DRIFT_MAX: Final = 0.5
# Two failed renewals must not end a lease, and each may take a quarter of the timeout.
RENEWALS_MIN: Final = 4
# The default margin: time for tasks that are cancelled to clean up, also on a busy machine.
MARGIN_MS_MIN: Final = 100
_MARGIN_SHARE: Final = 10  # of the timeout
# Sessions of less than 400 ms, as in examples and tests, get a smaller margin, so that most of the lease remains.
_MARGIN_SHARE_MAX: Final = 4
_WAIT_SHARE: Final = Fraction(2, 3)


class LeaseConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the leases of one participant. T is the timeout of its session.

        kactl.Participant(1, network=network, handler=Shard, lease=kactl.LeaseConfig(watchdog="process"))

    Attributes:
        clock_drift: the part by which the rates of any two clocks involved may differ, 0 <= x < 0.5. The default covers
            clocks that are not synchronised, or are being corrected.
        margin_ms: reserved at the end of a lease for the leader's tasks to end. None: a tenth of T and at least 100 ms,
            but at most a quarter of T.
        renewals: how often the session is renewed in each T, at least 4.
        handover_wait_ms: how long the next leader waits if the store only witnesses sessions. None: two thirds of T.
        watchdog: "thread" or "process" ends the program if a leader's code runs on after the lease; the path of a
            watchdog device resets the machine. See `kactl.participant.leases.watchdog`. Needs handlers.
        watch_loop: a thread reports a call that blocks the event loop, with its stack, before the lease ends.
    """

    clock_drift: float = 0.1
    margin_ms: int | None = None
    renewals: int = 6
    handover_wait_ms: int | None = None
    watchdog: str = "off"
    watch_loop: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.clock_drift < DRIFT_MAX:
            raise BadRequest("lease.clock_drift", f"{self.clock_drift} is not possible: choose 0 <= x < {DRIFT_MAX}")
        if self.renewals < RENEWALS_MIN:
            raise BadRequest("lease.renewals", f"{self.renewals} are too few: choose at least {RENEWALS_MIN}")
        if self.margin_ms is not None and self.margin_ms < 0:
            raise BadRequest("lease.margin_ms", f"{self.margin_ms} is negative")
        if self.handover_wait_ms is not None and self.handover_wait_ms <= 0:
            raise BadRequest("lease.handover_wait_ms", f"{self.handover_wait_ms} is not positive")


class LeaseTerms(NamedTuple):
    """What one counted renewal is worth, in nanoseconds of the participant's clock.

    Attributes:
        length_ns: from sending the renewal to the bound.
        margin_ns: from the deadline to the bound.
    """

    length_ns: int
    margin_ns: int

    def bound(self, sent_ns: int) -> int:
        """Returns the time before which no other participant leads, for the last counted renewal."""
        return sent_ns + self.length_ns

    def deadline(self, sent_ns: int) -> int:
        """Returns the time from which the leader may not act."""
        return sent_ns + self.length_ns - self.margin_ns


def lease_terms(timeout_ms: int, bound: SessionBound, config: LeaseConfig) -> LeaseTerms:
    """Returns the terms of leases in a session.

    Args:
        timeout_ms: the granted timeout of the session.

    Raises:
        BadRequest: the margin leaves no time to lead.
    """
    counted_ms: int | Fraction = timeout_ms
    if bound.kind == "witnessed":
        counted_ms = handover_wait_ms(timeout_ms, config)
    drift = Fraction(0) if bound.same_clock else Fraction(config.clock_drift)
    length_ns = math.floor(counted_ms * NS_PER_MS * (1 - drift)) - bound.resolution_ns
    margin_ns = margin_ms(timeout_ms, config) * NS_PER_MS
    if margin_ns >= length_ns:
        raise BadRequest(
            "lease.margin_ms",
            f"{margin_ns // NS_PER_MS} ms leave nothing of a lease of {length_ns // NS_PER_MS} ms: choose a longer "
            "session_timeout_ms, or a smaller margin",
        )
    return LeaseTerms(length_ns, margin_ns)


def margin_ms(timeout_ms: int, config: LeaseConfig) -> int:
    """Returns m."""
    if config.margin_ms is not None:
        return config.margin_ms
    return min(max(MARGIN_MS_MIN, timeout_ms // _MARGIN_SHARE), timeout_ms // _MARGIN_SHARE_MAX)


def handover_wait_ms(timeout_ms: int, config: LeaseConfig) -> int:
    """Returns W."""
    return math.floor(timeout_ms * _WAIT_SHARE) if config.handover_wait_ms is None else config.handover_wait_ms
