"""What admin tools ask about topics: CreateTopics, DeleteTopics, CreatePartitions.

Each topic is asked for by itself, one after the other, and what becomes of it is said for it alone. Then all of them
are waited for together, until the time that the client gave has passed; what is not done by then goes on, and is
answered with REQUEST_TIMED_OUT. No time at all is that answer at once. What has only to be checked is not waited for.

Source: the classic controller's ZkAdminManager and AutoTopicCreation, as far as their answers go.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from kactl.errors import ActionTimedOut, BadConfig, BadRequest, ErrorCode, NotFound
from kactl.messages.admin import PartitionsRequested, TopicCreationRequested, TopicDeletionRequested
from kactl.model import ZERO_ID, Assignment, TopicRef

from .api_keys import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from .responses import Answer, result, said
from .schema import Values
from .served_controller import Ruled

# Of a number that the client leaves to us.
_DEFAULT: Final = -1
# Where the value of a topic's setting comes from: the topic's own overrides.
_OF_TOPIC: Final = 1
# Only Raft's own log may have this name.
_METADATA_TOPIC: Final = "__cluster_metadata"

# Waits, for so many milliseconds, until what was begun is done.
_Wait = Callable[[float], Awaitable[None]]


class TopicAnswers:
    """See the module.

    Args:
        partitions, replication_factor: for topics that are asked for without; Kafka's num.partitions and
            default.replication.factor.
    """

    def __init__(self, ruled: Ruled, *, partitions: int = 1, replication_factor: int = 1) -> None:
        self._ruled = ruled
        self._partitions = partitions
        self._replication_factor = replication_factor

    def answers(self) -> dict[int, Answer]:
        return {
            CREATE_TOPICS: self.on_create_topics,
            DELETE_TOPICS: self.on_delete_topics,
            CREATE_PARTITIONS: self.on_create_partitions,
        }

    # -- creation ------------------------------------------------------------------------------------------------------

    async def on_create_topics(self, asked: dict[str, Any], version: int) -> Values:
        named = Counter(topic["name"] for topic in asked["topics"])
        deadline = _Deadline(asked["timeout_ms"])
        answers: dict[str, dict[str, Any]] = {}
        begun: dict[str, _Wait] = {}
        for topic in asked["topics"]:
            name = topic["name"]
            if name in answers:
                continue
            try:
                if named[name] > 1:
                    raise BadRequest("topics", f"{name} is named {named[name]} times: name it once")
                request = self._creation(topic, dry_run=asked["validate_only"])
                ref: TopicRef = await self._ruled.ask(request)
            except Exception as error:
                answers[name] = {"name": name, **result(*said(error))}
                continue
            answers[name] = {"name": name, **result(ErrorCode.NONE, ""), **_created(request, ref)}
            if not request.dry_run:
                begun[name] = self._led(name, answers[name]["num_partitions"])
        await deadline.wait(answers, begun)
        return {"topics": list(answers.values())}

    def _creation(self, topic: dict[str, Any], *, dry_run: bool) -> TopicCreationRequested:
        """One topic, with the defaults where it leaves something to us.

        Raises:
            BadRequest, BadConfig.
        """
        if topic["name"] == _METADATA_TOPIC:
            raise BadRequest("name", f"{_METADATA_TOPIC} is Raft's own: choose another name")
        config: dict[str, str] = {}
        for each in topic["configs"]:
            if each["value"] is None:
                raise BadConfig("configs", f"{each['name']} has no value: give it one, or leave it out")
            config[each["name"]] = each["value"]
        count, factor = topic["num_partitions"], topic["replication_factor"]
        if topic["assignments"]:
            if (count, factor) != (_DEFAULT, _DEFAULT):
                raise BadRequest("assignments", "give either an assignment, or numbers of partitions and replicas")
            assignment = {
                each["partition_index"]: Assignment(tuple(each["broker_ids"])) for each in topic["assignments"]
            }
            if len(assignment) != len(topic["assignments"]):
                raise BadRequest("assignments", "a partition is named twice")
            return TopicCreationRequested(topic["name"], assignment=assignment, config=config, dry_run=dry_run)
        return TopicCreationRequested(
            topic["name"],
            self._partitions if count == _DEFAULT else count,
            self._replication_factor if factor == _DEFAULT else factor,
            config=config,
            dry_run=dry_run,
        )

    def _led(self, name: str, count: int) -> _Wait:
        return lambda ms: self._ruled.wait_led(name, partitions=count, timeout_ms=ms)

    # -- deletion ------------------------------------------------------------------------------------------------------

    async def on_delete_topics(self, asked: dict[str, Any], version: int) -> Values:
        deadline = _Deadline(asked["timeout_ms"])
        answers: dict[Any, dict[str, Any]] = {}
        begun: dict[Any, _Wait] = {}
        wanted = asked["topics"] or [{"name": name, "topic_id": ZERO_ID} for name in asked["topic_names"]]
        named = Counter((topic["name"], topic["topic_id"]) for topic in wanted)
        known = {ref.id: ref for ref in self._ruled.topics()} if version >= 6 else {}
        for topic in wanted:
            name, topic_id = topic["name"], topic["topic_id"]
            key = (name, topic_id)
            if key in answers:
                continue
            answers[key] = {"name": name, "topic_id": topic_id}
            try:
                if named[key] > 1:
                    raise BadRequest("topics", f"{name or topic_id.hex()} is named {named[key]} times: name it once")
                ref = await self._delete(name, topic_id, known)
            except Exception as error:
                answers[key] |= result(*said(error))
            else:
                answers[key] |= {"name": ref.name, "topic_id": ref.id, **result(ErrorCode.NONE, "")}
                begun[key] = self._gone(ref)
        await deadline.wait(answers, begun)
        return {"responses": list(answers.values())}

    async def _delete(self, name: str | None, topic_id: bytes, known: dict[bytes, TopicRef]) -> TopicRef:
        if (name is None) == (topic_id == ZERO_ID):
            raise BadRequest("topics", "give either a name or an id")
        if name is None:
            if self._ruled.is_active and topic_id not in known:
                raise _UnknownId("topic id", topic_id.hex())
            name = known[topic_id].name if topic_id in known else ""
        ref: TopicRef = await self._ruled.ask(TopicDeletionRequested(name))
        return ref

    def _gone(self, ref: TopicRef) -> _Wait:
        return lambda ms: self._ruled.wait_gone(ref, timeout_ms=ms)

    # -- growth --------------------------------------------------------------------------------------------------------

    async def on_create_partitions(self, asked: dict[str, Any], version: int) -> Values:
        deadline = _Deadline(asked["timeout_ms"])
        named = Counter(topic["name"] for topic in asked["topics"])
        answers: dict[str, dict[str, Any]] = {}
        begun: dict[str, _Wait] = {}
        for topic in asked["topics"]:
            name, count, assignments = topic["name"], topic["count"], topic["assignments"]
            if name in answers:
                continue
            placed = None if assignments is None else tuple(tuple(each["broker_ids"]) for each in assignments)
            try:
                if named[name] > 1:
                    raise BadRequest("topics", f"{name} is named {named[name]} times: name it once")
                await self._ruled.ask(PartitionsRequested(name, count, placed, asked["validate_only"]))
            except Exception as error:
                answers[name] = {"name": name, **result(*said(error))}
                continue
            answers[name] = {"name": name, **result(ErrorCode.NONE, "")}
            if not asked["validate_only"]:
                begun[name] = self._led(name, count)
        await deadline.wait(answers, begun)
        return {"results": list(answers.values())}


class _UnknownId(NotFound):
    code = ErrorCode.UNKNOWN_TOPIC_ID


class _Deadline:
    """How long a client waits, from now on."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._until_s = anyio.current_time() + timeout_ms / 1000

    async def wait(self, answers: dict[Any, dict[str, Any]], begun: dict[Any, _Wait]) -> None:
        """Wait for all that was begun; what fails meanwhile, or is not done in time, is said in its answer."""
        for key, wait in begun.items():
            left_ms = (self._until_s - anyio.current_time()) * 1000
            try:
                if self._timeout_ms <= 0:
                    raise ActionTimedOut("what was begun", self._timeout_ms)
                await wait(max(left_ms, 0.0))
            except Exception as error:
                answers[key] |= result(*said(error))


def _created(request: TopicCreationRequested, ref: TopicRef) -> dict[str, Any]:
    """What is said of a topic that was created, or could be: its settings are those that were asked for."""
    if request.assignment is not None:
        count, factor = len(request.assignment), len(request.assignment[0].replicas)
    else:
        count, factor = request.partitions or 0, request.replication_factor or 0
    return {
        "topic_id": ZERO_ID if request.dry_run else ref.id,
        "num_partitions": count,
        "replication_factor": factor,
        "configs": [
            {"name": name, "value": value, "config_source": _OF_TOPIC} for name, value in request.config.items()
        ],
    }
