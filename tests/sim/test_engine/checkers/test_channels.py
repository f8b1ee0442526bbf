"""INV-47 over hand-written histories."""

import pytest

from tests.sim.engine.checkers import Channels

from .stories import NO_ID, T1, T2, A, Story


def enqueue(
    one: Story, request: int, what: str = "LeaderAndIsr", *names: str, epoch: int = 0, topic_id: str = T1
) -> None:
    one.record(
        "req.enqueue",
        A,
        channel=1,
        broker=1,
        broker_epoch=11,
        request=request,
        what=what,
        controller_epoch=1,
        partitions=list(names),
        leader_epochs=[epoch] * len(names),
        topic_ids=[topic_id] * len(names),
    )


def attempt(one: Story, request: int, *outcomes: str) -> None:
    for outcome in ("begin", *outcomes):
        one.record("req.attempt", A, channel=1, request=request, outcome=outcome)


def replace(one: Story, before: list[int], *after: tuple[int, str, list[str]]) -> None:
    one.record("req.replace", A, channel=1, before=before, after=list(after))


def story(count: int = 3) -> Story:
    one = Story(Channels())
    for request in range(1, count + 1):
        enqueue(one, request, "LeaderAndIsr", "t1-0")
    return one


def test_requests_in_order_with_retries_are_legal() -> None:
    one = story()
    attempt(one, 1, "failed")
    attempt(one, 1, "answered")
    attempt(one, 2, "answered")
    one.record("req.drop", A, channel=1)
    enqueue(one, 4)
    attempt(one, 4)

    assert one.found == []


def test_a_request_out_of_its_turn_breaks_inv_47() -> None:
    one = story()
    attempt(one, 2)

    assert one.found == ["INV-47"]


def test_the_next_request_before_an_answer_breaks_inv_47() -> None:
    one = story()
    attempt(one, 1, "failed")
    attempt(one, 2)

    assert one.found == ["INV-47"]
    assert one.violations[0].signature == "INV-47 req.attempt req.attempt"


def mixed() -> Story:
    one = Story(Channels())
    enqueue(one, 1, "LeaderAndIsr", "t1-0", "t1-1")
    enqueue(one, 2, "UpdateMetadata")
    enqueue(one, 3, "StopReplica", "t1-0")
    enqueue(one, 4, "LeaderAndIsr", "t1-1")
    enqueue(one, 5, "UpdateMetadata")
    return one


def test_merged_requests_are_legal() -> None:
    one = mixed()
    merged = (6, "LeaderAndIsr", ["t1-0", "t1-1"])
    replace(one, [1, 2, 3, 4, 5], merged, (3, "StopReplica", ["t1-0"]), (5, "UpdateMetadata", []))
    attempt(one, 6, "answered")
    attempt(one, 3, "answered")

    assert one.found == []


@pytest.mark.parametrize(
    "after",
    [
        [(6, "LeaderAndIsr", ["t1-0", "t1-1"]), (5, "UpdateMetadata", [])],
        [(6, "LeaderAndIsr", ["t1-1"]), (3, "StopReplica", ["t1-0"]), (5, "UpdateMetadata", [])],
        [(3, "StopReplica", ["t1-0"]), (6, "LeaderAndIsr", ["t1-0", "t1-1"]), (5, "UpdateMetadata", [])],
        [(6, "LeaderAndIsr", ["t1-0", "t1-1"]), (3, "StopReplica", ["t1-0"])],
    ],
    ids=["stop lost", "partition lost", "stop and start reordered", "metadata lost"],
)
def test_merging_that_loses_something_breaks_inv_47(after: list[tuple[int, str, list[str]]]) -> None:
    one = mixed()
    replace(one, [1, 2, 3, 4, 5], *after)

    assert one.found == ["INV-47"]


def test_replacing_other_requests_than_those_that_wait_breaks_inv_47() -> None:
    one = mixed()
    replace(one, [1, 2, 3, 4], (6, "LeaderAndIsr", ["t1-0", "t1-1"]), (3, "StopReplica", ["t1-0"]))

    assert one.found == ["INV-47"]


@pytest.mark.parametrize(("sent", "found"), [(1, []), (6, ["INV-47"])], ids=["first", "lost"])
def test_first_request_may_be_taken_before_the_others_are_merged(sent: int, found: list[str]) -> None:
    """It waits until the controller may send, and is sent before the merged ones."""
    one = mixed()
    replace(one, [2, 3, 4, 5], (6, "LeaderAndIsr", ["t1-1"]), (3, "StopReplica", ["t1-0"]), (5, "UpdateMetadata", []))
    attempt(one, sent, "answered")

    assert one.found == found


def test_second_request_is_not_taken_while_one_is_in_flight() -> None:
    one = mixed()
    attempt(one, 1)
    replace(one, [3, 4, 5], (3, "StopReplica", ["t1-0"]), (4, "LeaderAndIsr", ["t1-1"]), (5, "UpdateMetadata", []))

    assert one.found == ["INV-47"]


@pytest.mark.parametrize("what", ["LeaderAndIsr", "StopReplica"])
def test_a_leader_epoch_that_falls_breaks_inv_47(what: str) -> None:
    one = story(0)
    enqueue(one, 1, "LeaderAndIsr", "t1-0", epoch=3)
    enqueue(one, 2, what, "t1-0", epoch=2)

    assert one.found == ["INV-47"]


@pytest.mark.parametrize("what", ["LeaderAndIsr", "StopReplica"])
def test_a_new_topic_begins_with_any_leader_epoch(what: str) -> None:
    one = story(0)
    enqueue(one, 1, "LeaderAndIsr", "t1-0", epoch=3)
    enqueue(one, 2, "StopReplica", "t1-0", epoch=-2)
    enqueue(one, 3, "LeaderAndIsr", "t1-0", epoch=1)
    enqueue(one, 4, what, "t1-0", epoch=0, topic_id=T2)

    assert one.found == []


def test_the_first_leader_epoch_after_a_later_one_breaks_inv_47() -> None:
    one = story(0)
    enqueue(one, 1, "LeaderAndIsr", "t1-0", epoch=3)
    enqueue(one, 2, "LeaderAndIsr", "t1-0", epoch=0)

    assert one.found == ["INV-47"]


@pytest.mark.parametrize(("lives", "found"), [(1, ["INV-47"]), (2, [])])
def test_topics_without_ids_are_compared_within_their_first_life(lives: int, found: list[str]) -> None:
    one = story(0)
    for _ in range(lives):
        one.commit({"topics/t1": None})
        one.topic({0: [1]}, topic_id=NO_ID)
    enqueue(one, 1, "LeaderAndIsr", "t1-0", epoch=3, topic_id=NO_ID)
    enqueue(one, 2, "LeaderAndIsr", "t1-0", epoch=1, topic_id=NO_ID)

    assert one.found == found
