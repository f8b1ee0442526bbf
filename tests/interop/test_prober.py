"""Times without a leader, computed from the responses of brokers."""

from .incident.facts import Pause
from .incident.prober import Look, gaps

T0 = frozenset({"t-0"})
NOTHING: frozenset[str] = frozenset()


def looks(*values: tuple[float, float, frozenset[str] | None]) -> list[Look]:
    return [Look(asked_s, answered, led) for asked_s, answered, led in values]


def test_broker_that_refuses_connections_is_no_leader() -> None:
    one = looks((0, 0.1, T0), (1, 1.1, NOTHING), (4, 4.1, NOTHING), (5, 5.1, T0))

    (gap,) = gaps({1: one}, "t-0")

    assert (gap.begin_low, gap.begin_high, gap.end_low, gap.end_high) == (0, 1.1, 4, 5.1)


def test_broker_without_response_may_be_leader() -> None:
    one = looks((0, 0.1, T0), (1, 2, None), (2, 3, None), (4, 4.1, T0))

    assert gaps({1: one}, "t-0") == []


def test_paused_broker_is_no_leader_until_resumed() -> None:
    one = looks((0, 0.1, T0), (1, 2, None), (2, 3, None), (3, 4, None), (4, 5.1, T0))

    (gap,) = gaps({1: one}, "t-0", [Pause(1, 0.5, 0.6, 5.0, 5.05)])

    assert (gap.begin_low, gap.end_high, gap.leaders) == (0, 5.1, (1, 1))


def test_resumed_former_leader_causes_no_gap() -> None:
    one = looks((0, 0.1, T0), (1, 2, None), (9, 9.1, T0), (10, 10.1, NOTHING))
    two = looks((0, 0.1, NOTHING), (2.5, 2.6, NOTHING), (3, 3.1, T0), (9, 9.1, T0), (10, 10.1, T0))

    result = gaps({1: one, 2: two}, "t-0", [Pause(1, 0.5, 0.6, 8.9, 8.95)])

    assert [(gap.begin_low, gap.end_high, gap.leaders) for gap in result] == [(0, 3.1, (1, 2))]
