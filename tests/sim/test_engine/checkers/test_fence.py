"""INV-01 to INV-05 over hand-written histories."""

from tests.sim.engine.checkers import Fence

from .stories import A, B, Story


def story() -> Story:
    """An instance is elected, and writes."""
    story = Story(Fence())
    story.elected(1)
    story.lead(1, 0, [1, 2], fence=1)
    return story


def test_two_controllerships_one_after_the_other_are_legal() -> None:
    one = story()
    one.resigned(1)
    one.commit({"controller": None}, operation="resign", fence=1)
    one.elected(2, B)
    one.lead(1, 1, [1, 2], fence=2, client=B)
    one.commit({}, fence=1, outcome="fenced")
    one.commit({"deletions/t1": {}}, operation="mark_deletion")

    assert one.found == []


def test_an_epoch_with_two_holders_breaks_inv_01() -> None:
    one = story()
    one.resigned(1)
    one.record("ctl.elected", A, controller=100, incarnation=2, controller_epoch=1)

    assert one.found == ["INV-01"]
    assert one.violations[0].signature == "INV-01 ctl.elected ctl.elected"


def test_an_epoch_that_falls_breaks_inv_02() -> None:
    one = story()
    one.elected(2, B)
    one.contest(2, B)

    assert one.found == ["INV-02"]


def test_an_election_that_the_store_does_not_know_breaks_inv_02() -> None:
    one = story()
    one.knows(2, B)

    assert one.found == ["INV-02"]


def test_an_election_learned_late_is_legal() -> None:
    one = Story(Fence())
    one.contest(1, A)
    one.elected(2, B)
    one.knows(1, A)

    assert one.found == []


def test_a_write_under_an_older_epoch_breaks_inv_03() -> None:
    one = story()
    one.elected(2, B)
    one.lead(2, 1, [1, 2], fence=1)

    assert one.found == ["INV-03"]


def test_a_controllers_write_without_a_fence_breaks_inv_03() -> None:
    one = story()
    one.lead(2, 1, [1, 2], fence=None, operation="commit")

    assert one.found == ["INV-03"]


def test_a_leaders_own_write_needs_no_fence() -> None:
    one = story()
    one.lead(1, 0, [1], fence=None, operation="write_isr", client="broker 1")

    assert one.found == []


def test_an_instance_that_writes_under_anothers_epoch_breaks_inv_04() -> None:
    one = story()
    one.elected(2, B)
    one.lead(2, 1, [1, 2], fence=2, client=A)

    assert one.found == ["INV-04"]


def test_an_instance_that_changes_its_epoch_breaks_inv_04() -> None:
    one = story()
    one.contest(2)
    one.knows(2)

    assert one.found == ["INV-04"]


def test_an_act_under_another_epoch_breaks_inv_04() -> None:
    one = story()
    one.record("fsm.topic", A, controller_epoch=2, topic="t1", what="created")

    assert one.found == ["INV-04"]


def test_an_act_after_the_resignation_breaks_inv_05() -> None:
    one = story()
    one.record("fsm.topic", A, controller_epoch=1, topic="t1", what="created")
    one.resigned(1)
    assert one.found == []
    one.record("fsm.topic", A, controller_epoch=1, topic="t1", what="created")

    assert one.found == ["INV-05"]
    assert one.violations[0].signature == "INV-05 ctl.resigned fsm.topic"


def test_a_write_sent_after_the_resignation_breaks_inv_05() -> None:
    one = story()
    sent = len(one.history.events)
    one.resigned(1)
    one.lead(2, 1, [1, 2], fence=1, sent=sent)
    assert one.found == []
    one.lead(1, 2, [1, 2], fence=1)

    assert one.found == ["INV-05"]


def test_a_restarted_instance_is_no_controller() -> None:
    one = story()
    one.record("node.start", A, incarnation=2)
    one.record("fsm.topic", A, controller_epoch=1, topic="t1", what="created")

    assert one.found == ["INV-05"]


def attempt(one: Story) -> None:
    one.record("req.attempt", A, channel=1, request=7, outcome="begin")
    one.record("req.attempt", A, channel=1, request=7, outcome="failed")


def test_a_request_sent_after_the_resignation_breaks_inv_05() -> None:
    one = story()
    attempt(one)
    one.resigned(1)
    assert one.found == []
    attempt(one)

    assert one.found == ["INV-05"]


def test_a_request_sent_while_the_session_may_have_ended_breaks_inv_05() -> None:
    one = story()
    one.record("ctl.gate", A, open=False)
    one.record("ctl.gate", A, open=True)
    attempt(one)
    assert one.found == []
    one.record("ctl.gate", A, open=False)
    attempt(one)

    assert one.found == ["INV-05"]
    assert one.violations[0].signature == "INV-05 ctl.gate req.attempt"


def test_a_restarted_instance_has_no_doubts() -> None:
    one = story()
    one.record("ctl.gate", A, open=False)
    one.record("node.start", A, incarnation=2)
    one.elected(2, A, incarnation=2)
    attempt(one)

    assert one.found == []
