"""INV-67 and INV-68 over hand-written histories."""

import pytest

from tests.sim.engine.checkers import Continuity

from .stories import NO_ID, T1, T2, Story

ONE = "broker 1"


def elect(one: Story, epoch: int, leader: int, *, controller_epoch: int = 1) -> None:
    value = {"leader": leader, "leader_epoch": epoch, "controller_epoch": controller_epoch, "isr": [1, 2]}
    one.commit({"leadership/t1/0": value})


def act(one: Story, kind: str, epoch: int, present: int, *, topic_id: str = T1) -> None:
    of = {"broker": 1, "life": 7, "topic": "t1", "topic_id": topic_id, "partition": 0}
    more = {"controller_epoch": 1, "valid": []} if kind == "lease.begin" else {}
    one.record(kind, ONE, **of, leader_epoch=epoch, present_epoch=present, **more)


def end(one: Story, ordered: int, *, controller_epoch: int = 1) -> None:
    one.record(
        "lease.end", ONE, broker=1, life=7, topic="t1", partition=0, ordered=ordered, controller_epoch=controller_epoch
    )


def story(*leaders: int, topic_id: str = T1) -> Story:
    """Broker 1 leads under epoch 4. The epochs from 5 on have other leaders."""
    one = Story(Continuity())
    one.commit({"topics/t1": {"id": topic_id, "partitions": {}}})
    for epoch, leader in enumerate((1, *leaders), 4):
        elect(one, epoch, leader)
    act(one, "lease.begin", 4, 4, topic_id=topic_id)
    return one


def test_leadership_goes_on_while_the_leader_stays() -> None:
    one = story(1, 1, 2)
    act(one, "lease.keep", 4, 5)
    act(one, "lease.keep", 4, 6)
    end(one, 8)

    assert one.found == []


@pytest.mark.parametrize("between", [2, -1])
@pytest.mark.parametrize("kind", ["lease.keep", "lease.begin"])
def test_another_leader_in_between_breaks_inv_67(kind: str, between: int) -> None:
    one = story(between, 1)
    act(one, kind, 4, 6)

    assert one.found == ["INV-67"]


def test_other_partitions_and_topics_do_not_count() -> None:
    one = story()
    one.commit({"leadership/t1/1": {"leader": 2, "leader_epoch": 5, "controller_epoch": 1, "isr": [2]}})
    act(one, "lease.keep", 4, 5)
    one.commit({"topics/t1": {"id": T2, "partitions": {}}})
    elect(one, 6, 2)
    act(one, "lease.keep", 4, 6)

    assert one.found == []


def test_leaders_before_the_removal_of_a_topic_do_not_count() -> None:
    one = story(2, topic_id=NO_ID)
    one.commit({"topics/t1": None})
    act(one, "lease.keep", 4, 5, topic_id=NO_ID)

    assert one.found == []


def test_order_that_ends_a_leadership_for_the_isr_breaks_inv_68() -> None:
    one = story(1, 1)
    end(one, 6)

    assert one.found == ["INV-68"]


def test_order_after_one_that_was_kept_breaks_inv_68() -> None:
    one = story(1, 1)
    act(one, "lease.keep", 4, 5)
    end(one, 6, controller_epoch=2)

    assert one.found == ["INV-68"]


def test_order_of_a_controller_that_has_not_seen_an_epoch_is_legal() -> None:
    one = story(1, 1)
    end(one, 6, controller_epoch=2)

    assert one.found == []


@pytest.mark.parametrize("case", ["lapse", "crash", "stop", "another leader", "the same epoch"])
def test_other_ends_are_legal(case: str) -> None:
    one = story(2, 1) if case == "another leader" else story(1)
    match case:
        case "lapse":
            one.record("lease.lapse", ONE, broker=1, life=7)
            end(one, 5)
        case "crash":
            one.record("node.crash", ONE, incarnation=1, clean=False)
            end(one, 5)
        case "stop":
            end(one, -1)
        case "another leader":
            end(one, 6)
        case "the same epoch":
            end(one, 4)

    assert one.found == []
