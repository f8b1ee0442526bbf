"""kactl as the controller of a cluster with SASL, TLS, ACLs and permissions in ZooKeeper."""

import asyncio
import functools
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic  # type: ignore[attr-defined]
from kio.static.primitive import i8

from kactl.security.sasl import ScramClient
from tests.support.canary import leaks
from tests.support.marks import kept_and_long
from tests.support.processes import HarnessError
from tests.support.secure_zookeeper import PASSWORD
from tests.transports.kafka.listener.client import Client, connected, part, request_class

from .brokers import KafkaBroker
from .secure_cluster import (
    BROKER_PASSWORD,
    CLIENT_PASSWORD,
    KACTL_PASSWORD,
    SecureCluster,
    SecureKactl,
    login_setting,
    secret_file,
)
from .unled import Unled

# A broker's session of 6 s, and elections on a busy machine.
WAIT_S = 60.0
# For logins that are rejected. librdkafka repeats each of them until its time is over.
REJECTED_S = 5.0

OWNER = ("sasl", "kafka", 31)
WORLD_READS = ("world", "anyone", 1)


# Level 3.9 needs more of kactl's listener: brokers log in to it for ISR updates, too.
@pytest.fixture(scope="module", params=kept_and_long(["2.6", "3.9"], {"3.9"}))
def secure(
    jars: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureCluster]:
    with SecureCluster(tmp_path_factory.mktemp("secure"), brokers=2, ibp=request.param) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kactl(secure: SecureCluster) -> Iterator[SecureKactl]:
    controller = SecureKactl(900, secure)
    controller.start()
    yield controller
    controller.kill()


def _admin(
    secure: SecureCluster,
    kactl: SecureKactl,
    user: str,
    password: str = CLIENT_PASSWORD,
    mechanism: str = "SCRAM-SHA-512",
) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{kactl.internal_port}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(secure.authority.cert),
            "log_level": 0,
        }
    )


def _created(
    secure: SecureCluster,
    kactl: SecureKactl,
    user: str,
    topic: str,
    *,
    password: str = CLIENT_PASSWORD,
    mechanism: str = "SCRAM-SHA-512",
    timeout_s: float = 15,
) -> int:
    """Create a topic through kactl's listener. Returns the error code, 0 for success.

    Args:
        timeout_s: how long librdkafka tries. A login that is rejected takes all of it.
    """
    admin = _admin(secure, kactl, user, password, mechanism)
    (future,) = admin.create_topics([NewTopic(topic, 1, 1)], request_timeout=timeout_s).values()
    try:
        future.result(timeout=30)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def _errors(kactl: SecureKactl) -> list[str]:
    return [broker["last_error"] for broker in kactl.get("/v1/brokers")["items"]]


def _logs(broker: KafkaBroker, text: str) -> bool:
    return text in broker.log


def _leaders(kactl: SecureKactl) -> dict[str, int | None]:
    return {name: partition["leader"] for name, partition in kactl.partitions().items()}


def _listed(metadata: ClusterMetadata) -> dict[str, tuple[int, set[int]]]:
    """Returns the leader and the ISR of each partition, by its name."""
    return {
        f"{name}-{number}": (partition.leader, set(partition.isrs))
        for name, topic in metadata.topics.items()
        for number, partition in topic.partitions.items()
    }


def test_brokers_obey_the_principal(secure: SecureCluster, kactl: SecureKactl) -> None:
    kactl.post("/v1/topics", name="orders", partitions=2, replication_factor=2)

    kactl.until(lambda: set(_leaders(kactl).values()) == {1, 2}, "both brokers lead", WAIT_S)
    for broker in secure.cluster.brokers:
        # The broker's own log: it has carried out the request, and so has authenticated and authorized its sender.
        has_replica = functools.partial(_logs, broker, "orders-0")
        kactl.until(has_replica, "the broker has its replica", WAIT_S)
        assert "CLUSTER_AUTHORIZATION_FAILED" not in kactl.log


def test_failure_and_return_of_a_broker(secure: SecureCluster, kactl: SecureKactl) -> None:
    secure.cluster[1].kill()
    kactl.until(lambda: set(_leaders(kactl).values()) == {2}, "broker 2 leads everything", WAIT_S)

    secure.cluster[1].start()
    kactl.until(
        lambda: all(len(partition["isr"]) == 2 for partition in kactl.partitions().values()), "full ISRs", WAIT_S
    )


def test_stopping_broker_asks_kactl_first(secure: SecureCluster, kactl: SecureKactl) -> None:
    """The broker logs in at kactl's listener as itself."""
    secure.cluster[1].stop()

    assert "Controlled shutdown request returned successfully" in secure.cluster[1].log
    assert "unclean shutdown" not in secure.cluster[1].log
    assert set(_leaders(kactl).values()) == {2}
    secure.cluster[1].start()
    kactl.until(
        lambda: all(len(partition["isr"]) == 2 for partition in kactl.partitions().values()), "full ISRs", WAIT_S
    )


def test_clients_are_authorized_by_the_lists_of_the_cluster(secure: SecureCluster, kactl: SecureKactl) -> None:
    assert _created(secure, kactl, "admin", "of-admin") == 0
    assert _created(secure, kactl, "alice", "alice-1") == KafkaError.TOPIC_AUTHORIZATION_FAILED

    secure.allow("alice", "Create", on="Topic:alice-", prefix=True)
    kactl.until(lambda: _created(secure, kactl, "alice", "alice-2") == 0, "the list is known", WAIT_S)
    assert _created(secure, kactl, "alice", "others") == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_clients_find_brokers_and_partitions(secure: SecureCluster, kactl: SecureKactl) -> None:
    """kactl answers these requests itself."""
    kactl.post("/v1/topics", name="found", partitions=3, replication_factor=2)
    assert _created(secure, kactl, "admin", "hidden") == 0
    listed: dict[str, tuple[int, set[int]]] = {}

    def agree() -> bool:
        nonlocal listed
        # A new client, which knows kactl's address alone: one that has found the brokers may keep to one of them, and
        # brokers show no topics to `admin`.
        metadata = _admin(secure, kactl, "admin").list_topics(timeout=30)
        assert metadata.controller_id == kactl.node_id
        listed = _listed(metadata)
        return set(metadata.brokers) >= {1, 2} and listed == {
            name: (partition["leader"], set(partition["isr"])) for name, partition in kactl.partitions().items()
        }

    kactl.until(agree, "the client finds what kactl reports", WAIT_S)
    assert {"found-0", "found-1", "found-2", "hidden-0"} <= listed.keys()

    secure.allow("alice", "Describe", on="Topic:found")
    alice = _admin(secure, kactl, "alice")
    kactl.until(lambda: "found" in alice.list_topics(timeout=30).topics, "the list is known", WAIT_S)
    assert "hidden" not in alice.list_topics(timeout=30).topics


def test_client_with_a_wrong_password_does_nothing(secure: SecureCluster, kactl: SecureKactl) -> None:
    assert _created(secure, kactl, "admin", "by-a-guest", password="mistaken", timeout_s=REJECTED_S) != 0
    assert not any(name.startswith("by-a-guest") for name in kactl.partitions())


def test_nodes_have_the_permissions_that_brokers_give_theirs(secure: SecureCluster, kactl: SecureKactl) -> None:
    kactl.post("/v1/topics", name="by-kactl", partitions=1, replication_factor=1)

    for path in secure.paths():
        expected = {OWNER, WORLD_READS}
        if path.startswith(("/config/users", "/config/brokers", "/delegation_token/tokens")):
            expected = {OWNER}
        elif path == "/consumers":
            expected = {("world", "anyone", 31)}
        assert secure.acls(path) == expected, path


async def _logged_in(client: Client, user: str) -> None:
    """Log in at kactl's listener by single requests, so that they go to no broker."""
    await client.ask(request_class(17, 1)(mechanism="SCRAM-SHA-512"))
    login = ScramClient("SCRAM-SHA-512", user, CLIENT_PASSWORD)
    challenge = await client.ask(request_class(36, 2)(auth_bytes=login.first()))
    last = await client.ask(request_class(36, 2)(auth_bytes=login.respond(challenge.auth_bytes)))
    assert last.error_code.value == 0, last


async def _asked(secure: SecureCluster, kactl: SecureKactl, user: str, *requests: Any) -> list[Any]:
    """Returns the responses to requests that kactl relays, over one connection of a user."""
    tls = ssl.create_default_context(cafile=str(secure.authority.cert))
    async with connected(kactl.internal_port, tls=tls) as client:
        await _logged_in(client, user)
        return [await client.ask(request) for request in requests]


def test_relayed_requests_have_the_rights_of_the_client(secure: SecureCluster, kactl: SecureKactl) -> None:
    """`admin` may do everything at kactl, and nothing at the brokers, which take the requests for kactl's own."""
    kactl.post("/v1/topics", name="relayed", partitions=1, replication_factor=1)
    resource = part(32, 3, "DescribeConfigsResource")
    describe = request_class(32, 3)(
        resources=(resource(resource_type=i8(2), resource_name="relayed", configuration_keys=None),),
        include_synonyms=False,
        include_documentation=False,
    )
    change = part(44, 1, "AlterableConfig")(name="retention.ms", config_operation=i8(0), value="123000")
    target = part(44, 1, "AlterConfigsResource")(resource_type=i8(2), resource_name="relayed", configs=(change,))
    alter = request_class(44, 1)(resources=(target,), validate_only=False)
    find = request_class(10, 3)(key="readers", key_type=i8(0))

    altered, described, found = asyncio.run(_asked(secure, kactl, "admin", alter, describe, find))
    denied = asyncio.run(_asked(secure, kactl, "alice", alter, describe, find))

    assert [entry.error_code.value for entry in altered.responses] == [0]
    (configs,) = described.results
    assert {entry.name: entry.value for entry in configs.configs}["retention.ms"] == "123000"
    assert found.error_code.value in (0, 15)  # or the coordinator's topic is being created
    assert [entry.error_code.value for entry in denied[0].responses] == [29]
    assert [entry.error_code.value for entry in denied[1].results] == [29]
    assert denied[2].error_code.value == 30
    trail = [(entry["principal"], entry["operation"], entry["result"]) for entry in kactl.get("/v1/audit")["items"]]
    assert ("User:admin", "kafka IncrementalAlterConfigs", "unknown") in trail
    assert ("User:alice", "kafka IncrementalAlterConfigs", "denied") in trail


def test_wrong_password_at_the_brokers_is_named(secure: SecureCluster, kactl: SecureKactl) -> None:
    kactl.stop()
    wrong = SecureKactl(901, secure, password="mistaken-secret")
    wrong.start()
    try:
        wrong.until(lambda: "it rejects User:kactl" in wrong.log, "the rejection is logged", WAIT_S)
        assert "mistaken-secret" not in wrong.log
    finally:
        wrong.kill()
        kactl.start()


def test_missing_right_is_named_until_it_is_granted(secure: SecureCluster, kactl: SecureKactl) -> None:
    """The brokers know this principal, and give it no rights until an ACL does, as the tool of Kafka stores it."""
    kactl.stop()
    guest = SecureKactl(903, secure, principal="guest")
    guest.start()
    try:
        remedy = "add User:guest to super.users of every broker, or grant it ClusterAction"
        guest.until(lambda: all(remedy in error for error in _errors(guest)), "every broker rejects it", WAIT_S)
        assert remedy in guest.log
        secure.allow("guest", "ClusterAction")
        guest.until(lambda: not any(_errors(guest)), "the brokers accept its requests", WAIT_S)
    finally:
        guest.kill()
        kactl.start()


def test_secrets_appear_nowhere(secure: SecureCluster, kactl: SecureKactl) -> None:
    """kactl has logged in to ZooKeeper and to brokers, and brokers and clients have logged in to kactl."""
    mistaken = "canary-of-a-mistake"
    for password, mechanism in ((CLIENT_PASSWORD, "PLAIN"), (mistaken, "PLAIN"), (mistaken, "SCRAM-SHA-512")):
        _created(secure, kactl, "admin", "canary", password=password, mechanism=mechanism, timeout_s=REJECTED_S)
    keys = [line for line in secure.certificate.key.read_text().splitlines() if "-----" not in line]
    secrets = [PASSWORD, BROKER_PASSWORD, KACTL_PASSWORD, CLIENT_PASSWORD, mistaken, *keys[:1]]
    outputs = kactl.outputs()
    for command in (["config", "show", str(kactl.config)], ["doctor", "--config", str(kactl.config)]):
        ran = subprocess.run(
            [sys.executable, "-m", "kactl.cli", *command], capture_output=True, timeout=60, check=False
        )
        outputs[command[0]] = ran.stdout + ran.stderr
    assert b"password-file" in outputs["config"]
    assert leaks(secrets, outputs) == []
    assert leaks(secrets, outputs | {"planted": f"password={KACTL_PASSWORD}".encode()}) != []


def test_doctor_reads_listeners_and_authorizer_of_the_brokers(kactl: SecureKactl) -> None:
    """S-34, S-45."""
    command = [sys.executable, "-m", "kactl.cli", "doctor", "--config", str(kactl.config), "-o", "json"]
    ran = subprocess.run(command, capture_output=True, timeout=60, check=False)

    checks = {check["check"]: check for check in json.loads(ran.stdout)}
    assert checks["broker listeners"]["result"] == "pass"
    authorizer = checks["broker authorizer"]
    assert (authorizer["result"], authorizer["value"]) == ("pass", "kafka.security.authorizer.AclAuthorizer")


def test_controller_without_identity_does_not_start(secure: SecureCluster, tmp_path: Path) -> None:
    ca = secure.zookeeper.authority.cert
    stranger = SecureKactl(902, secure, store=f'tls = true\nca = "{ca}"\nset-acl = false\n')
    with pytest.raises(HarnessError):
        stranger.start()
    assert "ZooKeeper" in stranger.log
    assert "NoAuth" in stranger.log or "no identity" in stranger.log


@pytest.mark.long
def test_rotation_of_all_passwords_takes_no_partition_offline(secure: SecureCluster, kactl: SecureKactl) -> None:
    """As docs/security.md describes it. The last test: passwords differ afterwards."""
    kactl.post("/v1/topics", name="rotated", partitions=4, replication_factor=2)

    def in_sync() -> bool:
        return all(len(kactl.partitions()[f"rotated-{number}"]["isr"]) == 2 for number in range(4))

    kactl.until(in_sync, "full ISRs", WAIT_S)
    with Unled(secure.zookeeper.connect(), "/kafka", "rotated") as unled:
        secure.set_password("kactl", "another-kactl-secret")
        kactl.stop()
        secret_file(kactl.folder / "kactl.password", "another-kactl-secret")
        kactl.start()
        kactl.until(lambda: not any(_errors(kactl)), "the brokers accept the new password", WAIT_S)
        for broker in secure.cluster.brokers:
            secure.set_password(f"broker-{broker.id}", f"another-secret-{broker.id}")
            broker.overrides["listener.name.internal.scram-sha-512.sasl.jaas.config"] = login_setting(
                f"broker-{broker.id}", f"another-secret-{broker.id}"
            )
            broker.restart()
            kactl.until(in_sync, f"full ISRs after the restart of broker {broker.id}", WAIT_S)
    assert unled.looks > 20
    assert unled.seen == set()
    assert "another-kactl-secret" not in kactl.log
