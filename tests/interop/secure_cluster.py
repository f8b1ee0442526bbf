"""A Kafka cluster that accepts nobody without credentials, and kactl with the brokers' credentials.

ZooKeeper has SASL users, and its nodes belong to the brokers' user (`zookeeper.set.acl=true`). Brokers and controller
talk over INTERNAL, which is SASL_SSL with SCRAM-SHA-512, and brokers authorize by ACLs. CLIENT stays in clear text, for
clients that only look.
"""

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec
from kazoo.client import KazooClient
from kazoo.security import make_acl

from tests.support.certificates import Authority, Signed
from tests.support.secure_zookeeper import PASSWORD, SUPERUSER, USER, SecureZooKeeper

from .brokers import Cluster
from .kactl_process import KactlController

BROKER_PASSWORD: Final = "broker-secret"
KACTL_PASSWORD: Final = "kactl-secret"
CLIENT_PASSWORD: Final = "client-secret"
# Users without rights; kactl's configuration makes `admin` a super user.
CLIENTS: Final = ("admin", "alice")
_MECHANISM: Final = "SCRAM-SHA-512"
_ITERATIONS: Final = 4096
_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_DIGEST: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"

# Permissions of nodes that brokers create.
_OWNED: Final = [make_acl("sasl", USER, all=True)]
_READABLE: Final = [*_OWNED, make_acl("world", "anyone", read=True)]


class SecureCluster:
    """ZooKeeper and brokers 1 to n. Everything is created in `folder`.

    Args:
        superusers: names that the brokers' authorizer gives every right, besides the brokers and kactl.
    """

    def __init__(self, folder: Path, *, brokers: int, ibp: str) -> None:
        self.folder = folder
        self.ibp = ibp
        self.zookeeper = SecureZooKeeper(folder / "zookeeper")
        self.authority = Authority(folder, "brokers")
        self.certificate = self.authority.sign("broker")
        names = [*self._brokers(brokers), "kactl"]
        overrides = broker_settings(folder, self.authority, self.certificate, superusers=names)
        self.cluster = Cluster(
            folder,
            zookeeper=self.zookeeper.connect("/kafka"),
            racks=[None] * brokers,
            ibp=ibp,
            overrides=overrides,
        )
        give_logins(self.cluster, folder)

    @staticmethod
    def _brokers(count: int) -> list[str]:
        return [f"broker-{broker}" for broker in range(1, count + 1)]

    def __enter__(self) -> Self:
        self.zookeeper.start()
        try:
            self._create_users()
            self.cluster.start()
        except BaseException:
            self.zookeeper.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.kill()
        self.zookeeper.kill()

    def acls(self, path: str) -> set[tuple[str, str, int]]:
        """Returns the permissions of a node, as (scheme, id, rights)."""
        with _Superuser(self.zookeeper) as client:
            acls, _ = client.get_acls(f"/kafka{path}")
        return {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls}

    def paths(self) -> list[str]:
        """Returns all nodes below the chroot, by their relative paths."""
        paths: list[str] = []
        with _Superuser(self.zookeeper) as client:
            left = [""]
            while left:
                folder = left.pop()
                paths.append(folder)
                left += [f"{folder}/{name}" for name in client.get_children(f"/kafka{folder}")]
        return paths

    def allow(self, principal: str, operation: str, *, on: str = "Cluster:kafka-cluster", prefix: bool = False) -> None:
        """Give a principal a right, as Kafka's `kafka-acls` stores it. Source: ZkData's AclZNode, ZkAclStore.

        Args:
            on: type and name of the resource, which has no list yet.
            prefix: whether the right is on all resources whose names begin so.
        """
        acl = {"principal": f"User:{principal}", "permissionType": "Allow", "host": "*", "operation": operation}
        data = msgspec.json.encode({"version": 1, "acls": [acl]})
        kind, _, name = on.partition(":")
        folder, changes, notice = "/kafka/kafka-acl", "/kafka/kafka-acl-changes", on.encode()
        if prefix:
            folder, changes = "/kafka/kafka-acl-extended/prefixed", "/kafka/kafka-acl-extended-changes"
            notice = msgspec.json.encode({"version": 1, "resourceType": kind, "name": name, "patternType": "PREFIXED"})
        with _Superuser(self.zookeeper) as client:
            client.create(f"{folder}/{kind}/{name}", data, acl=_READABLE)
            client.create(f"{changes}/acl_changes_", notice, acl=_READABLE, sequence=True)

    def set_password(self, user: str, password: str) -> None:
        """Change a user's password, as `kafka-configs` stores it."""
        set_password(self.zookeeper, "/kafka", user, password)

    def _create_users(self) -> None:
        passwords = dict.fromkeys(self._brokers(len(self.cluster.brokers)), BROKER_PASSWORD)
        passwords |= dict.fromkeys(("kactl", "guest"), KACTL_PASSWORD) | dict.fromkeys(CLIENTS, CLIENT_PASSWORD)
        create_users(self.zookeeper, "/kafka", passwords)


def broker_settings(
    folder: Path, authority: Authority, certificate: Signed, *, superusers: Sequence[str]
) -> dict[str, str]:
    """Returns the settings of brokers with logins, TLS and lists on INTERNAL, and permissions in ZooKeeper."""
    both = folder / "broker.both.pem"
    both.write_text(certificate.key.read_text() + certificate.cert.read_text())
    return {
        "listener.security.protocol.map": "INTERNAL:SASL_SSL,CLIENT:PLAINTEXT",
        "sasl.enabled.mechanisms": _MECHANISM,
        "sasl.mechanism.inter.broker.protocol": _MECHANISM,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.cert),
        "zookeeper.set.acl": "true",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": ";".join(f"User:{name}" for name in superusers),
        # Clients in clear text; INTERNAL has no such peers.
        "allow.everyone.if.no.acl.found": "false",
    }


def login_setting(username: str, password: str) -> str:
    """Returns the setting of a login by SCRAM, of a broker or of a tool."""
    return f'{_LOGIN} required username="{username}" password="{password}";'


def give_logins(cluster: Cluster, folder: Path) -> None:
    """Give each broker its login at the others, and the brokers' login in ZooKeeper."""
    jaas = folder / "broker-jaas.conf"
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    jaas.write_text(f'Client {{\n  {_DIGEST} required username="{USER}" password="{escaped}";\n}};\n')
    for broker in cluster.brokers:
        broker.overrides["listener.name.internal.scram-sha-512.sasl.jaas.config"] = login_setting(
            f"broker-{broker.id}", BROKER_PASSWORD
        )
        broker.java_options = [f"-Djava.security.auth.login.config={jaas}"]


def create_users(zookeeper: SecureZooKeeper, chroot: str, passwords: Mapping[str, str]) -> None:
    """Store the users of SCRAM, which brokers need before they can reach each other."""
    with _Superuser(zookeeper) as client:
        for path in (chroot, f"{chroot}/config"):
            client.create(path, b"", acl=_READABLE)
        client.create(f"{chroot}/config/users", b"", acl=_OWNED)
    for name, password in passwords.items():
        set_password(zookeeper, chroot, name, password)


def set_password(zookeeper: SecureZooKeeper, chroot: str, name: str, password: str) -> None:
    """Store a user's password as `kafka-configs` does, with the notice about the change."""
    verifier = user_record(password)
    path, changes = f"{chroot}/config/users/{name}", f"{chroot}/config/changes"
    notice = msgspec.json.encode({"version": 2, "entity_path": f"users/{name}"})
    with _Superuser(zookeeper) as client:
        if client.exists(path) is None:
            client.create(path, verifier, acl=_OWNED)
        else:
            client.set(path, verifier)
        if client.exists(changes) is not None:
            client.create(f"{changes}/config_change_", notice, acl=_READABLE, sequence=True)


def user_record(password: str) -> bytes:
    """Returns the record of a user with this password."""
    return msgspec.json.encode({"version": 1, "config": {_MECHANISM: _verifier(password)}})


class SecureKactl(KactlController):
    """`kactl controller` for a secure cluster. Brokers reach it over SASL_SSL, too.

    Args:
        principal, password: of kactl at the brokers.
        store: lines of `[store]` in place of those with the brokers' identity.
    """

    # Secrets must not appear in debug logs either.
    arguments = ("--log-level", "debug")

    def __init__(
        self,
        node_id: int,
        secure: SecureCluster,
        *,
        principal: str = "kactl",
        password: str = KACTL_PASSWORD,
        store: str | None = None,
    ) -> None:
        self._secure = secure
        self._principal = principal
        self._password = password
        self._store = store
        super().__init__(
            node_id,
            folder=secure.folder / f"kactl-{node_id}",
            zookeeper=secure.zookeeper.secure_connect("/kafka"),
            ibp=secure.ibp,
            takeover=True,
        )

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self._config

    def outputs(self) -> dict[str, bytes]:
        """Returns everything that this instance has written or shows, by name."""
        assert self.process is not None
        paths = [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".password"]
        files = {str(path): path.read_bytes() for path in paths}
        queries = ("controller", "controller/history", "controller/queue", "cluster", "brokers", "partitions", "events")
        documents = {query: msgspec.json.encode(self.get(f"/v1/{query}")) for query in queries}
        proc = Path("/proc") / str(self.process.pid)
        process = {name: (proc / name).read_bytes() for name in ("cmdline", "environ")}
        return files | documents | process

    def configure(self, *, takeover: bool, visible_on: Sequence[str] = (), sticky: bool = False) -> None:
        store = self._store
        if store is None:
            user = secret_file(self.folder / "zookeeper.password", PASSWORD)
            ca = self._secure.zookeeper.authority.cert
            store = f'tls = true\nca = "{ca}"\nuser = "{USER}"\npassword-file = "{user}"\n'
        secret = secret_file(self.folder / "kactl.password", self._password)
        self._config.write_text(
            f"""
node-id = {self.node_id}
cluster = "secure"
[store]
kind = "zookeeper"
connect = "{self._zookeeper}"
session-timeout = "6s"
{store}
[controller]
takeover = {"true" if takeover else "false"}
[kafka]
ibp = "{self.level}"
listener-name = "INTERNAL"
listeners = ["INTERNAL://127.0.0.1:{self.internal_port}"]
num-partitions = 3
default-replication-factor = 2
super-users = ["User:admin"]
sasl-mechanisms = ["SCRAM-SHA-512", "PLAIN"]
[kafka.protocols]
INTERNAL = "SASL_SSL"
[kafka.broker-principals]
pattern = "User:broker-{{id}}"
[kafka.tls]
cert = "{self._secure.certificate.cert}"
key = "{self._secure.certificate.key}"
[kafka.client]
ca = "{self._secure.authority.cert}"
sasl-mechanism = "{_MECHANISM}"
username = "{self._principal}"
password-file = "{secret}"
[api]
listen = "127.0.0.1:{self.port}"
[log]
folder = "{self.folder / "state-log"}"
"""
        )


class _Superuser:
    """kazoo's client with every right."""

    def __init__(self, zookeeper: SecureZooKeeper) -> None:
        self._client = KazooClient(zookeeper.connect())

    def __enter__(self) -> KazooClient:
        self._client.start()
        self._client.add_auth("digest", SUPERUSER)
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()


def secret_file(path: Path, secret: str) -> Path:
    path.write_text(f"{secret}\n", encoding="utf-8")
    path.chmod(0o600)
    return path


def _verifier(password: str) -> str:
    """Returns what brokers store of a password. Source: Kafka's ScramCredentialUtils."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    stored = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    fields = {"salt": salt, "stored_key": stored, "server_key": hmac.digest(salted, b"Server Key", "sha512")}
    texts = [f"{name}={base64.b64encode(value).decode()}" for name, value in fields.items()]
    return ",".join([*texts, f"iterations={_ITERATIONS}"])
