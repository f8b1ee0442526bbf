"""INV-06, INV-19, INV-41, INV-44, INV-48 and INV-49 over hand-written histories."""

from typing import Any

import pytest

from tests.sim.engine.checkers import Receivers, Rules

from .stories import T1, T2, Story


def story(**rules: bool) -> Story:
    """A topic whose partition 0 is led by 1 in leader epoch 0; brokers have received metadata."""
    one = Story(Receivers(Rules(**rules)))
    one.topic({0: [1, 2]}, operation="create_topic")
    one.lead(1, 0, [1, 2])
    for broker in (1, 2):
        accept(one, broker, what="UpdateMetadata")
    return one


def accept(one: Story, broker: int = 1, *, epoch: int = 1, registration: int = 10, **fields: Any) -> None:
    known: dict[str, Any] = {
        "message": 1,
        "broker": broker,
        "broker_epoch": registration,
        "asked_epoch": registration,
        "what": "LeaderAndIsr",
        "controller": 100,
        "controller_epoch": epoch,
    }
    one.record("req.accept", f"broker {broker}", **(known | fields))


def apply(one: Story, broker: int = 1, *, leader: int = 1, epoch: int = 0, **fields: Any) -> None:
    known: dict[str, Any] = {
        "message": 1,
        "broker": broker,
        "broker_epoch": 10,
        "topic": "t1",
        "topic_id": T1,
        "partition": 0,
        "role": "leader" if broker == leader else "follower",
        "leader": leader,
        "leader_epoch": epoch,
        "partition_epoch": 0,
        "isr": [1, 2],
        "outcome": "applied",
    }
    one.record("role.apply", f"broker {broker}", **(known | fields))


def stop(one: Story, broker: int = 1, *, epoch: int = 0, **fields: Any) -> None:
    known: dict[str, Any] = {
        "message": 1,
        "broker": broker,
        "broker_epoch": 10,
        "topic": "t1",
        "topic_id": T1,
        "partition": 0,
        "leader_epoch": epoch,
        "delete": False,
        "outcome": "applied",
    }
    one.record("role.stop", f"broker {broker}", **(known | fields))


def test_leading_following_and_leader_changes_are_legal() -> None:
    one = story()
    accept(one)
    apply(one, 1)
    apply(one, 1, outcome="same")
    apply(one, 2)
    one.lead(2, 1, [1, 2])
    accept(one, epoch=2, what="UpdateMetadata")
    accept(one, epoch=2)
    apply(one, 2, leader=2, epoch=1)
    stop(one, 1, epoch=1)
    apply(one, 1, leader=2, epoch=1)
    accept(one, registration=11, asked_epoch=-1, epoch=1, what="UpdateMetadata")
    accept(one, registration=11, asked_epoch=12, epoch=1)

    assert one.found == []


def test_an_older_controller_breaks_inv_06() -> None:
    one = story()
    accept(one, epoch=2, what="UpdateMetadata")
    accept(one, epoch=1)

    assert one.found == ["INV-06"]


def test_two_leaders_of_one_leader_epoch_break_inv_19() -> None:
    one = story()
    apply(one, 1)
    apply(one, 2, leader=2)

    assert one.found == ["INV-19"]


@pytest.mark.parametrize("leader", [1, 2])
def test_a_leader_that_the_store_does_not_name_breaks_inv_19(leader: int) -> None:
    one = story()
    one.lead(2, 1, [1, 2])
    apply(one, leader, leader=leader, epoch=1)

    assert one.found == ([] if leader == 2 else ["INV-19"])


def test_topics_without_ids_are_not_compared_after_they_were_created_again() -> None:
    one = Story(Receivers())
    for leader in (1, 2):
        one.topic({0: [1, 2]}, topic_id="00", operation="create_topic")
        one.lead(leader, 0, [1, 2])
        apply(one, leader, leader=leader, topic_id="00")
        one.commit({"topics/t1": None, "leadership/t1/0": None})

    assert one.found == []


@pytest.mark.parametrize("is_again", [True, False], ids=["created again", "created once"])
def test_leaders_are_not_compared_after_an_id_was_created_again(is_again: bool) -> None:
    one = Story(Receivers())
    one.topic({0: [1, 2]}, operation="create_topic")
    one.lead(1, 0, [1, 2])
    apply(one, 1)
    if is_again:
        one.commit({"topics/t1": None, "leadership/t1/0": None})
        one.topic({0: [1, 2]}, operation="create_topic")
    apply(one, 2, leader=2)

    assert one.found == ([] if is_again else ["INV-19"])


def test_applying_another_topic_id_breaks_inv_41() -> None:
    one = story()
    apply(one, 2)
    apply(one, 2, epoch=5, topic_id=T2)

    assert one.found == ["INV-41"]


@pytest.mark.parametrize(("epoch", "stock", "found"), [(2, False, []), (1, False, ["INV-41"]), (2, True, ["INV-41"])])
def test_participant_replaces_a_topic_that_earlier_controllers_have_named(
    epoch: int, stock: bool, found: list[str]
) -> None:
    one = story(stock_brokers=stock)
    accept(one, 2)
    apply(one, 2)
    accept(one, 2, what="UpdateMetadata", epoch=epoch)
    accept(one, 2, epoch=epoch)
    apply(one, 2, topic_id=T2)

    assert one.found == found


@pytest.mark.parametrize(
    ("delete", "stock", "found"), [(True, False, []), (False, False, ["INV-41"]), (True, True, ["INV-41"])]
)
def test_participant_replaces_a_topic_whose_deletion_has_failed(delete: bool, stock: bool, found: list[str]) -> None:
    one = story(stock_brokers=stock)
    accept(one, 2)
    apply(one, 2)
    stop(one, 2, epoch=-2, delete=delete, outcome="storage")
    apply(one, 2, topic_id=T2)

    assert one.found == found


def test_topic_that_the_same_controller_has_named_before_breaks_inv_41() -> None:
    one = story(stock_brokers=False)
    accept(one, 2)
    apply(one, 2)
    accept(one, 2, what="UpdateMetadata", epoch=2)
    accept(one, 2, epoch=2)
    apply(one, 2, outcome="same")
    apply(one, 2, topic_id=T2)

    assert one.found == ["INV-41"]


def test_stopping_for_another_topic_id_breaks_inv_41() -> None:
    one = story()
    apply(one, 2)
    stop(one, 2, topic_id=T2)

    assert one.found == ["INV-41"]


@pytest.mark.parametrize(("stock", "message", "found"), [(True, 4, []), (True, 6, ["INV-41"]), (False, 4, ["INV-41"])])
def test_kafkas_broker_may_stop_a_replica_for_a_request_from_before_its_start(
    stock: bool, message: int, found: list[str]
) -> None:
    """The replica is started by message 5, and its role changes with message 7."""
    one = story(stock_brokers=stock)
    apply(one, 2, message=3)
    stop(one, 2, message=3)
    apply(one, 2, topic_id=T2, message=5)
    apply(one, 2, topic_id=T2, message=7, epoch=1)
    stop(one, 2, message=message, epoch=-2, delete=True)

    assert one.found == found


@pytest.mark.parametrize(("stock", "message", "found"), [(True, 3, []), (True, 6, ["INV-41"]), (False, 3, ["INV-41"])])
def test_kafkas_broker_may_stop_a_replica_that_a_request_from_before_its_stop_has_started(
    stock: bool, message: int, found: list[str]
) -> None:
    one = story(stock_brokers=stock)
    apply(one, 2, message=2)
    stop(one, 2, message=5, epoch=0)
    apply(one, 2, message=message, epoch=1)
    stop(one, 2, topic_id=T2, message=9, epoch=-2)

    assert one.found == found


@pytest.mark.parametrize(("named", "stock", "found"), [(1, True, []), (2, True, ["INV-41"]), (1, False, ["INV-41"])])
def test_kafkas_broker_may_stop_a_replica_that_only_earlier_controllers_have_named(
    named: int, stock: bool, found: list[str]
) -> None:
    """The controller of epoch 2 stops a replica that the one of epoch 1 has started."""
    one = story(stock_brokers=stock)
    accept(one, 2)
    apply(one, 2)
    accept(one, 2, epoch=2, what="UpdateMetadata")
    if named == 2:
        accept(one, 2, epoch=2)
        apply(one, 2, outcome="same")
    accept(one, 2, epoch=2, what="StopReplica")
    stop(one, 2, topic_id=T2, epoch=-2)

    assert one.found == found


@pytest.mark.parametrize(("stock", "epoch"), [(True, 0), (False, 0), (False, 1)])
def test_starting_again_what_was_stopped_breaks_inv_44(stock: bool, epoch: int) -> None:
    one = story(stock_brokers=stock)
    apply(one, 2)
    stop(one, 2, epoch=-2)
    apply(one, 2, epoch=epoch)

    assert one.found == ([] if stock or epoch else ["INV-44"])


@pytest.mark.parametrize("epoch", [1, 2])
def test_later_controller_may_start_what_an_earlier_one_stopped(epoch: int) -> None:
    one = story(stock_brokers=False)
    accept(one)
    apply(one)
    accept(one, what="StopReplica")
    stop(one)
    accept(one, what="UpdateMetadata", epoch=epoch)
    accept(one, epoch=epoch)
    apply(one)

    assert one.found == ([] if epoch == 2 else ["INV-44"])


def test_later_controller_does_not_start_a_replica_under_an_epoch_before_its_stop() -> None:
    """It has read the store, which had the leader epoch of the stop."""
    one = story(stock_brokers=False)
    accept(one)
    apply(one)
    accept(one, what="StopReplica")
    stop(one, epoch=1)
    accept(one, what="UpdateMetadata", epoch=2)
    accept(one, epoch=2)
    apply(one)

    assert one.found == ["INV-44"]


@pytest.mark.parametrize("epoch", [2, 3])
def test_applying_a_leader_epoch_again_breaks_inv_48(epoch: int) -> None:
    one = story()
    apply(one, 2, epoch=3)
    apply(one, 2, epoch=epoch)

    assert one.found == ["INV-48"]


@pytest.mark.parametrize("is_again", [True, False], ids=["created again", "created once"])
def test_leader_epochs_of_topics_without_ids_are_compared_until_the_name_is_used_again(is_again: bool) -> None:
    one = story()
    if is_again:
        one.commit({"topics/t1": None, "leadership/t1/0": None})
        one.topic({0: [1, 2]}, operation="create_topic")
    apply(one, 2, epoch=3, topic_id="00")
    apply(one, 2, epoch=2, topic_id="00")

    assert one.found == ([] if is_again else ["INV-48"])


@pytest.mark.parametrize(("epoch", "found"), [(2, ["INV-48"]), (3, []), (-2, [])])
def test_stop_of_an_earlier_leader_epoch_breaks_inv_48(epoch: int, found: list[str]) -> None:
    one = story()
    apply(one, 2, epoch=3)
    stop(one, 2, epoch=epoch)

    assert one.found == found


def test_stop_without_topic_ids_breaks_nothing() -> None:
    one = story()
    apply(one, 2, epoch=3, topic_id="00")
    stop(one, 2, epoch=2, topic_id="00")

    assert one.found == []


def test_a_request_for_an_earlier_registration_breaks_inv_49() -> None:
    one = story()
    accept(one, registration=11, asked_epoch=10, what="UpdateMetadata")

    assert one.found == ["INV-49"]


@pytest.mark.parametrize(("asked", "found"), [(11, []), (12, ["INV-49"])])
def test_request_for_a_registration_that_never_was_breaks_inv_49(asked: int, found: list[str]) -> None:
    """A controller may know a registration before the broker has the answer to it."""
    one = story()
    one.commit({"brokers/1": {"epoch": 11}}, client="broker 1", operation="register")
    accept(one, registration=10, asked_epoch=asked, what="UpdateMetadata")

    assert one.found == found


def test_leader_and_isr_before_any_metadata_breaks_inv_49() -> None:
    one = story()
    accept(one, registration=11)

    assert one.found == ["INV-49"]
    assert "accepted before any UpdateMetadata" in one.violations[0].text


def test_metadata_for_a_registration_that_the_broker_does_not_know_yet_counts() -> None:
    one = story()
    accept(one, registration=10, asked_epoch=11, what="UpdateMetadata")
    accept(one, registration=11)

    assert one.found == []


def test_a_complaint_is_a_violation() -> None:
    one = story()
    complaint: dict[str, Any] = {"controller_epoch": 1, "invariant": "INV-49", "text": "t1-0 is missing"}
    one.record("broker.complaint", broker=1, broker_epoch=10, **complaint)

    assert one.found == ["INV-49"]
