"""Requests of admin tools about topics over the wire, and their responses, in every version."""

import datetime
import socket
import struct
import types
import uuid
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from kio.schema.errors import ErrorCode as KioError

from kactl.decide.messages.admin import AddPartitions, CreateTopic, DeleteTopic
from kactl.model import Assignment, TopicRef
from kactl.model.errors import KactlError, NotController, NotFound, StoreUnavailable, TopicDeletionDisabled, TopicExists
from kactl.telemetry.attempts import Attempt
from kactl.transports.kafka.listener import topic_handlers
from kactl.transports.kafka.listener.waits import WAIT_MAX_MS

from .client import connected, frame, part, request_class
from .listener_stub import ControllerStub, listening, until

pytestmark = pytest.mark.anyio

CREATE, DELETE, GROW = 19, 20, 37
ORDERS = TopicRef("orders", bytes(range(16)))
SECOND = datetime.timedelta(seconds=1)
MINUTE = datetime.timedelta(minutes=1)
NONE = KioError.none


def creation(
    version: int,
    *names: str,
    partitions: int = -1,
    factor: int = -1,
    assignments: dict[int, tuple[int, ...]] | None = None,
    configs: dict[str, str | None] | None = None,
    timeout: datetime.timedelta = SECOND,
    validate_only: bool = False,
) -> Any:
    """Return a CreateTopics for topics that differ only in their names."""
    assigned = part(CREATE, version, "CreatableReplicaAssignment")
    try:
        config = part(CREATE, version, "CreatableTopicConfig")
    except AttributeError:
        config = part(CREATE, version, "CreateableTopicConfig")
    topics = tuple(
        part(CREATE, version, "CreatableTopic")(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            assignments=tuple(
                assigned(partition_index=index, broker_ids=ids) for index, ids in (assignments or {}).items()
            ),
            configs=tuple(config(name=config_name, value=value) for config_name, value in (configs or {}).items()),
        )
        for name in names
    )
    more = {"validate_only": validate_only} if version >= 1 else {}
    return request_class(CREATE, version)(topics=topics, timeout=timeout, **more)


@pytest.mark.parametrize("version", range(8))
async def test_topic_is_created_and_leaders_are_awaited(version: int) -> None:
    controller = ControllerStub({CreateTopic: lambda request: ORDERS})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(creation(version, "orders", partitions=4, factor=3, configs={"a.b": "1"}))

    (topic,) = answer.topics
    assert controller.requests == [CreateTopic("orders", 4, 3, config={"a.b": "1"})]
    assert [(condition, of) for condition, of, _ in controller.waits] == [("complete", "orders:4")]
    assert 0 < controller.waits[0][2] <= 1000
    assert (topic.name, topic.error_code) == ("orders", NONE)
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (4, 3)
        assert [(entry.name, entry.value) for entry in topic.configs] == [("a.b", "1")]
    if version >= 7:
        assert topic.topic_id == uuid.UUID(bytes=ORDERS.id)


async def test_omitted_parameters_use_the_defaults_of_the_controller() -> None:
    controller = ControllerStub({CreateTopic: lambda request: ORDERS})
    async with listening(controller, partitions=7, replication_factor=2) as (_, port), connected(port) as client:
        both = await client.ask(creation(7, "orders"))
        await client.ask(creation(7, "orders", partitions=3))
        await client.ask(creation(7, "orders", factor=1))

    assert controller.requests == [
        CreateTopic("orders", partitions, factor) for partitions, factor in [(7, 2), (3, 2), (7, 1)]
    ]
    assert (both.topics[0].num_partitions, both.topics[0].replication_factor) == (7, 2)


async def test_manual_assignment_is_forwarded() -> None:
    controller = ControllerStub({CreateTopic: lambda request: ORDERS})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(creation(7, "orders", assignments={0: (1, 2), 1: (2, 3)}))

    assignment = {0: Assignment((1, 2)), 1: Assignment((2, 3))}
    assert controller.requests == [CreateTopic("orders", assignment=assignment)]
    assert (answer.topics[0].num_partitions, answer.topics[0].replication_factor) == (2, 2)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (creation(7, "__cluster_metadata", partitions=1, factor=1), KioError.invalid_request),
        (creation(7, "orders", "orders", partitions=1, factor=1), KioError.invalid_request),
        (creation(7, "orders", partitions=1, factor=1, configs={"a": None}), KioError.invalid_config),
        (creation(7, "orders", partitions=1, factor=1, assignments={0: (1,)}), KioError.invalid_request),
        (creation(7, "orders", factor=1, assignments={0: (1,)}), KioError.invalid_request),
    ],
    ids=["raft's own", "twice", "null value", "counts and assignment", "factor and assignment"],
)
async def test_invalid_creation_is_rejected_without_a_request(message: Any, code: KioError) -> None:
    controller = ControllerStub()
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(message)

    assert [topic.error_code for topic in answer.topics] == [code]
    assert answer.topics[0].error_message
    assert (controller.requests, controller.waits) == ([], [])


async def test_each_topic_has_its_own_result(caplog: pytest.LogCaptureFixture) -> None:
    answers = {"a": TopicExists("a"), "b": TopicRef("b"), "c": KactlError("the store fails"), "d": RuntimeError("bug")}
    controller = ControllerStub({CreateTopic: lambda request: answers[request.topic]})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(creation(7, *"abcd", partitions=1, factor=1))

    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "a": KioError.topic_already_exists,
        "b": NONE,
        "c": KioError.unknown_server_error,
        "d": KioError.unknown_server_error,
    }
    assert "the store fails" in answer.topics[2].error_message
    assert "bug" not in answer.topics[3].error_message
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.endswith(": bug")
    assert answer.topics[3].error_message.rpartition(" ")[2] in line  # the id of the error
    assert [of for _, of, _ in controller.waits] == ["b:1"]


async def test_validate_only_does_not_wait_and_returns_no_id() -> None:
    controller = ControllerStub({CreateTopic: lambda request: ORDERS})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(creation(7, "orders", partitions=1, factor=1, validate_only=True))

    assert controller.requests == [CreateTopic("orders", 1, 1, dry_run=True)]
    assert controller.waits == []
    assert (answer.topics[0].error_code, answer.topics[0].topic_id) == (NONE, None)


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_creation_without_timeout_returns_at_once(timeout_ms: int) -> None:
    controller = ControllerStub({CreateTopic: lambda request: ORDERS})
    timeout = datetime.timedelta(milliseconds=timeout_ms)
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(creation(7, "orders", partitions=1, factor=1, timeout=timeout))

    assert len(controller.requests) == 1
    assert controller.waits == []
    assert answer.topics[0].error_code is KioError.request_timed_out


async def test_creation_that_takes_too_long_times_out() -> None:
    controller = ControllerStub({CreateTopic: lambda request: ORDERS})
    controller.done = False
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(creation(7, "orders", partitions=1, factor=1))

    assert answer.topics[0].error_code is KioError.request_timed_out


UNKNOWN = "UNKNOWN_SERVER_ERROR"


@pytest.mark.parametrize(
    ("results", "is_slow", "outcome", "detail"),
    [
        ({"a": TopicRef("a"), "b": TopicRef("b")}, False, "done", ""),
        ({"a": TopicRef("a"), "b": TopicRef("b")}, True, "unfinished", "REQUEST_TIMED_OUT"),
        ({"a": TopicRef("a"), "b": TopicExists("b")}, True, "partly", "REQUEST_TIMED_OUT, TOPIC_ALREADY_EXISTS"),
        ({"a": TopicRef("a"), "b": StoreUnavailable("gone")}, False, "partly", UNKNOWN),
        ({"a": TopicExists("a"), "b": StoreUnavailable("gone")}, False, "unknown", f"TOPIC_ALREADY_EXISTS, {UNKNOWN}"),
        ({"a": TopicExists("a"), "b": TopicExists("b")}, False, "failed", "TOPIC_ALREADY_EXISTS"),
    ],
)
async def test_trail_does_not_call_failed_what_may_have_happened(
    results: dict[str, Any], is_slow: bool, outcome: str, detail: str
) -> None:
    controller, attempts = ControllerStub({CreateTopic: lambda one: results[one.topic]}), list[Attempt]()
    controller.done = not is_slow
    async with listening(controller, audit=attempts.append) as (_, port), connected(port) as client:
        await client.ask(creation(7, *results, partitions=1, factor=1))

    assert [(attempt.outcome, attempt.detail) for attempt in attempts] == [(outcome, detail)]


class Endless(ControllerStub):
    """Stub whose topics never get leaders."""

    def __init__(self) -> None:
        super().__init__({CreateTopic: lambda request: ORDERS})
        self.waiting = 0

    async def wait_complete(self, counts: Mapping[str, int], *, timeout_ms: float) -> dict[str, KactlError]:
        self.waiting += 1
        try:
            await anyio.sleep_forever()
        finally:
            self.waiting -= 1
        return {}


LONGEST = datetime.timedelta(milliseconds=2**31 - 1)


@pytest.mark.parametrize("is_reset", [False, True])
async def test_wait_of_a_client_that_has_left_ends_and_frees_its_place(is_reset: bool) -> None:
    controller, attempts = Endless(), list[Attempt]()
    request = creation(7, "orders", "invoices", partitions=1, factor=1, timeout=LONGEST)
    async with listening(controller, audit=attempts.append) as (listener, port), connected(port) as client:
        client.writer.write(frame(request, 1))
        await until(lambda: controller.waiting > 0)
        if is_reset:
            linger = struct.pack("ii", 1, 0)  # close at once, by a reset
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        client.writer.close()

        await until(lambda: not listener.counters.connections)

    assert controller.waiting == 0
    assert len(controller.requests) == 2  # they are carried out all the same
    assert [(attempt.outcome, attempt.detail) for attempt in attempts] == [("unfinished", "REQUEST_TIMED_OUT")]


async def test_client_that_sends_no_more_receives_a_response_without_the_wait() -> None:
    controller = Endless()
    request = creation(7, "orders", partitions=1, factor=1, timeout=LONGEST)
    async with listening(controller) as (_, port), connected(port) as client:
        client.writer.write(frame(request, 1))
        await until(lambda: controller.waiting > 0)
        client.writer.write_eof()
        with anyio.fail_after(60):
            answer = client.read(request, await client.frame(), 1)

    assert answer.topics[0].error_code is KioError.request_timed_out


async def test_wait_has_a_limit_of_its_own() -> None:
    """The end of a client is not noticed if its host is lost."""
    controller = ControllerStub({CreateTopic: lambda request: ORDERS})
    async with listening(controller) as (_, port), connected(port) as client:
        await client.ask(creation(7, "orders", partitions=1, factor=1, timeout=LONGEST))

    assert controller.waits[0][2] <= WAIT_MAX_MS


@pytest.mark.parametrize("version", range(8))
async def test_not_controller_is_returned_for_each_topic(version: int) -> None:
    controller = ControllerStub()
    controller.is_active = False
    async with listening(controller) as (_, port), connected(port) as client:
        created = await client.ask(creation(version, "a", "b", partitions=1, factor=1))
        deleted = await client.ask(deletion(min(version, 6), "a", "b"))
        grown = await client.ask(growth(min(version, 3), {"a": 2, "b": 2}))

    for results in (created.topics, deleted.responses, grown.results):
        assert [result.error_code for result in results] == [KioError.not_controller] * 2


# -- deletion ----------------------------------------------------------------------------------------------------------


def deletion(version: int, *names: str, ids: tuple[bytes, ...] = (), timeout: datetime.timedelta = SECOND) -> Any:
    if version < 6:
        return request_class(DELETE, version)(topic_names=names, timeout=timeout)
    topic = part(DELETE, version, "DeleteTopicState")
    named = [topic(name=name, topic_id=None) for name in names]
    named += [topic(name=None, topic_id=uuid.UUID(bytes=id_bytes)) for id_bytes in ids]
    return request_class(DELETE, version)(topics=tuple(named), timeout=timeout)


@pytest.mark.parametrize("version", range(7))
async def test_topic_is_deleted_and_deletion_is_awaited(version: int) -> None:
    answers = {"orders": ORDERS, "lost": NotFound("topic", "lost")}
    controller = ControllerStub({DeleteTopic: lambda request: answers[request.topic]})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(deletion(version, "orders", "lost"))

    assert controller.requests == [DeleteTopic("orders"), DeleteTopic("lost")]
    assert [(condition, of) for condition, of, _ in controller.waits] == [("gone", "orders"), ("delivered", "")]
    assert [(entry.name, entry.error_code) for entry in answer.responses] == [
        ("orders", NONE),
        ("lost", KioError.unknown_topic_or_partition),
    ]


async def test_topic_is_deleted_by_id() -> None:
    controller = ControllerStub({DeleteTopic: lambda request: ORDERS})
    controller.named = [ORDERS]
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(deletion(6, ids=(ORDERS.id, b"x" * 16)))

    assert controller.requests == [DeleteTopic("orders")]
    known, unknown = answer.responses
    assert (known.name, known.topic_id, known.error_code) == ("orders", uuid.UUID(bytes=ORDERS.id), NONE)
    assert (unknown.name, unknown.error_code) == (None, KioError.unknown_topic_id)


async def test_rejected_deletions_have_no_effect() -> None:
    controller = ControllerStub({DeleteTopic: lambda request: TopicDeletionDisabled()})
    topic = part(DELETE, 6, "DeleteTopicState")
    neither = request_class(DELETE, 6)(topics=(topic(name=None, topic_id=None),), timeout=SECOND)
    both = request_class(DELETE, 6)(topics=(topic(name="orders", topic_id=uuid.UUID(bytes=ORDERS.id)),), timeout=SECOND)
    async with listening(controller) as (_, port), connected(port) as client:
        codes = [
            (await client.ask(request)).responses[0].error_code
            for request in (deletion(6, "orders"), deletion(6, "orders", "orders"), neither, both)
        ]

    assert codes == [KioError.topic_deletion_disabled] + [KioError.invalid_request] * 3
    assert len(controller.requests) == 1
    assert controller.waits == []


@pytest.mark.parametrize(("timeout_ms", "waits"), [(0, 0), (-5, 0), (100, 1)])
async def test_deletion_that_takes_too_long_times_out(timeout_ms: int, waits: int) -> None:
    controller = ControllerStub({DeleteTopic: lambda request: ORDERS})
    controller.done = False
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(deletion(6, "orders", timeout=datetime.timedelta(milliseconds=timeout_ms)))

    assert answer.responses[0].error_code is KioError.request_timed_out
    assert len(controller.waits) == waits


# -- partition expansion -----------------------------------------------------------------------------------------------


def growth(
    version: int,
    counts: dict[str, int],
    *,
    assignments: tuple[tuple[int, ...], ...] | None = None,
    timeout: datetime.timedelta = SECOND,
    validate_only: bool = False,
) -> Any:
    assigned = part(GROW, version, "CreatePartitionsAssignment")
    topics = tuple(
        part(GROW, version, "CreatePartitionsTopic")(
            name=name,
            count=count,
            assignments=None if assignments is None else tuple(assigned(broker_ids=ids) for ids in assignments),
        )
        for name, count in counts.items()
    )
    return request_class(GROW, version)(topics=topics, timeout=timeout, validate_only=validate_only)


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added(version: int) -> None:
    answers: dict[str, Any] = {"orders": None, "lost": NotFound("topic", "lost")}
    controller = ControllerStub({AddPartitions: lambda request: answers[request.topic]})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(growth(version, {"orders": 9, "lost": 2}))
        await client.ask(growth(version, {"orders": 10}, assignments=((1, 2),), validate_only=True))

    assert controller.requests == [
        AddPartitions("orders", 9),
        AddPartitions("lost", 2),
        AddPartitions("orders", 10, ((1, 2),), True),
    ]
    assert [(condition, of) for condition, of, _ in controller.waits] == [("complete", "orders:9")]
    assert [(result.name, result.error_code) for result in answer.results] == [
        ("orders", NONE),
        ("lost", KioError.unknown_topic_or_partition),
    ]


@pytest.mark.parametrize("kind", [CreateTopic, DeleteTopic, AddPartitions])
async def test_topics_after_the_deadline_are_not_begun(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    passed_s = 0.0
    clock = types.SimpleNamespace(current_time=lambda: anyio.current_time() + passed_s)
    monkeypatch.setattr(topic_handlers, "anyio", clock)

    def takes_long(request: Any) -> TopicRef:
        nonlocal passed_s
        passed_s += 2 * MINUTE.total_seconds()
        return ORDERS

    messages: dict[Any, Any] = {
        CreateTopic: creation(7, "a", "b", "c", partitions=1, factor=1, timeout=MINUTE),
        DeleteTopic: deletion(6, "a", "b", "c", timeout=MINUTE),
        AddPartitions: growth(3, {"a": 2, "b": 2, "c": 2}, timeout=MINUTE),
    }
    controller = ControllerStub({kind: takes_long})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(messages[kind])

    results = next(getattr(answer, name) for name in ("topics", "responses", "results") if hasattr(answer, name))
    assert [getattr(request, "topic", None) for request in controller.requests] == ["a"]
    assert [result.error_code for result in results] == [NONE, *[KioError.request_timed_out] * 2]


async def test_loss_of_control_during_a_request_is_returned() -> None:
    class Resigning(ControllerStub):
        async def wait_complete(self, counts: Mapping[str, int], *, timeout_ms: float) -> dict[str, KactlError]:
            return dict.fromkeys(counts, NotController(7))

    controller = Resigning({AddPartitions: lambda request: None})
    async with listening(controller) as (_, port), connected(port) as client:
        answer = await client.ask(growth(3, {"orders": 9}))

    assert answer.results[0].error_code is KioError.not_controller
