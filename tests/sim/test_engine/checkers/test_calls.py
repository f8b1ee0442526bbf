"""INV-50 and INV-51 over hand-written histories."""

from tests.sim.engine.checkers import Calls

from .stories import A, Story


def story() -> Story:
    """Two calls with a limit of 1 s each."""
    one = Story(Calls())
    for call in (1, 2):
        one.record("admin.call", call=call, controller=A, operation="elect preferred", target="t1-0", limit_ms=1000.0)
    return one


def reply(one: Story, call: int, outcome: str = "done") -> None:
    one.record("admin.reply", call=call, outcome=outcome)


def test_calls_answered_once_are_legal() -> None:
    one = story()
    reply(one, 1)
    reply(one, 2, "NotController")

    assert (one.found, one.checker.at_end()) == ([], None)


def test_a_second_answer_breaks_inv_50() -> None:
    one = story()
    reply(one, 1)
    reply(one, 1)

    assert one.found == ["INV-50"]


def test_a_late_answer_breaks_inv_50() -> None:
    one = story()
    one.now_ms = 1500
    reply(one, 1)

    assert one.found == ["INV-50"]


def test_a_missing_answer_breaks_inv_50() -> None:
    one = story()
    reply(one, 1)
    one.now_ms = 1500
    one.record("fault.begin", fault="kill", target="broker 1")
    violation = one.checker.at_end()

    assert violation is not None
    assert violation.invariant == "INV-50"


def test_instances_that_end_or_pause_need_not_answer() -> None:
    one = story()
    one.now_ms = 1500
    one.record("fault.begin", fault="pause", target=A)
    reply(one, 1)
    one.record("node.crash", A, incarnation=1, clean=False)
    one.now_ms = 9000
    one.record("fault.begin", fault="kill", target="broker 1")

    assert (one.found, one.checker.at_end()) == ([], None)


def test_a_task_that_ends_unnoticed_breaks_inv_51() -> None:
    one = story()
    one.record("task.failed", A, task="channel to broker 1", error="ValueError()")

    assert one.found == ["INV-51"]
