"""INV-22 and INV-23 over hand-written histories."""

from tests.sim.engine.checkers import Eligible

from .stories import Story


def story() -> Story:
    """A partition led by 1, with 2 in sync; 3 is registered."""
    one = Story(Eligible())
    one.brokers({1: 11, 2: 12, 3: 13})
    one.lead(1, 0, [1, 2])
    return one


def propose(one: Story, isr: list[int], epochs: list[int], *, partition_epoch: int = 0) -> None:
    one.record(
        "isr.propose",
        "broker 1",
        broker=1,
        broker_epoch=11,
        topic="t1",
        partition=0,
        leader_epoch=0,
        partition_epoch=partition_epoch,
        isr=isr,
        member_epochs=epochs,
    )


def test_live_brokers_are_elected_and_join() -> None:
    one = story()
    propose(one, [1, 2, 3], [11, 12, 13])
    one.lead(1, 0, [1, 2, 3])
    one.brokers({2: 12, 3: 13}, [2])
    one.lead(3, 1, [3])

    assert one.found == []


def test_electing_an_unregistered_broker_breaks_inv_22() -> None:
    one = story()
    one.brokers({1: 11, 3: 13})
    one.lead(2, 1, [2])

    assert one.found == ["INV-22"]


def test_a_registration_that_ends_after_the_write_was_sent_does_not_matter() -> None:
    one = story()
    sent = len(one.history.events)
    one.brokers({1: 11, 3: 13})
    one.lead(2, 1, [2], sent=sent)

    assert one.found == []


def test_a_leaving_broker_is_elected_only_if_no_other_can_be() -> None:
    one = story()
    one.brokers({1: 11, 2: 12, 3: 13}, [2])
    one.lead(-1, 1, [2])
    one.lead(2, 2, [2])
    assert one.found == []
    one.lead(2, 2, [1, 2])
    one.lead(-1, 3, [1, 2])
    one.lead(2, 4, [1, 2])

    assert one.found == ["INV-22"]


def test_an_unregistered_member_breaks_inv_23() -> None:
    one = story()
    one.brokers({1: 11, 2: 12})
    one.lead(1, 0, [1, 2, 3])

    assert one.found == ["INV-23"]


def test_a_leaving_member_breaks_inv_23() -> None:
    one = story()
    one.brokers({1: 11, 2: 12, 3: 13}, [3])
    one.lead(1, 0, [1, 2, 3])

    assert one.found == ["INV-23"]


def test_a_member_of_another_registration_breaks_inv_23() -> None:
    one = story()
    propose(one, [1, 2, 3], [11, 12, 9])
    one.lead(1, 0, [1, 2, 3])

    assert one.found == ["INV-23"]


def test_members_without_epochs_and_leaders_own_writes_are_not_compared() -> None:
    one = story()
    propose(one, [1, 2, 3], [-1, -1, -1])
    one.lead(1, 0, [1, 2, 3])
    one.brokers({1: 11})
    one.lead(1, 0, [1], fence=None, operation="write_isr", client="broker 1")
    one.lead(1, 0, [1, 2], fence=None, operation="write_isr", client="broker 1")

    assert one.found == []
