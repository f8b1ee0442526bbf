"""INV-24 over hand-written histories."""

from typing import Any

import pytest

from tests.sim.engine.checkers import Proposals

from .stories import A, B, Story


def story() -> Story:
    """A partition led by 1 in leader epoch 4, version 0."""
    one = Story(Proposals())
    one.brokers({1: 11, 2: 12, 3: 13})
    one.lead(1, 4, [1, 2])
    return one


def decide(one: Story, isr: list[int], **fields: Any) -> None:
    known: dict[str, Any] = {
        "controller_epoch": 1,
        "broker": 1,
        "broker_epoch": 11,
        "topic": "t1",
        "partition": 0,
        "leader_epoch": 4,
        "partition_epoch": 0,
        "isr": isr,
        "member_epochs": [],
        "recovering": False,
        "error": "NONE",
        "leadership": None,
    }
    one.record("isr.decide", A, **(known | fields))


def move(one: Story, leader_epoch: int, version: int, *, refused: str = "") -> None:
    name = {"controller_epoch": 1, "topic": "t1", "partition": 0, "from_state": "online", "to_state": "online"}
    state = {"leader": 1, "leader_epoch": leader_epoch, "isr": [1], "partition_epoch": version, "refused": refused}
    one.record("fsm.partition", A, **name, **state)


def test_accepted_proposals_are_stored_and_repeated_ones_are_not_written() -> None:
    one = story()
    one.lead(1, 4, [1, 2, 3])
    decide(one, [3, 2, 1])
    decide(one, [3, 2, 1])
    decide(one, [3, 2, 1], partition_epoch=1)
    one.lead(2, 5, [2, 3])
    decide(one, [1, 2], error="FENCED_LEADER_EPOCH")
    decide(one, [1, 2, 3], leadership=(1, 4, [1, 2, 3], 1, False))

    assert one.found == []


def test_accepting_what_is_not_stored_breaks_inv_24() -> None:
    one = story()
    decide(one, [1, 2, 3])

    assert one.found == ["INV-24"]


def test_accepting_an_older_leader_epoch_breaks_inv_24() -> None:
    one = story()
    one.lead(1, 4, [1, 2, 3])
    decide(one, [1, 2, 3], leader_epoch=3)

    assert one.found == ["INV-24"]


def test_accepting_another_sender_breaks_inv_24() -> None:
    one = story()
    one.lead(1, 4, [1, 2, 3])
    decide(one, [1, 2, 3], broker=2, broker_epoch=12)

    assert one.found == ["INV-24"]


def test_accepting_an_earlier_registration_breaks_inv_24() -> None:
    one = story()
    one.lead(1, 4, [1, 2, 3])
    decide(one, [1, 2, 3], broker_epoch=9)

    assert one.found == ["INV-24"]


def test_accepting_an_isr_without_its_sender_breaks_inv_24() -> None:
    one = story()
    one.lead(1, 4, [2])
    decide(one, [2])

    assert one.found == ["INV-24"]


def test_accepting_from_a_version_before_the_write_breaks_inv_24() -> None:
    one = story()
    one.lead(1, 4, [1, 2, 3])
    one.lead(1, 4, [1, 2])
    decide(one, [1, 2, 3], partition_epoch=2)

    assert one.found == ["INV-24"]


def test_writing_a_repeated_proposal_breaks_inv_24() -> None:
    one = story()
    one.lead(1, 4, [2, 1])

    assert one.found == ["INV-24"]


@pytest.mark.parametrize(
    ("error", "version", "leader_epoch", "found"),
    [
        ("INVALID_UPDATE_VERSION", 1, 5, ["INV-24"]),
        ("FENCED_LEADER_EPOCH", 1, 5, []),
        ("INVALID_UPDATE_VERSION", 1, 4, []),
        ("INVALID_UPDATE_VERSION", 0, 5, []),
    ],
)
def test_another_error_than_fencing_for_a_known_older_leader_epoch_breaks_inv_24(
    error: str, version: int, leader_epoch: int, found: list[str]
) -> None:
    one = story()
    move(one, leader_epoch, version)
    decide(one, [1], error=error)

    assert one.found == found


def test_a_row_read_for_a_refused_move_is_not_known_until_the_store_rejects_the_proposal() -> None:
    one = story()
    move(one, 4, 0)
    move(one, 5, 1, refused="the store failed")
    one.commit({}, outcome="conflict", conflicts=["leadership/t1/0"])
    decide(one, [1], error="INVALID_UPDATE_VERSION")
    assert one.found == []

    decide(one, [1], error="INVALID_UPDATE_VERSION")
    assert one.found == ["INV-24"]


@pytest.mark.parametrize(
    ("client", "key"), [(B, "leadership/t1/0"), (A, "leadership/t1/1"), (A, "leadership/t2/0"), (A, "topics/t1")]
)
def test_another_rejected_write_does_not_excuse_the_error(client: str, key: str) -> None:
    one = story()
    move(one, 5, 1, refused="the store failed")
    one.commit({}, client=client, outcome="conflict", conflicts=[key])
    decide(one, [1], error="INVALID_UPDATE_VERSION")

    assert one.found == ["INV-24"]


def test_a_write_that_was_rejected_before_the_refused_move_does_not_excuse_the_error() -> None:
    one = story()
    one.commit({}, outcome="conflict", conflicts=["leadership/t1/0"])
    move(one, 5, 1, refused="the store failed")
    decide(one, [1], error="INVALID_UPDATE_VERSION")

    assert one.found == ["INV-24"]


@pytest.mark.parametrize("refused", [[], ["the store failed"]])
def test_a_rejected_write_does_not_excuse_the_error_after_a_move_that_was_not_refused(refused: list[str]) -> None:
    one = story()
    move(one, 5, 1)
    for reason in refused:
        move(one, 6, 2, refused=reason)
    one.commit({}, outcome="conflict", conflicts=["leadership/t1/0"])
    decide(one, [1], error="INVALID_UPDATE_VERSION")

    assert one.found == ["INV-24"]
