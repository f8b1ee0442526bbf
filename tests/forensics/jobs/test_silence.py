"""Time at which a lost broker became silent, from its session timeout, its followers and its own lines."""

import dataclasses
import random

import pytest

from kactl.forensics.jobs import silence
from kactl.forensics.jobs.silence import (
    BY_FETCH,
    BY_SESSION,
    BY_SIGN,
    CONFIGURED,
    DEFAULT,
    NEGOTIATED,
    Loss,
    Session,
    Signs,
    bounds,
    default,
    unanswered,
)

S = 1_000_000
LOST = Loss(detected_us=100 * S)
ZOOKEEPER = Session(18 * S, NEGOTIATED)
KRAFT = Session(9 * S, CONFIGURED, 2 * S)


def found(loss: Loss = LOST, session: Session = ZOOKEEPER, **signs: object) -> silence.Silence:
    return silence.silence(loss, bounds(loss, session), Signs(**signs))  # type: ignore[arg-type]


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_zookeeper_session_bounds_the_silence() -> None:
    given = bounds(LOST, ZOOKEEPER)

    assert (given.low_us, given.high_us) == ((100 - 18 - 3) * S, (100 - 12 + 3) * S)
    assert given.low_us is not None
    assert given.low_us < given.likely_us < given.high_us


def test_kraft_session_bounds_the_silence() -> None:
    given = bounds(LOST, KRAFT)

    assert (given.low_us, given.high_us) == (100 * S - 9 * S - 9 * S // 8 - S // 2, 100 * S - 9 * S + 2 * S + S // 2)
    assert given.low_us is not None
    assert given.low_us < given.likely_us < given.high_us


@dataclasses.dataclass
class Simulated:
    """A session of ZooKeeper or KRaft: pings until a failure at a random time, and the time of its detection."""

    died_us: int
    detected_us: int


def zookeeper_death(chance: random.Random, timeout_us: int, tick_us: int) -> Simulated:
    ping = timeout_us // 3
    last = chance.randrange(10**9)
    died = last + chance.randrange(ping)
    expires = (last + timeout_us) // tick_us * tick_us + tick_us
    return Simulated(died, expires + chance.randrange(S // 10))


def kraft_death(chance: random.Random, timeout_us: int, heartbeat_us: int) -> Simulated:
    last = chance.randrange(10**9)
    died = last + chance.randrange(heartbeat_us)
    return Simulated(died, last + timeout_us + chance.randrange(timeout_us // 8))


@pytest.mark.parametrize("timeout_s", [4, 6, 9, 18, 30])
def test_simulated_zookeeper_sessions_keep_the_bounds(timeout_s: int) -> None:
    chance = random.Random(timeout_s)
    for _ in range(500):
        real = zookeeper_death(chance, timeout_s * S, chance.choice([S // 2, 2 * S, min(3, timeout_s // 2) * S]))
        given = bounds(Loss(real.detected_us), Session(timeout_s * S, NEGOTIATED))
        assert given.low_us is not None
        assert given.low_us <= real.died_us <= given.high_us


@pytest.mark.parametrize("timeout_s", [4, 9, 30])
def test_simulated_kraft_sessions_keep_the_bounds(timeout_s: int) -> None:
    chance = random.Random(timeout_s)
    off = []
    for _ in range(500):
        real = kraft_death(chance, timeout_s * S, S)
        given = bounds(Loss(real.detected_us), Session(timeout_s * S, CONFIGURED, S))
        assert given.low_us is not None
        assert given.low_us <= real.died_us <= given.high_us
        off.append(given.likely_us - real.died_us)
    assert abs(sum(off) / len(off)) < 0.05 * timeout_s * S


@pytest.mark.parametrize(
    ("versions", "timeout_s"),
    [
        (["0.11-2.4"], 6),
        (["2.4"], 6),
        (["0.8+", "1.0-2.3"], 6),
        (["2.5"], 18),
        (["2.6-3.1", "1.0+"], 18),
        (["mixed"], 18),
        ([], 18),
    ],
)
def test_unknown_timeout_is_assumed_by_version(versions: list[str], timeout_s: int) -> None:
    assert default(versions, is_kraft=False) == Session(timeout_s * S, DEFAULT)


def test_assumed_timeout_bounds_nothing() -> None:
    given = bounds(LOST, default(["3.5+"], is_kraft=False))

    assert (given.low_us, given.high_us) == (None, LOST.detected_us)
    assert given.likely_us < LOST.detected_us - 12 * S


# -- controllers that failed too ---------------------------------------------------------------------------------------


def test_controller_loss_is_dated_by_next_election() -> None:
    late = bounds(Loss(100 * S, elected_us=90 * S, is_predecessor=True), ZOOKEEPER)

    assert late == bounds(Loss(90 * S), ZOOKEEPER)


def test_loss_found_by_a_new_controller_may_be_older() -> None:
    given = bounds(Loss(100 * S, elected_us=99 * S, is_listed=True), ZOOKEEPER)

    assert given.low_us is not None
    assert given.low_us < 99 * S - 21 * S
    assert given.high_us == bounds(LOST, ZOOKEEPER).high_us


def test_new_kraft_controller_renews_sessions() -> None:
    given = bounds(Loss(100 * S, elected_us=90 * S), KRAFT)

    assert given.low_us is None
    assert given.high_us <= 90 * S + 2 * S + S // 2
    assert given.likely_us < 90 * S


def test_old_kraft_election_changes_nothing() -> None:
    assert bounds(Loss(100 * S, elected_us=50 * S), KRAFT) == bounds(LOST, KRAFT)


# -- followers ---------------------------------------------------------------------------------------------------------


def test_fetch_cut_off_at_once_dates_the_death() -> None:
    one = found(fetches=[unanswered(85 * S, 100_000)])

    assert (one.at_us, one.by) == (85 * S, BY_FETCH)


def test_fetch_that_waited_long_dates_the_pause() -> None:
    one = found(fetches=[unanswered(101 * S, 16 * S)])

    assert (one.at_us, one.by) == (85 * S + 250_000, BY_FETCH)


def test_fetch_outside_session_bounds_is_ignored() -> None:
    one = found(fetches=[unanswered(70 * S, 1000), unanswered(95 * S, 1000)])

    assert (one.at_us, one.by) == (bounds(LOST, ZOOKEEPER).likely_us, BY_SESSION)


def test_fetch_before_the_last_line_is_ignored() -> None:
    one = found(last_us=86 * S, fetches=[unanswered(84 * S, 1000), unanswered(87 * S, 1000)])

    assert one.at_us == 87 * S


# -- lines of the lost broker itself -----------------------------------------------------------------------------------


def test_last_line_is_a_lower_bound_only() -> None:
    one = found(last_us=80 * S)

    assert one.low_us == 80 * S
    assert one.by == BY_SESSION
    assert 80 * S < one.at_us < one.high_us


def test_session_bounds_more_than_an_old_last_line() -> None:
    assert found(last_us=10 * S).low_us == 79 * S


def test_paused_broker_is_awake_from_its_first_line() -> None:
    one = found(slept_from_us=82 * S, slept_until_us=130 * S, first_us=131 * S)

    assert one.awake_us == 130 * S


def test_restarted_broker_was_not_awake() -> None:
    assert found(slept_until_us=130 * S, starts_us=[133 * S], first_us=140 * S).awake_us is None


def test_partition_lines_before_restart_show_it_awake() -> None:
    one = found(slept_until_us=130 * S, first_us=131 * S, first_role_us=131 * S, starts_us=[150 * S])

    assert one.awake_us == 130 * S


def test_controller_start_lines_are_no_sign_of_old_process() -> None:
    one = found(slept_until_us=130 * S, first_us=131 * S, first_role_us=160 * S, starts_us=[150 * S])

    assert one.awake_us is None


def test_broker_awake_before_detection_is_awake_from_there() -> None:
    one = found(last_us=80 * S, last_detected_us=99 * S, slept_from_us=82 * S, slept_until_us=98 * S)

    assert (one.at_us <= one.high_us, one.awake_us) == (True, 98 * S)


def test_broker_that_kept_writing_is_lost_at_detection() -> None:
    one = found(last_us=90 * S, last_detected_us=99 * S)

    assert (one.at_us, one.by, one.high_us) == (99 * S, BY_SIGN, LOST.detected_us)


def test_restart_before_detection_bounds_the_death() -> None:
    one = found(last_us=80 * S, last_detected_us=99 * S, starts_us=[84 * S], first_us=99 * S)

    assert one.high_us == 84 * S
    assert one.at_us <= 84 * S


def test_orderly_shutdown_ends_with_the_last_line() -> None:
    one = found(Loss(100 * S, is_orderly=True), last_us=99 * S, last_detected_us=99 * S)

    assert (one.at_us, one.by) == (99 * S, BY_SIGN)
