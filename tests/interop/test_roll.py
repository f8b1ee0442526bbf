"""Roll of a running cluster from clear text to logins over TLS or certificates, as docs/security.md describes it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.support.certificates import Authority
from tests.support.marks import kept_and_long
from tests.support.processes import free_port
from tests.support.zookeeper_server import ZooKeeperServer

from .brokers import Cluster, KafkaBroker
from .kactl_process import KactlController
from .secure_cluster import BROKER_PASSWORD, KACTL_PASSWORD, login_setting, secret_file, user_record
from .traffic import Traffic
from .unled import Unled

# A restart of a broker and the return of its replicas to all ISRs, on a busy machine.
WAIT_S = 90.0
CHROOT = "/roll"
PARTITIONS = 4
_FEW = {"default.replication.factor": "2", "offsets.topic.replication.factor": "2"}


class _Kactl(KactlController):
    """kactl, which keeps the controllership while it restarts.

    Attributes:
        secure_port: of the listener SECURE.
    """

    def __init__(self, folder: Path, zookeeper: str, ibp: str) -> None:
        self.secure_port = free_port()
        super().__init__(900, folder=folder, zookeeper=zookeeper, ibp=ibp, takeover=True)

    def configure(self, *, takeover: bool, visible_on: Sequence[str] = (), sticky: bool = False) -> None:
        """Set the configuration of a cluster in clear text."""
        self.set(f'listener-name = "INTERNAL"\nlisteners = ["INTERNAL://127.0.0.1:{self.internal_port}"]\n')

    def set(self, kafka: str) -> None:
        """Set the configuration of the next start.

        Args:
            kafka: lines of `[kafka]`.
        """
        self._config.write_text(
            f"""
node-id = {self.node_id}
cluster = "roll"
[store]
kind = "zookeeper"
connect = "{self._zookeeper}"
session-timeout = "6s"
sticky = true
[kafka]
ibp = "{self.level}"
default-replication-factor = 2
{kafka}
[api]
listen = "127.0.0.1:{self.port}"
"""
        )

    def restart(self) -> None:
        self.stop()
        self.start()


class _Rolled:
    """ZooKeeper, kactl and two brokers, in clear text at first.

    Args:
        protocol: of the listener SECURE: SASL_SSL with passwords, or SSL with certificates.
    """

    def __init__(self, folder: Path, ibp: str, protocol: str) -> None:
        self.folder = folder
        self.protocol = protocol
        self.zookeeper = ZooKeeperServer(folder / "zookeeper")
        self.cluster = Cluster(
            folder, zookeeper=self.zookeeper.connect(CHROOT), racks=[None, None], ibp=ibp, overrides=_FEW
        )
        self.kactl = _Kactl(folder / "kactl", self.zookeeper.connect(CHROOT), ibp)
        self._secure_ports = {broker.id: free_port() for broker in self.cluster.brokers}
        self._authority = Authority(folder, "brokers")
        self._certificate = self._authority.sign("kactl")

    def principal(self, name: object) -> str:
        """Returns the principal of kactl or of a broker on the listener SECURE."""
        return f"User:CN={name}" if self.protocol == "SSL" else f"User:{name}"

    def kactl_on(self, *names: str, **settings: str) -> None:
        """Configure kactl with a secure listener, which it also uses to reach the brokers."""
        ports = {"INTERNAL": self.kactl.internal_port, "SECURE": self.kactl.secure_port}
        lines = "".join(f"{key.replace('_', '-')} = {value}\n" for key, value in settings.items())
        if self.protocol == "SASL_SSL":
            required = ""
            password = secret_file(self.kactl.folder / "kactl.password", KACTL_PASSWORD)
            own = f'sasl-mechanism = "SCRAM-SHA-512"\nusername = "kactl"\npassword-file = "{password}"\n'
        else:
            required = f'client-auth = "required"\nclient-ca = "{self._authority.cert}"\n'
            own = f'cert = "{self._certificate.cert}"\nkey = "{self._certificate.key}"\n'
        self.kactl.set(
            f"""listener-name = "SECURE"
listeners = {json.dumps([f"{name}://127.0.0.1:{ports[name]}" for name in names])}
visible-on = {json.dumps(names)}
{lines}[kafka.protocols]
SECURE = "{self.protocol}"
[kafka.tls]
cert = "{self._certificate.cert}"
key = "{self._certificate.key}"
{required}[kafka.client]
ca = "{self._authority.cert}"
{own}"""
        )

    def brokers_on(self, *names: str, between_brokers: str, **settings: str) -> None:
        """Restart each broker with these listeners, once all replicas are in sync."""
        for broker in self.cluster.brokers:
            broker.overrides |= self._listeners(broker, names)
            broker.overrides["inter.broker.listener.name"] = between_brokers
            broker.overrides |= {key.replace("_", "."): value for key, value in settings.items()}
            broker.restart()
            self.rest(f"broker {broker.id} on {', '.join(names)} is in sync")

    def _listeners(self, broker: KafkaBroker, names: Sequence[str]) -> Mapping[str, str]:
        ports = {
            "INTERNAL": broker.internal_port,
            "SECURE": self._secure_ports[broker.id],
            "CLIENT": broker.client_port,
        }
        listeners = ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in (*names, "CLIENT"))
        name = f"broker-{broker.id}"
        both = self.folder / f"{name}.both.pem"
        if not both.exists():
            signed = self._authority.sign(name)
            both.write_text(signed.key.read_text() + signed.cert.read_text())
        login = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.secure.scram-sha-512.sasl.jaas.config": login_setting(name, BROKER_PASSWORD),
        }
        if self.protocol == "SSL":
            login = {"listener.name.secure.ssl.client.auth": "required"}
        return login | {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"INTERNAL:PLAINTEXT,SECURE:{self.protocol},CLIENT:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.cert),
        }

    def trust_another_authority(self) -> None:
        """Add an authority to those of the brokers' certificates, as before one is replaced."""
        loaded = self.kactl.log.count("has been loaded again")
        added = Authority(self.folder, "added").cert.read_text(encoding="ascii")
        with self._authority.cert.open("a", encoding="ascii") as file:
            file.write(added)
        self.kactl.until(
            lambda: self.kactl.log.count("has been loaded again") > loaded, "the authorities are loaded again", WAIT_S
        )

    def create_users(self) -> None:
        """Store the users that `kafka-configs` would."""
        client = KazooClient(self.zookeeper.connect())
        client.start()
        passwords = {f"broker-{broker.id}": BROKER_PASSWORD for broker in self.cluster.brokers}
        for name, password in (passwords | {"kactl": KACTL_PASSWORD}).items():
            client.create(f"{CHROOT}/config/users/{name}", user_record(password), makepath=True)
        client.stop()
        client.close()

    def rest(self, expected: str) -> None:
        self.kactl.until(self._is_at_rest, expected, WAIT_S)

    def _is_at_rest(self) -> bool:
        partitions = self.kactl.partitions().values()
        brokers = self.kactl.get("/v1/brokers")["items"]
        return (
            all(len(partition["isr"]) == 2 for partition in partitions)
            and len(brokers) == 2
            and not any(broker["last_error"] or broker["queue_size"] for broker in brokers)
        )

    def endpoints(self) -> dict[int, set[str]]:
        """Returns the names of the listeners under which the brokers are registered."""
        client = KazooClient(self.zookeeper.connect(CHROOT))
        client.start()
        nodes = {int(name): client.get(f"/brokers/ids/{name}")[0] for name in client.get_children("/brokers/ids")}
        nodes = {broker: data for broker, data in nodes.items() if b'"kactl"' not in data}
        client.stop()
        client.close()
        return {
            broker: {endpoint.partition(":")[0] for endpoint in json.loads(data)["endpoints"]}
            for broker, data in nodes.items()
        }


@pytest.fixture(params=kept_and_long([("2.6", "SASL_SSL"), ("3.9", "SASL_SSL"), ("3.9", "SSL")], ()), ids="-".join)
def rolled(jars: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Rolled]:
    rolled = _Rolled(tmp_path, *request.param)
    try:
        rolled.zookeeper.start()
        rolled.kactl.start()
        rolled.cluster.start()
        yield rolled
    finally:
        rolled.cluster.kill()
        rolled.kactl.kill()
        rolled.zookeeper.kill()


def test_roll_to_logins_over_tls_takes_no_partition_offline(rolled: _Rolled) -> None:
    """Logins by passwords, and by certificates between brokers and kactl."""
    kactl = rolled.kactl
    brokers = [rolled.principal("broker-1"), rolled.principal("broker-2")]
    kactl.until(lambda: len(kactl.get("/v1/brokers")["items"]) == 2, "both brokers", WAIT_S)
    for topic in ("rolled", "written"):
        kactl.post("/v1/topics", name=topic, partitions=PARTITIONS, replication_factor=2)
    rolled.rest("full ISRs at first")
    rolled.create_users()
    kactl.until(lambda: "written" in str(kactl.partitions()), "the topics", WAIT_S)

    unled = Unled(rolled.zookeeper.connect(), CHROOT, "rolled", "written")
    with unled, Traffic(rolled.cluster.bootstrap, "written") as traffic:
        traffic.wait_acknowledged(100, WAIT_S)
        rolled.brokers_on("INTERNAL", "SECURE", between_brokers="INTERNAL")
        # Until all brokers use SECURE, those in clear text are User:ANONYMOUS, and no principal is a certain broker's.
        rolled.kactl_on("INTERNAL", "SECURE", super_users=json.dumps(["User:ANONYMOUS", *brokers]))
        kactl.restart()
        rolled.rest("the brokers accept kactl's login")
        rolled.brokers_on("INTERNAL", "SECURE", between_brokers="SECURE")
        rolled.kactl_on("SECURE", broker_principals=f'{{ pattern = "{rolled.principal("broker-{id}")}" }}')
        kactl.restart()
        rolled.rest("the brokers reach kactl by the secure listener")
        rolled.brokers_on(
            "SECURE",
            between_brokers="SECURE",
            authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
            super_users=";".join([*brokers, rolled.principal("kactl"), "User:ANONYMOUS"]),
        )
        traffic.wait_acknowledged(100, WAIT_S)
        if rolled.protocol == "SSL":
            rolled.trust_another_authority()
            # Broker 1 leads, and adds the returning replicas to the ISR over a connection that it has used before.
            rolled.cluster[2].restart()
            rolled.rest("replicas return over connections that are verified anew")
            assert "the files that verified it have changed" in kactl.log
        traffic.finish(WAIT_S)

    assert unled.looks > 20
    assert unled.seen == set()
    assert traffic.acknowledged <= traffic.read
    assert rolled.endpoints() == {1: {"SECURE", "CLIENT"}, 2: {"SECURE", "CLIENT"}}
    assert "CLUSTER_AUTHORIZATION_FAILED" not in kactl.log
    rolled.cluster[1].stop()
    assert "Controlled shutdown request returned successfully" in rolled.cluster[1].log
