"""Sessions of participants with the controller: which heartbeats are granted, and when a session has expired.

    registered ──heartbeat granted──▶ LIVE ──silent for T, goodbye, next life──▶ ENDING ──end committed──▶ gone
    taken over ──────────────────────▶ LIVE ──evicted──▶ EVICTED ──silent for T──▶ ENDING
    ENDING after a goodbye, or for the next life ──the store fails──▶ UNSTORED ──at once──▶ ENDING

T is the granted timeout of a session. Each grant lets the participant lead until T has passed on its own clock since it
sent the heartbeat, less the drift of the clocks. The controller therefore

* ends a session T after the *receipt* of the last heartbeat that it granted, at the earliest: receipt is not before
  sending;
* grants nothing from the moment at which it decides to end a session, whatever becomes of the decision: the store may
  have ended it although its answer was lost;
* grants nothing unless a check of its controllership was sent within the last T/3 and has succeeded. An earlier check
  proves nothing: another controller may have been elected since;
* ends no session that it has taken over before `GRACE`·T have passed since its election. The check that allowed the
  last grant of its predecessor was sent before the election. That grant is at most T/3 younger, and the heartbeat that
  it answers was sent before it.

If the clocks of two hosts differ in rate by at most the part ρ, T/3 on the predecessor's clock are at most T/3/(1-ρ) on
this one, and the lease of T·(1-ρ) on the participant's clock at most T. The sum is at most 1.5·T for ρ up to 1/3, so
participants with a larger `clock_drift` cannot have such a session.

All times are readings of the controller's lease clock, in ns. Nothing here reads a clock.
"""

import dataclasses
import enum
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Final

from kactl.model import NO_EPOCH, Broker, Endpoint
from kactl.runtime import addresses

NS_PER_MS: Final = 1_000_000
# The part of T in which a check of the controllership allows grants, and in which the next one is sent.
CONFIRMED_SHARE: Final = 3
CHECKS_PER_TIMEOUT: Final = 6
# How many T a session lasts at least that was taken over.
GRACE: Final = Fraction(3, 2)
CLOCK_DRIFT_MAX: Final = 1 / 3
# An event loop that was blocked for more than this part of T has not read the heartbeats of that time.
BLOCKED_SHARE: Final = 4
# Sessions that expire within this part of T after each other are ended together, if the first one is ended at most that
# late. A participant sends its heartbeats at intervals of T/6.
TOGETHER_SHARE: Final = 24
LATE_SHARE: Final = 6


class Phase(enum.Enum):
    """State of a session; the module's diagram shows the transitions."""

    LIVE = "live"
    EVICTED = "evicted"
    ENDING = "ending"
    UNSTORED = "unstored"


class Verdict(enum.Enum):
    """Result of a heartbeat."""

    GRANTED = "granted"
    UNCONFIRMED = "unconfirmed"
    EXPIRED = "expired"  # the session has ended, or is going to


@dataclasses.dataclass(slots=True)
class RemoteSession:
    """One session.

    Attributes:
        ends_ns: when it may be ended if no further heartbeat is granted.
        known_ns: when this controller learned that the registration is stored.
        heard_ns: when the last heartbeat that this controller granted was received; None: none was.
        end_cause: why its end was requested, if it was. Otherwise it expires.
        name: see `kactl.model.Broker`.
    """

    broker: int
    epoch: int
    incarnation: bytes
    timeout_ms: int
    ends_ns: int
    known_ns: int
    phase: Phase = Phase.LIVE
    heard_ns: int | None = None
    end_cause: str = ""
    name: str = ""

    @property
    def timeout_ns(self) -> int:
        return self.timeout_ms * NS_PER_MS


class SessionTable:
    """All sessions of one controllership.

    Args:
        elected_ns: a reading of the clock after the election.
    """

    def __init__(self, elected_ns: int) -> None:
        self.elected_ns = elected_ns
        self.confirmed_ns: int | None = None  # when the last successful check was sent
        self._sessions: dict[int, RemoteSession] = {}
        self._ended: dict[int, int] = {}  # epoch of the last registration of each broker that has ended

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[RemoteSession]:
        return iter(tuple(self._sessions.values()))

    def get(self, broker: int) -> RemoteSession | None:
        return self._sessions.get(broker)

    @property
    def timeout_ms_min(self) -> int | None:
        """Returns the shortest timeout; None without sessions."""
        return min((session.timeout_ms for session in self._sessions.values()), default=None)

    # -- registrations

    def take_over(self, broker: Broker, *, now_ns: int) -> RemoteSession:
        """Add a stored registration whose heartbeats another controller may have granted."""
        ends_ns = self.elected_ns + int(broker.timeout_ms * NS_PER_MS * GRACE)
        return self._add(broker, max(ends_ns, now_ns), now_ns)

    def begin(self, broker: Broker, *, now_ns: int) -> RemoteSession:
        """Add a registration that this controller has made."""
        return self._add(broker, now_ns + broker.timeout_ms * NS_PER_MS, now_ns)

    def _add(self, broker: Broker, ends_ns: int, now_ns: int) -> RemoteSession:
        phase = Phase.EVICTED if broker.evicted else Phase.LIVE
        session = RemoteSession(
            broker.id, broker.epoch, broker.incarnation, broker.timeout_ms, ends_ns, now_ns, phase, name=broker.name
        )  # fmt: skip
        self._sessions[broker.id] = session
        return session

    def remove(self, session: RemoteSession) -> None:
        """Remove a session without a registration."""
        if self._sessions.get(session.broker) is session:
            del self._sessions[session.broker]
            self._ended[session.broker] = session.epoch

    def compare(self, stored: dict[int, Broker], *, read_ns: int) -> tuple[list[Broker], list[RemoteSession]]:
        """Compare the sessions with stored registrations.

        A registration may have ended since it was read. With a session again it would have heartbeats granted, although
        nothing waits for its leases any more.

        Args:
            read_ns: a reading of the clock before the registrations were read. Sessions that began after that are left
                out.

        Returns:
            the registrations without a session, and the sessions whose registration is gone.
        """
        remote = {number: broker for number, broker in stored.items() if broker.session == "controller"}
        unknown = [
            broker
            for number, broker in remote.items()
            if number not in self._sessions and broker.epoch > self._ended.get(number, NO_EPOCH)
        ]
        gone = [
            session
            for session in self._sessions.values()
            if session.known_ns < read_ns
            and (session.broker not in remote or remote[session.broker].epoch != session.epoch)
        ]
        return unknown, gone

    # -- heartbeats

    def confirm(self, sent_ns: int) -> None:
        """Record a check of the controllership that was sent at `sent_ns` and has succeeded."""
        self.confirmed_ns = sent_ns if self.confirmed_ns is None else max(self.confirmed_ns, sent_ns)

    def is_confirmed(self, timeout_ns: int, *, now_ns: int) -> bool:
        """Returns whether a heartbeat of a session with that timeout can be granted now."""
        return self.confirmed_ns is not None and (now_ns - self.confirmed_ns) * CONFIRMED_SHARE <= timeout_ns

    def heartbeat(self, broker: int, epoch: int, *, received_ns: int, now_ns: int) -> Verdict:
        """Decide on a heartbeat that was received at `received_ns`."""
        session = self._sessions.get(broker)
        if session is None or session.epoch != epoch or session.phase is not Phase.LIVE:
            return Verdict.EXPIRED
        if not self.is_confirmed(session.timeout_ns, now_ns=now_ns):
            return Verdict.UNCONFIRMED
        session.ends_ns = max(session.ends_ns, received_ns + session.timeout_ns)
        session.heard_ns = received_ns
        return Verdict.GRANTED

    def evict(self, broker: int, epoch: int) -> None:
        """Grant nothing to a registration that is going to be evicted."""
        session = self._sessions.get(broker)
        if session is not None and session.epoch == epoch and session.phase is Phase.LIVE:
            session.phase = Phase.EVICTED

    # -- ends

    def end_later(self, session: RemoteSession, cause: str, *, now_ns: int) -> None:
        """End a session as one that expires now: its requested end could not be stored."""
        session.phase = Phase.UNSTORED
        session.end_cause = cause
        session.ends_ns = min(session.ends_ns, now_ns)

    def delay(self, late_ns: int) -> list[RemoteSession]:
        """Extend sessions by the time for which the event loop was blocked. Returns those that were extended."""
        blocked = [session for session in self if late_ns * BLOCKED_SHARE > session.timeout_ns]
        for session in blocked:
            session.ends_ns += late_ns
        return blocked

    def next_end_ns(self) -> int | None:
        """Returns when the next sessions are to be ended; None if there is none.

        Sessions that expire one after the other are ended together, with the last of them: the participants of one
        process or host that has failed have sent their last heartbeats at different times before. Each end costs an
        election and requests to all brokers. A session close to its end has missed several heartbeats already.
        """
        silent = sorted(
            (session for session in self if session.phase is not Phase.ENDING), key=lambda session: session.ends_ns
        )
        if not silent:
            return None
        first, last_ns = silent[0], silent[0].ends_ns
        for session in silent:
            if (session.ends_ns - last_ns) * TOGETHER_SHARE > first.timeout_ns:
                break
            if (session.ends_ns - first.ends_ns) * LATE_SHARE > first.timeout_ns:
                break
            last_ns = session.ends_ns
        return last_ns

    def expire(self, *, now_ns: int) -> list[RemoteSession]:
        """Decide to end the sessions that have expired, unless others are about to. Returns them."""
        next_ns = self.next_end_ns()
        if next_ns is None or now_ns < next_ns:
            return []
        due = [session for session in self if session.phase is not Phase.ENDING and session.ends_ns <= now_ns]
        for session in due:
            session.phase = Phase.ENDING
        return due


def is_loopback(host: str) -> bool:
    """Returns whether only programs of the same host can connect to a host."""
    return host == "localhost" or addresses.is_loopback(host)


def why_unusable(peer: Endpoint, others: Iterable[Endpoint] = ()) -> str | None:
    """Returns why other participants cannot use an address, with the remedy; None if they may.

    Args:
        others: the addresses of the other participants.
    """
    if addresses.is_wildcard(peer.host):
        return "it means all addresses of a host, and no program can connect to it: give advertise= the host's own"
    if is_loopback(peer.host):
        remote = next((other for other in others if not is_loopback(other.host)), None)
        if remote is not None:
            return (
                f"only programs of its own host can connect to it, and another participant advertises {remote.host}:"
                f"{remote.port}: give advertise= the host's own address"
            )
    return None
