"""Requests of admin tools about partitions, features and users over the wire, and their responses."""

import datetime
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kactl.decide.messages.admin import (
    ApiPartitionReassignment,
    ElectionKind,
    ElectionResult,
    FeatureResult,
    FeatureUpdate,
    ListPartitionReassignments,
    ReassignmentResult,
    ReplicaLeaderElection,
    UpdateFeatures,
    UpgradeType,
)
from kactl.model import Assignment, TopicPartition
from kactl.model.errors import BadRequest, ErrorCode

from .client import connected, part, request_class
from .listener_stub import ControllerStub, listening

pytestmark = pytest.mark.anyio

SECOND = datetime.timedelta(seconds=1)
NONE = KioError.none


def results(answer: Any) -> list[tuple[str, int, KioError]]:
    return [
        (topic.topic, partition.partition_id, partition.error_code)
        for topic in answer.replica_election_results
        for partition in topic.partition_result
    ]


def election(
    version: int,
    named: dict[str, tuple[int, ...]] | None,
    *,
    kind: int = 0,
    timeout: datetime.timedelta = SECOND,
) -> Any:
    partitions = None
    if named is not None:
        topic = part(43, version, "TopicPartitions")
        partitions = tuple(topic(topic=name, partitions=numbers) for name, numbers in named.items())
    more = {"election_type": kind} if version >= 1 else {}
    return request_class(43, version)(topic_partitions=partitions, timeout=timeout, **more)


ELECTED = [
    ElectionResult("a", 0, "ok", leader=1),
    ElectionResult("b", 2, "not_needed", ErrorCode.ELECTION_NOT_NEEDED, "it leads already"),
    ElectionResult("a", 1, "failed", ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "it is dead"),
]


@pytest.mark.parametrize("version", range(3))
async def test_elections_are_executed_with_a_result_per_partition(version: int) -> None:
    controller = ControllerStub({ReplicaLeaderElection: lambda _: ELECTED})
    kind = 1 if version >= 1 else 0
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(election(version, {"a": (0, 1), "b": (2,)}, kind=kind))

    named = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 2))
    requested = ElectionKind.UNCLEAN if kind else ElectionKind.PREFERRED
    assert controller.requests == [ReplicaLeaderElection(requested, named)]
    assert results(answer) == [
        ("a", 0, NONE),
        ("a", 1, KioError.preferred_leader_not_available),
        ("b", 2, KioError.election_not_needed),
    ]


async def test_election_of_all_omits_partitions_without_need() -> None:
    controller = ControllerStub({ReplicaLeaderElection: lambda _: ELECTED})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(election(2, None))

    assert controller.requests == [ReplicaLeaderElection(ElectionKind.PREFERRED, None)]
    assert results(answer) == [("a", 0, NONE), ("a", 1, KioError.preferred_leader_not_available)]


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_election_without_timeout_returns_its_result(timeout_ms: int) -> None:
    controller = ControllerStub({ReplicaLeaderElection: lambda _: ELECTED})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(election(2, None, timeout=datetime.timedelta(milliseconds=timeout_ms)))

    assert (answer.error_code, len(results(answer))) == (NONE, 2)


async def test_election_that_waits_too_long_times_out() -> None:
    import asyncio

    class Busy(ControllerStub):
        async def ask(self, request: Any) -> Any:
            await asyncio.Event().wait()

    async with listening(Busy()) as (_, port), connected(port) as client:
        answer = await client.ask(election(2, {"a": (0,)}, timeout=datetime.timedelta(milliseconds=20)))

    assert answer.error_code is KioError.request_timed_out
    assert results(answer) == [("a", 0, KioError.request_timed_out)]


async def test_elections_are_rejected_as_a_whole_and_individually() -> None:
    controller = ControllerStub()
    controller.is_active = False
    async with listening(controller) as (_, port), connected(port) as client:
        standby = await client.ask(election(2, {"a": (0, 1)}))
        unknown = await client.ask(election(2, {"a": (0,)}, kind=7))

    assert standby.error_code is KioError.not_controller
    assert results(standby) == [("a", 0, KioError.not_controller), ("a", 1, KioError.not_controller)]
    assert unknown.error_code is KioError.invalid_request
    assert len(controller.requests) == 1


# -- reassignments -----------------------------------------------------------------------------------------------------


def reassignment(targets: dict[str, dict[int, tuple[int, ...] | None]]) -> Any:
    topic, partition = part(45, 0, "ReassignableTopic"), part(45, 0, "ReassignablePartition")
    topics = tuple(
        topic(
            name=name,
            partitions=tuple(partition(partition_index=index, replicas=replicas) for index, replicas in moves.items()),
        )
        for name, moves in targets.items()
    )
    return request_class(45, 0)(topics=topics, timeout=SECOND)


async def test_reassignments_are_started_and_cancelled() -> None:
    moved = [ReassignmentResult("a", 0), ReassignmentResult("a", 1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "none is")]
    controller = ControllerStub({ApiPartitionReassignment: lambda _: moved})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(reassignment({"a": {0: (1, 2), 1: None}}))
        controller.is_active = False
        rejected = await client.ask(reassignment({"a": {0: (1, 2)}}))

    assert controller.requests[0] == ApiPartitionReassignment(
        {TopicPartition("a", 0): (1, 2), TopicPartition("a", 1): None}
    )
    assert answer.error_code is NONE
    assert [
        (topic.name, [(p.partition_index, p.error_code) for p in topic.partitions]) for topic in answer.responses
    ] == [("a", [(0, NONE), (1, KioError.no_reassignment_in_progress)])]
    assert rejected.error_code is KioError.not_controller


async def test_reassignments_are_listed() -> None:
    controller = ControllerStub(
        {ListPartitionReassignments: lambda _: {TopicPartition("a", 3): Assignment((1, 2, 3), (1,), (3,))}}
    )
    topic = part(46, 0, "ListPartitionReassignmentsTopics")
    async with listening(controller) as (_, port), connected(port) as client:
        everything = await client.ask(request_class(46, 0)(topics=None, timeout=SECOND))
        await client.ask(request_class(46, 0)(topics=(topic(name="a", partition_indexes=(3, 4)),), timeout=SECOND))
        controller.is_active = False
        rejected = await client.ask(request_class(46, 0)(topics=None, timeout=SECOND))

    assert controller.requests[:2] == [
        ListPartitionReassignments(None),
        ListPartitionReassignments((TopicPartition("a", 3), TopicPartition("a", 4))),
    ]
    (listed,) = everything.topics[0].partitions
    assert (listed.partition_index, listed.replicas, listed.adding_replicas, listed.removing_replicas) == (
        3,
        (1, 2, 3),
        (1,),
        (3,),
    )
    assert rejected.error_code is KioError.not_controller


# -- features and users ------------------------------------------------------------------------------------------------


async def test_features_are_updated() -> None:
    values = [FeatureResult("x"), FeatureResult("y", ErrorCode.FEATURE_UPDATE_FAILED, "no")]
    controller = ControllerStub({UpdateFeatures: lambda _: values})
    first, second = part(57, 0, "FeatureUpdateKey"), part(57, 1, "FeatureUpdateKey")
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(
            request_class(57, 0)(
                feature_updates=(
                    first(feature="x", max_version_level=2, allow_downgrade=False),
                    first(feature="y", max_version_level=1, allow_downgrade=True),
                )
            )
        )
        await client.ask(
            request_class(57, 1)(
                feature_updates=(
                    second(feature="x", max_version_level=2, upgrade_type=3),
                    second(feature="y", max_version_level=1, upgrade_type=77),
                ),
                validate_only=True,
            )
        )

    assert controller.requests == [
        UpdateFeatures((FeatureUpdate("x", 2, UpgradeType.UPGRADE), FeatureUpdate("y", 1, UpgradeType.SAFE_DOWNGRADE))),
        UpdateFeatures(
            (FeatureUpdate("x", 2, UpgradeType.UNSAFE_DOWNGRADE), FeatureUpdate("y", 1, UpgradeType.UNKNOWN)), True
        ),
    ]
    assert [(result.feature, result.error_code) for result in answer.results] == [
        ("x", NONE),
        ("y", KioError.feature_update_failed),
    ]


async def test_features_are_rejected_as_a_whole_and_individually() -> None:
    controller = ControllerStub({UpdateFeatures: lambda _: BadRequest("features", "versioning is disabled")})
    update = part(57, 1, "FeatureUpdateKey")(feature="x", max_version_level=2)
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(request_class(57, 1)(feature_updates=(update,)))

    assert answer.error_code is KioError.invalid_request
    assert "versioning is disabled" in answer.error_message
    assert [result.error_code for result in answer.results] == [KioError.invalid_request]
