"""Configuration: the keys of a `kactl.toml` and their defaults. `kactl.config.file` reads the file."""

import ipaddress
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from .kafka_settings import KafkaConfig
from .values import INT32_MAX, LISTEN, Duration, Listen, Network, Section

# Defaults of `session-timeout`. Kafka's own for the store that its brokers use. Otherwise a third of the default
# session of participants with the controller: their leases outlast the controllership.
SESSION_TIMEOUTS: Final = {
    "zookeeper": Duration(18_000),
    "sqlite": Duration(3_000),
    "memory": Duration(3_000),
    "etcd": Duration(3_000),
}


class StoreConfig(Section, frozen=True):
    """`[store]`: the store of the cluster state.

    Attributes:
        kind: where the state is kept: sqlite for one host; memory to lose it at the end; zookeeper with Kafka's own
            layout; etcd.
        path: the file, for sqlite; relative to the working directory.
        connect: hosts and chroot, for zookeeper.
        endpoints: for etcd: its members, as http://host:port or https://host:port.
        prefix: for etcd: all keys are below it, in a folder named like the cluster.
        user, password_file: of etcd's authentication, or of ZooKeeper's DIGEST-MD5. The password is the file's first
            line; only the file's owner may have the right to read it.
        tls: for zookeeper: connect to the servers' secure ports.
        ca, cert, key: for etcd over https, and zookeeper with `tls`: the files that the servers' certificates are
            checked by, and the client's.
        auth_scheme: for zookeeper: sasl for DIGEST-MD5, as brokers log in; digest for ensembles that no broker uses,
            which sends the password itself.
        sasl_mechanism: for zookeeper: the mechanism of auth_scheme sasl.
        set_acl: for zookeeper: whether the nodes that kactl creates give everybody else only the right to read, as
            those of brokers with `zookeeper.set.acl=true`; "auto" to do as the nodes that exist.
        session_timeout: a broker or controller that is silent for this long counts as dead; 18s for zookeeper, and 3s
            otherwise, unless it is given.
        start_timeout: for zookeeper and etcd: how long a start waits for a server, so that programs may start in any
            order.
        max_in_flight: concurrent writes to ZooKeeper, of `batch_partitions` each.
        batch_partitions: partitions of one write to ZooKeeper.
        sticky: for zookeeper: the controllership stays with kactl's instances even while none of them runs, so that no
            broker takes it; all instances must have the same value.
    """

    kind: Literal["sqlite", "memory", "zookeeper", "etcd"] = "sqlite"
    path: Annotated[str, Meta(min_length=1)] = "kactl.db"
    connect: str = ""
    session_timeout: Duration = SESSION_TIMEOUTS["sqlite"]
    start_timeout: Duration = Duration(60_000)
    max_in_flight: Annotated[int, Meta(ge=1, le=1000)] = 20
    batch_partitions: Annotated[int, Meta(ge=1, le=1000)] = 100
    sticky: bool = False
    endpoints: tuple[str, ...] = ()
    prefix: Annotated[str, Meta(min_length=1)] = "/kactl"
    user: str = ""
    password_file: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""
    tls: bool = False
    auth_scheme: Literal["sasl", "digest"] = "sasl"
    sasl_mechanism: Literal["DIGEST-MD5", "GSSAPI"] = "DIGEST-MD5"
    set_acl: Literal["auto"] | bool = "auto"


class ControllerConfig(Section, frozen=True):
    """`[controller]`: what the controller decides.

    Attributes:
        unclean_leader_election: whether topics without a setting of their own allow it; a default for all brokers in
            the store takes precedence.
        auto_leader_rebalance: whether leadership returns to preferred replicas automatically: every
            `leader_imbalance_check_interval`, if other brokers lead more than `leader_imbalance_percent` of the
            partitions that prefer a broker.
        leader_imbalance_percent: share of the partitions that prefer a broker which others may lead.
        leader_imbalance_check_interval: how often the shares are compared.
        participant_balance_after: how long after a participant has joined or returned leaderships return to the
            participants that are preferred; 0 leaves that to the other checks.
        delete_topics: whether topics may be deleted.
        takeover: take the controllership from its present holder at start.
        warm_standby: whether a standby instance follows changes, so that a takeover has little to read.
        parity: send brokers exactly the requests that Kafka's controller would: one batch per change, after all of it
            is written.
        controller_socket_timeout: timeout of one request to a broker.
        partitions_max: partitions of the cluster, beyond which none are created.
        new_topic_ids: topics that get a new id at a takeover although they have leaders: their ids were lost, and no
            replica has the old one.
    """

    unclean_leader_election: bool = False
    auto_leader_rebalance: bool = True
    leader_imbalance_percent: Annotated[int, Meta(ge=0, le=100)] = 10
    leader_imbalance_check_interval: Duration = Duration(300_000)
    participant_balance_after: Duration = Duration(3_000)
    delete_topics: bool = True
    takeover: bool = False
    warm_standby: bool = True
    parity: bool = False
    controller_socket_timeout: Duration = Duration(30_000)
    new_topic_ids: tuple[str, ...] = ()
    partitions_max: Annotated[int, Meta(ge=1, le=INT32_MAX)] = 1_000_000


class ApiTlsConfig(Section, frozen=True):
    """`[api.tls]`: PEM files. They are loaded again when they change.

    Attributes:
        cert, key: what the admin API presents.
        client_auth: whether clients are asked for a certificate, and whether they need one.
        client_ca: the authority of the clients' certificates.
        crl: the certificates that the authority has revoked.
        principal_rules: how the subject of a certificate becomes a name, as in `[kafka.tls]`.
    """

    cert: str = ""
    key: str = ""
    client_auth: Literal["none", "optional", "required"] = "none"
    client_ca: str = ""
    crl: str = ""
    principal_rules: str = "DEFAULT"


class ApiConfig(Section, frozen=True):
    """`[api]`: the admin API and the dashboard.

    Attributes:
        listen: address of the admin API, as `host:port` or `[ipv6]:port`; `[::]:port` for both families.
        hosts: names and addresses that clients may use besides the ones that it listens on, as `name` or `name:port`.
        probe_listen: another address, in clear text, for the probes `/livez`, `/readyz` and `/leader` alone; empty for
            none.
        trusted_proxies: networks of proxies whose `X-Forwarded-For` or `Forwarded` names the client in the audit
            trail.
        tokens: the token file, which `kactl token` writes; empty for `tokens.toml` in `security.folder`. Without it, a
            server that listens on loopback makes a token for the user that it runs as.
        socket: path of the Unix socket for this user's programs; "auto" for one beside the run file, "off" for none.
        reads_per_second, changes_per_second: of one client; five times as many at once.
        dashboard: serve the dashboard at `/`.
        certificates: the role of each client with a certificate, by its name; others have none.
        instances: URLs of the admin APIs of all instances, by node-id, so that a standby can refer to the controller.
    """

    listen: str = "127.0.0.1:8080"
    hosts: tuple[str, ...] = ()
    probe_listen: str = ""
    trusted_proxies: tuple[str, ...] = ()
    tokens: str = ""
    socket: Annotated[str, Meta(min_length=1)] = "auto"
    tls: ApiTlsConfig = ApiTlsConfig()
    certificates: dict[str, Literal["viewer", "operator", "admin"]] = msgspec.field(default_factory=dict)
    instances: dict[str, str] = msgspec.field(default_factory=dict)
    reads_per_second: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    changes_per_second: Annotated[int, Meta(ge=1, le=1_000_000)] = 10
    dashboard: bool = True

    @property
    def address(self) -> Listen:
        return _listen(self.listen)

    @property
    def probe_address(self) -> Listen | None:
        return _listen(self.probe_listen) if self.probe_listen else None

    @property
    def proxies(self) -> tuple[Network, ...]:
        return tuple(map(ipaddress.ip_network, self.trusted_proxies))


def _listen(text: str) -> Listen:
    matched = LISTEN.fullmatch(text)
    assert matched is not None, "checked when it was read"
    return Listen(matched["ipv6"] or matched["name"], int(matched["port"]))


class SecurityConfig(Section, frozen=True):
    """`[security]`: secrets, and interfaces without encryption.

    Attributes:
        folder: for tokens and keys, which only the user of kactl may use; empty for one in the user's state folder.
        allow_insecure: names of interfaces that others can reach although they do not encrypt or authenticate (api,
            network, kafka.NAME for a listener), and of servers that secrets are sent to in clear text (store,
            brokers). Only the file can name them.
    """

    folder: str = ""
    allow_insecure: tuple[str, ...] = ()


class ParticipantsConfig(Section, frozen=True):
    """`[participants]`: brokers of `kactl up`.

    Attributes:
        count: brokers that `kactl up` runs in its own process.
    """

    count: Annotated[int, Meta(ge=0, le=1000)] = 3


class NetworkConfig(Section, frozen=True):
    """`[network]`: participants and spectators in other processes and on other hosts.

    Attributes:
        listen: address for them, as `host:port`, or `[::]:port` for both families; empty: none can connect.
        advertise: address at which they reach this instance, if it differs.
        controllers: addresses of all instances, this one included; `kactl doctor` checks them.
        cert, key, ca: the instance's certificate and key, and the authority of the cluster; see `kactl pki`. Without
            them it can only listen on loopback addresses, or on others with a secret and consent.
        crl: the certificates that the authority has revoked. Links are made again when it changes.
        secret_file: a secret that all programs share, in the file's first line, for clusters of one host. Without it
            and a certificate, the programs of one user share the secret in their state folder.
        verify_endpoint: whether a controller connects to the address that a participant advertises.
        peer_networks: networks of the addresses that participants may advertise, besides those that they connect from.
        ensure_topics: ids and names of the participants that may create topics, by the topics' names; in both names `*`
            and `?` are wildcards. Without it each participant may create any.
    """

    listen: str = ""
    advertise: str = ""
    controllers: tuple[str, ...] = ()
    cert: str = ""
    key: str = ""
    ca: str = ""
    crl: str = ""
    secret_file: str = ""
    verify_endpoint: bool = True
    peer_networks: tuple[str, ...] = ()
    ensure_topics: dict[str, tuple[int | str, ...]] | None = None

    @property
    def address(self) -> Listen | None:
        return _listen(self.listen) if self.listen else None


class LogConfig(Section, frozen=True):
    """`[log]`: the state-change log, which `kactl forensics` reads.

    Attributes:
        folder: its folder; empty for no log.
        format: of its lines: JSON, as `kactl watch -o jsonl` prints, or Kafka's own text.
        segment_bytes: the size at which the next file is started.
        segments: the number of files that are kept.
    """

    folder: str = ""
    format: Literal["json", "kafka"] = "json"
    segment_bytes: Annotated[int, Meta(ge=4096, le=INT32_MAX)] = 64 * 1024 * 1024
    segments: Annotated[int, Meta(ge=1, le=10_000)] = 16


class AuditConfig(Section, frozen=True):
    """`[audit]`: files of the audit trail, which `kactl audit verify` checks.

    Attributes:
        folder: their folder; empty for no files.
        required: nothing is changed over the admin API while they cannot be written.
        segment_bytes: the size at which the next file is started.
        segments: the number of files that are kept.
    """

    folder: str = ""
    required: bool = False
    segment_bytes: Annotated[int, Meta(ge=4096, le=INT32_MAX)] = 64 * 1024 * 1024
    segments: Annotated[int, Meta(ge=1, le=10_000)] = 16


class TelemetryConfig(Section, frozen=True):
    """`[telemetry]`: export of traces.

    Attributes:
        otlp: URL of an OpenTelemetry collector, for OTLP over HTTP; empty to export nothing.
        trace_ratio: share of the traces that are recorded; a request with a trace of its own decides for itself.
    """

    otlp: str = ""
    trace_ratio: Annotated[float, Meta(ge=0.0, le=1.0)] = 1.0


class HealthConfig(Section, frozen=True):
    """`[health]`: limits of the checks of `kactl status` and `GET /v1/cluster`. A value above its limit fails the
    check.

    Attributes:
        offline_partitions: partitions that may be without a leader.
        under_min_isr: partitions that may have fewer in-sync replicas than `min.insync.replicas`.
        under_replicated: partitions that may have replicas out of sync; more of them are a warning.
        unreachable_brokers: registered brokers that may be unreachable.
        broker_request_backlog: requests that may wait for one broker; more of them are a warning.
        unreachable_after: time for which requests may fail to reach a registered broker before it counts as
            unreachable.
        event_queue_oldest: time that an event may wait in the controller's queue; a longer one is a warning.
        event_queue_stuck: the same; a longer one fails the check.
        reassignment_stuck, deletion_stuck: time for which one may run without progress.
        standby_lag: age that the copy of a standby instance may have.
        preferred_imbalance_percent: share of partitions that are not led by their preferred replica.
    """

    offline_partitions: Annotated[int, Meta(ge=0)] = 0
    under_min_isr: Annotated[int, Meta(ge=0)] = 0
    under_replicated: Annotated[int, Meta(ge=0)] = 0
    unreachable_brokers: Annotated[int, Meta(ge=0)] = 0
    unreachable_after: Duration = Duration(10_000)
    broker_request_backlog: Annotated[int, Meta(ge=0)] = 100
    event_queue_oldest: Duration = Duration(500)
    event_queue_stuck: Duration = Duration(30_000)
    reassignment_stuck: Duration = Duration(600_000)
    deletion_stuck: Duration = Duration(300_000)
    standby_lag: Duration = Duration(10_000)
    preferred_imbalance_percent: Annotated[int, Meta(ge=0, le=100)] = 10


class Config(Section, frozen=True):
    """The whole configuration. Only `node-id` has no default.

    Attributes:
        node_id: of this instance; no broker and no other instance has it.
        cluster: the name of the cluster.
    """

    node_id: Annotated[int, Meta(ge=0, le=INT32_MAX)]
    cluster: Annotated[str, Meta(min_length=1, max_length=249)] = "kactl"
    store: StoreConfig = StoreConfig()
    controller: ControllerConfig = ControllerConfig()
    kafka: KafkaConfig = KafkaConfig()
    api: ApiConfig = ApiConfig()
    security: SecurityConfig = SecurityConfig()
    participants: ParticipantsConfig = ParticipantsConfig()
    network: NetworkConfig = NetworkConfig()
    log: LogConfig = LogConfig()
    audit: AuditConfig = AuditConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    health: HealthConfig = HealthConfig()
