"""Quotas of principals: partitions that they create and delete, and requests."""

import datetime
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode as KioError

from kactl.decide.messages.admin import AddPartitions, CreateTopic, DeleteTopic
from kactl.decide.messages.broker import AllocateProducerIds
from kactl.model import Broker, Endpoint, ProducerIdBlock, TopicRef
from kactl.runtime.budget import RATES, Budget, Unit, account_of
from kactl.security.access import CLUSTER, Acl, Acls, Operation, Principal
from kactl.security.access.authorizer import AclAuthorizer
from kactl.transports.kafka.listener.api_keys import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from kactl.transports.kafka.listener.apis import APIS
from kactl.transports.kafka.listener.quotas import Payer, QuotaKeeper, Quotas
from kactl.transports.kafka.listener.server import ListenerSecurity
from kactl.transports.kafka.listener.verdict import Verdict

from .client import Client, connected, part, request_class
from .listener_stub import Answers, ControllerStub, listening
from .test_logins import log_in, security

pytestmark = pytest.mark.anyio

ALICE = Principal("User:alice", "sasl", peer="10.0.0.1")
BOB = Principal("User:bob", "sasl", peer="10.0.0.1")
SECOND_S = datetime.timedelta(seconds=1)
ANSWERS: Answers = {
    CreateTopic: lambda request: TopicRef(request.topic, bytes(16)),
    DeleteTopic: lambda request: TopicRef(request.topic, bytes(16)),
    AddPartitions: lambda request: None,
    AllocateProducerIds: lambda _: ProducerIdBlock(0, 0, 999),
}


REQUEST_RATE = RATES[Unit.REQUESTS].per_s
REQUESTS_BURST = int(RATES[Unit.REQUESTS].burst)


class Time:
    """A clock that stands until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Keeper(QuotaKeeper):
    """Takes the key of a request type, and a principal on a listener with logins."""

    def of(self, key: int, request: dict[str, Any], version: int, principal: Principal) -> Verdict:
        return super().check(APIS[key], request, version, Payer(account_of(principal), True, False))

    def count_request(self, principal: Principal) -> float:
        return super().charge_request(Payer(account_of(principal), True, False))


def _keeper(clock: Time, *, rate: float = 10, burst: int = 100) -> Keeper:
    sizes = {"small": 1, "large": 500}
    return Keeper(
        Quotas(rate, burst),
        Budget(clock, lambda: 0.0),
        default_partitions=3,
        partitions_of=lambda name: sizes.get(name, 0),
        topics=lambda: [TopicRef("large", b"L" * 16)],
    )


def _creation(*counts: int) -> dict[str, Any]:
    topics = [{"name": f"t{number}", "num_partitions": count, "assignments": []} for number, count in enumerate(counts)]
    return {"topics": topics, "validate_only": False}


def _denied(response: Any, results: str = "topics") -> list[str]:
    return [
        entry["name"]
        for entry in response.get(results, ())
        if entry["error_code"] == KioError.throttling_quota_exceeded
    ]


def test_bucket_may_be_overdrawn_once() -> None:
    keeper = _keeper(Time())
    verdict = keeper.of(CREATE_TOPICS, _creation(99, 1000, 1, 1), 6, ALICE)
    assert verdict.request is not None
    assert [entry["name"] for entry in verdict.request["topics"]] == ["t0", "t1"]
    response = verdict.complete({"topics": []})
    assert _denied(response) == ["t2", "t3"]
    assert response["throttle_time_ms"] == 99_900


def test_bucket_recovers_with_time() -> None:
    clock = Time()
    keeper = _keeper(clock)
    assert keeper.of(CREATE_TOPICS, _creation(150), 6, ALICE).request is not None
    clock.now_s = 5.0
    assert keeper.of(CREATE_TOPICS, _creation(1), 6, ALICE).request is None
    clock.now_s = 5.2
    assert keeper.of(CREATE_TOPICS, _creation(1), 6, ALICE).request is not None
    # A long pause fills it, and no more.
    clock.now_s = 1e6
    assert keeper.of(CREATE_TOPICS, _creation(101), 6, ALICE).request is not None
    assert keeper.of(CREATE_TOPICS, _creation(1), 6, ALICE).request is None


def test_principals_have_quotas_of_their_own() -> None:
    keeper = _keeper(Time())
    keeper.of(CREATE_TOPICS, _creation(200), 6, ALICE)
    assert keeper.of(CREATE_TOPICS, _creation(1), 6, msgspec.structs.replace(ALICE, peer="10.0.0.9")).request is None
    assert keeper.of(CREATE_TOPICS, _creation(1), 6, BOB).request is not None
    anonymous = Principal("User:ANONYMOUS", "anonymous", peer="10.0.0.1")
    keeper.of(CREATE_TOPICS, _creation(200), 6, anonymous)
    assert keeper.of(CREATE_TOPICS, _creation(1), 6, anonymous).request is None
    elsewhere = msgspec.structs.replace(anonymous, peer="10.0.0.2")
    assert keeper.of(CREATE_TOPICS, _creation(1), 6, elsewhere).request is not None


def test_addresses_of_one_network_share_a_quota() -> None:
    """A peer without a login can use any address of its IPv6 network."""
    keeper = _keeper(Time())
    one, other, elsewhere = [
        Principal("User:ANONYMOUS", "anonymous", peer=f"2001:db8:{network}::{host}")
        for network, host in (("1", "1"), ("1", "ffff"), ("2", "1"))
    ]
    keeper.of(CREATE_TOPICS, _creation(200), 6, one)

    assert keeper.of(CREATE_TOPICS, _creation(1), 6, other).request is None
    assert keeper.of(CREATE_TOPICS, _creation(1), 6, elsewhere).request is not None


@pytest.mark.parametrize(
    ("key", "request_", "version", "cost"),
    [
        (CREATE_TOPICS, _creation(-1), 7, 3),
        (CREATE_TOPICS, {"topics": [{"name": "t", "num_partitions": -1, "assignments": [1, 2]}]}, 7, 2),
        (CREATE_TOPICS, {**_creation(50), "validate_only": True}, 7, 50),
        (CREATE_PARTITIONS, {"topics": [{"name": "large", "count": 510}], "validate_only": True}, 3, 10),
        (CREATE_PARTITIONS, {"topics": [{"name": "large", "count": 510}]}, 3, 10),
        (CREATE_PARTITIONS, {"topics": [{"name": "large", "count": 2}]}, 3, 0),
        (DELETE_TOPICS, {"topic_names": ["small", "unknown"], "topics": []}, 5, 1),
        (DELETE_TOPICS, {"topic_names": [], "topics": [{"name": None, "topic_id": b"L" * 16}]}, 6, 500),
        (DELETE_TOPICS, {"topic_names": [], "topics": [{"name": "large", "topic_id": bytes(16)}]}, 6, 500),
    ],
)
def test_cost_is_the_number_of_partitions(key: int, request_: dict[str, Any], version: int, cost: int) -> None:
    keeper = _keeper(Time(), rate=1, burst=1000)
    assert keeper.of(key, request_, version, ALICE).request == request_
    keeper.of(CREATE_TOPICS, _creation(1000), 6, ALICE)
    response = keeper.of(CREATE_TOPICS, _creation(1), 6, ALICE).complete({})
    assert response["throttle_time_ms"] == max(cost * 1000, 1)


@pytest.mark.parametrize(("key", "version"), [(CREATE_TOPICS, 5), (DELETE_TOPICS, 4), (CREATE_PARTITIONS, 2)])
def test_older_clients_are_slowed_down(key: int, version: int) -> None:
    clock = Time()
    keeper = _keeper(clock)
    keeper.of(CREATE_TOPICS, _creation(200), 5, ALICE)
    request = {"topics": [{"name": "a", "num_partitions": 1, "assignments": [], "count": 1}], "topic_names": ["large"]}
    verdict = keeper.of(key, request, version, ALICE)
    assert verdict.request == request
    assert verdict.complete({})["throttle_time_ms"] > 10_000
    assert keeper.count_request(ALICE) == 10.0
    clock.now_s = 1000.0
    assert keeper.count_request(ALICE) == 0.0


def test_requests_have_a_rate() -> None:
    clock = Time()
    keeper = _keeper(clock)
    pauses = [keeper.count_request(ALICE) for _ in range(REQUESTS_BURST + 20)]
    assert pauses[:REQUESTS_BURST] == [0.0] * REQUESTS_BURST
    assert pauses[-1] == pytest.approx(20 / REQUEST_RATE)
    assert keeper.count_request(BOB) == 0.0


def test_no_rate_is_no_limit() -> None:
    keeper = _keeper(Time(), rate=0)
    for _ in range(5):
        assert keeper.of(CREATE_TOPICS, _creation(1000), 6, ALICE).request is not None
    assert keeper.count_request(ALICE) == 0.0


# -- over the wire -----------------------------------------------------------------------------------------------------


async def _create(client: Client, version: int, *names: str, validate_only: bool = False) -> Any:
    entry = part(CREATE_TOPICS, version, "CreatableTopic")
    topics = [entry(name=name, num_partitions=5, replication_factor=1, assignments=(), configs=()) for name in names]
    return await client.ask(
        request_class(CREATE_TOPICS, version)(topics=tuple(topics), timeout=SECOND_S * 20, validate_only=validate_only)
    )


def _that_creates() -> ListenerSecurity:
    """The listener's users, who may all create topics."""
    chosen = security()
    assert isinstance(chosen.authorizer, AclAuthorizer)
    chosen.authorizer.acls = Acls({CLUSTER: [Acl("User:*", "*", Operation.CREATE)]})
    return chosen


async def test_client_beyond_its_quota_receives_errors() -> None:
    controller = ControllerStub(ANSWERS)
    async with (
        listening(controller, security=_that_creates(), quotas=Quotas(0.001, 9)) as (listener, port),
        connected(port) as client,
    ):
        await log_in(client, "alice")
        response = await _create(client, 7, "a", "b", "c", "d")
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a", KioError.none),
            ("b", KioError.none),
            ("c", KioError.throttling_quota_exceeded),
            ("d", KioError.throttling_quota_exceeded),
        ]
        assert listener.counters.rejected["quota"] == 1
    assert [request.topic for request in controller.requests] == ["a", "b"]  # type: ignore[attr-defined]


async def test_super_user_is_charged_and_never_turned_away() -> None:
    controller = ControllerStub(ANSWERS)
    async with (
        listening(controller, security=security(), quotas=Quotas(0.001, 9)) as (_, port),
        connected(port) as client,
    ):
        await log_in(client, "admin")
        response = await _create(client, 7, "a", "b", "c", "d")

    assert {topic.error_code for topic in response.topics} == {KioError.none}
    assert controller.budget.overdraft_s("User:admin", Unit.PARTITIONS) > 1_000


@pytest.mark.parametrize("version", [1, 7])
async def test_validation_is_charged_like_the_creation(version: int) -> None:
    controller = ControllerStub(ANSWERS)
    async with (
        listening(controller, security=_that_creates(), quotas=Quotas(0.001, 9)) as (_, port),
        connected(port) as client,
    ):
        await log_in(client, "alice")
        response = await _create(client, version, "a", "b", "c", "d", validate_only=True)

    assert controller.budget.overdraft_s("User:alice", Unit.PARTITIONS) > 900
    refused = [topic.name for topic in response.topics if topic.error_code is KioError.throttling_quota_exceeded]
    assert refused == (["c", "d"] if version >= 6 else [])


async def test_brokers_have_no_quota() -> None:
    controller = ControllerStub(ANSWERS)
    controller.live = [Broker(1, 77, (Endpoint("INTERNAL", "127.0.0.1", 1),))]
    async with (
        listening(controller, security=_that_creates(), quotas=Quotas(0.001, 5)) as (_, port),
        connected(port) as client,
    ):
        await log_in(client, "broker-1")
        await client.ask(request_class(67, 0)(broker_id=1, broker_epoch=77))
        response = await _create(client, 7, *"abcdef")
        assert {topic.error_code for topic in response.topics} == {KioError.none}


async def test_listener_that_is_open_to_all_has_no_quota() -> None:
    controller = ControllerStub(ANSWERS)
    async with listening(controller, quotas=Quotas(0.001, 5)) as (_, port), connected(port) as client:
        response = await _create(client, 7, *"abcdef")
        assert {topic.error_code for topic in response.topics} == {KioError.none}
