"""Interfaces that others can reach or read, by the configuration. Without the operator's consent, none is opened.

An interface that other hosts can reach needs encryption and authentication. A secret is not sent to another host in
clear text. Everything else that is insecure is listed, and needs no consent: it is how the cluster is set up.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kactl.config.kafka_settings import KafkaConfig
from kactl.config.settings import Config, StoreConfig
from kactl.config.values import LISTEN
from kactl.model import Endpoint
from kactl.model.errors import BadConfig
from kactl.runtime.listening import is_local

API: Final = "api"
NETWORK: Final = "network"
STORE: Final = "store"
BROKERS: Final = "brokers"
# Mechanisms that send a secret as it is, and what that is.
_CLEAR: Final = {"PLAIN": "password", "OAUTHBEARER": "token"}
# Before the name of a listener.
KAFKA: Final = "kafka."


class Opening(NamedTuple):
    """A reason why an interface is insecure.

    Attributes:
        interface: its name in `security.allow-insecure`.
        key: of the configuration; an interface has one reason for each.
        reason, remedy: for the operator.
        needs_consent: whether servers do not start without consent.
        may_be_allowed: whether consent is sufficient.
    """

    interface: str
    key: str
    reason: str
    remedy: str = ""
    needs_consent: bool = True
    may_be_allowed: bool = True

    @property
    def what(self) -> str:
        return f"{self.key}: {self.reason}"


def names(config: Config) -> tuple[str, ...]:
    """Returns the names of the interfaces that a configuration uses."""
    used = [API]
    if _has_kafka(config):
        used += [f"{KAFKA}{endpoint.listener}" for endpoint in config.kafka.endpoints]
    if config.network.listen:
        used.append(NETWORK)
    if config.store.kind in ("etcd", "zookeeper"):
        used.append(STORE)
    if _has_kafka(config):
        used.append(BROKERS)
    return tuple(used)


def checked(config: Config) -> tuple[Opening, ...]:
    """Returns what is insecure: by consent, or because the cluster is.

    Raises:
        BadConfig: an interface is open without consent, or the consent has no reason any more. Nothing has been
            opened.
    """
    allowed, used = config.security.allow_insecure, names(config)
    unknown = next((name for name in allowed if name not in used), None)
    if unknown is not None:
        known = ", ".join(f'"{name}"' for name in used)
        raise BadConfig("security.allow-insecure", f"{unknown!r} is no interface of this configuration: use {known}")
    found = openings(config)
    for opening in found:
        if not opening.may_be_allowed:
            raise BadConfig(opening.key, f"{opening.reason}: {opening.remedy}")
        if opening.needs_consent and opening.interface not in allowed:
            consent = f'or name "{opening.interface}" in security.allow-insecure'
            raise BadConfig(opening.key, f"{opening.reason}: {opening.remedy}, {consent}")
    needed = {opening.interface for opening in found if opening.needs_consent}
    listed = {opening.interface for opening in found}
    for name in allowed:
        if name not in needed:
            state = "needs no consent" if name in listed else "is secure"
            raise BadConfig(
                "security.allow-insecure", f'"{name}" {state}: remove it, so that a later mistake is noticed'
            )
    return found


def openings(config: Config) -> tuple[Opening, ...]:
    """Returns what is insecure, whether it is allowed or not."""
    return (*_api(config), *_kafka(config), *_network(config), *_store(config.store), *_brokers(config))


def _has_kafka(config: Config) -> bool:
    return config.store.kind == "zookeeper"


def _api(config: Config) -> Iterator[Opening]:
    api = config.api
    if not api.tls.cert and not is_local(api.address.host):
        yield Opening(
            API,
            "api.listen",
            f'"{api.listen}" can be reached by others and has no TLS',
            "give [api.tls] cert and key, listen on 127.0.0.1",
        )


def _kafka(config: Config) -> Iterator[Opening]:
    if not _has_kafka(config):
        return
    kafka = config.kafka
    for text, endpoint in zip(kafka.listeners, kafka.endpoints, strict=True):
        interface = f"{KAFKA}{endpoint.listener}"
        authenticates = _authenticates(endpoint, kafka)
        if not is_local(endpoint.host):
            if not (authenticates and endpoint.protocol.endswith("SSL")):
                weakness, remedy = _weakness(endpoint)
                reason = f"{text} is {weakness} and can be reached by others"
                yield Opening(interface, "kafka.listeners", reason, remedy)
        elif not authenticates:
            reason = f"{text} authenticates nobody: every program of this host can use it"
            yield Opening(interface, "kafka.listeners", reason, needs_consent=False)
        if authenticates and not kafka.authorizes:
            reason = f'"none" lets every client of {text} do everything'
            remedy = 'write "acls" or "super-users"'
            yield Opening(interface, "kafka.authorizer", reason, remedy, needs_consent=not is_local(endpoint.host))
        if endpoint.protocol == "PLAINTEXT" and kafka.broker_identity == "cluster" and not kafka.authenticates:
            reason = '"cluster" lets every client send the requests of brokers'
            yield Opening(interface, "kafka.broker-identity", reason, needs_consent=False)


def _authenticates(endpoint: Endpoint, kafka: KafkaConfig) -> bool:
    """Returns whether a listener identifies clients. Those that have no certificate on one that asks for it are
    anonymous, and the access control lists decide about them.
    """
    return endpoint.protocol.startswith("SASL") or (endpoint.protocol == "SSL" and kafka.tls.client_auth != "none")


def _weakness(endpoint: Endpoint) -> tuple[str, str]:
    """Returns what is wrong with an open listener, and the remedy."""
    key = f"kafka.protocols.{endpoint.listener}"
    if endpoint.protocol == "SSL":
        return "SSL without client certificates", f'set kafka.tls.client-auth to "required" or {key} to SASL_SSL'
    return endpoint.protocol, f"set {key} to SASL_SSL{' or SSL' if endpoint.protocol == 'PLAINTEXT' else ''}"


def _network(config: Config) -> Iterator[Opening]:
    network = config.network
    matched = LISTEN.fullmatch(network.listen)
    if matched is None or network.cert or is_local(matched["ipv6"] or matched["name"]):
        return
    remedy = "give cert, key and ca in [network], listen on 127.0.0.1"
    if network.secret_file:
        yield Opening(NETWORK, "network.listen", f'"{network.listen}" can be reached by others and has no TLS', remedy)
        return
    yield Opening(
        NETWORK,
        "network.listen",
        f'"{network.listen}" can be reached by others and has neither TLS nor a secret',
        f"{remedy}, or give secret-file",
        may_be_allowed=False,
    )


def _store(store: StoreConfig) -> Iterator[Opening]:
    """Everything that is in etcd is sent to it in clear text, and so is a password of ZooKeeper's scheme digest. SASL
    proves a password without sending it."""
    if store.kind == "etcd":
        for endpoint in store.endpoints:
            url = urlsplit(endpoint)
            if url.scheme == "http" and not is_local(url.hostname or ""):
                reason = f'"{endpoint}" is another host, and has no TLS'
                yield Opening(STORE, "store.endpoints", reason, 'write it as "https://..."')
                return
    if store.kind == "zookeeper":
        hosts = [host.strip() for host in store.connect.partition("/")[0].split(",")]
        other = next((host for host in hosts if not is_local(urlsplit(f"//{host}").hostname or "")), None)
        if other is not None:
            yield from _zookeeper(store, other)


def _zookeeper(store: StoreConfig, other: str) -> Iterator[Opening]:
    """Reasons for a server on another host."""
    if not store.tls and store.auth_scheme == "digest":
        reason = f'"digest" would send the password to {other} in clear text'
        yield Opening(STORE, "store.auth-scheme", reason, "set store.tls and store.ca")
    if not store.tls:
        reason = f"the connection to {other} has no TLS: others can read and change what is sent"
        yield Opening(STORE, "store.tls", reason, needs_consent=False)
    if not store.user and not store.cert:
        reason = f"kactl has no identity at {other}, so that every client there can change its nodes"
        yield Opening(STORE, "store.user", reason, needs_consent=False)


def _brokers(config: Config) -> Iterator[Opening]:
    """Without an authority kactl has no TLS, so that a password or a token is sent as it is."""
    client = config.kafka.client
    if _has_kafka(config) and client.sasl_mechanism in _CLEAR and not client.ca:
        reason = f'"{client.sasl_mechanism}" sends the {_CLEAR[client.sasl_mechanism]} to brokers in clear text'
        yield Opening(BROKERS, "kafka.client.sasl-mechanism", reason, "write kafka.client.ca, or use SCRAM-SHA-512")
