"""The file of users of kactl's own: its form, its precedence over the cluster's users, and changes of it."""

import base64
import os
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioError

from kactl.cli.kafka_user import ITERATIONS
from kactl.model.errors import BadConfig, StoreUnavailable
from kactl.security.access import AclAuthorizer
from kactl.security.sasl import ScramClient, ScramVerifier, verifier
from kactl.security.sasl.scram import Name
from kactl.transports.kafka.listener import ListenerSecurity
from kactl.transports.kafka.listener import authentication as authentication_module
from kactl.transports.kafka.listener.authentication import MECHANISMS, Authentication
from kactl.transports.kafka.listener.counters import PeerRejected
from kactl.transports.kafka.listener.user_file import User, UserFile, decode, encode, is_name, read_users, write_users

from .client import connected, request_class
from .listener_stub import ControllerStub, listening
from .test_logins import CREATED, PASSWORDS, UserTable, create_topics, log_in

pytestmark = pytest.mark.anyio

SHA_256: Name = "SCRAM-SHA-256"
SHA_512: Name = "SCRAM-SHA-512"


def user(name: str, password: str, *mechanisms: Name) -> User:
    names: tuple[Name, ...] = mechanisms or (SHA_256,)
    return User(name, {each: verifier(each, password, salt=name.encode(), iterations=4096) for each in names})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_users(tmp_path / "users.json", [user("ops", "file-secret"), user("alice", "of the file", SHA_512)])
    return tmp_path / "users.json"


def test_written_users_are_read(path: Path) -> None:
    users = {
        "ops": user("ops", "a", SHA_512, SHA_256),
        "Zoë, = \\ \"'": user("Zoë, = \\ \"'", "b"),
    }
    write_users(path, users.values())

    assert read_users(path) == users
    assert path.stat().st_mode & 0o777 == 0o600
    assert encode(reversed(users.values())) == path.read_bytes()


def test_file_has_no_password(path: Path) -> None:
    assert b"secret" not in path.read_bytes()


LINE = encode([user("ops", "x")])


@pytest.mark.parametrize(
    "content",
    [
        b"{}\n",
        b"\xff\n",
        b"\n",
        LINE + LINE,
        LINE.replace(b'"iterations":4096', b'"iterations":4095'),
        LINE.replace(b'"iterations":4096', b'"iterations":65537'),
        LINE.replace(b'"SCRAM-SHA-256"', b'"SCRAM-SHA-512"'),  # keys of another length
        LINE.replace(b'"SCRAM-SHA-256"', b'"PLAIN"'),
        LINE.replace(b'"ops"', b'""'),
        LINE.replace(b'"ops"', b'"a\\u0007b"'),
        LINE.replace(b'"name"', b'"password":"x","name"'),
    ],
)
def test_other_content_is_rejected_without_quoting_it(content: bytes, path: Path) -> None:
    path.write_bytes(content)

    with pytest.raises(BadConfig, match="not a file of users: line") as raised:
        read_users(path)

    assert "b3Bz" not in str(raised.value)


def test_file_that_others_can_read_is_rejected(path: Path) -> None:
    path.chmod(0o644)
    with pytest.raises(BadConfig, match="chmod 600"):
        read_users(path)


def test_missing_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="kactl kafka-user add"):
        UserFile(tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [("ops", True), ("a b", True), ("", False), (" a", False), ("a\nb", False), ("x" * 256, False)],
)
def test_names_of_users(name: str, is_valid: bool) -> None:
    assert is_name(name) is is_valid


async def test_users_of_the_file_precede_those_of_the_cluster(path: Path) -> None:
    users = UserFile(path, UserTable())

    assert await users.scram_verifier(SHA_256, "ops") == user("ops", "file-secret").verifiers[SHA_256]
    assert await users.scram_verifier(SHA_256, "broker-1") is not None
    assert await users.scram_verifier(SHA_256, "nobody") is None
    # alice has no such verifier in the file, and that of the cluster has another password.
    assert await users.scram_verifier(SHA_256, "alice") is None
    assert await UserFile(path).scram_verifier(SHA_256, "broker-1") is None


class Counted(UserTable):
    """Users of a cluster, which counts look-ups."""

    def __init__(self) -> None:
        super().__init__()
        self.lookups = 0

    async def scram_verifier(self, mechanism: Name, username: str) -> ScramVerifier | None:
        self.lookups += 1
        return await super().scram_verifier(mechanism, username)


async def test_time_of_a_lookup_does_not_tell_who_is_in_the_file(path: Path) -> None:
    cluster = Counted()
    users = UserFile(path, cluster)
    for name in ("ops", "nobody"):
        await users.scram_verifier(SHA_256, name)
    assert cluster.lookups == 2


async def test_users_of_the_file_log_in_while_the_store_is_lost(path: Path) -> None:
    cluster = UserTable()
    cluster.fails = True
    users = UserFile(path, cluster)

    assert await users.scram_verifier(SHA_256, "ops") is not None
    with pytest.raises(StoreUnavailable):
        await users.scram_verifier(SHA_256, "alice2")


async def test_changed_file_counts_and_an_unusable_one_does_not(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    users = UserFile(path)
    write_users(path, [user("new", "x")])
    await users.refresh()
    assert await users.scram_verifier(SHA_256, "ops") is None
    assert await users.scram_verifier(SHA_256, "new") is not None

    path.write_bytes(b"{")
    for _ in range(2):
        await users.refresh()
    assert await users.scram_verifier(SHA_256, "new") is not None
    path.unlink()
    await users.refresh()
    assert await users.scram_verifier(SHA_256, "new") is not None

    assert [record.levelname for record in caplog.records if "previous ones stay" in record.message] == ["ERROR"] * 2
    write_users(path, [])
    await users.refresh()
    assert await users.scram_verifier(SHA_256, "new") is None


async def challenge(authentication: Authentication, mechanism: Name, username: str) -> tuple[bytes, int]:
    """Returns the salt and the number of iterations that a client receives for a name."""
    login = authentication.login("127.0.0.1")
    login.on_handshake({"mechanism": mechanism})
    response, _ = await login.on_authenticate({"auth_bytes": ScramClient(mechanism, username, "x").first()})
    fields = dict(part.partition("=")[::2] for part in response["auth_bytes"].decode().split(","))
    return base64.b64decode(fields["s"]), int(fields["i"])


async def test_challenge_does_not_tell_whether_a_user_of_the_file_exists(path: Path) -> None:
    """Users as `kactl kafka-user add` makes them."""
    made = verifier(SHA_512, "x", salt=os.urandom(16), iterations=ITERATIONS)
    write_users(path, [User("ops", {SHA_512: made})])
    authentication = Authentication("SASL_PLAINTEXT", mechanisms=MECHANISMS, users=UserFile(path))

    known, unknown = [await challenge(authentication, SHA_512, name) for name in ("ops", "nobody")]

    assert known[1] == unknown[1]
    assert len(known[0]) == len(unknown[0])
    assert known[0] != unknown[0]
    assert await challenge(authentication, SHA_512, "nobody") == unknown
    assert {(await challenge(authentication, SHA_256, name))[1] for name in ("ops", "nobody")} == {4096}


async def test_unknown_users_have_the_iterations_of_the_file_or_the_cluster(path: Path) -> None:
    made = verifier(SHA_512, "x", salt=os.urandom(16), iterations=ITERATIONS)
    write_users(path, [User("ops", {SHA_512: made})])
    authentication = Authentication("SASL_PLAINTEXT", mechanisms=MECHANISMS, users=UserFile(path, UserTable()))

    challenges = [await challenge(authentication, SHA_512, f"nobody{number}") for number in range(100)]

    assert {iterations for _, iterations in challenges} == {ITERATIONS, 4096}
    assert {len(salt) for salt, _ in challenges} == {16}


async def test_password_of_an_unknown_user_costs_as_much_as_that_of_a_known_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = verifier(SHA_512, "x", salt=os.urandom(16), iterations=ITERATIONS)
    write_users(path, [User("ops", {SHA_512: made})])
    authentication = Authentication("SASL_SSL", mechanisms=MECHANISMS, users=UserFile(path))
    spent: list[tuple[Name, int]] = []

    def counted(name: Name, password: str, *, salt: bytes, iterations: int) -> ScramVerifier:
        spent.append((name, iterations))
        return verifier(name, password, salt=salt, iterations=iterations)

    monkeypatch.setattr(authentication_module, "verifier", counted)
    costs = []
    for name in ("ops", "nobody"):
        assert not await authentication.is_password(name, "wrong", "127.0.0.1")
        costs.append(spent.copy())
        spent.clear()

    assert costs[0] == costs[1]
    assert (SHA_512, ITERATIONS) in costs[0]


async def test_clients_log_in_by_the_file(path: Path) -> None:
    authentication = Authentication("SASL_PLAINTEXT", mechanisms=MECHANISMS, users=UserFile(path, UserTable()))
    security = ListenerSecurity(authentication, None, AclAuthorizer(super_users=["User:ops"]))
    tries = [("ops", "file-secret"), ("ops", "wrong"), ("admin", PASSWORDS["admin"]), ("alice", PASSWORDS["alice"])]
    async with listening(ControllerStub(CREATED), security=security) as (_, port):
        results = []
        for name, password in tries:
            async with connected(port) as client:
                results.append((await log_in(client, name, password)).error_code)
        created = await create_topics(
            port,
            "new",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username="ops",
            sasl_password="file-secret",
        )

    failed = KioError.sasl_authentication_failed
    assert results == [KioError.none, failed, KioError.none, failed]
    assert created == {"new": 0}


@pytest.mark.parametrize(
    ("left", "ends"),
    [
        ([], True),
        ([user("ops", "another password")], True),
        ([user("ops", "file-secret"), user("new", "x")], False),
    ],
    ids=["removed", "with another password", "unchanged"],
)
async def test_connection_ends_with_its_user(
    left: list[User], ends: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication_module, "CONFIRM_S", 0.0)
    users = UserFile(path)
    authentication = Authentication("SASL_PLAINTEXT", mechanisms=("SCRAM-SHA-256",), users=users)
    security = ListenerSecurity(authentication, None, AclAuthorizer(super_users=["User:ops"]))
    async with listening(ControllerStub(CREATED), security=security) as (_, port), connected(port) as client:
        await log_in(client, "ops", "file-secret")
        await client.ask(request_class(3, 1)(topics=()))

        write_users(path, left)
        await users.refresh()

        if ends:
            with pytest.raises((EOFError, ConnectionError)):
                await client.ask(request_class(3, 1)(topics=()))
        else:
            await client.ask(request_class(3, 1)(topics=()))


async def test_login_by_plain_ends_with_its_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication_module, "CONFIRM_S", 0.0)
    users = UserFile(path)
    login = Authentication("SASL_SSL", mechanisms=("PLAIN",), users=users).login("127.0.0.1", None)
    login.on_handshake({"mechanism": "PLAIN"})
    await login.on_authenticate({"auth_bytes": b"\0ops\0file-secret"})
    await login.confirm()

    write_users(path, [])
    await users.refresh()

    with pytest.raises(PeerRejected, match="its user was removed"):
        await login.confirm()


async def test_connection_outlasts_users_that_cannot_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication_module, "CONFIRM_S", 0.0)
    users = UserTable()
    authentication = Authentication("SASL_PLAINTEXT", mechanisms=MECHANISMS, users=users)
    security = ListenerSecurity(authentication, None, AclAuthorizer(super_users=["User:admin"]))
    async with listening(ControllerStub(CREATED), security=security) as (_, port), connected(port) as client:
        await log_in(client, "admin", PASSWORDS["admin"])

        async def unavailable(mechanism: Name, username: str) -> ScramVerifier | None:
            raise StoreUnavailable("the users")

        monkeypatch.setattr(users, "scram_verifier", unavailable)

        await client.ask(request_class(3, 1)(topics=()))


async def test_password_of_plain_is_checked_by_any_verifier_of_the_file(path: Path) -> None:
    authentication = Authentication("SASL_SSL", mechanisms=MECHANISMS, users=UserFile(path, UserTable()))
    tries = [("ops", "file-secret"), ("alice", "of the file"), ("alice", PASSWORDS["alice"])]

    assert [await authentication.is_password(*each, "127.0.0.1") for each in tries] == [True, True, False]


def test_content_of_many_users_is_limited() -> None:
    known = ScramVerifier(os.urandom(16), 4096, os.urandom(32), os.urandom(32))
    lines = encode(User(f"user-{number}", {SHA_256: known}) for number in range(10_001))
    with pytest.raises(ValueError, match="more than 10000"):
        decode(lines)
