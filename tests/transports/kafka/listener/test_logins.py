"""Logins and TLS on the listener, by librdkafka and by single requests."""

import asyncio
import contextlib
import datetime
import socket
import ssl
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kio.schema.errors import ErrorCode as KioError
from kio.static.primitive import i32Timedelta

from kactl.decide.messages.admin import CreateTopic
from kactl.decide.messages.broker import AllocateProducerIds
from kactl.model import Broker, Endpoint, ProducerIdBlock, TopicRef
from kactl.model.errors import ErrorCode, StoreUnavailable
from kactl.security.access import Acl, AclAuthorizer, Acls, BrokerPrincipals, Operation, topic
from kactl.security.sasl import ScramClient, ScramVerifier, verifier
from kactl.security.sasl.scram import ITERATIONS_MIN, Name
from kactl.telemetry.attempts import Attempt
from kactl.transports.kafka.listener import ListenerSecurity, authentication
from kactl.transports.kafka.listener.api_keys import API_KEY_MAX
from kactl.transports.kafka.listener.authentication import MECHANISMS, Authentication, Login
from kactl.transports.kafka.listener.stream import Stream, shared_buffer
from tests.support.certificates import Authority

from .attack.passwords import connection
from .client import Client, connected, frame, part, request_class
from .listener_stub import Answers, ControllerStub, listening, until

pytestmark = pytest.mark.anyio

ONE_SECOND = i32Timedelta.parse(datetime.timedelta(seconds=1))
LOGINS = 40
PASSWORDS = {"alice": "alice-secret", "admin": "admin-secret", "broker-1": "broker-secret"}
CREATED: Answers = {
    CreateTopic: lambda request: TopicRef(request.topic, bytes(16)),
    AllocateProducerIds: lambda _: ProducerIdBlock(0, 0, 999),
}


class UserTable:
    """Users of both SCRAM mechanisms."""

    def __init__(self) -> None:
        self.fails = False
        self._known: dict[tuple[str, str], ScramVerifier] = {}

    async def scram_verifier(self, mechanism: Name, username: str) -> ScramVerifier | None:
        if self.fails:
            raise StoreUnavailable("gone")
        if username not in PASSWORDS:
            return None
        key = mechanism, username
        if key not in self._known:
            self._known[key] = verifier(mechanism, PASSWORDS[username], salt=username.encode(), iterations=4096)
        return self._known[key]

    def iterations(self, mechanism: Name) -> Collection[int]:
        return (ITERATIONS_MIN,)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> ssl.SSLContext:
    return authority.server_context()


def security(
    protocol: Any = "SASL_PLAINTEXT",
    *,
    users: UserTable | None = None,
    tls: ssl.SSLContext | None = None,
    lifetime_ms: int = 0,
) -> ListenerSecurity:
    acls = Acls({topic("mine"): [Acl("User:alice", "*", Operation.ALL)]})
    return ListenerSecurity(
        Authentication(protocol, mechanisms=MECHANISMS, users=users or UserTable(), lifetime_ms=lifetime_ms),
        tls,
        AclAuthorizer(super_users=["User:admin"], brokers=BrokerPrincipals(pattern="User:broker-{id}"), acls=acls),
    )


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both event loops: their TLS differs."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


# -- librdkafka ------------------------------------------------------------------------------------------------------


async def create_topics(port: int, *topics: str, timeout_s: float = 60, **settings: Any) -> dict[str, int]:
    """Create topics by librdkafka. Returns the error code of each, 0 for success.

    Args:
        timeout_s: how long librdkafka tries.
    """
    admin = AdminClient(
        {
            "bootstrap.servers": f"localhost:{port}",
            "log_level": 0,
            "sasl.username": "admin",
            "sasl.password": PASSWORDS["admin"],
            "socket.timeout.ms": int(1000 * timeout_s),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    futures = admin.create_topics([NewTopic(name, 1, 1) for name in topics], request_timeout=timeout_s)
    results = {}
    for name, future in futures.items():
        try:
            await asyncio.wrap_future(future)
            results[name] = 0
        except KafkaException as error:
            results[name] = error.args[0].code()
    return results


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_admin_client_logs_in_over_tls(mechanism: str, tls: ssl.SSLContext, authority: Authority) -> None:
    controller = ControllerStub(CREATED)
    async with listening(controller, security=security("SASL_SSL", tls=tls)) as (_, port):
        results = await create_topics(
            port, "new", security_protocol="SASL_SSL", sasl_mechanism=mechanism, ssl_ca_location=str(authority.cert)
        )
    assert results == {"new": 0}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_admin_client_logs_in_in_clear_text(mechanism: str) -> None:
    controller = ControllerStub(CREATED)
    async with listening(controller, security=security()) as (_, port):
        results = await create_topics(port, "new", security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism)
    assert results == {"new": 0}


async def test_failed_login_over_tls_is_answered_and_no_error(tls: ssl.SSLContext, authority: Authority) -> None:
    """The connection ends when the peer has read the response, and leaves one line in the log."""
    async with listening(ControllerStub({}), security=security("SASL_SSL", tls=tls)) as (listener, port):
        client_tls = ssl.create_default_context(cafile=str(authority.cert))
        async with connection(port, client_tls, "127.0.0.1") as session:
            assert await session.log_in("alice", "wrong") is ErrorCode.SASL_AUTHENTICATION_FAILED
            session.close()
            await until(lambda: not listener.counters.connections)

    assert listener.counters.rejected == {"login": 1}


async def test_topics_of_a_request_are_decided_one_by_one() -> None:
    controller, attempts = ControllerStub(CREATED), list[Attempt]()
    async with listening(controller, security=security(), audit=attempts.append) as (listener, port):
        results = await create_topics(
            port,
            "mine",
            "theirs",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="alice",
            sasl_password=PASSWORDS["alice"],
        )
        assert listener.counters.rejected["denied"] == 1
    assert results == {"mine": 0, "theirs": 29}
    assert [(attempt.outcome, attempt.target) for attempt in attempts] == [("denied", "mine, theirs"), ("done", "mine")]
    assert [request.topic for request in controller.requests if isinstance(request, CreateTopic)] == ["mine"]


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl_password": "wrong"},
        {"sasl_username": "nobody"},
        {"sasl_mechanism": "PLAIN"},  # not offered without TLS
        {"security_protocol": "PLAINTEXT"},
    ],
)
async def test_nothing_is_done_without_a_login(settings: dict[str, str]) -> None:
    controller = ControllerStub(CREATED)
    async with listening(controller, security=security()) as (_, port):
        settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512"} | settings
        assert (await create_topics(port, "new", timeout_s=2, **settings))["new"] != 0
    assert controller.requests == []


# -- single requests -------------------------------------------------------------------------------------------------


async def _handshake(client: Client, mechanism: str = "SCRAM-SHA-256") -> Any:
    return await client.ask(request_class(17, 1)(mechanism=mechanism))


async def _authenticate(client: Client, message: bytes) -> Any:
    return await client.ask(request_class(36, 2)(auth_bytes=message))


async def log_in(client: Client, username: str = "admin", password: str | None = None) -> Any:
    """Log in by SCRAM. Returns the last response."""
    await _handshake(client)
    login = ScramClient("SCRAM-SHA-256", username, PASSWORDS[username] if password is None else password)
    challenge = await _authenticate(client, login.first())
    last = await _authenticate(client, login.respond(challenge.auth_bytes))
    if last.error_code is KioError.none:
        login.respond(last.auth_bytes)
        assert login.is_complete
    return last


async def test_every_other_request_before_the_login_ends_the_connection() -> None:
    controller = ControllerStub()
    keys = [key for key in range(API_KEY_MAX + 1) if key not in (17, 18, 36)]
    async with listening(controller, security=security()) as (listener, port):
        for key in keys:
            async with connected(port) as client:
                # A body that no schema accepts: it is not read.
                client.writer.write((12).to_bytes(4) + key.to_bytes(2) + bytes(6) + b"\xff\xff\xff\xff")
                assert await client.is_closed(), key
        assert listener.counters.rejected["unauthenticated"] == len(keys)
    assert controller.requests == []


async def test_versions_are_told_once_before_the_login() -> None:
    async with listening(ControllerStub(), security=security()) as (_, port), connected(port) as client:
        versions = await client.ask(request_class(18, 0)())
        keys = {entry.api_key: (entry.min_version, entry.max_version) for entry in versions.api_keys}
        assert keys[17] == (1, 1)
        assert keys[36] == (0, 2)
        with pytest.raises(asyncio.IncompleteReadError):
            await client.ask(request_class(18, 0)())


async def test_versions_can_be_told_after_an_unknown_version_of_the_request() -> None:
    """Clients begin with the latest version that they know, and choose another one by the response."""
    async with listening(ControllerStub(), security=security()) as (_, port), connected(port) as client:
        later = bytearray(frame(request_class(18, 3)(client_software_name="x", client_software_version="1"), 7))
        later[6:8] = (99).to_bytes(2)
        client.writer.write(later)
        refused = Client.read(request_class(18, 0)(), await client.frame(), 7)
        assert refused.error_code is KioError.unsupported_version

        versions = await client.ask(request_class(18, 3)(client_software_name="x", client_software_version="1"))
        assert versions.error_code is KioError.none
        assert (await log_in(client)).error_code is KioError.none


async def test_request_that_is_too_large_before_the_login_is_not_read() -> None:
    async with listening(ControllerStub(), security=security()) as (listener, port), connected(port) as client:
        client.writer.write((17_000).to_bytes(4) + (36).to_bytes(2) + (1).to_bytes(2) + bytes(4))
        assert await client.is_closed()
        assert listener.counters.rejected["length"] == 1


async def test_logins_at_the_same_time_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an iteration of the event loop would handle those of all connections."""
    iteration, handled = 0, Counter[int]()
    loop, on_handshake = asyncio.get_running_loop(), Login.on_handshake

    def count() -> None:
        nonlocal iteration
        iteration += 1
        loop.call_soon(count)

    def counted(self: Login, values: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        handled[iteration] += 1
        return on_handshake(self, values)

    monkeypatch.setattr(Login, "on_handshake", counted)
    async with listening(ControllerStub(), security=security()) as (_, port), contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(port)) for _ in range(LOGINS)]
        count()
        await asyncio.gather(*(_handshake(client) for client in clients))

    assert handled.total() == LOGINS
    assert max(handled.values()) == 1


async def test_login_without_a_mechanism_is_rejected() -> None:
    async with listening(ControllerStub(), security=security()) as (_, port), connected(port) as client:
        response = await _authenticate(client, b"n,,n=admin,r=abc")
        assert response.error_code is KioError.illegal_sasl_state
        assert await client.is_closed()


async def test_unknown_mechanism_is_answered_with_those_that_are_offered() -> None:
    async with listening(ControllerStub(), security=security()) as (_, port), connected(port) as client:
        response = await _handshake(client, "GSSAPI")
        assert response.error_code is KioError.unsupported_sasl_mechanism
        assert response.mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256")
        assert await client.is_closed()


@pytest.mark.parametrize(("username", "password"), [("admin", "wrong"), ("admin", "")])
async def test_failed_login_has_one_text_and_ends_the_connection(username: str, password: str) -> None:
    async with listening(ControllerStub(), security=security()) as (listener, port), connected(port) as client:
        response = await log_in(client, username, password)
        assert response.error_code is KioError.sasl_authentication_failed
        assert response.error_message == "Authentication failed: check mechanism, username and password"
        assert await client.is_closed()
        assert listener.counters.rejected["login"] == 1


async def test_users_that_cannot_be_read_let_nobody_in() -> None:
    users, controller = UserTable(), ControllerStub(CREATED)
    users.fails = True
    async with listening(controller, security=security(users=users)) as (_, port), connected(port) as client:
        await _handshake(client)
        with pytest.raises(asyncio.IncompleteReadError):
            await _authenticate(client, ScramClient("SCRAM-SHA-256", "admin", "x").first())


async def test_broker_speaks_for_itself() -> None:
    controller = ControllerStub(CREATED)
    controller.live = [Broker(1, 77, (Endpoint("INTERNAL", "127.0.0.1", 1),))]
    async with listening(controller, security=security()) as (listener, port), connected(port) as client:
        await log_in(client, "broker-1")
        allocate = request_class(67, 0)
        denied = await client.ask(allocate(broker_id=2, broker_epoch=77))
        without_epoch = await client.ask(allocate(broker_id=1, broker_epoch=-1))
        assert controller.requests == []
        assert (denied.error_code, without_epoch.error_code) == (
            KioError.cluster_authorization_failed,
            KioError.stale_broker_epoch,
        )
        assert (await client.ask(allocate(broker_id=1, broker_epoch=77))).error_code is KioError.none
        assert listener.counters.identified == 1


async def test_client_sends_no_requests_of_brokers() -> None:
    controller = ControllerStub(CREATED)
    async with listening(controller, security=security()) as (_, port), connected(port) as client:
        await log_in(client, "alice")
        response = await client.ask(request_class(67, 0)(broker_id=1, broker_epoch=77))
        assert response.error_code is KioError.cluster_authorization_failed
    assert controller.requests == []


@pytest.mark.parametrize("key", [0, 4, 5, 6, 1, 2, 8, 9, 58])
async def test_requests_that_kactl_does_not_handle_are_not_relayed(key: int) -> None:
    controller = ControllerStub(CREATED)
    controller.live = [Broker(1, 77, (Endpoint("INTERNAL", "127.0.0.1", 1),))]
    async with listening(controller, security=security()) as (listener, port), connected(port) as client:
        await log_in(client, "admin")
        client.writer.write((12).to_bytes(4) + key.to_bytes(2) + bytes(6) + b"\xff\xff\xff\xff")
        assert await client.is_closed()
        assert listener.counters.rejected["not_for_us"] == 1


async def test_login_is_renewed_as_the_same_user_only() -> None:
    async with listening(ControllerStub(CREATED), security=security()) as (_, port), connected(port) as client:
        await log_in(client, "alice")
        assert (await log_in(client, "alice")).error_code is KioError.none
        assert (await log_in(client, "admin")).error_code is KioError.sasl_authentication_failed
        assert await client.is_closed()


async def test_login_that_is_not_renewed_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        listening(ControllerStub(CREATED), security=security(lifetime_ms=3_600_000)) as (listener, port),
        connected(port) as client,
    ):
        response = await log_in(client, "admin")
        assert response.session_lifetime.total_seconds() == 3600
        assert (await client.ask(request_class(18, 0)())).error_code is KioError.none
        monkeypatch.setattr(authentication, "_now_s", _later(authentication._now_s, 3_601))
        with pytest.raises(asyncio.IncompleteReadError):
            await client.ask(request_class(18, 0)())
        assert listener.counters.rejected["unauthenticated"] == 1


def _later(time: Callable[[], float], by_s: float) -> Callable[[], float]:
    return lambda: time() + by_s


async def test_listener_without_logins_takes_none() -> None:
    async with listening(ControllerStub()) as (listener, port), connected(port) as client:
        with pytest.raises(asyncio.IncompleteReadError):
            await _handshake(client)
        assert listener.counters.rejected["not_for_us"] == 1


async def test_clear_text_on_a_listener_with_tls(tls: ssl.SSLContext) -> None:
    async with (
        listening(ControllerStub(), security=security("SASL_SSL", tls=tls)) as (listener, port),
        connected(port) as client,
    ):
        client.writer.write((12).to_bytes(4) + (18).to_bytes(2) + bytes(10))
        await until(lambda: listener.counters.rejected["tls"] == 1)


async def test_tls_on_a_listener_in_clear_text(authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.cert))
    async with listening(ControllerStub()) as (listener, port):
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.open_connection("localhost", port, ssl=context)
        assert listener.counters.rejected["tls"] == 1


@pytest.mark.parametrize("username", ["admin", "alice"])
async def test_unknown_topic_id_is_unknown_to_everybody(username: str) -> None:
    controller = ControllerStub(CREATED)
    controller.named = [TopicRef("theirs", b"t" * 16)]
    topic = part(20, 6, "DeleteTopicState")
    request = request_class(20, 6)(topics=(topic(name=None, topic_id=uuid.UUID(bytes=b"u" * 16)),), timeout=ONE_SECOND)
    async with listening(controller, security=security()) as (_, port), connected(port) as client:
        await log_in(client, username)
        (response,) = (await client.ask(request)).responses
    assert response.error_code is KioError.unknown_topic_id


async def test_topic_that_may_not_be_described_has_no_name() -> None:
    controller = ControllerStub(CREATED)
    controller.named = [TopicRef("theirs", b"t" * 16)]
    topic = part(20, 6, "DeleteTopicState")
    request = request_class(20, 6)(topics=(topic(name=None, topic_id=uuid.UUID(bytes=b"t" * 16)),), timeout=ONE_SECOND)
    async with listening(controller, security=security()) as (_, port), connected(port) as client:
        await log_in(client, "alice")
        (response,) = (await client.ask(request)).responses
    assert (response.error_code, response.name) == (KioError.topic_authorization_failed, None)
    assert controller.requests == []


async def test_connection_that_is_accepted_as_the_listener_ends_is_closed() -> None:
    async with listening(ControllerStub()) as (listener, _):
        ours, theirs = socket.socketpair()
        listener._take("INTERNAL", ours, ("127.0.0.1", 1))
        # Nothing runs until the listener cancels its tasks.
    theirs.close()
    assert ours.fileno() == -1
    assert listener.counters.connections == 0


async def test_stream_whose_transport_is_closing_is_closed(tls: ssl.SSLContext, authority: Authority) -> None:
    lost = asyncio.Event()
    made = Stream(shared_buffer(), lost.set)
    ours, theirs = socket.socketpair()
    context = ssl.create_default_context(cafile=str(authority.cert))
    async with asyncio.TaskGroup() as tasks:
        opening = tasks.create_task(asyncio.open_connection(sock=theirs, ssl=context, server_hostname="localhost"))
        await asyncio.get_running_loop().connect_accepted_socket(lambda: made, ours, ssl=tls)
    # As when the TLS connection is lost and the protocol is not told yet.
    made.transport.close()
    made.close(abort_s=1)
    await lost.wait()
    _, writer = opening.result()
    writer.close()
    await writer.wait_closed()
