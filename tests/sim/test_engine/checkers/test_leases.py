"""INV-56 and INV-58 over hand-written histories."""

import pytest

from tests.sim.engine.checkers import Leases

from .stories import NO_ID, T1, T2, Story

ONE, TWO = "broker 1", "broker 2"


def begin(one: Story, node: str, epoch: int, *, life: int = 1, topic_id: str = T1, valid: tuple[str, ...] = ()) -> None:
    one.record(
        "lease.begin",
        node,
        broker=int(node[-1]),
        life=life,
        topic="t1",
        topic_id=topic_id,
        partition=0,
        controller_epoch=1,
        leader_epoch=epoch,
        present_epoch=epoch,
        valid=[(other, 1) for other in valid],
    )


def story() -> Story:
    """Broker 1 leads under epoch 4."""
    one = Story(Leases())
    begin(one, ONE, 4)
    return one


def test_leaderships_one_after_the_other_are_legal() -> None:
    one = story()
    one.record("lease.end", ONE, broker=1, life=1, topic="t1", partition=0)
    begin(one, TWO, 5, valid=(ONE,))
    begin(one, TWO, 6, valid=(ONE,))

    assert one.found == []


def test_leadership_after_the_end_of_the_lease_is_legal() -> None:
    one = story()
    begin(one, TWO, 5)

    assert one.found == []


@pytest.mark.parametrize("kind", ["lease.lapse", "node.crash"])
def test_everything_ends_with_the_lease_and_the_process(kind: str) -> None:
    one = story()
    if kind == "lease.lapse":
        one.record(kind, ONE, broker=1, life=1)
    else:
        one.record(kind, ONE, incarnation=1, clean=False)
    begin(one, TWO, 5, valid=(ONE,))

    assert one.found == []


def test_a_leadership_beside_a_valid_one_breaks_inv_56() -> None:
    one = story()
    begin(one, TWO, 5, valid=(ONE,))

    assert one.found == ["INV-56"]


def test_end_of_another_partition_breaks_inv_56() -> None:
    one = story()
    one.record("lease.end", ONE, broker=1, life=1, topic="t1", partition=1)
    begin(one, TWO, 5, valid=(ONE,))

    assert one.found == ["INV-56"]


def test_another_life_beside_a_valid_one_breaks_inv_56() -> None:
    one = story()
    begin(one, ONE, 5, life=2, valid=(ONE,))

    assert one.found == ["INV-56"]


def test_topics_of_one_name_have_leaderships_of_their_own() -> None:
    one = story()
    begin(one, TWO, 0, topic_id=T2, valid=(ONE,))

    assert one.found == []


def test_topics_without_ids_of_one_name_are_compared() -> None:
    one = Story(Leases())
    begin(one, ONE, 4, topic_id=NO_ID)
    one.commit({"topics/t1": None})
    begin(one, TWO, 4, topic_id=NO_ID, valid=(ONE,))

    assert one.found == ["INV-56"]


@pytest.mark.parametrize(("removed", "found"), [("t1", []), ("t2", ["INV-58"])])
def test_leader_epochs_begin_again_with_the_next_topic_of_the_name(removed: str, found: list[str]) -> None:
    one = Story(Leases())
    begin(one, ONE, 4, topic_id=NO_ID)
    one.record("lease.end", ONE, broker=1, life=1, topic="t1", partition=0)
    one.commit({f"topics/{removed}": None})
    begin(one, TWO, 3, topic_id=NO_ID)

    assert one.found == found


def test_late_leadership_of_a_removed_topic_is_compared_with_the_next_topic() -> None:
    """A participant skips late requests, so there is none."""
    one = Story(Leases())
    begin(one, ONE, 4, topic_id=NO_ID)
    one.commit({"topics/t1": None})
    begin(one, ONE, 4, topic_id=NO_ID)
    one.record("lease.end", ONE, broker=1, life=1, topic="t1", partition=0)
    one.commit({"topics/t1": {"id": NO_ID, "partitions": {}}})
    begin(one, TWO, 0, topic_id=NO_ID)

    assert one.found == ["INV-58"]


def test_a_write_of_a_topic_forgets_no_leader_epochs() -> None:
    one = Story(Leases())
    one.commit({"topics/t1": None})
    one.commit({"topics/t1": {"id": NO_ID, "partitions": {}}})
    begin(one, ONE, 4, topic_id=NO_ID)
    one.record("lease.end", ONE, broker=1, life=1, topic="t1", partition=0)
    one.commit({"topics/t1": {"id": NO_ID, "partitions": {}}})
    begin(one, TWO, 3, topic_id=NO_ID)
    assert one.found == ["INV-58"]


def test_an_earlier_leader_epoch_breaks_inv_58() -> None:
    one = story()
    one.record("lease.end", ONE, broker=1, life=1, topic="t1", partition=0)
    begin(one, TWO, 3)

    assert one.found == ["INV-58"]


def test_session_that_the_store_ends_early_protects_nothing() -> None:
    one = story()
    one.commit({"brokers/1": {"epoch": 1}})
    one.record("fault.begin", fault="expire", target=ONE)
    one.commit({"brokers/1": None}, client="", operation="expire")
    one.record("action", number=1)
    begin(one, TWO, 5, valid=(ONE,))

    assert one.found == []


def test_leadership_in_a_session_that_the_store_ended_early_is_not_compared() -> None:
    one = story()
    one.commit({"brokers/2": {"epoch": 1}})
    one.record("fault.begin", fault="expire", target=TWO)
    one.commit({"brokers/2": None}, client="", operation="expire")
    one.record("action", number=1)
    begin(one, TWO, 3, valid=(ONE,))
    begin(one, TWO, 3, life=2, valid=(ONE,))

    assert one.found == ["INV-56"]  # of the next registration, which is as good as any


def test_session_that_ends_by_itself_protects_its_leases() -> None:
    one = story()
    one.commit({"brokers/1": {"epoch": 1}})
    one.record("fault.begin", fault="expire", target=TWO)
    one.record("action", number=1)
    one.commit({"brokers/1": None}, client="", operation="expire")
    begin(one, TWO, 5, valid=(ONE,))

    assert one.found == ["INV-56"]
