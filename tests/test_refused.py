"""One table of what has to be refused (S-98): nothing changes, the answer is right, and one record is in the trail.

Where kactl itself is the client, or refuses to start, there is no trail yet, and the peer receives nothing.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio.to_thread
import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kio.schema.errors import ErrorCode as KioError

from kactl.admin.identity import credentials
from kactl.admin.identity.token_file import write_tokens
from kactl.admin.routes.route_table import ROUTES
from kactl.admin.schema import AuditPage, AuditRecord
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.broker import AllocateProducerIds, AlterPartitionReceived, ControlledShutdown
from kactl.model.errors import BrokerUnreachable, NotAuthorized, StaleBrokerEpoch
from kactl.security.access.role import Role
from kactl.security.access.tokens import NewToken
from kactl.stores.zookeeper import ZooKeeperStore
from kactl.telemetry.attempts import Attempt
from kactl.testing.contracts.link_support import ContractOffice
from kactl.testing.contracts.link_support import until as until_linked
from kactl.transports.kafka import BrokerCredentials
from tests.admin.conftest import Served, served
from tests.admin.test_access import bearer, filled, token
from tests.cli.server import kactl
from tests.cli.test_token import fakes, private
from tests.support.certificates import Authority
from tests.support.secure_zookeeper import PASSWORD, USER, SecureZooKeeper
from tests.support.zookeeper_fixtures import chroot, jars
from tests.transports.kafka import test_credentials as outgoing
from tests.transports.kafka.listener import test_checked_relay as relayed
from tests.transports.kafka.listener.client import Client, connected, frame, request_class
from tests.transports.kafka.listener.listener_stub import ControllerStub, listening
from tests.transports.kafka.listener.test_broker_handlers import alter
from tests.transports.kafka.listener.test_logins import log_in, security
from tests.transports.kafka.listener.test_partition_handlers import SECOND, election, reassignment
from tests.transports.kafka.listener.test_topic_handlers import creation, deletion, growth
from tests.transports.kafka.listener.upstream import broker as upstream_broker
from tests.transports.kafka.peer import listening as peer_listening
from tests.transports.kafka.test_request import UPDATE
from tests.transports.tcp.support import hello_of, raw_client
from tests.transports.tcp.test_handshake import SECRET, controller

__all__ = ["chroot", "fakes", "jars"]

pytestmark = pytest.mark.anyio
NOBODY: Final = {"Authorization": ""}
JSON: Final = {"Content-Type": "application/json"}


# -- the admin API -----------------------------------------------------------------------------------------------------


class Api(NamedTuple):
    """Server with a topic, and tokens: of each role, an expired one, and one that is revoked."""

    server: Served
    tokens: dict[str, str]

    def bearer(self, name: str) -> dict[str, str]:
        return bearer(self.tokens[name])

    async def records(self, after: int) -> list[AuditRecord]:
        answer = await self.server.get(f"/v1/audit?after={after}&limit=1000", headers=self.bearer("admin"))
        page: AuditPage = answer.read(AuditPage)
        return list(page.items)


@pytest.fixture(scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    folder = tmp_path_factory.mktemp("refused")
    file = folder / "tokens.toml"
    made: dict[str, NewToken] = {
        role.label: token(role.label, role) for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
    }
    made["expired"] = token("expired", Role.ADMIN, expires_ms=1)
    made["revoked"] = token("revoked", Role.ADMIN)
    made["unknown"] = token("unknown", Role.ADMIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(credentials, "POLL_S", 0.02)
        write_tokens(file, [each.record for name, each in made.items() if name != "unknown"])
        async with served(settings={"api.tokens": str(file)}) as server:
            await server.controller.create_topic("orders", partitions=2, replication_factor=3)
            opened = Api(server, {name: each.text for name, each in made.items()})
            assert (await server.get("/v1/topics", headers=opened.bearer("revoked"))).status == 200
            write_tokens(file, [each.record for name, each in made.items() if name not in ("unknown", "revoked")])
            with anyio.fail_after(60):
                while (await server.get("/v1/topics", headers=opened.bearer("revoked"))).status != 401:
                    pass
            yield opened


Headers = Callable[[Api], dict[str, str]]
FOREIGN: Final = {"Host": "evil.example"}
PAGE: Final = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
# Item, method, path, headers and status. Denials of one client and operation are counted in one record, so that each
# item has an operation of its own.
API: list[tuple[str, str, str, Headers, int]] = [
    ("no credential", "DELETE", "/v1/topics/orders?reason=x", lambda api: NOBODY, 401),
    ("wrong credential", "POST", "/v1/controller/resign", lambda api: api.bearer("unknown"), 401),
    ("expired credential", "POST", "/v1/brokers/1/drain", lambda api: api.bearer("expired"), 401),
    ("revoked credential", "POST", "/v1/brokers/2/restart", lambda api: api.bearer("revoked"), 401),
    ("foreign Host, read", "GET", "/v1/brokers/1", lambda api: api.bearer("admin") | FOREIGN, 421),
    ("foreign Host, write", "POST", "/v1/reassignments", lambda api: api.bearer("admin") | FOREIGN, 421),
    ("page of another site, read", "GET", "/v1/brokers", lambda api: api.bearer("admin") | PAGE, 403),
    ("page of another site, write", "DELETE", "/v1/topics/orders", lambda api: api.bearer("admin") | PAGE, 403),
    ("token in a query", "GET", "/v1/reassignments?token={admin}", lambda api: api.bearer("viewer"), 400),
    (
        "token in a cookie",
        "GET",
        "/v1/partitions",
        lambda api: api.bearer("viewer") | {"Cookie": f"t={api.tokens['admin']}"},
        400,
    ),
]


@pytest.mark.parametrize(("method", "path", "headers", "status"), [item[1:] for item in API], ids=[x[0] for x in API])
async def test_request_to_the_api_is_refused(api: Api, method: str, path: str, headers: Headers, status: int) -> None:
    before = await api.server.state()
    known = await api.records(0)

    answer = await api.server.ask(method, path.format(**api.tokens), headers=headers(api) | JSON)

    assert answer.status == status
    assert await api.server.state() == before
    records = (await api.records(0))[len(known) :]
    assert [(record.result, record.count, record.peer) for record in records] == [("denied", 1, "127.0.0.1")]
    assert records[0].operation.startswith(f"{method} /v1/")
    assert not any(secret in msgspec.json.encode(records).decode() for secret in api.tokens.values())


LOW: Final = [
    pytest.param(route, role, id=f"{route.method} {route.path} {role.label}")
    for route in ROUTES
    if not route.raises_role
    for role in (Role.VIEWER, Role.OPERATOR)
    if role < route.least_role
]


@pytest.mark.parametrize(("route", "role"), LOW)
async def test_role_that_is_too_low_is_refused(api: Api, route: Any, role: Role) -> None:
    before, known = await api.server.state(), await api.records(0)

    answer = await api.server.ask(route.method, filled(route), headers=api.bearer(role.label) | JSON)

    assert answer.status == 403
    assert f"needs the role {route.least_role.label}" in answer.json()["detail"]
    assert await api.server.state() == before
    (record,) = (await api.records(0))[len(known) :]
    assert (record.result, record.principal) == ("denied", f"token:{role.label}")


# -- Kafka listeners ---------------------------------------------------------------------------------------------------


class Kafka(NamedTuple):
    """Listener with logins."""

    controller: ControllerStub
    client: Client
    attempts: list[Attempt]


@contextlib.asynccontextmanager
async def kafka(user: str | None = None) -> AsyncIterator[Kafka]:
    """Run a listener, and log a user in. No user but admin and the brokers has a right."""
    stale = StaleBrokerEpoch(1, 6, 7)
    answers: dict[type[ControllerRequest], Callable[[Any], Any]] = {
        kind: lambda _: stale for kind in (AlterPartitionReceived, ControlledShutdown, AllocateProducerIds)
    }
    stub, attempts = ControllerStub(answers), list[Attempt]()
    how = security()
    async with listening(stub, security=how, audit=attempts.append) as (_, port), connected(port) as client:
        if user is not None:
            await log_in(client, user)
        yield Kafka(stub, client, attempts)


def only(attempts: list[Attempt], operation: str, principal: str) -> Attempt:
    """Returns the only record, which is a denial."""
    (attempt,) = attempts
    assert (attempt.outcome, attempt.operation, attempt.principal.name) == ("denied", operation, principal)
    assert attempt.principal.peer == "127.0.0.1"
    return attempt


DENIED: Final = {KioError.cluster_authorization_failed, KioError.topic_authorization_failed}
# Requests of each kind that a client may send. Alice has no right to any of them.
REQUESTS: Final[dict[str, Any]] = {
    "CreateTopics": creation(7, "theirs", partitions=1, factor=1),
    "DeleteTopics": deletion(6, "theirs"),
    "CreatePartitions": growth(3, {"theirs": 3}),
    "ElectLeaders": election(2, {"theirs": (0,)}),
    "AlterPartitionReassignments": reassignment({"theirs": {0: (1, 2)}}),
    "ListPartitionReassignments": request_class(46, 0)(topics=None, timeout=SECOND),
    "AlterPartition": alter(2, (0, 1, (1,), 1)),
    "AllocateProducerIds": request_class(67, 0)(broker_id=1, broker_epoch=7),
    "ControlledShutdown": request_class(7, 3)(broker_id=1, broker_epoch=7),
}


def codes(response: Any) -> set[KioError]:
    """Returns the error codes of a response, at any depth, without success."""
    found = set()
    for name in response.__dataclass_fields__:
        value = getattr(response, name)
        if isinstance(value, KioError):
            found.add(value)
        for part_ in value if isinstance(value, tuple) else ():
            if hasattr(part_, "__dataclass_fields__"):
                found |= codes(part_)
    return found - {KioError.none}


@pytest.mark.parametrize("name", REQUESTS)
async def test_principal_without_rights_is_refused(name: str) -> None:
    async with kafka("alice") as opened:
        response = await opened.client.ask(REQUESTS[name])

    assert codes(response) <= DENIED
    assert codes(response)
    assert opened.controller.requests == []
    only(opened.attempts, f"kafka {name}", "User:alice")


@pytest.mark.parametrize(
    ("name", "request_", "code"),
    [
        ("another id", request_class(67, 0)(broker_id=2, broker_epoch=7), KioError.cluster_authorization_failed),
        ("another id", request_class(7, 3)(broker_id=2, broker_epoch=7), KioError.cluster_authorization_failed),
        ("no epoch", request_class(67, 0)(broker_id=1, broker_epoch=-1), KioError.stale_broker_epoch),
        ("no epoch", request_class(7, 1)(broker_id=1), KioError.stale_broker_epoch),
    ],
)
async def test_broker_speaks_for_its_present_registration_alone(name: str, request_: Any, code: KioError) -> None:
    async with kafka("broker-1") as opened:
        response = await opened.client.ask(request_)

    assert codes(response) == {code}
    assert opened.controller.requests == []
    assert len(opened.attempts) == 1
    assert opened.attempts[0].outcome == "denied"


async def test_old_epoch_is_refused_by_the_controller() -> None:
    """Requests of brokers are no decisions of persons; those that are not denied by the listener leave no record."""
    async with kafka("broker-1") as opened:
        response = await opened.client.ask(request_class(67, 0)(broker_id=1, broker_epoch=6))

    assert codes(response) == {KioError.stale_broker_epoch}
    assert opened.controller.requests == [AllocateProducerIds(1, 6)]
    assert opened.attempts == []


async def _request_before_login(client: Client) -> None:
    client.writer.write(frame(REQUESTS["CreateTopics"], 1))
    assert await client.is_closed()


async def _wrong_password(client: Client) -> None:
    assert (await log_in(client, "alice", "wrong")).error_code is KioError.sasl_authentication_failed


async def _plain_in_clear_text(client: Client) -> None:
    response = await client.ask(request_class(17, 1)(mechanism="PLAIN"))
    assert response.error_code is KioError.unsupported_sasl_mechanism
    assert "PLAIN" not in response.mechanisms


async def _handshake_of_version_0(client: Client) -> None:
    client.writer.write(frame(request_class(17, 0)(mechanism="SCRAM-SHA-512"), 1))
    assert await client.is_closed()


@pytest.mark.parametrize(
    "attempt", [_request_before_login, _wrong_password, _plain_in_clear_text, _handshake_of_version_0]
)
async def test_peer_without_a_login_is_refused(attempt: Callable[[Client], Awaitable[None]]) -> None:
    async with kafka() as opened:
        await attempt(opened.client)

    assert opened.controller.requests == []
    only(opened.attempts, "kafka Login", "")


@pytest.mark.parametrize("key", [4, 5, 6, 58], ids=["LeaderAndIsr", "StopReplica", "UpdateMetadata", "Envelope"])
async def test_request_of_a_controller_is_not_obeyed(key: int) -> None:
    """Not even that of a super user."""
    async with kafka("admin") as opened:
        opened.client.writer.write((12).to_bytes(4) + key.to_bytes(2) + bytes(6) + b"\xff\xff\xff\xff")
        assert await opened.client.is_closed()

    assert opened.controller.requests == []
    only(opened.attempts, "kafka Request", "User:admin")


async def test_request_without_the_right_is_not_relayed() -> None:
    attempts = list[Attempt]()
    received: list[bytes] = []

    async def answer(content: bytes, writer: asyncio.StreamWriter) -> bytes:
        received.append(content)
        return await relayed.answer(content, writer)

    stub = ControllerStub()
    async with (
        upstream_broker(answer) as upstream,
        listening(stub, security=relayed.security(), audit=attempts.append) as (_, port),
        connected(port) as client,
    ):
        stub.live = [upstream.broker]
        await log_in(client, "alice")
        response = await client.ask(relayed.configs(44, 1, relayed.OWN))

    assert codes(response) == {KioError.topic_authorization_failed}
    assert received == []
    only(attempts, "kafka IncrementalAlterConfigs", "User:alice")


# -- the network of participants ---------------------------------------------------------------------------------------


async def test_stranger_to_the_network_is_refused() -> None:
    office = ContractOffice()
    async with controller(office, secret=SECRET) as network, raw_client(network.address) as client:
        with pytest.raises(NotAuthorized):
            await client.greet(hello_of(), b"another secret..")
        await until_linked(lambda: office.attempts)

    (attempt,) = office.attempts
    assert (attempt.operation, attempt.outcome, attempt.principal.name) == ("network Handshake", "denied", "")


# -- kactl as a client -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logins", "reason"),
    [
        (lambda: outgoing.SaslLogins(offered=("PLAIN",)), "it offers PLAIN, and not SCRAM-SHA-512"),
        (lambda: outgoing.SaslLogins(spoil="proof"), "SCRAM-SHA-512"),
    ],
    ids=["downgrade", "wrong proof"],
)
async def test_broker_that_cannot_be_trusted_receives_nothing(logins: Any, reason: str) -> None:
    async with peer_listening(never, outgoing.VERSIONS, protocol="SASL_PLAINTEXT", logins=logins()) as peer:
        with pytest.raises(BrokerUnreachable, match=reason):
            await outgoing.transport(outgoing.scram()).connect(peer.broker).deliver(UPDATE)
    assert peer.correlation_ids == []


async def never(request: Any) -> Any:
    raise AssertionError("a request was delivered")


async def test_broker_with_the_certificate_of_another_name_receives_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signed = authority.sign("other", names="DNS:other.example")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(signed.cert, signed.key)
    own = BrokerCredentials(tls=ssl.create_default_context(cafile=str(authority.cert)))
    async with peer_listening(never, outgoing.VERSIONS, protocol="SSL", tls=server, host="localhost") as peer:
        with pytest.raises(BrokerUnreachable, match=r"its certificate is not accepted: .*localhost"):
            await outgoing.transport(own).connect(peer.broker).deliver(UPDATE)
    assert peer.correlation_ids == []


def test_token_does_not_follow_a_redirect(fakes: Any, tmp_path: Path) -> None:
    first, last = fakes

    kactl("--server", first.url, "status", "--token-file", private(tmp_path / "token", "secret\n"))

    assert (first.seen, last.seen) == (["Bearer secret"], [None])


@pytest.mark.interop
async def test_client_without_identity_cannot_write_what_kactl_secures(jars: str, chroot: str, tmp_path: Path) -> None:
    """The trail of ZooKeeper is its own."""
    with SecureZooKeeper(tmp_path / "zookeeper") as zookeeper:
        store = ZooKeeperStore(
            zookeeper.secure_connect(chroot), tls=zookeeper.tls(), username=USER, password=PASSWORD, set_acl=True
        )
        async with store:
            await store.set_topic_config("orders", {"retention.ms": "1"})
            refused = await anyio.to_thread.run_sync(_writes_of_a_stranger, zookeeper.connect(chroot))
            kept = await store.topic_configs(["orders"])

    assert refused == ["NoAuthError"] * 3
    assert kept == {"orders": {"retention.ms": "1"}}


def _writes_of_a_stranger(connect: str) -> list[str]:
    """Returns the errors of the three ways to change a node."""
    client = KazooClient(connect)
    client.start()
    node = "/config/topics/orders"
    writes: list[Callable[[], Any]] = [
        lambda: client.set(node, b"{}"),
        lambda: client.delete(node),
        lambda: client.create("/brokers/topics/stolen", b"{}"),
    ]
    errors = []
    for write in writes:
        try:
            write()
        except KazooException as error:
            errors.append(type(error).__name__)
    client.stop()
    client.close()
    return errors


# -- what a user writes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "env", "text", "message"),
    [
        (("get", "topics", "--token", "hunter2"), {}, "", "No such option"),
        (
            ("up", "--config", "{file}"),
            {"KACTL_STORE__PASSWORD": "hunter2"},
            "node-id = 0\n",
            "secrets are not written",
        ),
        (("up", "--config", "{file}"), {}, 'node-id = 0\n[store]\npassword = "hunter2"\n', "secrets are not written"),
    ],
    ids=["argument", "environment", "file"],
)
async def test_secret_in_a_place_that_others_read_is_refused(
    arguments: tuple[str, ...], env: dict[str, str], text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "kactl.toml"
    file.write_text(text)

    done = await anyio.to_thread.run_sync(
        lambda: kactl(*(each.format(file=file) for each in arguments), env=env, cwd=tmp_path)
    )

    assert done.code == 2
    assert message in done.err
    assert "hunter2" not in done.err
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("mode", [0o707, 0o702, 0o777])
async def test_security_folder_that_others_can_use_is_refused(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "security"
    folder.mkdir(mode=0o700)
    folder.chmod(mode)

    with pytest.raises(Exception, match=r"others can use .*security.*: chmod 700"):
        async with served(settings={"security.folder": str(folder)}):
            pass

    assert list(folder.iterdir()) == []
