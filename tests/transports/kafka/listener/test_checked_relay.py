"""Relay on listeners with logins: each request is authorized for the client before a broker receives it."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from kio.schema.errors import ErrorCode as KioError
from kio.static.primitive import f64, i8

from kactl.model import Broker, Endpoint
from kactl.security.access import (
    CLUSTER,
    Acl,
    AclAuthorizer,
    Acls,
    BrokerPrincipals,
    Operation,
    Resource,
    ResourceType,
    kafka_user,
    topic,
)
from kactl.telemetry.attempts import Attempt
from kactl.transports.kafka import BrokerCredentials
from kactl.transports.kafka.listener import ListenerSecurity
from kactl.transports.kafka.listener.audit import RELAYED, outcome_of, target_of
from kactl.transports.kafka.listener.authentication import MECHANISMS, Authentication
from kactl.transports.kafka.listener.relayed_apis import RELAYED_APIS
from tests.support.scram_server import ScramServer

from .client import Client, connected, frame, part, request_class
from .listener_stub import KACTL, LISTENER, ControllerStub, listening
from .test_logins import PASSWORDS, UserTable, log_in
from .upstream import broker

pytestmark = pytest.mark.anyio

Operations = list[tuple[Resource, Operation]]
DENIED_TOPIC, DENIED_CLUSTER = KioError.topic_authorization_failed, KioError.cluster_authorization_failed
SCRAM: Final = "SCRAM-SHA-256"


def security(*rights: tuple[Resource, Operation]) -> ListenerSecurity:
    """Alice has these rights."""
    acls: dict[Resource, list[Acl]] = {}
    for resource, operation in rights:
        acls.setdefault(resource, []).append(Acl("User:alice", "*", operation))
    authorizer = AclAuthorizer(
        super_users=["User:admin"], brokers=BrokerPrincipals(pattern="User:broker-{id}"), acls=Acls(acls)
    )
    return ListenerSecurity(
        Authentication("SASL_PLAINTEXT", mechanisms=MECHANISMS, users=UserTable()), None, authorizer
    )


def group(name: str) -> Resource:
    return Resource(ResourceType.GROUP, name)


def transactional(name: str) -> Resource:
    return Resource(ResourceType.TRANSACTIONAL_ID, name)


def find(key: str, kind: int) -> Any:
    return request_class(10, 3)(key=key, key_type=i8(kind))


def configs(key: int, version: int, *resources: tuple[int, str]) -> Any:
    """Describe or change the configs of resources."""
    kind = {32: "DescribeConfigsResource", 33: "AlterConfigsResource", 44: "AlterConfigsResource"}[key]
    values: dict[str, Any] = {"configuration_keys": None} if key == 32 else {}
    if key == 33:
        values = {"configs": (part(33, version, "AlterableConfig")(name="retention.ms", value="1"),)}
    if key == 44:
        one = part(44, version, "AlterableConfig")
        values = {"configs": (one(name="retention.ms", config_operation=i8(0), value="1"),)}
    entries = tuple(
        part(key, version, kind)(resource_type=i8(of), resource_name=name, **values) for of, name in resources
    )
    more: dict[str, Any] = {"include_synonyms": True, "include_documentation": False} if key == 32 else {}
    return request_class(key, version)(resources=entries, **(more or {"validate_only": False}))


def acl_filter(kind: Any) -> Any:
    return kind(
        resource_type_filter=i8(2),
        resource_name_filter=None,
        pattern_type_filter=i8(1),
        principal_filter=None,
        host_filter=None,
        operation=i8(1),
        permission_type=i8(1),
    )


def creation() -> Any:
    return part(30, 2, "AclCreation")(
        resource_type=i8(2),
        resource_name="mine",
        resource_pattern_type=i8(3),
        principal="User:alice",
        host="*",
        operation=i8(2),
        permission_type=i8(3),
    )


def quota_change() -> Any:
    entity = part(49, 0, "EntityData")(entity_type="user", entity_name=None)
    operation = part(49, 0, "OpData")(key="producer_byte_rate", value=f64(1.5), remove=False)
    return request_class(49, 0)(
        entries=(part(49, 0, "EntryData")(entity=(entity,), ops=(operation,)),), validate_only=True
    )


def quota_filter() -> Any:
    component = part(48, 0, "ComponentData")(entity_type="user", match_type=i8(0), match="alice")
    return request_class(48, 0)(components=(component,), strict=False)


OWN, THEIRS, BROKER = (2, "mine"), (2, "theirs"), (4, "1")
READS_CONFIGS, WRITES_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
# A request, the rights that it needs, and the errors without them, where the response has them.
CASES: list[tuple[str, Any, Operations, list[Any]]] = [
    ("group", find("g", 0), [(group("g"), Operation.DESCRIBE)], [KioError.group_authorization_failed]),
    (
        "transactional id",
        find("t", 1),
        [(transactional("t"), Operation.WRITE)],  # implies Describe
        [KioError.transactional_id_authorization_failed],
    ),
    ("topic configs", configs(32, 3, OWN), [(topic("mine"), READS_CONFIGS)], [DENIED_TOPIC]),
    ("broker configs", configs(32, 3, BROKER), [(CLUSTER, READS_CONFIGS)], [DENIED_CLUSTER]),
    (
        "mixed configs",
        configs(32, 3, OWN, BROKER),
        [(topic("mine"), READS_CONFIGS), (CLUSTER, READS_CONFIGS)],
        [DENIED_TOPIC, DENIED_CLUSTER],
    ),
    ("change of a topic", configs(33, 1, OWN), [(topic("mine"), WRITES_CONFIGS)], [DENIED_TOPIC]),
    ("change of a broker", configs(44, 1, BROKER), [(CLUSTER, WRITES_CONFIGS)], [DENIED_CLUSTER]),
    ("lists", acl_filter(request_class(29, 2)), [(CLUSTER, Operation.DESCRIBE)], [DENIED_CLUSTER]),
    ("new list", request_class(30, 2)(creations=(creation(),)), [(CLUSTER, Operation.ALTER)], [DENIED_CLUSTER]),
    (
        "deleted lists",
        request_class(31, 2)(filters=(acl_filter(part(31, 2, "DeleteAclsFilter")),)),
        [(CLUSTER, Operation.ALTER)],
        [DENIED_CLUSTER],
    ),
    ("quotas", quota_filter(), [(CLUSTER, READS_CONFIGS)], [DENIED_CLUSTER]),
    ("new quota", quota_change(), [(CLUSTER, WRITES_CONFIGS)], [DENIED_CLUSTER]),
]
IDS = [name for name, *_ in CASES]


async def answer(content: bytes, _: asyncio.StreamWriter) -> bytes:
    """Return the correlation id, and bytes that no client would read."""
    return content[4:8] + b"of the broker"


async def send(client: Client, request: Any) -> bytes:
    """Send a request. Returns the response without its length."""
    client.writer.write(frame(request, 7))
    return await client.frame()


def errors(response: Any) -> list[Any]:
    """Return the errors of the parts of a response, or of all of it."""
    if hasattr(response, "error_code"):
        return [response.error_code]
    for name in ("results", "responses", "filter_results", "entries"):
        if hasattr(response, name):
            return [entry.error_code for entry in getattr(response, name)]
    raise AssertionError(response)


def test_all_relayed_requests_are_tested() -> None:
    assert {request.__api_key__ for _, request, *_ in CASES} == set(RELAYED_APIS)


@pytest.mark.parametrize(("request_", "rights"), [case[1:3] for case in CASES], ids=IDS)
async def test_request_is_relayed_with_all_rights(request_: Any, rights: Operations) -> None:
    controller = ControllerStub()
    async with broker(answer) as upstream, listening(controller, security=security(*rights)) as (_, port):
        controller.live = [upstream.broker]
        async with connected(port) as client:
            await log_in(client, "alice")
            response = await send(client, request_)

    assert response[4:] == b"of the broker"
    assert upstream.frames == [frame(request_, 7)[4:]]


@pytest.mark.parametrize(("request_", "rights", "expected"), [case[1:] for case in CASES], ids=IDS)
async def test_request_without_one_of_the_rights_is_not_sent(
    request_: Any, rights: Operations, expected: list[Any]
) -> None:
    controller = ControllerStub()
    async with broker(answer) as upstream, listening(controller, security=security(*rights[1:])) as (listener, port):
        controller.live = [upstream.broker]
        async with connected(port) as client:
            await log_in(client, "alice")
            response = Client.read(request_, await send(client, request_), 7)

        assert errors(response) == expected
        assert listener.counters.rejected["denied"] == 1
    assert upstream.connections == 0


async def test_one_denied_topic_denies_the_whole_request() -> None:
    controller = ControllerStub()
    rights = security((topic("mine"), WRITES_CONFIGS))
    request = configs(44, 1, OWN, THEIRS)
    async with broker(answer) as upstream, listening(controller, security=rights) as (_, port):
        controller.live = [upstream.broker]
        async with connected(port) as client:
            await log_in(client, "alice")
            mine, theirs = Client.read(request, await send(client, request), 7).responses

    assert (mine.error_code, theirs.error_code) == (DENIED_TOPIC, DENIED_TOPIC)
    assert "nothing of the request is carried out" in mine.error_message
    assert theirs.error_message is None
    assert upstream.connections == 0


@pytest.mark.parametrize("kind", [0, 16, 32, -1])
async def test_configs_of_other_types_are_for_no_client(kind: int) -> None:
    controller = ControllerStub()
    request = configs(32, 3, (kind, "x"))
    async with broker(answer) as upstream, listening(controller, security=security()) as (_, port):
        controller.live = [upstream.broker]
        async with connected(port) as client:
            await log_in(client, "admin")
            (result,) = Client.read(request, await send(client, request), 7).results
    assert result.error_code is DENIED_CLUSTER
    assert upstream.connections == 0


async def test_broker_receives_what_was_decided_about_and_no_more() -> None:
    """Tagged fields that kactl does not know, and bytes after the request, are left out: a broker might read them."""
    controller = ControllerStub()
    request = configs(44, 1, BROKER)
    plain = frame(request, 7)[4:]
    assert plain[-1:] == b"\0"
    async with broker(answer) as upstream, listening(controller, security=security()) as (_, port):
        controller.live = [upstream.broker]
        async with connected(port) as client:
            await log_in(client, "admin")
            tagged = plain[:-1] + b"\x01\x05\x03abc"
            client.writer.write(struct.pack(">i", len(tagged)) + tagged)
            await client.frame()
            longer = plain + b"more"
            client.writer.write(struct.pack(">i", len(longer)) + longer)
            await client.frame()
    assert upstream.frames == [plain] * 2


async def test_configs_of_kactl_stay_here() -> None:
    controller = ControllerStub()
    request = configs(32, 3, (4, str(KACTL)))
    async with broker(answer) as upstream, listening(controller, security=security()) as (_, port):
        controller.live = [upstream.broker]
        async with connected(port) as client:
            await log_in(client, "admin")
            (result,) = Client.read(request, await send(client, request), 7).results
    assert result.error_code is KioError.none
    assert upstream.connections == 0


def scram_broker(username: str, password: str) -> tuple[Callable[..., Awaitable[bytes | None]], list[bytes]]:
    """Return a broker that demands a login, and the list of requests after it."""
    logins: dict[asyncio.StreamWriter, ScramServer] = {}
    requests: list[bytes] = []

    async def respond(content: bytes, writer: asyncio.StreamWriter) -> bytes | None:
        key, _, correlation = struct.unpack_from(">hhi", content)
        (size,) = struct.unpack_from(">h", content, 8)
        body = content[10 + size :]
        head = struct.pack(">i", correlation)
        if key == 17:
            logins[writer] = ScramServer(SCRAM, username, password, 4096)
            return head + struct.pack(">hih", 0, 1, len(SCRAM)) + SCRAM.encode()
        if key == 36:
            server = logins[writer]
            message = body[4:]
            reply = server.final(message) if server.messages else server.first(message)
            return head + struct.pack(">hhi", 0, -1, len(reply)) + reply + bytes(8)
        if writer not in logins:
            return None
        requests.append(content)
        return head + b"of the broker"

    return respond, requests


def over_sasl(upstream: Broker) -> Broker:
    """Return a broker whose endpoint demands logins."""
    endpoints = tuple(
        Endpoint(endpoint.listener, endpoint.host, endpoint.port, "SASL_PLAINTEXT") for endpoint in upstream.endpoints
    )
    return Broker(upstream.id, upstream.epoch, endpoints)


async def test_broker_sees_the_login_of_kactl_and_nothing_of_the_clients() -> None:
    controller = ControllerStub()
    respond, requests = scram_broker("kactl", "own-secret")
    credentials = BrokerCredentials(mechanism=SCRAM, username="kactl", password="own-secret")
    request = find("g", 0)
    async with (
        broker(respond) as upstream,
        listening(controller, security=security(), credentials=credentials) as (_, port),
    ):
        controller.live = [over_sasl(upstream.broker)]
        async with connected(port) as client:
            await log_in(client, "admin")
            for _ in range(2):
                assert (await send(client, request))[4:] == b"of the broker"
        async with connected(port) as client:
            await log_in(client, "admin")
            await send(client, request)

    assert requests == [frame(request, 7)[4:]] * 3
    assert upstream.connections == 2  # one of each client
    everything = b"".join(upstream.frames)
    assert b"n=kactl" in everything
    assert b"n=admin" not in everything
    assert PASSWORDS["admin"].encode() not in everything


@pytest.mark.parametrize("credentials", [None, BrokerCredentials(mechanism=SCRAM, username="kactl", password="wrong")])
async def test_without_a_login_at_the_broker_the_connection_ends(credentials: BrokerCredentials | None) -> None:
    controller = ControllerStub()

    async def reject(content: bytes, writer: asyncio.StreamWriter) -> bytes | None:
        return None

    async with (
        broker(reject) as upstream,
        listening(controller, security=security(), credentials=credentials) as (listener, port),
    ):
        controller.live = [over_sasl(upstream.broker)]
        async with connected(port) as client:
            await log_in(client, "admin")
            client.writer.write(frame(find("g", 0), 7))
            assert await client.is_closed()
        assert listener.counters.rejected["no_broker"] == 1


@pytest.mark.parametrize("relays", [True, False])
async def test_versions_list_what_is_relayed(relays: bool) -> None:
    async with (
        listening(ControllerStub(), security=security(), relays=relays) as (_, port),
        connected(port) as client,
    ):
        await log_in(client, "alice")
        versions = await client.ask(request_class(18, 3)(client_software_name="x", client_software_version="1"))
    listed = {entry.api_key: entry.max_version for entry in versions.api_keys}
    assert list(listed) == sorted(listed)
    relayed = {key: api.version_max for key, api in RELAYED_APIS.items()}
    assert {key: version for key, version in listed.items() if key in relayed} == (relayed if relays else {})


async def test_version_that_is_not_listed_ends_the_connection() -> None:
    controller = ControllerStub()
    async with broker(answer) as upstream, listening(controller, security=security()) as (listener, port):
        controller.live = [upstream.broker]
        async with connected(port) as client:
            await log_in(client, "admin")
            client.writer.write(frame(request_class(10, 4)(key_type=i8(0), coordinator_keys=("g",)), 7))
            assert await client.is_closed()
        assert listener.counters.rejected["unsupported_version"] == 1
    assert upstream.connections == 0


async def test_nothing_is_relayed_if_it_is_switched_off() -> None:
    for secured in (security(), ListenerSecurity()):
        controller = ControllerStub()
        async with broker(answer) as upstream, listening(controller, security=secured, relays=False) as (_, port):
            controller.live = [upstream.broker]
            async with connected(port) as client:
                if secured.authorizer is not None:
                    await log_in(client, "admin")
                client.writer.write(frame(find("g", 0), 7))
                assert await client.is_closed()
        assert upstream.connections == 0


async def test_open_relay_stops_while_clients_are_connected() -> None:
    controller, is_open = ControllerStub(), True
    async with broker(answer) as upstream, listening(controller, relays_unread=lambda: is_open) as (listener, port):
        controller.live = [upstream.broker]
        async with connected(port) as client:
            await send(client, find("g", 0))
            is_open = False
            client.writer.write(frame(find("g", 0), 7))
            assert await client.is_closed()
        assert listener.counters.rejected["not_for_us"] == 1
        async with connected(port) as client:  # its own response
            brokers = (await client.ask(request_class(3, 1)(topics=None))).brokers
            assert {entry.node_id for entry in brokers} == {1, KACTL}
    assert len(upstream.frames) == 1
    assert upstream.broker.endpoints[1].listener == LISTENER


async def test_trail_has_relayed_changes_and_denials_with_the_client() -> None:
    controller, attempts = ControllerStub(), list[Attempt]()
    alice = kafka_user("alice", peer="127.0.0.1", method="SCRAM-SHA-256")
    async with (
        broker(answer) as upstream,
        listening(controller, security=security((topic("mine"), WRITES_CONFIGS)), audit=attempts.append) as (_, port),
    ):
        controller.live = [upstream.broker]
        async with connected(port) as client:
            await log_in(client, "alice")
            for request in (configs(44, 1, OWN), configs(44, 1, OWN, THEIRS), configs(32, 3, THEIRS)):
                await send(client, request)
    # Descriptions are no changes, but their denials are recorded.
    assert attempts == [
        Attempt(alice, "kafka IncrementalAlterConfigs", "unknown", "mine", RELAYED),
        Attempt(alice, "kafka IncrementalAlterConfigs", "denied", "mine, theirs"),
        Attempt(alice, "kafka DescribeConfigs", "denied", "theirs"),
    ]


async def test_trail_has_a_change_that_no_broker_received_as_failed() -> None:
    controller, attempts = ControllerStub(), list[Attempt]()
    own = security((topic("mine"), WRITES_CONFIGS))
    async with listening(controller, security=own, audit=attempts.append) as (_, port), connected(port) as client:
        await log_in(client, "alice")
        client.writer.write(frame(configs(44, 1, OWN), 7))
        assert await client.is_closed()

    (attempt,) = attempts
    assert (attempt.outcome, attempt.target) == ("failed", "mine")
    assert "no broker with a listener INTERNAL is available" in attempt.detail


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        ({"topics": []}, ("done", "")),
        ({"topics": [{"error_code": 0}, {"error_code": 36}]}, ("partly", "TOPIC_ALREADY_EXISTS")),
        ({"topics": [{"error_code": 36}]}, ("failed", "TOPIC_ALREADY_EXISTS")),
        ({"error_code": 0, "responses": [{"partitions": [{"error_code": 42}]}]}, ("failed", "INVALID_REQUEST")),
        ({"error_code": 31}, ("failed", "CLUSTER_AUTHORIZATION_FAILED")),
    ],
)
def test_outcome_of_a_change_is_that_of_its_parts(response: dict[str, Any], outcome: tuple[str, str]) -> None:
    assert outcome_of(response) == outcome


def test_target_names_the_first_objects() -> None:
    topics = [{"name": f"t{number}"} for number in range(7)]
    assert target_of({"topics": topics, "timeout_ms": 1}) == "t0, t1, t2, t3, t4 and 2 more"
    assert target_of({"topic_names": ["a", "b"]}) == "a, b"
