"""Bounds and estimates of when a lost broker stopped responding, and when it responded again.

A controller detects a loss when the session ends; the broker was silent before that. By how much follows from the
session timeout T:

    ZooKeeper   ──ping──ping──╳ silent ········ T after the last ping, rounded up to a tick ──▶ detected
                a client pings when it has sent nothing for T/3, or a second earlier

                detected - T - tick  <=  silent  <=  detected - 2/3 T + tick

    KRaft       ──heartbeat──heartbeat──╳ silent ··· T after the last heartbeat, checked every T/8 ──▶ fenced
                a broker sends one each `broker.heartbeat.interval.ms` (h)

                fenced - 9/8 T - 0.5 s  <=  silent  <=  fenced - T + h + 0.5 s

The session of a ZooKeeper controller ends with it, so its successor's election stands for `detected`. A broker that the
successor finds absent may have been lost at any time since the old controller could last detect it. A KRaft controller
that becomes active gives each broker a new session, so an earlier loss is detected T later.

Followers narrow these bounds: a FETCH that a leader left without a response was sent before it fell silent, and a live
leader responds within `replica.fetch.wait.max.ms` (500 ms).

If no log has T, the default of Kafka's version is used for the estimate, and bounds nothing.

All times are microseconds. Source: ZooKeeper's ClientCnxn and ExpiryQueue, Kafka's BrokerLifecycleManager and
BrokerHeartbeatManager.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

SECOND_US: Final = 1_000_000
# ZooKeeper's default of tickTime. Servers reject sessions of less than two ticks.
TICK_US: Final = 3_000_000
TICKS_MIN: Final = 2
# A busy controller is late by up to this much, and so is a heartbeat in transit.
LATE_US: Final = 500_000
# `replica.fetch.wait.max.ms`.
FETCH_WAIT_US: Final = 500_000
# Kafka's defaults.
ZOOKEEPER_TIMEOUT_US: Final = 18_000_000
ZOOKEEPER_TIMEOUT_OLD_US: Final = 6_000_000
_LONGER_SINCE: Final = (2, 5)
KRAFT_TIMEOUT_US: Final = 9_000_000
HEARTBEAT_US: Final = 2_000_000
# From the death of an active controller to its successor's activation: voters detect the loss of their leader after
# `controller.quorum.fetch.timeout.ms` (2 s), and elect within about one more second.
QUORUM_US: Final = 3_000_000
# From a broker's first line to its configuration dump.
START_US: Final = 60_000_000

# Source of the session timeout.
NEGOTIATED: Final = "negotiated"
CONFIGURED: Final = "configured"
OTHERS: Final = "other-brokers"
DEFAULT: Final = "default"

# Evidence of the best estimate.
BY_FETCH: Final = "fetch"
BY_SESSION: Final = "session"
BY_SIGN: Final = "sign"


class Session(NamedTuple):
    """A session timeout and its source. `heartbeat_us` is None with ZooKeeper."""

    timeout_us: int
    by: str
    heartbeat_us: int | None = None

    @property
    def is_known(self) -> bool:
        """True if a log has it."""
        return self.by != DEFAULT


class Window(NamedTuple):
    """How long before a session's end its broker fell silent: at most, at least, and most likely."""

    longest_us: int
    shortest_us: int
    likely_us: int


class Loss(NamedTuple):
    """A loss as a controller saw it.

    Attributes:
        detected_us: when the controller detected it.
        elected_us: when that controller was elected; None if unknown.
        is_predecessor: whether the broker was the controller before.
        is_listed: whether the broker was missing from the list of a new controller, so that its session may have ended
            before.
        is_orderly: whether it left by a controlled shutdown, which ends the session at once.
    """

    detected_us: int
    elected_us: int | None = None
    is_predecessor: bool = False
    is_listed: bool = False
    is_orderly: bool = False


class Signs(NamedTuple):
    """Evidence about a broker around a loss; None if unknown.

    Attributes:
        last_us: its last line before the silence, or before the detection if there is none.
        last_detected_us: its last line before the loss was detected.
        first_us: its first line after `Bounds.high_us`. first_role_us: its first one as a broker, not a controller.
        slept_from_us, slept_until_us: a gap without any line that spans `Bounds.high_us`.
        starts_us: when it was started, ascending.
        fetches: begin and end of intervals in which it fell silent, as followers saw it; ascending.
    """

    last_us: int | None = None
    last_detected_us: int | None = None
    first_us: int | None = None
    first_role_us: int | None = None
    slept_from_us: int | None = None
    slept_until_us: int | None = None
    starts_us: Sequence[int] = ()
    fetches: Sequence[tuple[int, int]] = ()


class Bounds(NamedTuple):
    """Bounds and estimate of when a broker fell silent, from its session alone. `low_us` is None if unbounded."""

    low_us: int | None
    high_us: int
    likely_us: int


class Silence(NamedTuple):
    """When a broker fell silent.

    Attributes:
        at_us: best estimate. by: the evidence it is based on.
        low_us, high_us: bounds; `low_us` is None if unbounded.
        awake_us: its first line afterwards; None if none is known, or if it was restarted.
    """

    at_us: int
    by: str
    low_us: int | None
    high_us: int
    awake_us: int | None


def zookeeper(timeout_us: int) -> Window:
    tick = min(TICK_US, timeout_us // TICKS_MIN)
    third = timeout_us // 3
    ping = max(third - SECOND_US, min(third, SECOND_US))
    return Window(timeout_us + tick, max(0, 2 * third - tick), timeout_us - ping // 2 + tick // 4)


def kraft(timeout_us: int, heartbeat_us: int) -> Window:
    check = timeout_us // 8
    return Window(
        timeout_us + check + LATE_US,
        max(0, timeout_us - heartbeat_us - LATE_US),
        timeout_us + check // 2 - heartbeat_us // 2,
    )


def default(versions: Iterable[str], *, is_kraft: bool) -> Session:
    """Returns the default session of a broker without its own. `versions` of its files are as in the table of files."""
    if is_kraft:
        return Session(KRAFT_TIMEOUT_US, DEFAULT, HEARTBEAT_US)
    is_old = any(_is_before(version, _LONGER_SINCE) for version in versions)
    return Session(ZOOKEEPER_TIMEOUT_OLD_US if is_old else ZOOKEEPER_TIMEOUT_US, DEFAULT)


def _is_before(versions: str, version: tuple[int, int]) -> bool:
    """True if the last of "1.0-2.3" or "2.4" is older; "3.5+" and "mixed" have no known end."""
    last = versions.rpartition("-")[2].split(".")
    return len(last) == 2 and all(part.isdecimal() for part in last) and tuple(map(int, last)) < version


def bounds(loss: Loss, session: Session) -> Bounds:
    """Returns the bounds that follow from the session alone."""
    if loss.is_orderly:
        return Bounds(None, loss.detected_us, loss.detected_us)
    of_session = _kraft_bounds(loss, session) if session.heartbeat_us is not None else _zookeeper_bounds(loss, session)
    return of_session if session.is_known else Bounds(None, loss.detected_us, of_session.likely_us)


def _zookeeper_bounds(loss: Loss, session: Session) -> Bounds:
    window = zookeeper(session.timeout_us)
    elected = loss.detected_us if loss.elected_us is None else loss.elected_us
    if loss.is_predecessor:
        return _before(elected, window)
    if loss.is_listed:
        low = None if loss.elected_us is None else elected - 2 * window.longest_us
        return Bounds(low, loss.detected_us - window.shortest_us, elected - window.likely_us)
    return _before(loss.detected_us, window)


def _kraft_bounds(loss: Loss, session: Session) -> Bounds:
    assert session.heartbeat_us is not None
    window = kraft(session.timeout_us, session.heartbeat_us)
    renewed = _before(loss.detected_us, window)
    if loss.elected_us is None or loss.detected_us - window.longest_us > loss.elected_us:
        return renewed
    # The session was renewed when this controller became active.
    high = min(renewed.high_us, loss.elected_us + session.heartbeat_us + LATE_US)
    return Bounds(None, high, min(loss.elected_us - QUORUM_US, high))


def _before(end_us: int, window: Window) -> Bounds:
    return Bounds(end_us - window.longest_us, end_us - window.shortest_us, end_us - window.likely_us)


def silence(loss: Loss, of_session: Bounds, signs: Signs) -> Silence:
    """Returns when the broker fell silent, by its session and all other evidence."""
    restart = next(
        (at_us for at_us in signs.starts_us if of_session.high_us <= at_us or _was_restarted(at_us, of_session, loss)),
        None,
    )
    if _continued_to_write(loss, of_session, signs, restart):
        # It outlived its session: it closed the session, or only lost the connection.
        last = loss.detected_us if signs.last_detected_us is None else signs.last_detected_us
        return Silence(last, BY_SIGN, _later(signs.last_us, of_session.low_us), loss.detected_us, None)
    high = of_session.high_us if restart is None else min(of_session.high_us, restart)
    low = _later(signs.last_us, of_session.low_us)
    low = None if low is None else min(low, high)
    at_us, by = _guess(of_session, signs, low, high, loss)
    return Silence(at_us, by, low, high, _awake(signs, restart))


def _was_restarted(start_us: int, of_session: Bounds, loss: Loss) -> bool:
    """True if the broker was started between its death and the detection of that."""
    return of_session.low_us is not None and of_session.low_us < start_us <= loss.detected_us


def _continued_to_write(loss: Loss, of_session: Bounds, signs: Signs, restart: int | None) -> bool:
    """True if it continued to write while its session should have been silent, and was neither paused nor dead."""
    last = signs.last_detected_us
    if loss.is_orderly or last is None or last <= of_session.high_us or of_session.high_us == loss.detected_us:
        return False
    return signs.slept_from_us is None and not (restart is not None and restart <= loss.detected_us)


def _guess(of_session: Bounds, signs: Signs, low: int | None, high: int, loss: Loss) -> tuple[int, str]:
    for begin, end in signs.fetches:
        if end <= high and (low is None or end >= low):
            # A connection that broke at once shows the death itself; otherwise the broker fell silent while the request
            # waited.
            at_us = end if end - begin < FETCH_WAIT_US else (begin + end) // 2
            return (at_us if low is None else max(at_us, low)), BY_FETCH
    if loss.is_orderly and signs.last_us is not None:
        return signs.last_us, BY_SIGN
    if low is not None and low > of_session.likely_us:
        # A last line, or the end of the window, truncates the likely range: take the middle of the rest.
        return (low, BY_SIGN) if of_session.low_us is None else ((low + high) // 2, BY_SESSION)
    return min(of_session.likely_us, high), BY_SESSION


def _awake(signs: Signs, restart: int | None) -> int | None:
    times_us = [time_us for time_us in (signs.first_us, signs.slept_until_us) if time_us is not None]
    if not times_us:
        return None
    first = min(times_us)
    is_start = restart is not None and restart - START_US <= first
    # A starting broker logs partitions only after its configuration: earlier lines are of the previous process.
    wrote_before = restart is not None and signs.first_role_us is not None and signs.first_role_us < restart
    return None if is_start and not wrote_before else first


def _later(*times: int | None) -> int | None:
    return max((time_us for time_us in times if time_us is not None), default=None)


def unanswered(at_us: int, waited_us: int | None) -> tuple[int, int]:
    """Returns the interval in which a broker fell silent, by a FETCH that was without a response until `at_us`."""
    if waited_us is None:
        return at_us, at_us
    begin = at_us - waited_us
    return begin, min(at_us, begin + FETCH_WAIT_US)


def agreed(values: Iterable[int]) -> int | None:
    """Returns the common value of all; None if they differ, or if there are none."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None
