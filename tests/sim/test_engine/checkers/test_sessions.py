"""INV-59 and INV-65 over hand-written histories."""

import pytest

from tests.sim.engine.checkers import Sessions

from .stories import A, Story

MS = 1_000_000
T_MS = 6_000


def confirmed(one: Story, sent_ms: int, *, epoch: int = 2, node: str = A) -> None:
    one.record("session.confirmed", node, controller_epoch=epoch, sent_ns=sent_ms * MS)


def heartbeat(one: Story, at_ms: int, *, verdict: str = "granted", received_ms: int | None = None) -> None:
    received_ms = at_ms if received_ms is None else received_ms
    one.record(
        "session.heartbeat", A, controller_epoch=2, broker=1, life=7, verdict=verdict, received_ns=received_ms * MS,
        at_ns=at_ms * MS, timeout_ms=T_MS if verdict == "granted" else 0,
    )  # fmt: skip


def end(one: Story, at_ms: int, *, cause: str = "expired") -> None:
    one.record(
        "session.end", A, controller_epoch=2, broker=1, life=7, cause=cause, at_ns=at_ms * MS, timeout_ms=T_MS
    )  # fmt: skip


def story(*, fence: int = 1) -> Story:
    """Controller A of epoch 2 was elected at 1 s; broker 1 was registered by the controller of epoch `fence`."""
    one = Story(Sessions())
    one.commit({"brokers/1": {"epoch": 7}}, operation="register_remote", fence=fence)
    one.record("session.term", A, controller_epoch=2, at_ns=1_000 * MS)
    confirmed(one, 1_000)
    return one


def test_grants_after_a_confirmation_are_legal() -> None:
    one = story()
    heartbeat(one, 3_000)
    confirmed(one, 4_000)
    heartbeat(one, 6_000)
    heartbeat(one, 9_000, verdict="unconfirmed")

    assert one.found == []


def test_grant_without_confirmation_breaks_inv_59() -> None:
    one = story()
    heartbeat(one, 3_001)

    assert one.found == ["INV-59"]


def test_confirmation_that_was_sent_earlier_and_answered_later_does_not_count() -> None:
    one = story()
    confirmed(one, 3_000)
    confirmed(one, 2_000)
    heartbeat(one, 5_000)
    assert one.found == []

    heartbeat(one, 5_001)
    assert one.found == ["INV-59"]


@pytest.mark.parametrize(("epoch", "node"), [(3, A), (2, "controller 101")])
def test_confirmation_of_another_controllership_breaks_inv_59(epoch: int, node: str) -> None:
    one = story()
    confirmed(one, 5_000, epoch=epoch, node=node)
    heartbeat(one, 5_000)

    assert one.found == ["INV-59"]


def test_sessions_may_expire_in_time_and_end_for_other_causes_at_any_time() -> None:
    for cause in ("goodbye", "next life"):
        one = story()
        end(one, 2_000, cause=cause)
        assert one.found == []
    one = story()
    confirmed(one, 10_000)
    heartbeat(one, 10_500, received_ms=5_000)
    end(one, 11_000)

    assert one.found == []


def test_end_before_the_timeout_breaks_inv_65() -> None:
    one = story()
    confirmed(one, 8_000)
    heartbeat(one, 9_000, received_ms=8_500)
    end(one, 14_499)

    assert one.found == ["INV-65"]


def test_end_within_the_grace_breaks_inv_65() -> None:
    one = story()
    end(one, 9_999)

    assert one.found == ["INV-65"]


def test_own_registrations_have_no_grace() -> None:
    one = story(fence=2)
    end(one, 9_999)

    assert one.found == []


@pytest.mark.parametrize("cause", ["expired", "goodbye", "next life"])
def test_grant_after_the_decision_to_end_breaks_inv_65(cause: str) -> None:
    one = story()
    end(one, 10_500, cause=cause)
    confirmed(one, 11_000)
    heartbeat(one, 11_000, verdict="refused")
    assert one.found == []

    heartbeat(one, 11_500)
    assert one.found == ["INV-65"]
