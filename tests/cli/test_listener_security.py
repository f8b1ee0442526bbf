"""The authorizer's lists follow the store, and are empty while it cannot be read."""

from typing import Any

import pytest

from kactl.cli.listener_security import AclFollower, OpenRelayGuard, listener_security
from kactl.config.kafka_settings import KafkaConfig, KafkaTlsConfig
from kactl.model.errors import BadConfig, StoreUnavailable
from kactl.security.access import CLUSTER, Acl, AclAuthorizer, Acls, Operation, Principal, kafka_user, topic

pytestmark = pytest.mark.anyio

ALICE = Principal("User:alice", "sasl", peer="10.0.0.1")


class Records:
    """Lists with a version."""

    def __init__(self) -> None:
        self.version = (0,)
        self.lists = Acls()
        self.fails = False
        self.reads = 0

    async def acl_version(self) -> tuple[int, ...]:
        if self.fails:
            raise StoreUnavailable("gone")
        return self.version

    async def has_authorizer(self) -> bool:
        if self.fails:
            raise StoreUnavailable("gone")
        return bool(self.lists)

    async def acls(self) -> Acls:
        self.reads += 1
        return self.lists

    def put(self, *acls: Acl) -> None:
        self.version = (self.version[0] + 1,)
        self.lists = Acls({CLUSTER: acls})


def _follower(records: Records) -> tuple[AclAuthorizer, AclFollower]:
    authorizer = AclAuthorizer()
    return authorizer, AclFollower(authorizer, records)  # type: ignore[arg-type]


async def test_change_counts_at_the_next_look() -> None:
    records = Records()
    authorizer, follower = _follower(records)
    await follower.look()
    assert not authorizer.allows(ALICE, Operation.CREATE, CLUSTER)

    records.put(Acl("User:alice", "*", Operation.CREATE))
    await follower.look()
    assert authorizer.allows(ALICE, Operation.CREATE, CLUSTER)

    await follower.look()
    assert records.reads == 2


async def test_nothing_is_allowed_while_the_lists_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    records = Records()
    records.put(Acl("User:alice", "*", Operation.CREATE))
    authorizer, follower = _follower(records)
    await follower.look()
    records.fails = True
    await follower.look()
    await follower.look()
    assert not authorizer.allows(ALICE, Operation.CREATE, CLUSTER)
    assert caplog.text.count("cannot be read") == 1

    records.fails = False
    await follower.look()
    assert authorizer.allows(ALICE, Operation.CREATE, CLUSTER)


async def test_open_relay_ends_with_the_first_list(caplog: pytest.LogCaptureFixture) -> None:
    records = Records()
    guard = OpenRelayGuard(records)  # type: ignore[arg-type]
    await guard.look()
    records.fails = True
    await guard.look()
    assert guard.is_open

    records.fails = False
    records.put(Acl("User:alice", "*", Operation.CREATE))
    await guard.look()
    records.lists = Acls()
    await guard.look()
    assert not guard.is_open
    assert caplog.text.count("requests are no longer relayed to brokers") == 1


@pytest.mark.parametrize("authorizes", [True, False])
async def test_relay_is_closed_until_an_authorizer_was_looked_for(authorizes: bool) -> None:
    """A store that does not respond when the listener begins tells nothing."""
    records = Records()
    if authorizes:
        records.put(Acl("User:alice", "*", Operation.CREATE))
    records.fails = True
    guard = OpenRelayGuard(records)  # type: ignore[arg-type]
    assert not guard.is_open
    await guard.look()
    assert not guard.is_open

    records.fails = False
    await guard.look()
    assert guard.is_open is not authorizes


async def test_cluster_without_lists_relays() -> None:
    guard = OpenRelayGuard(None)
    await guard.run()
    assert guard.is_open


def _kafka(**settings: Any) -> KafkaConfig:
    return KafkaConfig(listeners=("INTERNAL://127.0.0.1:9090", "CLIENT://127.0.0.1:9091"), **settings)


def test_listeners_without_logins_are_open() -> None:
    security, authorizer = listener_security(_kafka(), None)
    assert authorizer is None
    assert [security[name].authorizer for name in ("INTERNAL", "CLIENT")] == [None, None]


def test_one_listener_with_logins_makes_all_decide() -> None:
    """A second listener in clear text would otherwise be a way around the first one."""
    security, authorizer = listener_security(_kafka(protocols={"INTERNAL": "SASL_PLAINTEXT"}), None)
    assert authorizer is not None
    assert security["CLIENT"].authorizer is authorizer
    assert security["INTERNAL"].authentication.demands_login
    assert not security["CLIENT"].authentication.demands_login


@pytest.mark.parametrize("value", ["auto", "acls", "super-users"])
def test_authorizer_of_the_configuration_decides(value: Any) -> None:
    """S-45. Before the lists are read nobody but super users passes; with "super-users" that stays so."""
    kafka = _kafka(protocols={"INTERNAL": "SASL_PLAINTEXT"}, authorizer=value, super_users=("User:admin",))
    admin, other = (kafka_user(name, peer="127.0.0.1") for name in ("admin", "other"))

    security, authorizer = listener_security(kafka, None)

    assert authorizer is not None
    assert security["INTERNAL"].authorizer is security["CLIENT"].authorizer is authorizer
    assert authorizer.allows(admin, Operation.DELETE, topic("orders"))
    assert not authorizer.allows(other, Operation.DELETE, topic("orders"))
    assert (authorizer.acls is None) == (value != "super-users")


def test_listeners_without_an_authorizer_allow_everything() -> None:
    """S-45."""
    kafka = _kafka(protocols={"INTERNAL": "SASL_PLAINTEXT"}, authorizer="none")

    security, authorizer = listener_security(kafka, None)

    assert authorizer is None
    assert security["INTERNAL"].authentication.demands_login
    assert security["INTERNAL"].authorizer is None
    assert not kafka.authorizes


def test_certificate_that_is_none_is_named() -> None:
    with pytest.raises(BadConfig, match=r"kafka\.tls\.cert: /none cannot be read"):
        listener_security(_kafka(tls=KafkaTlsConfig(cert="/none", key="/none")), None)


async def test_unknown_user_is_challenged_alike_on_all_listeners() -> None:
    """A known user is: a difference would tell that a user is unknown."""
    kafka = KafkaConfig(
        listeners=("A://127.0.0.1:0", "B://127.0.0.1:0"),
        visible_on=(),
        protocols={"A": "SASL_PLAINTEXT", "B": "SASL_PLAINTEXT"},
    )
    security, _ = listener_security(kafka, None)

    challenges = []
    for name in ("A", "B"):
        login = security[name].authentication.login("127.0.0.1")
        login.on_handshake({"mechanism": "SCRAM-SHA-512"})
        response, _ = await login.on_authenticate({"auth_bytes": b"n,,n=nobody,r=abc"})
        challenges.append(response["auth_bytes"].partition(b",s=")[2])
    assert challenges[0] == challenges[1]
