"""What admin tools ask about partitions and features: ElectLeaders, reassignments, UpdateFeatures.

Source: the classic controller's answers to them.
"""

from collections.abc import Iterable
from typing import Any, Final

import anyio

from kactl.errors import ActionTimedOut, BadRequest, ErrorCode
from kactl.messages.admin import (
    ElectionKind,
    ElectionRequested,
    ElectionResult,
    FeatureUpdate,
    FeatureUpdatesRequested,
    ReassignmentRequested,
    ReassignmentResult,
    ReassignmentsListed,
    UpgradeType,
)
from kactl.model import Assignment, TopicPartition

from .api_keys import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_USER_SCRAM_CREDENTIALS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    UPDATE_FEATURES,
)
from .responses import Answer, result, said
from .schema import Values
from .served_controller import Ruled

_ELECTIONS: Final = {0: ElectionKind.PREFERRED, 1: ElectionKind.UNCLEAN}


class PartitionAnswers:
    """See the module."""

    def __init__(self, ruled: Ruled) -> None:
        self._ruled = ruled

    def answers(self) -> dict[int, Answer]:
        return {
            ELECT_LEADERS: self.on_elect_leaders,
            ALTER_PARTITION_REASSIGNMENTS: self.on_alter_reassignments,
            LIST_PARTITION_REASSIGNMENTS: self.on_list_reassignments,
            UPDATE_FEATURES: self.on_update_features,
            ALTER_USER_SCRAM_CREDENTIALS: self.on_alter_scram,
        }

    # -- elections -----------------------------------------------------------------------------------------------------

    async def on_elect_leaders(self, asked: dict[str, Any], version: int) -> Values:
        """The leaders are known when the controller answers, so that only a long queue before it can take too long.

        A client that gives no time is answered all the same: with what came of it.
        """
        topics, timeout_ms = asked["topic_partitions"], asked["timeout_ms"]
        named = None if topics is None else list(_named(topics, "topic", "partitions"))
        try:
            kind = _ELECTIONS.get(asked["election_type"])
            if kind is None:
                raise BadRequest("election_type", f"{asked['election_type']} is neither 0, preferred, nor 1, unclean")
            with anyio.fail_after(timeout_ms / 1000 if timeout_ms > 0 else None):
                results: list[ElectionResult] = await self._ruled.ask(
                    ElectionRequested(kind, None if named is None else tuple(dict.fromkeys(named)))
                )
        except Exception as error:
            failed = ActionTimedOut("the election", timeout_ms) if isinstance(error, TimeoutError) else error
            code, message = said(failed)
            each = result(code, message)
            return {
                "error_code": code,
                "replica_election_results": _by_topic(
                    "partition_result", ((name, {"partition_id": name.partition, **each}) for name in named or ())
                ),
            }
        return {
            "replica_election_results": _by_topic(
                "partition_result",
                (
                    (
                        TopicPartition(each.topic, each.partition),
                        {"partition_id": each.partition, **result(each.error, each.message)},
                    )
                    for each in results
                    if named is not None or each.error is not ErrorCode.ELECTION_NOT_NEEDED
                ),
            )
        }

    # -- reassignments -------------------------------------------------------------------------------------------------

    async def on_alter_reassignments(self, asked: dict[str, Any], version: int) -> Values:
        targets = {
            TopicPartition(topic["name"], each["partition_index"]): (
                None if each["replicas"] is None else tuple(each["replicas"])
            )
            for topic in asked["topics"]
            for each in topic["partitions"]
        }
        try:
            results: list[ReassignmentResult] = await self._ruled.ask(ReassignmentRequested(targets))
        except Exception as error:
            return result(*said(error))
        return {
            "responses": _by_topic(
                "partitions",
                (
                    (
                        TopicPartition(each.topic, each.partition),
                        {"partition_index": each.partition, **result(each.error, each.message)},
                    )
                    for each in results
                ),
                name="name",
            )
        }

    async def on_list_reassignments(self, asked: dict[str, Any], version: int) -> Values:
        topics = asked["topics"]
        named = None if topics is None else tuple(_named(topics, "name", "partition_indexes"))
        try:
            found: dict[TopicPartition, Assignment] = await self._ruled.ask(ReassignmentsListed(named))
        except Exception as error:
            return result(*said(error))
        return {
            "topics": _by_topic(
                "partitions",
                (
                    (
                        name,
                        {
                            "partition_index": name.partition,
                            "replicas": each.replicas,
                            "adding_replicas": each.adding,
                            "removing_replicas": each.removing,
                        },
                    )
                    for name, each in found.items()
                ),
                name="name",
            )
        }

    # -- features and users --------------------------------------------------------------------------------------------

    async def on_update_features(self, asked: dict[str, Any], version: int) -> Values:
        try:
            updates = tuple(_update(each) for each in asked["feature_updates"])
            results = await self._ruled.ask(FeatureUpdatesRequested(updates, asked["validate_only"]))
        except Exception as error:
            code, message = said(error)
            each = result(code, message)
            return {**each, "results": [{"feature": every["feature"], **each} for every in asked["feature_updates"]]}
        return {"results": [{"feature": each.feature, **result(each.error, each.message)} for each in results]}

    async def on_alter_scram(self, asked: dict[str, Any], version: int) -> Values:
        """Passwords are not ours to keep; a broker would send the client back to us."""
        users = dict.fromkeys(each["name"] for each in (*asked["deletions"], *asked["upsertions"]))
        refused = result(
            ErrorCode.UNSUPPORTED_VERSION, "kactl does not keep credentials: write them to ZooKeeper with kafka-configs"
        )
        return {"results": [{"user": user, **refused} for user in users]}


def _named(topics: list[dict[str, Any]], name: str, partitions: str) -> Iterable[TopicPartition]:
    return (TopicPartition(topic[name], partition) for topic in topics for partition in topic[partitions])


def _by_topic(
    partitions: str, said_of: Iterable[tuple[TopicPartition, dict[str, Any]]], *, name: str = "topic"
) -> list[dict[str, Any]]:
    """What is said of each partition, as arrays of topics that hold arrays of partitions."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition, each in said_of:
        topics.setdefault(partition.topic, []).append(each)
    return [{name: topic, partitions: listed} for topic, listed in topics.items()]


def _update(asked: dict[str, Any]) -> FeatureUpdate:
    """Before version 1 a feature could only be said to be allowed to sink, which meant safely."""
    kinds = {kind.value: kind for kind in UpgradeType}
    kind = UpgradeType.SAFE_DOWNGRADE if asked["allow_downgrade"] else kinds.get(asked["upgrade_type"])
    return FeatureUpdate(asked["feature"], asked["max_version_level"], kind or UpgradeType.UNKNOWN)
