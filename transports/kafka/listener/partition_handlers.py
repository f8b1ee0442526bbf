"""Handlers of the admin requests about partitions and features: ElectLeaders, reassignments, UpdateFeatures.

Source: the classic controller's responses.
"""

from collections.abc import Iterable
from typing import Any, Final

import anyio

from kactl.decide.messages.admin import (
    ApiPartitionReassignment,
    ElectionKind,
    ElectionResult,
    FeatureUpdate,
    ListPartitionReassignments,
    ReassignmentResult,
    ReplicaLeaderElection,
    UpdateFeatures,
    UpgradeType,
)
from kactl.model import Assignment, TopicPartition
from kactl.model.errors import ActionTimedOut, BadRequest, ErrorCode

from .api_keys import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    UPDATE_FEATURES,
)
from .field_types import Values
from .responses import Handler, error_of, result
from .served_controller import ServedController
from .waits import WAIT_MAX_MS, rest_ms, waiting

_ELECTIONS: Final = {0: ElectionKind.PREFERRED, 1: ElectionKind.UNCLEAN}


class PartitionHandlers:
    """Handlers of the admin requests about partitions and features."""

    def __init__(self, controller: ServedController) -> None:
        self._controller = controller

    def handlers(self) -> dict[int, Handler]:
        return {
            ELECT_LEADERS: self.on_elect_leaders,
            ALTER_PARTITION_REASSIGNMENTS: self.on_alter_reassignments,
            LIST_PARTITION_REASSIGNMENTS: self.on_list_reassignments,
            UPDATE_FEATURES: self.on_update_features,
        }

    # -- elections -----------------------------------------------------------------------------------------------------

    async def on_elect_leaders(self, request: dict[str, Any], version: int) -> Values:
        """Elect leaders, and wait until the brokers know them, as Kafka waits for its own broker.

        A timeout of zero is ignored for the election, and does not wait for the brokers.
        """
        topics, timeout_ms = request["topic_partitions"], request["timeout_ms"]
        named = None if topics is None else list(_named(topics, "topic", "partitions"))
        until_s = anyio.current_time() + min(timeout_ms, WAIT_MAX_MS) / 1000
        try:
            kind = _ELECTIONS.get(request["election_type"])
            if kind is None:
                raise BadRequest(
                    "election_type", f"{request['election_type']} is neither 0 (preferred) nor 1 (unclean)"
                )
            with anyio.fail_after(timeout_ms / 1000 if timeout_ms > 0 else None):
                results: list[ElectionResult] = await self._controller.ask(
                    ReplicaLeaderElection(kind, None if named is None else tuple(dict.fromkeys(named)))
                )
            if timeout_ms > 0:
                with waiting():
                    results = await self._controller.wait_elected(results, timeout_ms=rest_ms(until_s))
        except Exception as error:
            failed = ActionTimedOut("the election", timeout_ms) if isinstance(error, TimeoutError) else error
            code, message = error_of(failed)
            fields = result(code, message)
            return {
                "error_code": code,
                "replica_election_results": _by_topic(
                    "partition_result", ((name, {"partition_id": name.partition, **fields}) for name in named or ())
                ),
            }
        return {
            "replica_election_results": _by_topic(
                "partition_result",
                (
                    (
                        TopicPartition(election.topic, election.partition),
                        {"partition_id": election.partition, **result(election.error, election.message)},
                    )
                    for election in results
                    if named is not None or election.error is not ErrorCode.ELECTION_NOT_NEEDED
                ),
            )
        }

    # -- reassignments -------------------------------------------------------------------------------------------------

    async def on_alter_reassignments(self, request: dict[str, Any], version: int) -> Values:
        targets = {
            TopicPartition(topic["name"], partition["partition_index"]): (
                None if partition["replicas"] is None else tuple(partition["replicas"])
            )
            for topic in request["topics"]
            for partition in topic["partitions"]
        }
        try:
            results: list[ReassignmentResult] = await self._controller.ask(ApiPartitionReassignment(targets))
        except Exception as error:
            return result(*error_of(error))
        return {
            "responses": _by_topic(
                "partitions",
                (
                    (
                        TopicPartition(target.topic, target.partition),
                        {"partition_index": target.partition, **result(target.error, target.message)},
                    )
                    for target in results
                ),
                name="name",
            )
        }

    async def on_list_reassignments(self, request: dict[str, Any], version: int) -> Values:
        topics = request["topics"]
        named = None if topics is None else tuple(_named(topics, "name", "partition_indexes"))
        try:
            listed = ListPartitionReassignments(named)
            reassignments: dict[TopicPartition, Assignment] = await self._controller.ask(listed)
        except Exception as error:
            return result(*error_of(error))
        return {
            "topics": _by_topic(
                "partitions",
                (
                    (
                        name,
                        {
                            "partition_index": name.partition,
                            "replicas": assignment.replicas,
                            "adding_replicas": assignment.adding,
                            "removing_replicas": assignment.removing,
                        },
                    )
                    for name, assignment in reassignments.items()
                ),
                name="name",
            )
        }

    # -- features ------------------------------------------------------------------------------------------------------

    async def on_update_features(self, request: dict[str, Any], version: int) -> Values:
        try:
            updates = tuple(_update(update) for update in request["feature_updates"])
            results = await self._controller.ask(UpdateFeatures(updates, request["validate_only"]))
        except Exception as error:
            code, message = error_of(error)
            fields = result(code, message)
            features = dict.fromkeys(update["feature"] for update in request["feature_updates"])
            return {**fields, "results": [{"feature": feature, **fields} for feature in features]}
        by_feature = {update.feature: result(update.error, update.message) for update in results}
        return {"results": [{"feature": feature, **fields} for feature, fields in by_feature.items()]}


def _named(topics: list[dict[str, Any]], name: str, partitions: str) -> Iterable[TopicPartition]:
    return (TopicPartition(topic[name], partition) for topic in topics for partition in topic[partitions])


def _by_topic(
    partitions: str, results: Iterable[tuple[TopicPartition, dict[str, Any]]], *, name: str = "topic"
) -> list[dict[str, Any]]:
    """Returns the results of partitions as an array of topics that contain arrays of partitions."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition, fields in results:
        topics.setdefault(partition.topic, []).append(fields)
    return [{name: topic, partitions: of_topic} for topic, of_topic in topics.items()]


def _update(update: dict[str, Any]) -> FeatureUpdate:
    """Returns the update of one feature. Before version 1, `allow_downgrade` means a safe downgrade."""
    kinds = {kind.value: kind for kind in UpgradeType}
    kind = UpgradeType.SAFE_DOWNGRADE if update["allow_downgrade"] else kinds.get(update["upgrade_type"])
    return FeatureUpdate(update["feature"], update["max_version_level"], kind or UpgradeType.UNKNOWN)
