"""Epochs that a broker accepts, and the error codes of its responses."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.decide.messages.control import LeaderAndIsrResponse, StopReplicaResponse, UpdateMetadataResponse
from kactl.model import EPOCH_DURING_DELETE, NO_EPOCH, ZERO_ID, TopicPartition
from kactl.model.errors import ErrorCode
from kactl.participant import checks
from kactl.participant.hosted_replicas import HostedReplicas, Role
from tests.support.control_requests import (
    BILLS_0,
    CONTROLLER,
    ID_A,
    ID_B,
    ORDERS_0,
    ORDERS_1,
    StateRow,
    errors,
    leader_and_isr,
    states,
    stop_replica,
    update_metadata,
)

SELF = 1


def hosting(*rows: StateRow, role: Role = Role.LEADER) -> HostedReplicas:
    hosted = HostedReplicas()
    host(hosted, *rows, role=role)
    return hosted


def host(hosted: HostedReplicas, *rows: StateRow, role: Role = Role.LEADER) -> None:
    applied = states(*rows)
    hosted.apply(applied, np.ones(len(applied), np.bool_), role)


def plan_row(hosted: HostedReplicas, row: StateRow) -> tuple[int, bool, bool]:
    """Returns the error code of one row, and whether the broker becomes leader or follower."""
    plan = checks.plan_leader_and_isr(states(row), hosted, SELF)
    return int(plan.error[0]), bool(plan.lead[0]), bool(plan.follow[0])


@pytest.mark.parametrize("broker_epoch", [-1, 50, 51])
def test_request_for_this_registration_is_accepted(broker_epoch: int) -> None:
    request = update_metadata(epoch=7, broker_epoch=broker_epoch)

    assert checks.request_error(request, broker_epoch=50, controller_epoch=7) is ErrorCode.NONE


def test_broker_epoch_is_checked_before_the_controller_epoch() -> None:
    request = update_metadata(epoch=6, broker_epoch=49)

    assert checks.request_error(request, broker_epoch=50, controller_epoch=7) is ErrorCode.STALE_BROKER_EPOCH


def test_older_controller_is_rejected() -> None:
    assert (
        checks.request_error(update_metadata(epoch=6), broker_epoch=50, controller_epoch=7)
        is ErrorCode.STALE_CONTROLLER_EPOCH
    )


@pytest.mark.parametrize(
    ("controller_id", "epoch", "error"),
    [
        (CONTROLLER, 7, ErrorCode.NONE),
        (CONTROLLER + 1, 7, ErrorCode.STALE_CONTROLLER_EPOCH),
        (CONTROLLER + 1, 6, ErrorCode.NONE),
        (None, 7, ErrorCode.NONE),
    ],
)
def test_second_controller_of_an_epoch_is_rejected(controller_id: int | None, epoch: int, error: ErrorCode) -> None:
    request = update_metadata(epoch=7)

    found = checks.request_error(request, broker_epoch=50, controller_epoch=epoch, controller_id=controller_id)

    assert found is error


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_CONTROLLER_EPOCH])
def test_only_leader_and_isr_repeats_a_rejection_for_each_row(error: ErrorCode) -> None:
    led = checks.error_response(leader_and_isr(StateRow(ORDERS_0), StateRow(BILLS_0)), error)
    stopped = checks.error_response(stop_replica(ORDERS_0), error)
    updated = checks.error_response(update_metadata(StateRow(ORDERS_0)), error)

    assert isinstance(led, LeaderAndIsrResponse)
    assert isinstance(stopped, StopReplicaResponse)
    assert led.error == stopped.error == error
    assert errors(led.partitions) == {ORDERS_0: error, BILLS_0: error}
    assert errors(stopped.partitions) == {}
    assert updated == UpdateMetadataResponse(error)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (StateRow(ORDERS_0, leader=1, leader_epoch=6), (0, True, False)),
        (StateRow(ORDERS_0, leader=2, leader_epoch=6), (0, False, True)),
        (StateRow(ORDERS_0, leader=-1, leader_epoch=6), (0, False, True)),
        (StateRow(ORDERS_0, leader_epoch=5), (11, False, False)),
        (StateRow(ORDERS_0, leader_epoch=4), (11, False, False)),
        (StateRow(ORDERS_0, leader=2, leader_epoch=6, replicas=(2, 3)), (3, False, False)),
        (StateRow(ORDERS_0, leader_epoch=6, topic_id=ID_B), (103, False, False)),
        (StateRow(ORDERS_0, leader_epoch=6, topic_id=ZERO_ID), (0, True, False)),
        (StateRow(ORDERS_0, leader_epoch=6, partition_epoch=2), (0, False, False)),
        (StateRow(ORDERS_0, leader_epoch=6, partition_epoch=3), (0, True, False)),
        (StateRow(ORDERS_1, leader_epoch=0), (0, True, False)),
        (StateRow(ORDERS_1, leader_epoch=0, topic_id=ID_B), (0, True, False)),
    ],
    ids=[
        "newer, to lead",
        "newer, to follow",
        "newer, no leader",
        "the same epoch",
        "an older epoch",
        "not a replica",
        "another topic of that name",
        "no topic id in the request",
        "an older partition epoch is skipped",
        "the same partition epoch",
        "a new replica",
        "a new replica with an id",
    ],
)
def test_rows_are_compared_with_hosted_replicas(row: StateRow, expected: tuple[int, bool, bool]) -> None:
    if row.partition_epoch == 0:
        row = row.but(partition_epoch=3)
    hosted = hosting(StateRow(ORDERS_0, leader_epoch=5, partition_epoch=3, topic_id=ID_A))

    assert plan_row(hosted, row) == expected


def test_new_topic_id_is_stored_under_the_same_epoch() -> None:
    hosted = hosting(StateRow(ORDERS_0, leader_epoch=5))

    plan = checks.plan_leader_and_isr(states(StateRow(ORDERS_0, leader_epoch=5, topic_id=ID_A)), hosted, SELF)
    hosted.update_topic_ids(states(StateRow(ORDERS_0, leader_epoch=5, topic_id=ID_A)), plan.id_only)

    assert plan.error.tolist() == [0]
    assert not plan.lead.any()
    assert not plan.follow.any()
    assert plan_row(hosted, StateRow(ORDERS_0, leader_epoch=6, topic_id=ID_B))[0] == 103


def test_failed_directory_takes_precedence_over_other_errors() -> None:
    hosted = hosting(StateRow(ORDERS_0, leader_epoch=5, topic_id=ID_A))
    hosted.fail([ORDERS_0, BILLS_0])

    assert plan_row(hosted, StateRow(ORDERS_0, leader_epoch=6, topic_id=ID_B)) == (56, False, False)
    assert plan_row(hosted, StateRow(BILLS_0)) == (56, False, False)
    assert plan_row(hosted, StateRow(ORDERS_1)) == (0, True, False)
    assert checks.plan_stop_replica(stop_replica(ORDERS_0, delete=True), hosted).error.tolist() == [56]


@pytest.mark.parametrize(("leader_epoch", "error"), [(6, 0), (5, 0), (4, 74), (NO_EPOCH, 0), (EPOCH_DURING_DELETE, 0)])
@pytest.mark.parametrize("delete", [False, True])
def test_stop_replica_compares_leader_epochs(leader_epoch: int, error: int, delete: bool) -> None:
    hosted = hosting(StateRow(ORDERS_0, leader_epoch=5))

    plan = checks.plan_stop_replica(stop_replica(ORDERS_0, leader_epoch=leader_epoch, delete=delete), hosted)

    assert plan.error.tolist() == [error]
    assert plan.stop.tolist() == [error == 0]


@pytest.mark.parametrize("delete", [False, True])
def test_stop_of_an_unknown_replica_succeeds_and_deletes(delete: bool) -> None:
    plan = checks.plan_stop_replica(stop_replica(ORDERS_0, leader_epoch=3, delete=delete), HostedReplicas())

    assert plan.error.tolist() == [0]
    assert plan.stop.tolist() == [delete]


@pytest.mark.parametrize("leader_epoch", [6, 4, EPOCH_DURING_DELETE])
@pytest.mark.parametrize(("topic_id", "stops"), [(ID_A, True), (ID_B, False), (ZERO_ID, True)])
@pytest.mark.parametrize("role", [Role.LEADER, Role.STOPPED])
def test_stop_for_another_topic_id_has_no_effect(role: Role, topic_id: bytes, stops: bool, leader_epoch: int) -> None:
    hosted = hosting(StateRow(ORDERS_0, leader_epoch=5, topic_id=ID_A), role=role)
    request = stop_replica(ORDERS_0, leader_epoch=leader_epoch, delete=True, topic_id=topic_id)

    plan = checks.plan_stop_replica(request, hosted)

    fenced = stops and leader_epoch == 4
    assert plan.error.tolist() == [ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.NONE]
    assert plan.stop.tolist() == [stops and not fenced]


@pytest.mark.parametrize("delete", [False, True])
def test_stopped_replica_is_not_stopped_again_but_can_be_deleted(delete: bool) -> None:
    hosted = hosting(StateRow(ORDERS_0, leader_epoch=5))
    hosted.stop(hosted.index.rows, np.full(len(hosted.index.rows), NO_EPOCH, np.int32), controller_epoch=1)

    plan = checks.plan_stop_replica(stop_replica(ORDERS_0, delete=delete), hosted)

    assert plan.error.tolist() == [0]
    assert plan.stop.tolist() == [delete]
    assert plan_row(hosted, StateRow(ORDERS_0, leader_epoch=5))[0] == 11  # its epoch is remembered


# -- against one replica after the other -------------------------------------------------------------------------------


class LocalReplica(msgspec.Struct, frozen=True):
    """StateRow of a replica in the oracle."""

    leader_epoch: int
    partition_epoch: int
    topic_id: bytes
    failed: bool


def expected_error(row: StateRow, local: LocalReplica | None) -> int:
    """The rules for one row, as documented. Returns the error code."""
    if local is not None and local.failed:
        return 56
    epoch = -1 if local is None else local.leader_epoch
    local_id = ZERO_ID if local is None else local.topic_id
    if ZERO_ID not in (row.topic_id, local_id) and row.topic_id != local_id:
        return 103
    if row.leader_epoch > epoch:
        return 0 if SELF in row.replicas else 3
    is_id_only = local is not None and row.leader_epoch == epoch and local_id == ZERO_ID and row.topic_id != ZERO_ID
    return 0 if is_id_only else 11


rows = st.builds(
    StateRow,
    name=st.builds(TopicPartition, st.just("t"), st.integers(0, 5)),
    leader=st.integers(-1, 3),
    leader_epoch=st.integers(0, 3),
    replicas=st.sampled_from([(1, 2, 3), (2, 3), (3, 1), (1,)]),
    partition_epoch=st.integers(0, 3),
)
ids = st.sampled_from([ZERO_ID, ID_A, ID_B])


def row_name(row: StateRow) -> TopicPartition:
    return row.name


@given(
    st.lists(rows, unique_by=row_name, max_size=6),
    st.sets(st.integers(0, 5)),
    ids,
    st.lists(rows, unique_by=row_name, max_size=6),
    ids,
)
def test_columns_agree_with_the_oracle(
    local: list[StateRow], failed: set[int], local_id: bytes, sent: list[StateRow], sent_id: bytes
) -> None:
    hosted = hosting(*[row.but(topic_id=local_id) for row in local])
    hosted.fail([TopicPartition("t", number) for number in failed])
    known = {row.name: LocalReplica(row.leader_epoch, row.partition_epoch, local_id, False) for row in local}
    for number in failed:
        name = TopicPartition("t", number)
        known[name] = msgspec.structs.replace(known.get(name, LocalReplica(-1, -1, ZERO_ID, False)), failed=True)
    sent = [row.but(topic_id=sent_id) for row in sent]

    plan = checks.plan_leader_and_isr(states(*sent), hosted, SELF)

    assert plan.error.tolist() == [expected_error(row, known.get(row.name)) for row in sent]
    for position, row in enumerate(sent):
        before = known.get(row.name, LocalReplica(-1, -1, ZERO_ID, False))
        is_newer = row.leader_epoch > before.leader_epoch and row.partition_epoch >= before.partition_epoch
        accepted = plan.error[position] == 0 and is_newer
        assert (plan.lead[position], plan.follow[position]) == (
            accepted and row.leader == SELF,
            accepted and row.leader != SELF,
        )


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize(
    ("leader_epoch", "controller_epoch", "error"),
    [
        (4, 8, ErrorCode.STALE_CONTROLLER_EPOCH),  # from before the replica was stopped
        (6, 7, ErrorCode.STALE_CONTROLLER_EPOCH),  # the same, delayed
        (6, 8, ErrorCode.NONE),  # a later controller does not know that it was stopped
        (7, 7, ErrorCode.NONE),
    ],
)
def test_stopped_replica_does_not_start_under_that_epoch(
    delete: bool, leader_epoch: int, controller_epoch: int, error: ErrorCode
) -> None:
    hosted = hosting(StateRow(ORDERS_0, leader_epoch=5, topic_id=ID_A), role=Role.FOLLOWER)
    stop = hosted.remove if delete else hosted.stop
    stop(hosted.index.rows, np.full(1, 6, np.int32), controller_epoch=7)
    request = states(StateRow(ORDERS_0, leader=2, leader_epoch=leader_epoch, topic_id=ID_A))

    plan = checks.plan_leader_and_isr(request, hosted, SELF, controller_epoch=controller_epoch)

    assert plan.error.tolist() == [error]
    assert plan.follow.tolist() == [error is ErrorCode.NONE]


@pytest.mark.parametrize("epoch", [6, EPOCH_DURING_DELETE])
@pytest.mark.parametrize(("deleted", "created"), [(ID_A, ID_B), (b"\0" * 16, b"\0" * 16)])
def test_deleted_replica_does_not_block_another_topic(epoch: int, deleted: bytes, created: bytes) -> None:
    hosted = hosting(StateRow(ORDERS_0, leader_epoch=5, topic_id=deleted))
    hosted.remove(hosted.index.rows, np.full(1, epoch, np.int32), controller_epoch=7)

    assert plan_row(hosted, StateRow(ORDERS_0, leader_epoch=0, topic_id=created)) == (0, True, False)


def test_replica_of_a_deleted_topic_does_not_start_again_for_a_delayed_request() -> None:
    hosted = hosting(StateRow(ORDERS_0, leader_epoch=5, topic_id=ID_A))
    hosted.remove(hosted.index.rows, np.full(1, EPOCH_DURING_DELETE, np.int32), controller_epoch=7)

    assert plan_row(hosted, StateRow(ORDERS_0, leader_epoch=5, topic_id=ID_A)) == (11, False, False)


def test_delayed_request_does_not_start_the_topic_before_the_last_deleted_one() -> None:
    hosted = HostedReplicas()
    for topic_id, leader_epoch in ((ID_A, 5), (ID_B, 2)):
        host(hosted, StateRow(ORDERS_0, leader_epoch=leader_epoch, topic_id=topic_id))
        hosted.remove(hosted.index.rows, np.full(1, EPOCH_DURING_DELETE, np.int32), controller_epoch=7)

    assert plan_row(hosted, StateRow(ORDERS_0, leader_epoch=5, topic_id=ID_A)) == (11, False, False)
    assert plan_row(hosted, StateRow(ORDERS_0, leader_epoch=2, topic_id=ID_B)) == (11, False, False)
    assert plan_row(hosted, StateRow(ORDERS_0, leader_epoch=6, topic_id=ID_A)) == (0, True, False)


def test_deletions_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kactl.participant.hosted_replicas.DELETED_MAX", 2)
    names = [TopicPartition("orders", number) for number in range(3)]
    hosted = hosting(*(StateRow(name, topic_id=ID_A) for name in names))

    hosted.remove(hosted.index.rows, np.zeros(3, np.int32), controller_epoch=7)

    assert list(hosted.deleted) == [("orders", 1), ("orders", 2)]

    for topic_id in (ID_B, ID_A, ID_B):
        host(hosted, *(StateRow(name, topic_id=topic_id) for name in names))
        hosted.remove(hosted.index.rows, np.zeros(3, np.int32), controller_epoch=7)

    assert len(hosted.deleted) == len(hosted.deleted_before) == 2


@given(st.lists(rows, unique_by=row_name, max_size=6), st.lists(rows, unique_by=row_name, max_size=6))
def test_repeated_request_is_rejected_and_changes_nothing(local: list[StateRow], sent: list[StateRow]) -> None:
    hosted = hosting(*local)
    request = states(*sent)
    first = checks.plan_leader_and_isr(request, hosted, SELF)
    hosted.apply(request, first.lead, Role.LEADER)
    hosted.apply(request, first.follow, Role.FOLLOWER)
    before = [hosted.view(row.name) for row in sent]

    again = checks.plan_leader_and_isr(request, hosted, SELF)

    assert not (again.lead | again.follow).any()
    assert (again.error[first.lead | first.follow] == 11).all()
    assert [hosted.view(row.name) for row in sent] == before
