"""The acceptance cluster with logins, TLS and permissions.

ZooKeeper has TLS, and its nodes belong to the brokers' identity. Brokers, kactl and the tools use INTERNAL: SASL_SSL
with SCRAM, and an authorizer. CLIENT stays in clear text; its clients are anonymous superusers, so that the checklist's
clients in clear text work, too.
"""

from collections.abc import Sequence
from typing import Final

from tests.support.certificates import Authority
from tests.support.secure_zookeeper import PASSWORD, USER, SecureZooKeeper
from tests.support.zookeeper_server import ZooKeeperServer

from ..brokers import Cluster
from ..kactl_process import KactlController
from ..secure_cluster import (
    BROKER_PASSWORD,
    CLIENT_PASSWORD,
    KACTL_PASSWORD,
    broker_settings,
    create_users,
    give_logins,
    login_setting,
    secret_file,
)
from ..tools import Tools
from .bench import BROKERS, CHROOT, KACTL, OTHER, OVERRIDES, RACKS, SESSION_S, TICK_MS, Bench

_SUPERUSERS: Final = [*(f"broker-{broker}" for broker in BROKERS), "kactl", "admin", "ANONYMOUS"]


class SecureBench(Bench):
    is_secure = True
    zookeeper: SecureZooKeeper

    def _zookeeper(self) -> ZooKeeperServer:
        self.authority = Authority(self.folder, "brokers")
        self.certificate = self.authority.sign("broker")
        return SecureZooKeeper(self.folder / "zookeeper", tick_ms=TICK_MS)

    @property
    def _linked_port(self) -> int:
        return self.zookeeper.secure_port

    @property
    def wired(self) -> str:
        return f"localhost:{self.link.port}{CHROOT}"

    def _prepare(self) -> None:
        passwords = dict.fromkeys((f"broker-{broker}" for broker in BROKERS), BROKER_PASSWORD)
        create_users(self.zookeeper, CHROOT, passwords | {"kactl": KACTL_PASSWORD, "admin": CLIENT_PASSWORD})

    def _brokers(self) -> Cluster:
        settings = broker_settings(self.folder, self.authority, self.certificate, superusers=_SUPERUSERS)
        encrypted = {
            "zookeeper.connect": self.wired,
            "zookeeper.connection.timeout.ms": "60000",  # TLS takes a busy machine seconds; by default the session's
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": str(self.zookeeper.authority.cert),
            "zookeeper.ssl.truststore.type": "PEM",
        }
        cluster = Cluster(
            self.folder,
            zookeeper=self.zookeeper.connect(CHROOT),  # by which the harness waits for registrations
            racks=RACKS,
            ibp=self.level,
            session_timeout_ms=int(SESSION_S * 1000),
            overrides=OVERRIDES | settings | encrypted,
        )
        give_logins(cluster, self.folder)
        return cluster

    def _instance(self, node_id: int) -> KactlController:
        return _SecureKactl(self, node_id)

    def _tools(self, bootstrap: str) -> Tools:
        config = self.folder / "tools.properties"
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": login_setting("admin", CLIENT_PASSWORD),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.cert),
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return Tools(self.folder, bootstrap=bootstrap, client_config=config)


class _SecureKactl(KactlController):
    def __init__(self, bench: SecureBench, node_id: int) -> None:
        self._bench = bench
        super().__init__(
            node_id,
            folder=bench.folder / f"kactl-{node_id}",
            zookeeper=bench.wired,
            ibp=bench.level,
            takeover=node_id == KACTL,
            others=[id_ for id_ in (KACTL, OTHER) if id_ != node_id],
            balance_s=5,
        )

    def configure(self, *, takeover: bool, visible_on: Sequence[str] = ("INTERNAL",), sticky: bool = False) -> None:
        super().configure(takeover=takeover, visible_on=visible_on, sticky=sticky)
        bench = self._bench
        for_zookeeper = secret_file(self.folder / "zookeeper.password", PASSWORD)
        for_brokers = secret_file(self.folder / "kactl.password", KACTL_PASSWORD)
        plain = self._config.read_text()
        store = (
            f'tls = true\nca = "{bench.zookeeper.authority.cert}"\nuser = "{USER}"\npassword-file = "{for_zookeeper}"'
        )
        self._config.write_text(
            plain.replace("[controller]", f"{store}\nset-acl = true\n[controller]").replace(
                "[api]",
                f"""super-users = ["User:admin", "User:ANONYMOUS"]
[kafka.protocols]
INTERNAL = "SASL_SSL"
[kafka.broker-principals]
pattern = "User:broker-{{id}}"
[kafka.tls]
cert = "{bench.certificate.cert}"
key = "{bench.certificate.key}"
[kafka.client]
ca = "{bench.authority.cert}"
sasl-mechanism = "SCRAM-SHA-512"
username = "kactl"
password-file = "{for_brokers}"
[api]""",
            )
        )
