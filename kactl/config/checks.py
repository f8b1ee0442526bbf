"""Checks of a configuration that concern several keys, or formats of values.

Each check raises `BadConfig`, which states the file or variable, the key, the problem and a valid value.
"""

import ipaddress
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from kactl.model.errors import BadConfig
from kactl.security.access import PrincipalRules

from .kafka_settings import KafkaClientConfig, KafkaConfig
from .settings import ApiConfig, Config, NetworkConfig, StoreConfig
from .values import API_URL, ENDPOINT, ETCD_ENDPOINT, HOST, LISTEN, OTLP_URL

_ANY_HOST: Final = ("0.0.0.0", "::")
_PORT_MAX: Final = 65_535

# Key -> the file or variable that it comes from.
Origins = Mapping[tuple[str, ...], str]


def origin_of(path: tuple[str, ...], origins: Origins) -> str:
    """Returns the file or variable that a key, or the section around it, comes from."""
    while path and path not in origins:
        path = path[:-1]
    return origins.get(path, "configuration")


def checked(config: Config, origins: Origins) -> Config:
    """Returns the configuration after the checks that concern several keys or formats."""
    listen = LISTEN.fullmatch(config.api.listen)
    if listen is None or int(listen["port"]) > _PORT_MAX:
        key = ("api", "listen")
        reason = f"{config.api.listen!r} is not an address: write it as 127.0.0.1:8080 or [::1]:8080"
        raise BadConfig(f"{origin_of(key, origins)}: api.listen", reason)
    _check_probes(config.api, origins)
    _check_proxies(config.api, origins)
    for host in config.api.hosts:
        matched = HOST.fullmatch(host)
        if matched is None or int(matched["port"] or 0) > _PORT_MAX:
            where = f"{origin_of(('api', 'hosts'), origins)}: api.hosts"
            raise BadConfig(
                where, f"{host!r} is not a host: write it as kactl.example, kactl.example:443 or [::1]:8080"
            )
    if bool(config.api.tls.cert) != bool(config.api.tls.key):
        given = "cert" if config.api.tls.cert else "key"
        raise BadConfig(
            f"{origin_of(('api', 'tls', given), origins)}: api.tls.{given}", "needs the other one: write cert and key"
        )
    _check_api_certificates(config.api, origins)
    _check_instances(config.api, origins)
    _check_listeners(config.kafka, origins)
    _check_kafka_client(config, origins)
    _check_protocols(config.kafka, origins)
    _check_store(config.store, origins)
    _check_network(config.network, origins)
    collector = OTLP_URL.fullmatch(config.telemetry.otlp)
    if config.telemetry.otlp and (collector is None or int(collector["port"] or 0) > _PORT_MAX):
        where = f"{origin_of(('telemetry', 'otlp'), origins)}: telemetry.otlp"
        raise BadConfig(where, f"{config.telemetry.otlp!r} is not a URL: write it as http://127.0.0.1:4318")
    return config


def _check_probes(api: ApiConfig, origins: Origins) -> None:
    if not api.probe_listen:
        return
    where = f"{origin_of(('api', 'probe-listen'), origins)}: api.probe-listen"
    matched = LISTEN.fullmatch(api.probe_listen)
    if matched is None or int(matched["port"]) > _PORT_MAX:
        raise BadConfig(where, f"{api.probe_listen!r} is not an address: write it as 10.0.0.9:8081 or [::1]:8081")
    if api.probe_listen == api.listen and int(matched["port"]):
        raise BadConfig(where, f"{api.probe_listen!r} is the address of the API: probes need another port")


def _check_proxies(api: ApiConfig, origins: Origins) -> None:
    where = f"{origin_of(('api', 'trusted-proxies'), origins)}: api.trusted-proxies"
    for text in api.trusted_proxies:
        try:
            network = ipaddress.ip_network(text)
        except ValueError:
            raise BadConfig(where, f"{text!r} is not a network: write it as 10.0.0.5 or 10.0.0.0/24") from None
        if not network.prefixlen:
            raise BadConfig(where, f"{text!r} contains every address, so that any client could forge its own")


def _check_network(network: NetworkConfig, origins: Origins) -> None:
    def reject(key: str, reason: str) -> NoReturn:
        raise BadConfig(f"{origin_of(('network', key), origins)}: network.{key}", reason)

    addresses = [("listen", network.listen), ("advertise", network.advertise)]
    addresses += [("controllers", address) for address in network.controllers]
    for key, address in addresses:
        matched = LISTEN.fullmatch(address)
        if address and (matched is None or int(matched["port"]) > _PORT_MAX):
            reject(key, f"{address!r} is not an address: write it as 10.0.0.1:7373 or [::1]:7373")
    for text in network.peer_networks:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            reject("peer-networks", f"{text!r} is not a network: write it as 10.0.0.5 or 10.0.0.0/24")
    given = [key for key, value in (("cert", network.cert), ("key", network.key), ("ca", network.ca)) if value]
    if given and len(given) < 3:
        reject(given[0], "needs the others: write cert, key and ca")
    if network.crl and not given:
        reject("crl", "has no effect without TLS: write cert, key and ca, too")
    if not network.listen:
        for key, value in (("advertise", network.advertise), ("secret-file", network.secret_file)):
            if value:
                reject(key, "has no effect without listen: write the address to listen on, too")


def _check_store(store: StoreConfig, origins: Origins) -> None:
    def reject(key: str, reason: str) -> NoReturn:
        origin = origin_of(("store", key if ("store", key) in origins else "kind"), origins)
        raise BadConfig(f"{origin}: store.{key}", reason)

    if store.kind == "zookeeper":
        if not store.connect:
            reject("connect", 'is missing, and the store is ZooKeeper: write connect = "127.0.0.1:2181/kafka"')
        if store.tls and not store.ca:
            reject(
                "ca", "is missing, and store.tls is set: name the file with the authority of the servers' certificates"
            )
        if store.ca and not store.tls:
            reject("ca", "has no effect without tls: write tls = true, too")
        if store.cert and not store.tls:
            reject("cert", "has no effect without tls: write tls = true, too")
        if store.set_acl is True and not store.user and not store.cert:
            reject("set-acl", "needs an identity: write user and password-file, or tls with cert and key")
        if store.auth_scheme == "digest" and (not store.user or ":" in store.user):
            reject("auth-scheme", '"digest" needs user and password-file, and a user without a colon')
        if store.sasl_mechanism == "GSSAPI":
            reject(
                "sasl-mechanism",
                '"GSSAPI" is not a part of kactl: use DIGEST-MD5, or a client certificate (cert and key) with x509 '
                "ACLs; a program can give ZooKeeperStore a mechanism of its own",
            )
    elif store.kind == "etcd":
        if not store.endpoints:
            reject("endpoints", 'is missing, and the store is etcd: write endpoints = ["http://127.0.0.1:2379"]')
        for endpoint in store.endpoints:
            if ETCD_ENDPOINT.fullmatch(endpoint) is None:
                reject(
                    "endpoints", f"{endpoint!r} is not an endpoint: write it as http://host:2379 or https://host:2379"
                )
    else:
        return
    if bool(store.user) != bool(store.password_file):
        reject("user" if store.user else "password-file", "needs the other one: write both user and password-file")
    if store.cert and not store.key:
        reject("cert", "needs its private key: write key, too")
    if store.key and not store.cert:
        reject("key", "needs its certificate: write cert, too")


def _check_protocols(kafka: KafkaConfig, origins: Origins) -> None:
    def reject(key: str, reason: str) -> NoReturn:
        raise BadConfig(f"{origin_of(('kafka', *key.split('.')), origins)}: kafka.{key}", reason)

    names = {endpoint.listener for endpoint in kafka.endpoints}
    for name in kafka.protocols:
        if name not in names:
            reject(
                f"protocols.{name}", "there is no such listener in kafka.listeners: add it there, or correct the name"
            )
    encrypted = [endpoint.listener for endpoint in kafka.endpoints if endpoint.protocol.endswith("SSL")]
    if encrypted and not (kafka.tls.cert and kafka.tls.key):
        missing = "key" if kafka.tls.cert else "cert"
        reject(f"tls.{missing}", f"is missing, and listener {encrypted[0]} has TLS: name a PEM file")
    _check_client_certificates(kafka, reject)
    if kafka.authorizer not in ("auto", "none") and not kafka.authenticates:
        reject("authorizer", f'"{kafka.authorizer}" needs a listener that authenticates clients: write "none"')
    if kafka.authorizer == "super-users" and kafka.allow_everyone_if_no_acl_found:
        reject("allow-everyone-if-no-acl-found", 'allows everything without lists: write authorizer = "acls"')
    if kafka.relay == "open" and kafka.authenticates:
        reject("relay", '"open" would give every client the rights of kactl at the brokers: write "checked" or "off"')
    if kafka.relay == "checked" and not kafka.authenticates:
        reject("relay", '"checked" needs a listener that authenticates clients: write "open" or "off"')
    if kafka.relay == "checked" and not kafka.authorizes:
        reject("relay", '"checked" needs an authorizer: write "off"')
    if kafka.has_logins and not kafka.sasl_mechanisms:
        reject("sasl-mechanisms", 'is empty, and a listener has SASL: write ["SCRAM-SHA-512"]')
    if kafka.users and not kafka.has_logins:
        reject("users", "has no effect without logins: set the protocol of a listener to SASL_SSL, or remove it")
    principals = kafka.broker_principals
    if principals.pattern and principals.pattern.count("{id}") != 1:
        reject("broker-principals.pattern", f'{principals.pattern!r} has not {{id}} once: write "User:broker-{{id}}"')
    for broker in principals.names:
        if not (broker.isascii() and broker.isdecimal()):
            reject(f"broker-principals.names.{broker}", "is no broker id: write the id of a broker as the key")


def _check_client_certificates(kafka: KafkaConfig, reject: Callable[[str, str], NoReturn]) -> None:
    tls = kafka.tls
    if tls.client_auth != "none" and not any(endpoint.protocol == "SSL" for endpoint in kafka.endpoints):
        reject("tls.client-auth", "has no effect: it concerns listeners of protocol SSL, and there is none")
    if tls.client_auth != "none" and not tls.client_ca:
        reject("tls.client-ca", "is missing, and client-auth is set: name the file with the clients' authority")
    others = {"client-ca": tls.client_ca, "crl": tls.crl, "principal-rules": tls.principal_rules != "DEFAULT"}
    for key, value in others.items():
        if value and tls.client_auth == "none":
            reject(f"tls.{key}", 'has no effect without client-auth: write client-auth = "required", too')
    try:
        PrincipalRules(tls.principal_rules)
    except ValueError as error:
        reject("tls.principal-rules", str(error))


def _check_instances(api: ApiConfig, origins: Origins) -> None:
    for node_id, url in api.instances.items():
        where = f"{origin_of(('api', 'instances'), origins)}: api.instances"
        if not (node_id.isascii() and node_id.isdecimal()):
            raise BadConfig(where, f'{node_id!r} is not a node-id: write it as "2" = "http://kactl2.example:8080"')
        matched = API_URL.fullmatch(url)
        if matched is None or int(matched["port"] or 0) > _PORT_MAX:
            raise BadConfig(where, f"{url!r} is not the URL of an admin API: write it as http://kactl2.example:8080")


def _check_api_certificates(api: ApiConfig, origins: Origins) -> None:
    def reject(key: str, reason: str) -> NoReturn:
        raise BadConfig(f"{origin_of(('api', *key.split('.')), origins)}: api.{key}", reason)

    tls = api.tls
    if tls.client_auth == "none":
        others = {
            "tls.client-ca": tls.client_ca,
            "tls.crl": tls.crl,
            "tls.principal-rules": tls.principal_rules != "DEFAULT",
            "certificates": api.certificates,
        }
        for key, value in others.items():
            if value:
                reject(key, 'has no effect without api.tls.client-auth: write client-auth = "optional", too')
    elif not tls.cert:
        reject("tls.client-auth", "has no effect without TLS: write cert and key, too")
    elif not tls.client_ca:
        reject("tls.client-ca", "is missing, and client-auth is set: name the file with the clients' authority")
    try:
        PrincipalRules(tls.principal_rules)
    except ValueError as error:
        reject("tls.principal-rules", str(error))


def _check_kafka_client(config: Config, origins: Origins) -> None:
    client = config.kafka.client

    def reject(key: str, reason: str) -> NoReturn:
        raise BadConfig(f"{origin_of(('kafka', 'client', key), origins)}: kafka.client.{key}", reason)

    if client.cert and not client.key:
        reject("cert", "needs its private key: write key, too")
    if client.key and not client.cert:
        reject("key", "needs its certificate: write cert, too")
    for key, value in (("cert", client.cert), ("server-name", client.server_name)):
        if value and not client.ca:
            reject(key, "has no effect without ca: name the file with the authority of the brokers' certificates")
    if client.sasl_mechanism == "GSSAPI":
        reject(
            "sasl-mechanism",
            '"GSSAPI" is not a part of kactl: use SCRAM-SHA-512, or a client certificate (cert and key) on a listener '
            "of protocol SSL",
        )
    _check_login(client, reject)
    is_clear = client.sasl_mechanism in ("PLAIN", "OAUTHBEARER") and not client.ca
    if is_clear and "brokers" not in config.security.allow_insecure:
        secret = "password" if client.sasl_mechanism == "PLAIN" else "token"
        reject(
            "sasl-mechanism",
            f'"{client.sasl_mechanism}" sends the {secret} as it is, and needs TLS: write ca, use SCRAM-SHA-512, or '
            'name "brokers" in security.allow-insecure',
        )


def _check_login(client: KafkaClientConfig, reject: Callable[[str, str], NoReturn]) -> None:
    has_token = client.sasl_mechanism == "OAUTHBEARER"
    if client.token_file and not has_token:
        reject("token-file", 'is for sasl-mechanism = "OAUTHBEARER": write that, too')
    if has_token:
        for key, value in (("username", client.username), ("password-file", client.password_file)):
            if value:
                reject(key, '"OAUTHBEARER" has a token instead: write token-file alone')
        if not client.token_file:
            reject("sasl-mechanism", '"OAUTHBEARER" needs a token: write token-file, too')
        return
    login = {
        "sasl-mechanism": client.sasl_mechanism,
        "username": client.username,
        "password-file": client.password_file,
    }
    given = [key for key, value in login.items() if value]
    if given and len(given) < len(login):
        missing = ", ".join(key for key in login if key not in given)
        reject(given[0], f"needs {missing}: write all of sasl-mechanism, username and password-file")


def _check_listeners(kafka: KafkaConfig, origins: Origins) -> None:
    for key, texts in (("listeners", kafka.listeners), ("advertised-listeners", kafka.advertised_listeners)):
        where = f"{origin_of(('kafka', key), origins)}: kafka.{key}"
        for text in texts:
            matched = ENDPOINT.fullmatch(text)
            if matched is None or int(matched["port"]) > _PORT_MAX:
                raise BadConfig(where, f"{text!r} is not a listener: write it as INTERNAL://127.0.0.1:9190")
        names = [text.partition("://")[0] for text in texts]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise BadConfig(where, f"{twice} is named twice: a listener has one address")
    listened = {endpoint.listener for endpoint in kafka.endpoints}
    for key, named in (
        ("advertised-listeners", [text.partition("://")[0] for text in kafka.advertised_listeners]),
        ("visible-on", kafka.visible_on or ()),
    ):
        unknown = sorted(set(named) - listened)
        if unknown:
            where = f"{origin_of(('kafka', key), origins)}: kafka.{key}"
            raise BadConfig(where, f"{', '.join(unknown)}: there is no such name in kafka.listeners, add it there")
    if not kafka.max_connections_per_ip and not kafka.max_connections_per_ip_overrides:
        where = f"{origin_of(('kafka', 'max-connections-per-ip'), origins)}: kafka.max-connections-per-ip"
        raise BadConfig(where, "0 admits no client: name addresses in kafka.max-connections-per-ip-overrides, too")
    for text in kafka.broker_networks:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            where = f"{origin_of(('kafka', 'broker-networks'), origins)}: kafka.broker-networks"
            raise BadConfig(where, f"{text!r} is not a network: write it as 10.0.0.0/24 or fd00::/64") from None
    open_to_all = [endpoint for endpoint in kafka.advertised if endpoint.host in _ANY_HOST]
    if open_to_all:
        where = f"{origin_of(('kafka', 'listeners'), origins)}: kafka.advertised-listeners"
        raise BadConfig(
            where,
            f"brokers cannot connect to {open_to_all[0].host}: write the address under which they reach this instance",
        )
