"""When a lost broker stopped answering, and when it answered again.

A controller takes note of a loss when the session ends; the broker was silent before that. How long before follows from
the session timeout T:

    ZooKeeper   ──ping──ping──╳ silent ········ T after the last ping, rounded up to a tick ──▶ detected
                a client pings when it has sent nothing for T/3, or a second earlier

                detected - T - tick  <=  silent  <=  detected - 2/3 T + tick

    KRaft       ──heartbeat──heartbeat──╳ silent ··· T after the last heartbeat, checked every T/8 ──▶ fenced
                a broker sends one each `broker.heartbeat.interval.ms` (h)

                fenced - 9/8 T - 0.5 s  <=  silent  <=  fenced - T + h + 0.5 s

A ZooKeeper controller that died takes its session with it, so that its successor's election stands for `detected`. A
broker that the successor finds gone may have been lost any time since the old controller could last look. A KRaft
controller that becomes active gives each broker a new session, so that a loss from before is detected T later.

Within these bounds followers know more: the FETCH that a leader left without an answer was sent before it fell silent,
and a leader that lives answers within `replica.fetch.wait.max.ms` (500 ms).

Where no log has T, the default of Kafka's version is assumed for the best guess, and bounds nothing.

All times are microseconds. Source: ZooKeeper's ClientCnxn and ExpiryQueue, Kafka's BrokerLifecycleManager and
BrokerHeartbeatManager.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

SECOND_US: Final = 1_000_000
# ZooKeeper's own default of tickTime. Servers refuse sessions of less than two ticks.
TICK_US: Final = 3_000_000
TICKS_MIN: Final = 2
# A busy controller is late by this much, and so is a heartbeat on its way.
LATE_US: Final = 500_000
# `replica.fetch.wait.max.ms`.
FETCH_WAIT_US: Final = 500_000
# Kafka's defaults.
ZOOKEEPER_TIMEOUT_US: Final = 18_000_000
ZOOKEEPER_TIMEOUT_OLD_US: Final = 6_000_000
_LONGER_SINCE: Final = (2, 5)
KRAFT_TIMEOUT_US: Final = 9_000_000
HEARTBEAT_US: Final = 2_000_000
# From the death of an active controller to its successor's activation: voters miss their leader after
# `controller.quorum.fetch.timeout.ms` (2 s), and elect within about one more second.
QUORUM_US: Final = 3_000_000
# From a broker's first line to its configuration dump.
START_US: Final = 60_000_000

# Where the session timeout is from.
NEGOTIATED: Final = "negotiated"
CONFIGURED: Final = "configured"
OTHERS: Final = "other-brokers"
DEFAULT: Final = "default"

# What the best guess follows from.
BY_FETCH: Final = "fetch"
BY_SESSION: Final = "session"
BY_SIGN: Final = "sign"


class Session(NamedTuple):
    """A session timeout, and where it is from. `heartbeat_us` is None with ZooKeeper."""

    timeout_us: int
    by: str
    heartbeat_us: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether a log has it."""
        return self.by != DEFAULT


class Window(NamedTuple):
    """How long before a session's end its broker fell silent: at the most, at the least, and most likely."""

    longest_us: int
    shortest_us: int
    likely_us: int


class Loss(NamedTuple):
    """A loss as a controller saw it.

    Attributes:
        detected_us: when it took note.
        elected_us: when the controller that took note was elected; None if unknown.
        is_predecessor: whether the broker was the controller before.
        is_listed: whether it was missing from what a new controller found, so that its session may have ended before.
        is_orderly: whether it went by a controlled shutdown, which ends the session at once.
    """

    detected_us: int
    elected_us: int | None = None
    is_predecessor: bool = False
    is_listed: bool = False
    is_orderly: bool = False


class Signs(NamedTuple):
    """What is known of a broker around a loss; None for what is not.

    Attributes:
        last_us: its last line before the silence, and before it was detected if there is none.
        last_detected_us: its last line before the loss was detected.
        first_us: its first line after `Bounds.high_us`. first_role_us: its first one as a broker, not a controller.
        slept_from_us, slept_until_us: a time without any line that spans `Bounds.high_us`.
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
    """Between which times a broker fell silent by its session alone, and when most likely; `low_us` None: unbounded."""

    low_us: int | None
    high_us: int
    likely_us: int


class Silence(NamedTuple):
    """When a broker fell silent.

    Attributes:
        at_us: the best guess. by: what it follows from.
        low_us, high_us: bounds; `low_us` is None if nothing bounds it.
        awake_us: its first sign of life afterwards; None if none is known, or if it was started anew.
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
    """What is assumed of a broker whose logs do not have it. `versions` of its files are as in the table of files."""
    if is_kraft:
        return Session(KRAFT_TIMEOUT_US, DEFAULT, HEARTBEAT_US)
    is_old = any(_is_before(each, _LONGER_SINCE) for each in versions)
    return Session(ZOOKEEPER_TIMEOUT_OLD_US if is_old else ZOOKEEPER_TIMEOUT_US, DEFAULT)


def _is_before(versions: str, version: tuple[int, int]) -> bool:
    """Whether the last of "1.0-2.3" or "2.4" is older; "3.5+" and "mixed" are of no known end."""
    last = versions.rpartition("-")[2].split(".")
    return len(last) == 2 and all(each.isdecimal() for each in last) and tuple(map(int, last)) < version


def bounds(loss: Loss, session: Session) -> Bounds:
    """What follows from the session alone."""
    if loss.is_orderly:
        return Bounds(None, loss.detected_us, loss.detected_us)
    found = _kraft_bounds(loss, session) if session.heartbeat_us is not None else _zookeeper_bounds(loss, session)
    return found if session.is_known else Bounds(None, loss.detected_us, found.likely_us)


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
    found = _before(loss.detected_us, window)
    if loss.elected_us is None or loss.detected_us - window.longest_us > loss.elected_us:
        return found
    # The session was renewed when this controller became active.
    high = min(found.high_us, loss.elected_us + session.heartbeat_us + LATE_US)
    return Bounds(None, high, min(loss.elected_us - QUORUM_US, high))


def _before(end_us: int, window: Window) -> Bounds:
    return Bounds(end_us - window.longest_us, end_us - window.shortest_us, end_us - window.likely_us)


def silence(loss: Loss, given: Bounds, signs: Signs) -> Silence:
    """When the broker fell silent, by its session and by all other signs."""
    restart = next((at for at in signs.starts_us if given.high_us <= at or _is_within(at, given, loss)), None)
    if _wrote_on(loss, given, signs, restart):
        # It outlived its session: it closed it, or only lost sight of it.
        last = loss.detected_us if signs.last_detected_us is None else signs.last_detected_us
        return Silence(last, BY_SIGN, _later(signs.last_us, given.low_us), loss.detected_us, None)
    high = given.high_us if restart is None else min(given.high_us, restart)
    low = _later(signs.last_us, given.low_us)
    low = None if low is None else min(low, high)
    at, by = _guess(given, signs, low, high, loss)
    return Silence(at, by, low, high, _awake(signs, restart))


def _is_within(start_us: int, given: Bounds, loss: Loss) -> bool:
    """Whether it was started between its death and the detection of that."""
    return given.low_us is not None and given.low_us < start_us <= loss.detected_us


def _wrote_on(loss: Loss, given: Bounds, signs: Signs, restart: int | None) -> bool:
    """Whether it went on writing while it should have been silent, by the session, and was neither paused nor dead."""
    last = signs.last_detected_us
    if loss.is_orderly or last is None or last <= given.high_us or given.high_us == loss.detected_us:
        return False
    return signs.slept_from_us is None and not (restart is not None and restart <= loss.detected_us)


def _guess(given: Bounds, signs: Signs, low: int | None, high: int, loss: Loss) -> tuple[int, str]:
    for begin, end in signs.fetches:
        if end <= high and (low is None or end >= low):
            # A connection that broke at once is the death itself; else it fell silent while the request waited.
            at = end if end - begin < FETCH_WAIT_US else (begin + end) // 2
            return (at if low is None else max(at, low)), BY_FETCH
    if loss.is_orderly and signs.last_us is not None:
        return signs.last_us, BY_SIGN
    if low is not None and low > given.likely_us:
        # A last line, or the end of the window, cuts the likely time off: the middle of what is left.
        return (low, BY_SIGN) if given.low_us is None else ((low + high) // 2, BY_SESSION)
    return min(given.likely_us, high), BY_SESSION


def _awake(signs: Signs, restart: int | None) -> int | None:
    found = [at for at in (signs.first_us, signs.slept_until_us) if at is not None]
    if not found:
        return None
    first = min(found)
    is_start = restart is not None and restart - START_US <= first
    # A broker that starts tells of partitions only after its configuration: earlier lines are of the process before.
    wrote_before = restart is not None and signs.first_role_us is not None and signs.first_role_us < restart
    return None if is_start and not wrote_before else first


def _later(*times: int | None) -> int | None:
    return max((each for each in times if each is not None), default=None)


def unanswered(at_us: int, waited_us: int | None) -> tuple[int, int]:
    """In which interval a broker fell silent, by a FETCH that it left without an answer until `at_us`."""
    if waited_us is None:
        return at_us, at_us
    begin = at_us - waited_us
    return begin, min(at_us, begin + FETCH_WAIT_US)


def agreed(values: Iterable[int]) -> int | None:
    """The value that all have; None if there are several, or none."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
