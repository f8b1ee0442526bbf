"""Sources of configuration values, and rejections of invalid ones."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.config.file import load
from kactl.config.settings import Config, StoreConfig
from kactl.config.values import Duration, Listen
from kactl.model.errors import BadConfig


def test_everything_except_node_id_has_a_default(file: Path) -> None:
    file.write_text("node-id = 1\n")

    config = load(file)

    assert config == Config(node_id=1)
    assert config.store.kind == "sqlite"
    assert config.store.session_timeout == 3_000
    assert config.api.address == Listen("127.0.0.1", 8080)


def test_session_timeout_over_zookeeper_is_that_of_brokers(file: Path) -> None:
    file.write_text('node-id = 1\n[store]\nkind = "zookeeper"\nconnect = "h:2181"\n')

    assert load(file).store.session_timeout == 18_000
    assert load(file, {"KACTL_STORE__SESSION_TIMEOUT": "6s"}).store.session_timeout == 6_000
    etcd = {"store.kind": "etcd", "store.endpoints": ["http://h:2379"]}
    assert load(file, overrides=etcd).store.session_timeout == 3_000


def test_every_key_can_be_set(file: Path) -> None:
    file.write_text(
        """
        node-id = 7
        cluster = "orders-eu"

        [store]
        kind = "zookeeper"
        path = "x.db"
        connect = "127.0.0.1:2181/kafka"
        session-timeout = "6s"
        max-in-flight = 5
        batch-partitions = 50
        sticky = true

        [controller]
        unclean-leader-election = true
        takeover = true
        warm-standby = false
        parity = true
        controller-socket-timeout = "500ms"

        [kafka]
        ibp = "3.9"
        listener-name = "INTERNAL"

        [api]
        listen = "[::1]:0"

        [participants]
        count = 0
        """
    )

    config = load(file)

    assert config.cluster == "orders-eu"
    assert config.store == StoreConfig(
        kind="zookeeper",
        path="x.db",
        connect="127.0.0.1:2181/kafka",
        session_timeout=Duration(6000),
        max_in_flight=5,
        batch_partitions=50,
        sticky=True,
    )
    assert (config.controller.unclean_leader_election, config.controller.takeover) == (True, True)
    assert (config.controller.controller_socket_timeout, config.controller.warm_standby) == (500, False)
    assert config.controller.parity
    assert (config.kafka.ibp, config.kafka.listener_name) == ("3.9", "INTERNAL")
    assert config.api.address == Listen("::1", 0)
    assert config.participants.count == 0


def test_command_line_overrides_environment_overrides_file(file: Path) -> None:
    file.write_text('node-id = 1\ncluster = "file"\n[store]\nmax-in-flight = 2\nbatch-partitions = 3\n')
    env = {"KACTL_CLUSTER": "env", "KACTL_STORE__MAX_IN_FLIGHT": "4", "KACTL_CONTROLLER__TAKEOVER": "true"}

    config = load(file, env, {"cluster": "flag", "store.kind": None, "store.session-timeout": "1m", "node-id": 9})

    assert config.node_id == 9
    assert config.cluster == "flag"
    assert config.store == StoreConfig(max_in_flight=4, batch_partitions=3, session_timeout=Duration(60_000))
    assert config.controller.takeover


def test_file_is_optional() -> None:
    assert load(None, {"KACTL_NODE_ID": "3"}) == Config(node_id=3)


def test_unrelated_variables_are_ignored() -> None:
    assert load(None, {"KACTL_NODE_ID": "3", "KACTL_SERVER": "x", "PATH": "/bin"}) == Config(node_id=3)


MTLS = (
    "node-id = 1\n[kafka]\nlisteners = ['INTERNAL://127.0.0.1:9090']\n[kafka.protocols]\nINTERNAL = 'SSL'\n"
    "[kafka.tls]\ncert = '/c'\nkey = '/k'\n"
)
REFUSED = {
    "no file": (None, {}, "kactl.toml: there is no such file"),
    "no TOML": ("node-id = ", {}, "kactl.toml: is not TOML"),
    "no text": ("node-id = 1  # \xff", {}, "kactl.toml: is not TOML: byte 15 is not UTF-8; store the file in this"),
    "no node id": ("", {}, "kactl.toml: node-id: is missing: write `node-id = 1`"),
    "an unknown key": ("node-id = 1\nclustre = 'x'", {}, "kactl.toml: clustre: is unknown: did you mean cluster?"),
    "an unknown key in a section": (
        "node-id = 1\n[store]\nconect = 'x'",
        {},
        "kactl.toml: store.conect: is unknown: did you mean connect?",
    ),
    "an unknown section": ("node-id = 1\n[wealth]\nx = 1", {}, "kactl.toml: wealth: is unknown"),
    "a wrong type": (
        "node-id = 1\n[store]\nmax-in-flight = '20'",
        {},
        "kactl.toml: store.max-in-flight: '20' cannot be used: write a whole number from 1 to 1000",
    ),
    "too small": ("node-id = 1\n[store]\nmax-in-flight = 0", {}, "kactl.toml: store.max-in-flight: 0 cannot be used"),
    "an unknown kind": (
        "node-id = 1\n[store]\nkind = 'redis'",
        {},
        'store.kind: \'redis\' cannot be used: write "etcd", "memory", "sqlite" or "zookeeper"',
    ),
    "a switch as text": (
        "node-id = 1\n[controller]\ntakeover = 'true'",
        {},
        "controller.takeover: 'true' cannot be used: write true or false",
    ),
    "a number as text": ("node-id = 1\ncluster = 7", {}, "cluster: 7 cannot be used: write text in quotes, with 1 to"),
    "a limit below zero": (
        "node-id = 1\n[health]\nunder-min-isr = -1",
        {},
        "health.under-min-isr: -1 cannot be used: write a whole number of at least 0",
    ),
    "a list as text": (
        "node-id = 1\n[network]\ncontrollers = '10.0.0.1:7373'",
        {},
        "cannot be used: write a list in square brackets; each element is text in quotes",
    ),
    "a network with an address": (
        "node-id = 1\n[network]\npeer-networks = ['10.0.0.1/8']",
        {},
        "network.peer-networks: '10.0.0.1/8' is not a network: write it as 10.0.0.5 or 10.0.0.0/24",
    ),
    "an unknown role": (
        "node-id = 1\n[api.certificates]\nada = 'root'",
        {},
        'write a section of names, each with "admin", "operator" or "viewer"',
    ),
    "ZooKeeper with TLS and no authority": (
        "node-id = 1\n[store]\nkind = 'zookeeper'\nconnect = 'a:1'\ntls = true",
        {},
        "store.ca: is missing, and store.tls is set",
    ),
    "ZooKeeper with an authority and no TLS": (
        "node-id = 1\n[store]\nkind = 'zookeeper'\nconnect = 'a:1'\nca = 'ca.pem'",
        {},
        "store.ca: has no effect without tls",
    ),
    "ZooKeeper with a certificate and no TLS": (
        "node-id = 1\n[store]\nkind = 'zookeeper'\nconnect = 'a:1'\ncert = 'c.pem'\nkey = 'c.key'",
        {},
        "store.cert: has no effect without tls",
    ),
    "ZooKeeper's user without a password": (
        "node-id = 1\n[store]\nkind = 'zookeeper'\nconnect = 'a:1'\nuser = 'kafka'",
        {},
        "store.user: needs the other one",
    ),
    "permissions without an identity": (
        "node-id = 1\n[store]\nkind = 'zookeeper'\nconnect = 'a:1'\nset-acl = true",
        {},
        "store.set-acl: needs an identity",
    ),
    "permissions by another word": (
        "node-id = 1\n[store]\nkind = 'zookeeper'\nconnect = 'a:1'\nset-acl = 'yes'",
        {},
        "store.set-acl: 'yes' cannot be used: write \"auto\" or true or false",
    ),
    "a password in the file": (
        "node-id = 1\n[store]\nkind = 'zookeeper'\nconnect = 'a:1'\npassword = 'hunter2'",
        {},
        "store.password: secrets are not written here: write it into a file of mode 0600 and name that in "
        "store.password-file",
    ),
    "a client certificate without its key": (
        "node-id = 1\n[kafka.client]\nca = 'ca.pem'\ncert = 'c.pem'",
        {},
        "kafka.client.cert: needs its private key",
    ),
    "a client key without its certificate": (
        "node-id = 1\n[kafka.client]\nca = 'ca.pem'\nkey = 'c.key'",
        {},
        "kafka.client.key: needs its certificate",
    ),
    "a client certificate without TLS": (
        "node-id = 1\n[kafka.client]\ncert = 'c.pem'\nkey = 'c.key'",
        {},
        "kafka.client.cert: has no effect without ca",
    ),
    "a server name without TLS": (
        "node-id = 1\n[kafka.client]\nserver-name = 'kafka'",
        {},
        "kafka.client.server-name: has no effect without ca",
    ),
    "half a login at brokers": (
        "node-id = 1\n[kafka.client]\nsasl-mechanism = 'SCRAM-SHA-512'\nusername = 'kactl'",
        {},
        "kafka.client.sasl-mechanism: needs password-file",
    ),
    "PLAIN without TLS": (
        "node-id = 1\n[kafka.client]\nsasl-mechanism = 'PLAIN'\nusername = 'kactl'\npassword-file = 'p'",
        {},
        'kafka.client.sasl-mechanism: "PLAIN" sends the password as it is',
    ),
    "an authorizer without identities": (
        "node-id = 1\n[kafka]\nlisteners = ['A://127.0.0.1:9090']\nauthorizer = 'super-users'",
        {},
        'kafka.authorizer: "super-users" needs a listener that authenticates clients',
    ),
    "super users and everybody": (
        "node-id = 1\n[kafka]\nlisteners = ['A://127.0.0.1:9090']\nauthorizer = 'super-users'\n"
        "allow-everyone-if-no-acl-found = true\n[kafka.protocols]\nA = 'SASL_PLAINTEXT'",
        {},
        "kafka.allow-everyone-if-no-acl-found: allows everything without lists",
    ),
    "a checked relay without an authorizer": (
        "node-id = 1\n[kafka]\nlisteners = ['A://127.0.0.1:9090']\nauthorizer = 'none'\nrelay = 'checked'\n"
        "[kafka.protocols]\nA = 'SASL_PLAINTEXT'",
        {},
        'kafka.relay: "checked" needs an authorizer',
    ),
    "Kerberos at brokers": (
        "node-id = 1\n[kafka.client]\nsasl-mechanism = 'GSSAPI'",
        {},
        'kafka.client.sasl-mechanism: "GSSAPI" is not a part of kactl: use SCRAM-SHA-512, or a client certificate',
    ),
    "Kerberos in ZooKeeper": (
        "node-id = 1\n[store]\nkind = 'zookeeper'\nconnect = 'h:1'\nsasl-mechanism = 'GSSAPI'",
        {},
        'store.sasl-mechanism: "GSSAPI" is not a part of kactl: use DIGEST-MD5, or a client certificate',
    ),
    "a mechanism that does not exist": (
        "node-id = 1\n[kafka.client]\nsasl-mechanism = 'CRAM-MD5'",
        {},
        "kafka.client.sasl-mechanism: 'CRAM-MD5' cannot be used",
    ),
    "a token without TLS": (
        "node-id = 1\n[kafka.client]\nsasl-mechanism = 'OAUTHBEARER'\ntoken-file = 't'",
        {},
        'kafka.client.sasl-mechanism: "OAUTHBEARER" sends the token as it is',
    ),
    "a mechanism without its token": (
        "node-id = 1\n[kafka.client]\nca = 'ca.pem'\nsasl-mechanism = 'OAUTHBEARER'",
        {},
        'kafka.client.sasl-mechanism: "OAUTHBEARER" needs a token',
    ),
    "a token beside a user": (
        "node-id = 1\n[kafka.client]\nca = 'c'\nsasl-mechanism = 'OAUTHBEARER'\ntoken-file = 't'\nusername = 'u'",
        {},
        'kafka.client.username: "OAUTHBEARER" has a token instead',
    ),
    "a token without its mechanism": (
        "node-id = 1\n[kafka.client]\ntoken-file = 't'",
        {},
        "kafka.client.token-file: is for sasl-mechanism",
    ),
    "tokens on a listener": (
        "node-id = 1\n[kafka]\nsasl-mechanisms = ['OAUTHBEARER']",
        {},
        "kafka.sasl-mechanisms: ['OAUTHBEARER'] cannot be used",
    ),
    "a password for brokers in the file": (
        "node-id = 1\n[kafka.client]\npassword = 'hunter2'",
        {},
        "kafka.client.password: secrets are not written here",
    ),
    "a protocol of no listener": (
        "node-id = 1\n[kafka]\nlisteners = ['INTERNAL://127.0.0.1:9090']\n[kafka.protocols]\nOTHER = 'SSL'",
        {},
        "kafka.protocols.OTHER: there is no such listener",
    ),
    "an unknown protocol": (
        "node-id = 1\n[kafka]\nlisteners = ['INTERNAL://127.0.0.1:9090']\n[kafka.protocols]\nINTERNAL = 'TLS'",
        {},
        "kafka.protocols: {'INTERNAL': 'TLS'} cannot be used",
    ),
    "TLS without a certificate": (
        "node-id = 1\n[kafka]\nlisteners = ['INTERNAL://127.0.0.1:9090']\n[kafka.protocols]\nINTERNAL = 'SASL_SSL'",
        {},
        "kafka.tls.cert: is missing, and listener INTERNAL has TLS",
    ),
    "client certificates on no listener": (
        "node-id = 1\n[kafka.tls]\nclient-auth = 'required'\nclient-ca = '/ca'",
        {},
        "kafka.tls.client-auth: has no effect: it concerns listeners of protocol SSL",
    ),
    "client certificates without an authority": (
        MTLS + "client-auth = 'required'",
        {},
        "kafka.tls.client-ca: is missing, and client-auth is set",
    ),
    "an authority for no certificates": (MTLS + "client-ca = '/ca'", {}, "kafka.tls.client-ca: has no effect without"),
    "a rule that Java reads differently": (
        MTLS + "client-auth = 'optional'\nclient-ca = '/ca'\nprincipal-rules = 'RULE:[a&&b]/x/'",
        {},
        "kafka.tls.principal-rules: the pattern '[a&&b]' has '&&b', which is not supported",
    ),
    "SASL without a mechanism": (
        "node-id = 1\n[kafka]\nlisteners = ['INTERNAL://127.0.0.1:9090']\n"
        "sasl-mechanisms = []\n[kafka.protocols]\nINTERNAL = 'SASL_PLAINTEXT'",
        {},
        "kafka.sasl-mechanisms: is empty",
    ),
    "an open relay with logins": (
        "node-id = 1\n[kafka]\nlisteners = ['INTERNAL://127.0.0.1:9090']\nrelay = 'open'\n"
        "[kafka.protocols]\nINTERNAL = 'SASL_PLAINTEXT'",
        {},
        'kafka.relay: "open" would give every client the rights of kactl at the brokers',
    ),
    "a checked relay without logins": (
        "node-id = 1\n[kafka]\nlisteners = ['INTERNAL://127.0.0.1:9090']\nrelay = 'checked'",
        {},
        'kafka.relay: "checked" needs a listener that authenticates clients',
    ),
    "a pattern without an id": (
        "node-id = 1\n[kafka]\nlisteners = ['INTERNAL://127.0.0.1:9090']\n"
        "[kafka.broker-principals]\npattern = 'User:broker'",
        {},
        "kafka.broker-principals.pattern: 'User:broker' has not {id} once",
    ),
    "a principal of no broker": (
        "node-id = 1\n[kafka]\nlisteners = ['INTERNAL://127.0.0.1:9090']\n"
        "[kafka.broker-principals.names]\none = 'User:broker'",
        {},
        "kafka.broker-principals.names.one: is no broker id",
    ),
    "etcd without endpoints": ("node-id = 1\n[store]\nkind = 'etcd'", {}, "store.endpoints: is missing"),
    "etcd at no endpoint": (
        "node-id = 1\n[store]\nkind = 'etcd'\nendpoints = ['localhost:2379']",
        {},
        "kactl.toml: store.endpoints: 'localhost:2379' is not an endpoint: write it as http://host:2379",
    ),
    "etcd's user without a password": (
        "node-id = 1\n[store]\nkind = 'etcd'\nendpoints = ['http://a:1']\nuser = 'kactl'",
        {},
        "kactl.toml: store.user: needs the other one",
    ),
    "a certificate without a key": (
        "node-id = 1\n[store]\nkind = 'etcd'\nendpoints = ['https://a:1']\ncert = 'x.pem'",
        {},
        "kactl.toml: store.cert: needs its private key",
    ),
    "a key without a certificate": (
        "node-id = 1\n[store]\nkind = 'etcd'\nendpoints = ['https://a:1']\nkey = 'x.key'",
        {},
        "kactl.toml: store.key: needs its certificate",
    ),
    "a negative id": ("node-id = -1", {}, "kactl.toml: node-id: -1 cannot be used"),
    "a duration without a unit": (
        "node-id = 1\n[store]\nsession-timeout = 18",
        {},
        "kactl.toml: store.session-timeout: 18 cannot be used: 18 is not a duration: write it in quotes, with a unit",
    ),
    "a duration of nothing": (
        "node-id = 1\n[store]\nsession-timeout = '0s'",
        {},
        "'0s' is no time at all, which",
    ),
    "a value for a section": ("node-id = 1\nstore = 'sqlite'", {}, "kactl.toml: store: is a section"),
    "a value for a section, and a variable in it": (
        "node-id = 1\nstore = 'sqlite'",
        {"KACTL_STORE__KIND": "memory"},
        "kactl.toml: store: is a section",
    ),
    "an empty label": (
        "node-id = 1\n[api]\nlisten = 'a..b:1'",
        {},
        "kactl.toml: api.listen: 'a..b:1' is not an address",
    ),
    "a long label": (
        f"node-id = 1\n[store]\nkind = 'etcd'\nendpoints = ['http://{'x' * 64}:1']",
        {},
        "is not an endpoint: write it as http://host:2379",
    ),
    "no port": ("node-id = 1\n[api]\nlisten = '8080'", {}, "kactl.toml: api.listen: '8080' is not an address"),
    "too high a port": ("node-id = 1\n[api]\nlisten = 'localhost:65536'", {}, "kactl.toml: api.listen: "),
    "ZooKeeper nowhere": ("node-id = 1\n[store]\nkind = 'zookeeper'", {}, "kactl.toml: store.connect: is missing"),
    "a wrong variable": (
        "node-id = 1",
        {"KACTL_STORE__MAX_IN_FLIGHT": "many"},
        "KACTL_STORE__MAX_IN_FLIGHT: store.max-in-flight: 'many' cannot be used: write a whole number",
    ),
    "a wrong switch": (
        "node-id = 1",
        {"KACTL_CONTROLLER__TAKEOVER": "maybe"},
        "KACTL_CONTROLLER__TAKEOVER: controller.takeover: 'maybe' cannot be used: write true or false",
    ),
    "an unknown variable": (
        "node-id = 1",
        {"KACTL_STORE__CONECT": "x"},
        "KACTL_STORE__CONECT: store.conect: is unknown: did you mean connect?",
    ),
    "a variable below a key": ("node-id = 1", {"KACTL_CLUSTER__X": "y"}, "KACTL_CLUSTER__X: cluster.x: is unknown"),
    "a variable out of bounds": (
        "node-id = 1",
        {"KACTL_STORE__MAX_IN_FLIGHT": "0"},
        "KACTL_STORE__MAX_IN_FLIGHT: store.max-in-flight: 0 cannot be used",
    ),
}


@pytest.mark.parametrize(("text", "env", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_value_is_rejected_with_its_location(
    file: Path, text: str | None, env: dict[str, str], message: str
) -> None:
    if text is not None:
        file.write_bytes(text.encode("latin-1"))

    with pytest.raises(BadConfig) as refused:
        load(file, env)

    assert message in str(refused.value)


def test_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="cannot be read"):
        load(tmp_path)


def test_section_cannot_have_a_value() -> None:
    with pytest.raises(BadConfig, match="command line: store: is a section: name one of its keys, kind, path"):
        load(None, {}, {"node-id": 1, "store": "sqlite"})


@given(st.integers(1, 10**6), st.sampled_from([("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)]))
def test_duration_is_a_number_and_a_unit(number: int, unit: tuple[str, int]) -> None:
    assert Duration.parse(f"{number}{unit[0]}") == number * unit[1]


@given(st.text(max_size=8).filter(lambda text: not text[:1].isdecimal()))
def test_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        Duration.parse(text)


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        ({"two": "http://a:1"}, "'two' is not a node-id"),
        ({"2": "a:8080"}, "'a:8080' is not the URL of an admin API"),
        ({"2": "http://a:80800"}, "is not the URL of an admin API"),
        ({"2": "http://a:8080/path"}, "is not the URL of an admin API"),
    ],
)
def test_invalid_addresses_of_instances_are_rejected(instances: dict[str, str], message: str) -> None:
    with pytest.raises(BadConfig, match=re.escape(message)):
        load(overrides={"node-id": 1, "api.instances": instances})


def test_addresses_of_instances_are_read() -> None:
    instances = {"2": "http://kactl2.example:8080", "3": "https://[::1]"}

    assert load(overrides={"node-id": 1, "api.instances": instances}).api.instances == instances
