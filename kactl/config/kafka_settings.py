"""Configuration of the communication with Kafka's brokers and clients: `[kafka]` and its subsections."""

import ipaddress
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kactl.model import Endpoint

from .values import ENDPOINT, INT16_MAX, INT32_MAX, Duration, Section


class KafkaClientConfig(Section, frozen=True):
    """`[kafka.client]`: what brokers' listeners with TLS or SASL demand of kactl.

    Attributes:
        ca: for protocols SSL and SASL_SSL: the file that the brokers' certificates are checked by.
        cert, key: the client's certificate, if brokers demand one.
        server_name: the name in the brokers' certificates, if it is not the host name of their listener.
        sasl_mechanism: for protocols SASL_PLAINTEXT and SASL_SSL: SCRAM-SHA-512, SCRAM-SHA-256; or PLAIN or
            OAUTHBEARER, which only SASL_SSL permits.
        username, password_file: of the principal, which needs the right ClusterAction. The password is the file's first
            line; only the file's owner may have the right to read it.
        token_file: for OAUTHBEARER, in place of them: a file like that with a token, which another program renews. It
            is read before each login.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    sasl_mechanism: Literal["", "SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER", "GSSAPI"] = ""
    username: str = ""
    password_file: str = ""
    token_file: str = ""


class KafkaTlsConfig(Section, frozen=True):
    """`[kafka.tls]`: certificates on kactl's listeners of protocols SSL and SASL_SSL. PEM files.

    Attributes:
        cert, key: what the listeners present.
        client_auth: whether clients of listeners of protocol SSL are asked for a certificate; "optional" accepts those
            without one as User:ANONYMOUS. Kafka's ssl.client.auth, which does not concern SASL_SSL either.
        client_ca: the authority of the clients' certificates.
        crl: the certificates that the authority has revoked.
        principal_rules: how the subject of a certificate becomes the name of a principal. Kafka's
            ssl.principal.mapping.rules.
    """

    cert: str = ""
    key: str = ""
    client_auth: Literal["none", "optional", "required"] = "none"
    client_ca: str = ""
    crl: str = ""
    principal_rules: str = "DEFAULT"


class BrokerPrincipalsConfig(Section, frozen=True):
    """`[kafka.broker-principals]`: the principal of each broker, so that no broker can speak for another one.

    Attributes:
        pattern: with `{id}` in the place of the broker's id.
        names: principals by the id of the broker, for brokers that the pattern does not fit.
    """

    pattern: str = ""
    names: dict[str, str] = msgspec.field(default_factory=dict)


SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


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
        controller_rack: the rack of kactl's own entry there, in place of one that kactl chooses; used while all brokers
            have racks.
        controller_ids: ids of kactl's other instances, present or future: no replica is placed on them.
        num_partitions, default_replication_factor: defaults for topics that tools create. Kafka's names.
        min_insync_replicas: `min.insync.replicas` in the brokers' own files; kactl sees overrides of topics and the
            default for all brokers, but not these files. Health checks and previews use it. Kafka's name.
        remote_log_storage_system_enable: `remote.log.storage.system.enable` in the brokers' own files: whether topics
            may have `remote.storage.enable`. Kafka's name.
        max_connections: of all listeners together. Kafka's name.
        max_connections_per_ip: of one address that is not a broker's, and of connections from a broker's address that
            are not identified as the broker's. 0 admits only addresses with overrides. Kafka's name.
        max_connections_per_ip_overrides: the same for single addresses or host names, which are looked up at the start.
            Kafka's name.
        socket_request_max_bytes: the largest request that is relayed to a broker. Kafka's name.
        request_max_bytes: the largest request that kactl answers itself.
        broker_request_max_bytes: the largest AlterPartition of an identified broker.
        mutation_rate: partitions that a principal may create and delete in a second on listeners with logins; 0 for no
            limit. Kafka's quota controller_mutation_rate.
        mutation_burst: partitions that a principal may create and delete at once, after a pause.
        broker_networks: networks from which brokers connect besides the addresses that they are registered under.
        client: credentials for connections to brokers.
        protocols: the protocol of each listener, as in the brokers' listener.security.protocol.map; those that are
            missing are PLAINTEXT.
        sasl_mechanisms: that listeners with SASL offer. Users are those of the file `users`, and the brokers' own.
        users: a file with users of kactl's own; `kactl kafka-user` writes it. They precede the brokers' users.
        reauth: how long a login is valid. Kafka's connections.max.reauth.ms.
        super_users: principals that may do everything. Kafka's super.users.
        authorizer: what decides about requests if any listener authenticates clients: "acls", the lists of the cluster;
            "super-users", only they and brokers; "none", every client may do everything. "auto" is "acls".
        broker_identity: on listeners without logins, what identifies the sender of a broker's requests: "address", one
            of the hosts of its registration or of `broker_networks`; or "cluster", nothing.
        allow_everyone_if_no_acl_found: for resources to which no ACL applies. Kafka's name.
        relay: whether requests that only brokers can answer are relayed to one. "open": all, unread, without logins and
            until the cluster has ACLs; "checked": those that name what they concern, once the client is authorized for
            it; "off". The default is "checked" if any listener authenticates clients, otherwise "open".
    """

    ibp: str = "2.6"
    listener_name: Annotated[str, Meta(min_length=1)] = "PLAINTEXT"
    listeners: tuple[str, ...] = ()
    advertised_listeners: tuple[str, ...] = ()
    visible_on: tuple[str, ...] | None = None
    controller_rack: str = ""
    controller_ids: tuple[Annotated[int, Meta(ge=0, le=INT32_MAX)], ...] = ()
    num_partitions: Annotated[int, Meta(ge=1, le=50_000)] = 1
    default_replication_factor: Annotated[int, Meta(ge=1, le=INT16_MAX)] = 1
    min_insync_replicas: Annotated[int, Meta(ge=1, le=INT16_MAX)] = 1
    remote_log_storage_system_enable: bool = False
    max_connections: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    max_connections_per_ip: Annotated[int, Meta(ge=0, le=100_000)] = 100
    max_connections_per_ip_overrides: dict[str, Annotated[int, Meta(ge=0, le=100_000)]] = msgspec.field(
        default_factory=dict
    )
    socket_request_max_bytes: Annotated[int, Meta(ge=1024, le=INT32_MAX)] = 100 * 1024 * 1024
    request_max_bytes: Annotated[int, Meta(ge=64 * 1024, le=100 * 1024 * 1024)] = 1024 * 1024
    broker_request_max_bytes: Annotated[int, Meta(ge=64 * 1024, le=100 * 1024 * 1024)] = 16 * 1024 * 1024
    mutation_rate: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 100
    mutation_burst: Annotated[int, Meta(ge=1, le=INT32_MAX)] = 10_000
    broker_networks: tuple[str, ...] = ()
    client: KafkaClientConfig = KafkaClientConfig()
    protocols: dict[str, SecurityProtocol] = msgspec.field(default_factory=dict)
    tls: KafkaTlsConfig = KafkaTlsConfig()
    sasl_mechanisms: tuple[Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"], ...] = ("SCRAM-SHA-512",)
    users: str = ""
    reauth: Duration = Duration(3_600_000)
    super_users: tuple[str, ...] = ()
    authorizer: Literal["auto", "acls", "super-users", "none"] = "auto"
    broker_identity: Literal["address", "cluster"] = "address"
    allow_everyone_if_no_acl_found: bool = False
    relay: Literal["auto", "off", "open", "checked"] = "auto"
    broker_principals: BrokerPrincipalsConfig = BrokerPrincipalsConfig()

    @property
    def networks(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """The networks from which brokers connect, besides their own addresses."""
        return tuple(map(ipaddress.ip_network, self.broker_networks))

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses that kactl listens on."""
        return tuple(map(self._endpoint, self.listeners))

    @property
    def advertised(self) -> tuple[Endpoint, ...]:
        """The addresses under which brokers list this controller; empty if they do not list it."""
        advertised = {endpoint.listener: endpoint for endpoint in map(self._endpoint, self.advertised_listeners)}
        visible = [endpoint.listener for endpoint in self.endpoints] if self.visible_on is None else self.visible_on
        return tuple(
            advertised.get(endpoint.listener, endpoint) for endpoint in self.endpoints if endpoint.listener in visible
        )

    @property
    def authenticates(self) -> bool:
        """Whether any listener demands logins or certificates."""
        protocols = {endpoint.protocol for endpoint in self.endpoints}
        return self.has_logins or ("SSL" in protocols and self.tls.client_auth != "none")

    @property
    def authorizes(self) -> bool:
        """Whether requests are decided about, on all listeners."""
        return self.authenticates and self.authorizer != "none"

    @property
    def has_logins(self) -> bool:
        """Whether any listener has SASL."""
        return any(endpoint.protocol.startswith("SASL") for endpoint in self.endpoints)

    def _endpoint(self, text: str) -> Endpoint:
        matched = ENDPOINT.fullmatch(text)
        assert matched is not None, "checked when it was read"
        listener = matched["listener"]
        protocol = self.protocols.get(listener, "PLAINTEXT")
        return Endpoint(listener, matched["ipv6"] or matched["name"], int(matched["port"]), protocol)
