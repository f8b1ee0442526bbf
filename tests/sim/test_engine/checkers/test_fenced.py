"""INV-62 over hand-written histories."""

from typing import Any

import pytest

from tests.sim.engine.checkers import Fenced, Rules

from .stories import A, Story

FIRST, SECOND = "aa01", "aa02"


def known(one: Story, *brokers: tuple[int, str]) -> None:
    one.record("ctl.participants", A, controller_epoch=1, brokers=list(brokers))


def link(one: Story, broker: int, incarnation: str, *, kind: str = "link.open") -> None:
    one.record(kind, A, broker=broker, incarnation=incarnation)


def elected(one: Story, epoch: int = 1) -> None:
    one.record("ctl.elected", A, controller_epoch=epoch, controller=100, incarnation=1)


def lead(one: Story, leader: int, *isr: int, sent: int | None = None, fence: int | None = 1) -> None:
    value: dict[str, Any] = {
        "leader": leader, "leader_epoch": 1, "isr": list(isr), "recovering": False, "controller_epoch": 1,
    }  # fmt: skip
    one.commit({"leadership/t1/0": value}, fence=fence, sent=sent)


def story(*, links: bool = True) -> Story:
    """Broker 1 is linked, broker 2 is not."""
    one = Story(Fenced(Rules(links=links)))
    elected(one)
    link(one, 1, FIRST)
    known(one, (1, FIRST), (2, SECOND))
    return one


def test_linked_brokers_are_chosen() -> None:
    one = story()
    lead(one, 1, 1)
    link(one, 2, SECOND)
    lead(one, 2, 1, 2)

    assert one.found == []


@pytest.mark.parametrize("isr", [(2,), (1, 2)])
def test_election_of_a_fenced_broker_breaks_inv_62(isr: tuple[int, ...]) -> None:
    one = story()
    lead(one, 2, *isr)

    assert one.found == ["INV-62"]


def test_fenced_member_of_an_isr_breaks_inv_62() -> None:
    one = story()
    lead(one, 1, 1)
    lead(one, 1, 1, 2)

    assert one.found == ["INV-62"]


def test_fencing_takes_nothing_away() -> None:
    one = story()
    link(one, 2, SECOND)
    lead(one, 2, 1, 2)
    link(one, 2, SECOND, kind="link.close")
    elected(one, 2)
    known(one, (1, FIRST), (2, SECOND))
    lead(one, 2, 2)

    assert one.found == []


def test_lost_link_does_not_fence_before_the_next_election() -> None:
    one = story()
    link(one, 2, SECOND)
    link(one, 2, SECOND, kind="link.close")
    lead(one, 2, 2)
    assert one.found == []

    elected(one, 2)
    lead(one, 1, 1)
    lead(one, 2, 2)
    assert one.found == ["INV-62"]


def test_link_of_another_registration_breaks_inv_62() -> None:
    one = story()
    link(one, 2, FIRST)
    lead(one, 2, 2)

    assert one.found == ["INV-62"]


def test_link_that_was_opened_after_the_write_was_sent_breaks_inv_62() -> None:
    one = story()
    sent = len(one.history.events)
    link(one, 2, SECOND)
    lead(one, 2, 2, sent=sent)

    assert one.found == ["INV-62"]


def test_writes_of_leaders_and_worlds_without_links_are_not_judged() -> None:
    one = story()
    lead(one, 2, 2, fence=None)
    other = story(links=False)
    lead(other, 2, 2)

    assert one.found == other.found == []
