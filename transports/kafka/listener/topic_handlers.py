"""Handlers of the admin requests about topics: CreateTopics, DeleteTopics, CreatePartitions.

The topics of a request are sent to the controller one by one, and each has its own result. Then the handler waits for
all of them together, until the brokers have acknowledged the changes: until the timeout of the request, or until the
client has left. An action that is not complete by then continues, and its result is REQUEST_TIMED_OUT. A timeout of
zero returns that result at once. The handler does not wait for a validate-only request.

Source: the results of the classic controller's ZkAdminManager and AutoTopicCreation.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final

import anyio

from kactl.decide.messages.admin import AddPartitions, CreateTopic, DeleteTopic
from kactl.model import ZERO_ID, Assignment, TopicRef
from kactl.model.errors import ActionTimedOut, BadConfig, BadRequest, ErrorCode, KactlError, NotFound

from .api_keys import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from .field_types import STEP, Values
from .responses import Handler, error_of, result
from .served_controller import ServedController
from .waits import WAIT_MAX_MS, rest_ms, waiting

# Number of partitions or replicas if the client uses the default.
_DEFAULT: Final = -1
# The protocol's config source of a topic's own overrides.
_TOPIC_SOURCE: Final = 1
# Reserved for Raft's own log.
_METADATA_TOPIC: Final = "__cluster_metadata"

# Waits until actions are complete, at most for a number of milliseconds. Returns the errors of those that are not.
_Wait = Callable[[float], Awaitable[Mapping[Any, Exception]]]


class TopicHandlers:
    """Handlers of the admin requests about topics.

    Args:
        partitions, replication_factor: the defaults of topics that are created; Kafka's num.partitions and
            default.replication.factor.
    """

    def __init__(self, controller: ServedController, *, partitions: int = 1, replication_factor: int = 1) -> None:
        self._controller = controller
        self._partitions = partitions
        self._replication_factor = replication_factor

    def handlers(self) -> dict[int, Handler]:
        return {
            CREATE_TOPICS: self.on_create_topics,
            DELETE_TOPICS: self.on_delete_topics,
            CREATE_PARTITIONS: self.on_create_partitions,
        }

    # -- creation ------------------------------------------------------------------------------------------------------

    async def on_create_topics(self, request: dict[str, Any], version: int) -> Values:
        counts = Counter(topic["name"] for topic in request["topics"])
        deadline = _Deadline(request["timeout_ms"])
        results: dict[str, dict[str, Any]] = {}
        counts_of: dict[str, int] = {}
        async for topic in _in_steps(request["topics"]):
            name = topic["name"]
            if name in results:
                continue
            try:
                if counts[name] > 1:
                    raise BadRequest("topics", f"{name} is named {counts[name]} times: name it once")
                deadline.check(f"the creation of {name}")
                creation = self._creation(topic, dry_run=request["validate_only"])
                ref: TopicRef = await self._controller.ask(creation)
            except Exception as error:
                results[name] = {"name": name, **result(*error_of(error))}
                continue
            results[name] = {"name": name, **result(ErrorCode.NONE, ""), **_created(creation, ref)}
            if not creation.dry_run:
                counts_of[name] = results[name]["num_partitions"]
        await deadline.wait(results, counts_of, self._complete(counts_of))
        return {"topics": list(results.values())}

    def _creation(self, topic: dict[str, Any], *, dry_run: bool) -> CreateTopic:
        """Returns the creation of one topic, with the defaults for the numbers that the client does not set.

        Raises:
            BadRequest, BadConfig: the topic's fields contradict each other or have no value.
        """
        if topic["name"] == _METADATA_TOPIC:
            raise BadRequest("name", f"{_METADATA_TOPIC} is reserved for Raft: choose another name")
        config: dict[str, str] = {}
        for override in topic["configs"]:
            if override["value"] is None:
                raise BadConfig("configs", f"{override['name']} has no value: set one, or omit the config")
            config[override["name"]] = override["value"]
        count, factor = topic["num_partitions"], topic["replication_factor"]
        if topic["assignments"]:
            if (count, factor) != (_DEFAULT, _DEFAULT):
                raise BadRequest("assignments", "set either an assignment, or the numbers of partitions and replicas")
            assignment = {
                replicas["partition_index"]: Assignment(tuple(replicas["broker_ids"]))
                for replicas in topic["assignments"]
            }
            if len(assignment) != len(topic["assignments"]):
                raise BadRequest("assignments", "a partition is contained twice: name it once")
            return CreateTopic(topic["name"], assignment=assignment, config=config, dry_run=dry_run)
        return CreateTopic(
            topic["name"],
            self._partitions if count == _DEFAULT else count,
            self._replication_factor if factor == _DEFAULT else factor,
            config=config,
            dry_run=dry_run,
        )

    def _complete(self, counts: Mapping[str, int]) -> _Wait:
        return lambda ms: self._controller.wait_complete(counts, timeout_ms=ms)

    # -- deletion ------------------------------------------------------------------------------------------------------

    async def on_delete_topics(self, request: dict[str, Any], version: int) -> Values:
        deadline = _Deadline(request["timeout_ms"])
        results: dict[Any, dict[str, Any]] = {}
        marked: dict[Any, TopicRef] = {}
        topics = request["topics"] or [{"name": name, "topic_id": ZERO_ID} for name in request["topic_names"]]
        counts = Counter((topic["name"], topic["topic_id"]) for topic in topics)
        known = {ref.id: ref for ref in self._controller.topics()} if version >= 6 else {}
        async for topic in _in_steps(topics):
            name, topic_id = topic["name"], topic["topic_id"]
            key = (name, topic_id)
            if key in results:
                continue
            results[key] = {"name": name, "topic_id": topic_id}
            try:
                if counts[key] > 1:
                    raise BadRequest("topics", f"{name or topic_id.hex()} is named {counts[key]} times: name it once")
                deadline.check(f"the deletion of {name or topic_id.hex()}")
                ref = await self._delete(name, topic_id, known)
            except Exception as error:
                results[key] |= result(*error_of(error))
            else:
                results[key] |= {"name": ref.name, "topic_id": ref.id, **result(ErrorCode.NONE, "")}
                marked[key] = ref
        await deadline.wait(results, marked, lambda ms: self._gone(marked, ms))
        return {"responses": list(results.values())}

    async def _delete(self, name: str | None, topic_id: bytes, known: dict[bytes, TopicRef]) -> TopicRef:
        if (name is None) == (topic_id == ZERO_ID):
            raise BadRequest("topics", "set either a name or an id")
        if name is None:
            if self._controller.is_active and topic_id not in known:
                raise _UnknownId("topic id", topic_id.hex())
            name = known[topic_id].name if topic_id in known else ""
        ref: TopicRef = await self._controller.ask(DeleteTopic(name))
        return ref

    async def _gone(self, marked: Mapping[Any, TopicRef], timeout_ms: float) -> Mapping[Any, Exception]:
        errors: dict[Any, Exception] = {}
        until_s = anyio.current_time() + timeout_ms / 1000
        for key, ref in marked.items():
            try:
                await self._controller.wait_gone(ref, timeout_ms=rest_ms(until_s))
            except KactlError as error:
                errors[key] = error
        if len(errors) < len(marked):
            try:
                await self._controller.wait_delivered(timeout_ms=rest_ms(until_s))
            except KactlError as error:
                errors = dict.fromkeys(marked, error) | errors
        return errors

    # -- growth --------------------------------------------------------------------------------------------------------

    async def on_create_partitions(self, request: dict[str, Any], version: int) -> Values:
        deadline = _Deadline(request["timeout_ms"])
        counts = Counter(topic["name"] for topic in request["topics"])
        results: dict[str, dict[str, Any]] = {}
        counts_of: dict[str, int] = {}
        async for topic in _in_steps(request["topics"]):
            name, count, assignments = topic["name"], topic["count"], topic["assignments"]
            if name in results:
                continue
            assignment = (
                None if assignments is None else tuple(tuple(replicas["broker_ids"]) for replicas in assignments)
            )
            try:
                if counts[name] > 1:
                    raise BadRequest("topics", f"{name} is named {counts[name]} times: name it once")
                deadline.check(f"the growth of {name}")
                await self._controller.ask(AddPartitions(name, count, assignment, request["validate_only"]))
            except Exception as error:
                results[name] = {"name": name, **result(*error_of(error))}
                continue
            results[name] = {"name": name, **result(ErrorCode.NONE, "")}
            if not request["validate_only"]:
                counts_of[name] = count
        await deadline.wait(results, counts_of, self._complete(counts_of))
        return {"results": list(results.values())}


async def _in_steps(entries: Iterable[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    """Yields the entries of a request. Other tasks run between two steps: an invalid entry awaits nothing itself."""
    for number, entry in enumerate(entries, 1):
        yield entry
        if number % STEP == 0:
            await asyncio.sleep(0)


class _UnknownId(NotFound):
    code = ErrorCode.UNKNOWN_TOPIC_ID


class _Deadline:
    """Timeout of a request, from now on."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = min(timeout_ms, WAIT_MAX_MS)
        self._until_s = anyio.current_time() + self._timeout_ms / 1000

    def check(self, what: str) -> None:
        """Check that the time is not over. With a timeout of zero all actions begin, and none is waited for.

        Raises:
            ActionTimedOut: the action has not begun.
        """
        if self._timeout_ms > 0 and anyio.current_time() > self._until_s:
            reason = "those before it in the request took the time; it has not begun: repeat it with fewer at a time"
            raise ActionTimedOut(what, self._timeout_ms, reason)

    async def wait(self, results: dict[Any, dict[str, Any]], keys: Collection[Any], wait: _Wait) -> None:
        """Wait for the actions of some results. One that fails, or is not complete in time, gets the error."""
        errors: Mapping[Any, Exception] = dict.fromkeys(keys, ActionTimedOut("the action", self._timeout_ms))
        if self._timeout_ms > 0 and keys:
            with waiting():
                errors = await wait(rest_ms(self._until_s))
        for key, error in errors.items():
            results[key] |= result(*error_of(error))


def _created(request: CreateTopic, ref: TopicRef) -> dict[str, Any]:
    """Returns the result fields of a topic that was created, or validated; its configs are those of the request."""
    if request.assignment is not None:
        count, factor = len(request.assignment), len(request.assignment[0].replicas)
    else:
        count, factor = request.partitions or 0, request.replication_factor or 0
    return {
        "topic_id": ZERO_ID if request.dry_run else ref.id,
        "num_partitions": count,
        "replication_factor": factor,
        "configs": [
            {"name": name, "value": value, "config_source": _TOPIC_SOURCE} for name, value in request.config.items()
        ],
    }
