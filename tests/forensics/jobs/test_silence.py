"""When a lost broker fell silent: by its session timeout, by its followers, and by its own lines."""

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


def test_a_zookeeper_session_bounds_the_silence() -> None:
    given = bounds(LOST, ZOOKEEPER)

    assert (given.low_us, given.high_us) == ((100 - 18 - 3) * S, (100 - 12 + 3) * S)
    assert given.low_us is not None
    assert given.low_us < given.likely_us < given.high_us


def test_a_kraft_session_bounds_the_silence() -> None:
    given = bounds(LOST, KRAFT)

    assert (given.low_us, given.high_us) == (100 * S - 9 * S - 9 * S // 8 - S // 2, 100 * S - 9 * S + 2 * S + S // 2)
    assert given.low_us is not None
    assert given.low_us < given.likely_us < given.high_us


@dataclasses.dataclass
class Simulated:
    """A session as ZooKeeper or KRaft has it: pings until a death at a random time, and when that is detected."""

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
def test_simulated_kraft_sessions_keep_the_bounds_and_the_guess_is_near(timeout_s: int) -> None:
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
def test_an_unknown_timeout_is_assumed_by_version(versions: list[str], timeout_s: int) -> None:
    assert default(versions, is_kraft=False) == Session(timeout_s * S, DEFAULT)


def test_an_assumed_timeout_moves_the_guess_and_bounds_nothing() -> None:
    given = bounds(LOST, default(["3.5+"], is_kraft=False))

    assert (given.low_us, given.high_us) == (None, LOST.detected_us)
    assert given.likely_us < LOST.detected_us - 12 * S


# -- controllers that went along ---------------------------------------------------------------------------------------


def test_the_loss_of_a_controller_is_dated_by_the_election_of_the_next() -> None:
    late = bounds(Loss(100 * S, elected_us=90 * S, is_predecessor=True), ZOOKEEPER)

    assert late == bounds(Loss(90 * S), ZOOKEEPER)


def test_a_loss_that_a_new_controller_finds_may_be_older() -> None:
    given = bounds(Loss(100 * S, elected_us=99 * S, is_listed=True), ZOOKEEPER)

    assert given.low_us is not None
    assert given.low_us < 99 * S - 21 * S
    assert given.high_us == bounds(LOST, ZOOKEEPER).high_us


def test_a_kraft_controller_renews_sessions_as_it_becomes_active() -> None:
    given = bounds(Loss(100 * S, elected_us=90 * S), KRAFT)

    assert given.low_us is None
    assert given.high_us <= 90 * S + 2 * S + S // 2
    assert given.likely_us < 90 * S


def test_a_kraft_controller_of_long_ago_changes_nothing() -> None:
    assert bounds(Loss(100 * S, elected_us=50 * S), KRAFT) == bounds(LOST, KRAFT)


# -- followers ---------------------------------------------------------------------------------------------------------


def test_a_fetch_that_was_cut_off_at_once_dates_the_death() -> None:
    one = found(fetches=[unanswered(85 * S, 100_000)])

    assert (one.at_us, one.by) == (85 * S, BY_FETCH)


def test_a_fetch_that_waited_long_dates_the_pause() -> None:
    one = found(fetches=[unanswered(101 * S, 16 * S)])

    assert (one.at_us, one.by) == (85 * S + 250_000, BY_FETCH)


def test_a_fetch_outside_the_bounds_of_the_session_is_of_something_else() -> None:
    one = found(fetches=[unanswered(70 * S, 1000), unanswered(95 * S, 1000)])

    assert (one.at_us, one.by) == (bounds(LOST, ZOOKEEPER).likely_us, BY_SESSION)


def test_a_fetch_before_the_brokers_last_line_is_of_something_else() -> None:
    one = found(last_us=86 * S, fetches=[unanswered(84 * S, 1000), unanswered(87 * S, 1000)])

    assert one.at_us == 87 * S


# -- its own lines -----------------------------------------------------------------------------------------------------


def test_a_last_line_is_a_lower_bound_and_not_the_guess() -> None:
    one = found(last_us=80 * S)

    assert one.low_us == 80 * S
    assert one.by == BY_SESSION
    assert 80 * S < one.at_us < one.high_us


def test_an_old_last_line_bounds_less_than_the_session() -> None:
    assert found(last_us=10 * S).low_us == 79 * S


def test_a_paused_broker_leads_on_from_its_first_line() -> None:
    one = found(slept_from_us=82 * S, slept_until_us=130 * S, first_us=131 * S)

    assert one.awake_us == 130 * S


def test_a_broker_that_was_started_anew_did_not_lead_on() -> None:
    assert found(slept_until_us=130 * S, starts_us=[133 * S], first_us=140 * S).awake_us is None


def test_a_broker_that_wrote_of_partitions_before_its_restart_had_led_on() -> None:
    one = found(slept_until_us=130 * S, first_us=131 * S, first_role_us=131 * S, starts_us=[150 * S])

    assert one.awake_us == 130 * S


def test_controller_start_lines_are_no_sign_of_old_process() -> None:
    one = found(slept_until_us=130 * S, first_us=131 * S, first_role_us=160 * S, starts_us=[150 * S])

    assert one.awake_us is None


def test_a_broker_that_woke_up_before_it_was_missed_led_on_from_there() -> None:
    one = found(last_us=80 * S, last_detected_us=99 * S, slept_from_us=82 * S, slept_until_us=98 * S)

    assert (one.at_us <= one.high_us, one.awake_us) == (True, 98 * S)


def test_broker_that_kept_writing_is_lost_at_detection() -> None:
    one = found(last_us=90 * S, last_detected_us=99 * S)

    assert (one.at_us, one.by, one.high_us) == (99 * S, BY_SIGN, LOST.detected_us)


def test_a_broker_that_was_started_before_it_was_missed_had_died_before() -> None:
    one = found(last_us=80 * S, last_detected_us=99 * S, starts_us=[84 * S], first_us=99 * S)

    assert one.high_us == 84 * S
    assert one.at_us <= 84 * S


def test_an_orderly_shutdown_ends_with_the_last_line() -> None:
    one = found(Loss(100 * S, is_orderly=True), last_us=99 * S, last_detected_us=99 * S)

    assert (one.at_us, one.by) == (99 * S, BY_SIGN)
