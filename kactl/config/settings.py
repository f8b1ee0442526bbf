"""Configuration: the keys of a `kactl.toml` and their defaults. `kactl.config.file` reads the file."""

import ipaddress
import re
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from kactl.model import Endpoint

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_HOST: Final = r"(?:\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<name>[^:\[\]\s/]+))"
LISTEN: Final = re.compile(_HOST + r":(?P<port>[0-9]{1,5})")
HOST: Final = re.compile(_HOST + r"(?::(?P<port>[0-9]{1,5}))?")
_INT16_MAX: Final = 2**15 - 1
_INT32_MAX: Final = 2**31 - 1
ENDPOINT: Final = re.compile(r"(?P<listener>[A-Za-z0-9_-]+)://" + LISTEN.pattern)
ETCD_ENDPOINT: Final = re.compile(r"https?://" + LISTEN.pattern + "/?")


class Duration(int):
    """Milliseconds; written with a unit, as in `18s` or `500ms`."""

    @classmethod
    def parse(cls, text: object) -> "Duration":
        """Returns the duration of a text with a unit.

        Raises:
            ValueError: the text is not a duration, or is zero.
        """
        matched = _DURATION.fullmatch(text) if isinstance(text, str) else None
        if matched is None or not int(matched[1]):
            raise ValueError(f'{text!r} is not a duration: write it in quotes, with a unit, as in "18s" or "500ms"')
        return cls(int(matched[1]) * _UNITS_MS[matched[2]])


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A section of the file. Keys are written with dashes."""


class StoreConfig(Section, frozen=True):
    """`[store]`: the store of the cluster state.

    Attributes:
        path: the file, for sqlite; relative to the working directory.
        connect: hosts and chroot, for zookeeper.
        endpoints: for etcd: its members, as http://host:port or https://host:port.
        prefix: for etcd: all keys are below it, in a folder named like the cluster.
        user, password_file: for etcd: of its authentication. The password is the file's first line.
        ca, cert, key: for etcd over https: the files that the servers' certificates are checked by, and the client's.
        session_timeout: a broker or controller that is silent for this long counts as dead.
        max_in_flight: concurrent writes to ZooKeeper, of `batch_partitions` each.
        client: for zookeeper: kactl's own client or kazoo.
        sticky: for zookeeper: the controllership stays with kactl's instances even while none of them runs, so that no
            broker takes it; all instances must have the same value.
    """

    kind: Literal["sqlite", "memory", "zookeeper", "etcd"] = "sqlite"
    path: Annotated[str, Meta(min_length=1)] = "kactl.db"
    connect: str = ""
    session_timeout: Duration = Duration(18_000)
    max_in_flight: Annotated[int, Meta(ge=1, le=1000)] = 20
    batch_partitions: Annotated[int, Meta(ge=1, le=1000)] = 100
    client: Literal["kactl", "kazoo"] = "kactl"
    sticky: bool = False
    endpoints: tuple[str, ...] = ()
    prefix: Annotated[str, Meta(min_length=1)] = "/kactl"
    user: str = ""
    password_file: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""


class ControllerConfig(Section, frozen=True):
    """`[controller]`.

    Attributes:
        unclean_leader_election: whether topics without a setting of their own allow it; a default for all brokers in
            the store takes precedence.
        auto_leader_rebalance: whether leadership returns to preferred replicas automatically: every
            `leader_imbalance_check_interval`, if other brokers lead more than `leader_imbalance_percent` of the
            partitions that prefer a broker.
        delete_topics: whether topics may be deleted.
        takeover: take the controllership from its present holder at start.
        warm_standby: whether a standby instance follows changes, so that a takeover has little to read.
        parity: send brokers exactly the requests that Kafka's controller would: one batch per change, after all of it
            is written.
        controller_socket_timeout: timeout of one request to a broker.
    """

    unclean_leader_election: bool = False
    auto_leader_rebalance: bool = True
    leader_imbalance_percent: Annotated[int, Meta(ge=0, le=100)] = 10
    leader_imbalance_check_interval: Duration = Duration(300_000)
    delete_topics: bool = True
    takeover: bool = False
    warm_standby: bool = True
    parity: bool = False
    controller_socket_timeout: Duration = Duration(30_000)


class KafkaConfig(Section, frozen=True):
    """`[kafka]`: communication with Kafka brokers.

    Attributes:
        ibp: `inter.broker.protocol.version`, the same as on every broker.
        listener_name: `inter.broker.listener.name` of the brokers.
        listeners: addresses that kactl listens on for brokers and tools, as `NAME://host:port`; the names are those of
            the brokers' listeners. Without any, brokers cannot send requests to kactl.
        advertised_listeners: addresses under which brokers reach kactl, if they differ; in the same form.
        visible_on: names of the listeners on which brokers list kactl as one of them, so that clients that look for the
            controller find it; None for all.
        controller_ids: ids of kactl's other instances, present or future: no replica is placed on them.
        num_partitions, default_replication_factor: defaults for topics that tools create. Kafka's names.
        min_insync_replicas: `min.insync.replicas` in the brokers' own files; kactl sees overrides of topics and the
            default for all brokers, but not these files. Health checks and previews use it. Kafka's name.
        max_connections: of all listeners together. Kafka's name.
        max_connections_per_ip: of one address that is not a broker's, and of connections from a broker's address that
            are not identified as the broker's. Kafka's name.
        socket_request_max_bytes: the largest request that is relayed to a broker. Kafka's name.
        request_max_bytes: the largest request that kactl answers itself.
        broker_request_max_bytes: the largest AlterPartition of an identified broker.
        broker_networks: networks from which brokers connect besides the addresses that they are registered under.
    """

    ibp: str = "2.6"
    listener_name: Annotated[str, Meta(min_length=1)] = "PLAINTEXT"
    listeners: tuple[str, ...] = ()
    advertised_listeners: tuple[str, ...] = ()
    visible_on: tuple[str, ...] | None = None
    controller_ids: tuple[Annotated[int, Meta(ge=0, le=_INT32_MAX)], ...] = ()
    num_partitions: Annotated[int, Meta(ge=1, le=50_000)] = 1
    default_replication_factor: Annotated[int, Meta(ge=1, le=_INT16_MAX)] = 1
    min_insync_replicas: Annotated[int, Meta(ge=1, le=_INT16_MAX)] = 1
    max_connections: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    max_connections_per_ip: Annotated[int, Meta(ge=1, le=100_000)] = 100
    socket_request_max_bytes: Annotated[int, Meta(ge=1024, le=_INT32_MAX)] = 100 * 1024 * 1024
    request_max_bytes: Annotated[int, Meta(ge=64 * 1024, le=100 * 1024 * 1024)] = 1024 * 1024
    broker_request_max_bytes: Annotated[int, Meta(ge=64 * 1024, le=100 * 1024 * 1024)] = 16 * 1024 * 1024
    broker_networks: tuple[str, ...] = ()

    @property
    def networks(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """The networks from which brokers connect, besides their own addresses."""
        return tuple(map(ipaddress.ip_network, self.broker_networks))

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses that kactl listens on."""
        return tuple(map(_endpoint, self.listeners))

    @property
    def advertised(self) -> tuple[Endpoint, ...]:
        """The addresses under which brokers list this controller; empty if they do not list it."""
        advertised = {endpoint.listener: endpoint for endpoint in map(_endpoint, self.advertised_listeners)}
        visible = [endpoint.listener for endpoint in self.endpoints] if self.visible_on is None else self.visible_on
        return tuple(
            advertised.get(endpoint.listener, endpoint) for endpoint in self.endpoints if endpoint.listener in visible
        )


def _endpoint(text: str) -> Endpoint:
    matched = ENDPOINT.fullmatch(text)
    assert matched is not None, "checked when it was read"
    return Endpoint(matched["listener"], matched["ipv6"] or matched["name"], int(matched["port"]))


class Listen(NamedTuple):
    """Address that a server listens on. Port 0 selects a free one."""

    host: str
    port: int


class ApiConfig(Section, frozen=True):
    """`[api]`.

    Attributes:
        listen: address of the admin API, as `host:port` or `[ipv6]:port`.
        hosts: names and addresses that clients may use besides the ones that it listens on, as `name` or `name:port`.
        allow_changes: the clients that may make changes: those of this machine, by the address of their connection, or
            all. A proxy on this machine counts as this machine.
    """

    listen: str = "127.0.0.1:8080"
    hosts: tuple[str, ...] = ()
    allow_changes: Literal["loopback", "any"] = "loopback"

    @property
    def address(self) -> Listen:
        matched = LISTEN.fullmatch(self.listen)
        assert matched is not None, "checked when it was read"
        return Listen(matched["ipv6"] or matched["name"], int(matched["port"]))


class ParticipantsConfig(Section, frozen=True):
    """`[participants]`: the number of brokers that `kactl up` runs in its own process."""

    count: Annotated[int, Meta(ge=0, le=1000)] = 3


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
    segment_bytes: Annotated[int, Meta(ge=4096, le=_INT32_MAX)] = 64 * 1024 * 1024
    segments: Annotated[int, Meta(ge=1, le=10_000)] = 16


class HealthConfig(Section, frozen=True):
    """`[health]`: limits of the checks of `kactl status` and `GET /v1/cluster`. A value above its limit fails the
    check.

    Attributes:
        unreachable_after: time for which requests may fail to reach a registered broker before it counts as
            unreachable.
        event_queue_oldest: time that an event may wait in the controller's queue; `event_queue_stuck` fails the check.
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
    """The whole configuration. Only `node-id` has no default."""

    node_id: Annotated[int, Meta(ge=0, le=_INT32_MAX)]
    cluster: Annotated[str, Meta(min_length=1, max_length=249)] = "kactl"
    store: StoreConfig = StoreConfig()
    controller: ControllerConfig = ControllerConfig()
    kafka: KafkaConfig = KafkaConfig()
    api: ApiConfig = ApiConfig()
    participants: ParticipantsConfig = ParticipantsConfig()
    log: LogConfig = LogConfig()
    health: HealthConfig = HealthConfig()
