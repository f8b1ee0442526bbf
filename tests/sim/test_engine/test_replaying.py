"""Replays: equal runs are reported, differing ones are rejected with the first difference."""

from typing import Any, NamedTuple

import pytest

from kactl.testing.history import History
from tests.sim.engine.replaying import NotReplayable, first_difference, replay
from tests.sim.engine.script import Script


class Outcome(NamedTuple):
    history: History
    signature: str = "INV-19"

    @property
    def digest(self) -> str:
        return self.history.digest()


def a_history(*numbers: int) -> History:
    history = History(lambda: 1_000.0 * len(history.events))
    for number in numbers:
        history.record("tick", node="n", number=number)
    return history


def runs(*outcomes: Outcome) -> Any:
    left = list(outcomes)
    return lambda script: left.pop(0)


def test_equal_runs_are_accepted() -> None:
    first, second = Outcome(a_history(1, 2)), Outcome(a_history(1, 2))

    assert replay(Script(), runs(first, second)) is second
    assert replay(Script(), runs(second), first=first) is second


def test_first_difference_is_reported_with_its_context() -> None:
    with pytest.raises(NotReplayable) as caught:
        replay(Script(name="X"), runs(Outcome(a_history(1, 2, 3)), Outcome(a_history(1, 5, 3))))

    assert str(caught.value).splitlines() == [
        "two runs of X differ: look for unordered sets, real time and unseeded randomness before the first difference",
        "  both         0.000 s  n                tick  number 1",
        "  first        1.000 s  n                tick  number 2",
        "  second       1.000 s  n                tick  number 5",
    ]


def test_shorter_run_differs_at_its_end() -> None:
    difference = first_difference(a_history(1, 2), a_history(1))

    assert difference is not None
    assert difference.second is None
    assert difference.lines()[-1] == "  second  the run has ended"
    assert first_difference(a_history(1), a_history(1)) is None


def test_equal_histories_with_other_signatures_differ() -> None:
    with pytest.raises(NotReplayable, match=r"signatures: 'INV-19', 'pass'"):
        replay(Script(), runs(Outcome(a_history(1)), Outcome(a_history(1), "pass")))
