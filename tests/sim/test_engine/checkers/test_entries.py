"""INV-07, INV-15 to INV-18, INV-20 and INV-21 over hand-written histories."""

import pytest

from tests.sim.engine.checkers import Entries, Rules

from .stories import NO_ID, T1, T2, A, Story


def story(**rules: bool) -> Story:
    """A partition on 1, 2, 3, led by 1; all three are registered."""
    one = Story(Entries(Rules(**rules)))
    one.brokers({1: 11, 2: 12, 3: 13})
    one.topic({0: [1, 2, 3]}, operation="create_topic")
    one.lead(1, 0, [1, 2, 3])
    return one


def test_shrinking_expanding_and_clean_elections_are_legal() -> None:
    one = story()
    one.lead(1, 0, [1, 2])
    one.lead(2, 1, [2])
    one.lead(-1, 2, [2])
    one.lead(2, 3, [2])
    one.lead(2, 3, [2, 1])
    one.commit({"leadership/t1/0": None, "topics/t1": None}, operation="delete_topics", fence=1)
    one.topic({0: [2, 3]}, topic_id="0c", operation="create_topic")
    one.lead(3, 0, [2, 3])

    assert one.found == []


def test_a_write_over_another_version_breaks_inv_07() -> None:
    one = story()
    one.lead(1, 0, [1, 2])
    one.lead(1, 0, [1, 2, 3], old=0)

    assert one.found == ["INV-07"]


def test_a_leader_outside_the_isr_breaks_inv_15() -> None:
    one = story()
    one.lead(1, 1, [2, 3])
    one.lead(2, 2, [3])

    assert one.found == ["INV-15", "INV-15"]


@pytest.mark.parametrize("isr", [[1, 2, 2], [1, 2, 4]], ids=["twice", "no replica"])
def test_an_isr_of_others_than_replicas_breaks_inv_16(isr: list[int]) -> None:
    one = story()
    one.lead(1, 0, isr)

    assert one.found == ["INV-16"]


@pytest.mark.parametrize(("isr", "found"), [([3], []), ([2, 3], ["INV-16"])], ids=["alone", "beside an assigned one"])
def test_in_sync_replica_that_is_not_assigned_is_elected_only_if_no_assigned_one_is_in_sync(
    isr: list[int], found: list[str]
) -> None:
    one = story()
    one.lead(-1, 1, isr)
    one.topic({0: [1, 2]}, fence=1)
    one.lead(-1, 2, isr)
    one.lead(3, 3, isr)

    assert one.found == found


def test_a_replica_that_left_the_assignment_joins_only_for_a_late_writer() -> None:
    one = story()
    one.lead(1, 0, [1, 2])
    sent = len(one.history.events)
    one.topic({0: [1, 2]}, fence=1)
    one.lead(1, 0, [1, 2, 3], sent=sent)
    one.lead(1, 0, [1, 2])
    one.lead(1, 0, [1, 2, 3], fence=None, operation="write_isr", client="broker 1")
    assert one.found == []
    one.lead(1, 0, [1, 2])
    one.lead(1, 0, [1, 2, 3])

    assert one.found == ["INV-16"]


def test_electing_a_replica_of_an_earlier_assignment_breaks_inv_16() -> None:
    one = story()
    one.topic({0: [1, 2]}, fence=1)
    one.lead(3, 1, [1, 2, 3])

    assert one.found == ["INV-16"]


@pytest.mark.parametrize(("fence", "found"), [(None, []), (1, ["INV-16"])])
def test_replicas_count_until_the_controller_writes_an_assignment_that_a_tool_has_overwritten(
    fence: int | None, found: list[str]
) -> None:
    one = story()
    one.topic({0: ([4, 1, 2, 3], [4], [])}, fence=1)
    one.topic({0: [1, 2, 3], 1: [1]}, fence=fence)
    one.lead(1, 0, [1, 2, 3, 4])

    assert one.found == found


def test_replicas_of_an_overwritten_assignment_count_after_partitions_were_added() -> None:
    one = story()
    one.topic({0: ([4, 1, 2, 3], [4], [])}, fence=1)
    one.topic({0: [1, 2, 3]})
    one.topic({0: [1, 2, 3], 1: [1]}, fence=1)
    one.lead(1, 0, [1, 2, 3, 4])

    assert one.found == []


@pytest.mark.parametrize(("topic_ids", "found"), [((T1, T2), ["INV-16"]), (("0" * 32,) * 2, [])])
def test_a_write_for_an_earlier_topic_of_the_name_breaks_inv_16(topic_ids: tuple[str, str], found: list[str]) -> None:
    """Stores compare the ids of topics; without ids they cannot, and the write had been sent before."""
    one = Story(Entries())
    one.topic({0: [1, 2, 3]}, topic_id=topic_ids[0])
    sent = len(one.history.events)
    one.commit({"topics/t1": None})
    one.topic({0: [1, 2]}, topic_id=topic_ids[1])
    one.lead(3, 0, [3], sent=sent)

    assert one.found == found


def test_an_empty_isr_breaks_inv_17() -> None:
    one = story()
    one.lead(-1, 1, [])

    assert one.found == ["INV-17"]


def test_a_leader_epoch_that_falls_breaks_inv_18() -> None:
    one = story()
    one.lead(2, 2, [1, 2, 3])
    one.lead(2, 1, [1, 2, 3])

    assert one.found == ["INV-18"]


def test_a_new_leader_in_the_same_leader_epoch_breaks_inv_18() -> None:
    one = story()
    one.lead(-1, 1, [1])
    one.lead(1, 1, [1])

    assert one.found == ["INV-18"]


def test_an_unclean_election_that_is_not_allowed_breaks_inv_20() -> None:
    one = story()
    one.lead(1, 0, [1])
    one.brokers({2: 12, 3: 13})
    one.lead(2, 1, [2], recovering=True)

    assert one.found == ["INV-20"]


def leads(one: Story, message: int, *, leader: int = 3, epoch: int = 0) -> None:
    """Broker 3 applies a request that names a leader of t1-0."""
    role = "leader" if leader == 3 else "follower"
    fields = {"broker": 3, "broker_epoch": 13, "topic": "t1", "topic_id": NO_ID, "partition": 0, "outcome": "applied"}
    leadership = {"leader": leader, "leader_epoch": epoch, "partition_epoch": 0, "isr": [3, 1]}
    one.record("role.apply", "broker 3", message=message, role=role, **leadership, **fields)


def stops(one: Story, message: int) -> None:
    fields = {"broker": 3, "broker_epoch": 13, "topic": "t1", "topic_id": NO_ID, "partition": 0, "outcome": "applied"}
    one.record("role.stop", "broker 3", message=message, leader_epoch=-2, delete=True, **fields)


def created_again(replicas: list[int]) -> Story:
    """A topic without an id, led by 3, was deleted; message 1 was sent for it. The next one is led by 1 alone."""
    one = Story(Entries())
    one.brokers({1: 11, 2: 12, 3: 13})
    one.topic({0: [3, 1, 4]}, topic_id=NO_ID, operation="create_topic")
    one.lead(3, 0, [3, 1])
    send(one, 1)
    one.commit({"leadership/t1/0": None, "topics/t1": None}, operation="delete_topics", fence=1)
    one.topic({0: replicas}, topic_id=NO_ID, operation="create_topic")
    one.lead(1, 0, [1])
    send(one, 2)
    return one


def send(one: Story, message: int) -> None:
    fields = {"broker": 3, "broker_epoch": 13, "what": "LeaderAndIsr", "controller": 100, "controller_epoch": 1}
    one.record("req.send", A, message=message, **fields)


@pytest.mark.parametrize("isr", [[3], [3, 4]])
@pytest.mark.parametrize("replicas", [[1, 2, 3], [1, 2]], ids=["a replica", "no replica"])
def test_leader_of_an_earlier_topic_may_write_its_isr(replicas: list[int], isr: list[int]) -> None:
    """A late request has started it after the deletion; at this protocol level nothing tells the topics apart."""
    one = created_again(replicas)
    leads(one, 1)
    one.lead(3, 0, isr, fence=None, operation="write_isr", client="broker 3")

    assert one.found == []


def test_leader_of_an_earlier_topic_may_write_an_earlier_leader_epoch() -> None:
    one = created_again([1, 2, 3])
    one.lead(1, 2, [1])
    leads(one, 1)
    one.lead(3, 0, [3], fence=None, operation="write_isr", client="broker 3")

    assert one.found == []


def test_write_that_was_sent_for_an_earlier_topic_may_arrive_late() -> None:
    one = created_again([1, 2, 3])
    one.lead(3, 0, [3], fence=None, operation="write_isr", client="broker 3", sent=2)

    assert one.found == []


def test_empty_isr_of_an_earlier_leader_breaks_inv_17() -> None:
    one = created_again([1, 2, 3])
    leads(one, 1)
    one.lead(3, 0, [], fence=None, operation="write_isr", client="broker 3")

    assert one.found == ["INV-17"]


def test_isr_of_an_earlier_leader_holds_replicas_of_one_of_the_topics() -> None:
    one = created_again([1, 2, 3])
    leads(one, 1)
    one.lead(3, 0, [3, 5], fence=None, operation="write_isr", client="broker 3")

    assert one.found == ["INV-16"]


@pytest.mark.parametrize(
    ("message", "epoch", "operation", "client"),
    [
        (2, 0, "write_isr", "broker 3"),
        (1, 1, "write_isr", "broker 3"),
        (1, 0, "commit", "broker 3"),
        (1, 0, "write_isr", "broker 2"),
    ],
    ids=["sent for the present topic", "another leader epoch", "another operation", "another broker"],
)
def test_other_leader_outside_the_isr_breaks_inv_20(message: int, epoch: int, operation: str, client: str) -> None:
    one = created_again([1, 2, 3])
    leads(one, message)
    one.lead(3, epoch, [3], fence=None, operation=operation, client=client)

    assert one.found == ["INV-20"]


@pytest.mark.parametrize("how", ["stopped", "follows", "leads anew", "never led"])
def test_leader_that_has_ended_breaks_inv_20(how: str) -> None:
    one = created_again([1, 2, 3])
    if how != "never led":
        leads(one, 1)
    if how == "stopped":
        stops(one, 2)
    elif how == "follows":
        leads(one, 2, leader=1)
    elif how == "leads anew":
        leads(one, 2, epoch=1)
    one.lead(3, 0, [3], fence=None, operation="write_isr", client="broker 3")

    assert one.found == ["INV-20"]


def test_an_election_from_outside_the_isr_is_reported_before_its_consequences() -> None:
    one = story()
    one.lead(1, 0, [1])
    one.lead(2, 1, [1])

    assert one.found == ["INV-20"]


def test_an_unclean_election_beside_a_live_isr_member_breaks_inv_20() -> None:
    one = story(unclean=True)
    one.lead(1, 0, [1, 3])
    one.brokers({2: 12, 3: 13})
    one.lead(2, 1, [2], recovering=True)

    assert one.found == ["INV-20"]


@pytest.mark.parametrize("by", ["default", "topic", "cluster", "operator", "operator of all"])
def test_an_unclean_election_is_legal_where_it_is_allowed(by: str) -> None:
    one = story(unclean=by == "default")
    setting = {"unclean.leader.election.enable": "true"}
    if by == "topic":
        one.commit({"configs/t1": setting})
    elif by == "cluster":
        one.commit({"config": setting})
    elif by.startswith("operator"):
        target = "t0-0, t1-0" if by == "operator" else ""
        one.record("admin.call", call=1, controller=A, operation="elect unclean", target=target, limit_ms=0.0)
    one.lead(1, 0, [1])
    one.brokers({2: 12, 3: 13})
    one.lead(2, 1, [2], recovering=True)

    assert one.found == []


def test_a_permission_ends_some_time_after_it_was_taken_back() -> None:
    one = story()
    one.commit({"configs/t1": {"unclean.leader.election.enable": "true"}})
    one.commit({"configs/t1": {}})
    one.lead(1, 0, [1])
    one.brokers({2: 12, 3: 13})
    one.now_ms += 200_000
    one.lead(2, 1, [2], recovering=True)

    assert one.found == ["INV-20"]


def test_a_member_with_a_failed_disk_is_not_live() -> None:
    one = story(unclean=True)
    one.lead(1, 0, [1])
    one.record(
        "role.apply",
        message=1,
        broker=1,
        broker_epoch=11,
        topic="t1",
        topic_id="0a",
        partition=0,
        role="leader",
        leader=1,
        leader_epoch=0,
        partition_epoch=1,
        isr=[1],
        outcome="storage",
    )
    one.lead(2, 1, [2], recovering=True)

    assert one.found == []


@pytest.mark.parametrize(("status", "found"), [("FAILED", []), ("BUSY", ["INV-20"]), ("READY", ["INV-20"])])
def test_a_member_with_a_failed_handler_is_not_live(status: str, found: list[str]) -> None:
    one = story(unclean=True)
    one.lead(1, 0, [1])
    one.record("handler.report", "broker 1", broker=1, topic="t1", partition=0, status=status)
    one.lead(2, 1, [2], recovering=True)

    assert one.found == found


def unclean() -> Story:
    one = story(unclean=True)
    one.lead(1, 0, [1])
    one.brokers({2: 12, 3: 13})
    return one


@pytest.mark.parametrize(("isr", "recovering"), [([2], False), ([2, 3], True)], ids=["not marked", "more members"])
def test_an_unclean_leader_that_does_not_recover_alone_breaks_inv_21(isr: list[int], recovering: bool) -> None:
    one = unclean()
    one.lead(2, 1, isr, recovering=recovering)

    assert one.found == ["INV-21"]


def test_a_recovery_ends_in_its_leader_epoch() -> None:
    one = unclean()
    one.lead(2, 1, [2], recovering=True)
    one.lead(-1, 2, [2], recovering=True)
    one.lead(2, 3, [2], recovering=True)
    one.lead(2, 3, [2])
    one.lead(2, 3, [2, 3])

    assert one.found == []


def test_a_recovery_that_another_leader_epoch_ends_breaks_inv_21() -> None:
    one = unclean()
    one.lead(2, 1, [2], recovering=True)
    one.lead(2, 2, [2])

    assert one.found == ["INV-21"]


def test_an_isr_that_grows_while_its_leader_recovers_breaks_inv_21() -> None:
    one = unclean()
    one.lead(2, 1, [2], recovering=True)
    one.lead(2, 1, [2, 3], recovering=True)

    assert one.found == ["INV-21"]


def test_a_recovery_from_nowhere_breaks_inv_21() -> None:
    one = story()
    one.lead(1, 0, [1], recovering=True)

    assert one.found == ["INV-21"]


def test_old_levels_do_not_mark_recoveries() -> None:
    one = story(unclean=True, recovery=False)
    one.lead(1, 0, [1])
    one.brokers({2: 12, 3: 13})
    one.lead(2, 1, [2])

    assert one.found == []
