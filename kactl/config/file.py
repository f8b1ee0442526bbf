"""Loading and validation of the configuration.

Sources, in order of precedence: the command line, the environment (`KACTL_STORE__CONNECT=...` for `connect` in
`[store]`), the file, the defaults. A source overrides the ones after it key by key. Everything is validated before
anything is started. An unknown key is an error: a misspelt key would silently select a default.
"""

import difflib
import ipaddress
import os
import tomllib
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NoReturn, get_origin

import msgspec

from kactl.access import PrincipalRules
from kactl.errors import BadConfig

from .settings import (
    API_URL,
    ENDPOINT,
    ETCD_ENDPOINT,
    HOST,
    LISTEN,
    OTLP_URL,
    ApiConfig,
    Config,
    Duration,
    KafkaClientConfig,
    KafkaConfig,
    NetworkConfig,
    Section,
    StoreConfig,
)

ENVIRONMENT_PREFIX: Final = "KACTL_"
_NEST: Final = "__"
_ANY_HOST: Final = ("0.0.0.0", "::")
_PORT_MAX: Final = 65_535

# Key -> the file or variable that it comes from.
Origins = Mapping[tuple[str, ...], str]


def load(
    path: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    defaults: Mapping[str, object] | None = None,
) -> Config:
    """Returns the configuration.

    Args:
        path: the file; None reads none.
        env: the environment, or None for an empty one. An unknown variable is an error if it contains `__`; otherwise
            it is ignored, because it may belong to another program.
        overrides: options of the command line, by dotted key (`store.kind`). Text is converted as in the environment,
            and None is skipped.
        defaults: of the command, by dotted key, where they differ from those of `Config`.

    Raises:
        BadConfig: states the file or variable, the key, the problem and a valid value.
    """
    values: dict[str, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    if path is not None:
        values = _read(os.fspath(path))
        _mark(values, (), os.fspath(path), origins)
    for name, text in sorted((env or {}).items()):
        path_ = _key_of(name)
        if path_ is not None:
            _check_source(path_, name)
            _put(values, path_, text, name, origins)
    for key, value in (overrides or {}).items():
        if value is not None:
            _check_source(tuple(key.split(".")), "command line")
            _put(values, tuple(key.split(".")), value, "command line", origins)
    for key, value in (defaults or {}).items():
        path_ = tuple(key.split("."))
        if not _is_set(values, path_):
            _put(values, path_, value, "default of the command", origins)
    if "node-id" not in values:
        source = os.fspath(path) if path is not None else "configuration"
        raise BadConfig(f"{source}: node-id", "is missing: write `node-id = 1`, a number that no broker has")
    return _checked(_converted(values, Config, (), origins), origins)


# -- sources --------------------------------------------------------------------------------------------------------


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise BadConfig(path, "there is no such file: name another one, or create it with `node-id = 1`") from None
    except OSError as error:
        raise BadConfig(path, f"cannot be read ({error.strerror}): check what it is and who may read it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(path, f"is not TOML: {error}") from None
    except RecursionError:
        raise BadConfig(path, "is not TOML that can be read: its values are nested too deeply") from None


def _mark(value: Any, path: tuple[str, ...], origin: str, origins: dict[tuple[str, ...], str]) -> None:
    """Record the origin of a value, and of every value in it; sections are one level deep."""
    origins[path] = origin
    if isinstance(value, dict) and len(path) < 2:
        for key, inner in value.items():
            _mark(inner, (*path, key), origin, origins)


def _key_of(variable: str) -> tuple[str, ...] | None:
    """Returns the key that a variable sets; None if the variable belongs to another program."""
    if not variable.startswith(ENVIRONMENT_PREFIX):
        return None
    path = tuple(part.lower().replace("_", "-") for part in variable.removeprefix(ENVIRONMENT_PREFIX).split(_NEST))
    return path if len(path) > 1 or path[0] in _keys(Config) else None


def _check_source(path: tuple[str, ...], origin: str) -> None:
    """Reject keys that only the file may contain: an insecure interface has to be visible there."""
    if path == ("security", "allow-insecure"):
        raise BadConfig(f"{origin}: {'.'.join(path)}", "can only be set in the configuration file: write it there")


def _is_set(values: Any, path: tuple[str, ...]) -> bool:
    """Whether there is a value for a key, valid or not."""
    for key in path:
        if not isinstance(values, dict):
            return True  # a section that is not a table is rejected later
        if key not in values:
            return False
        values = values[key]
    return True


def _put(
    values: dict[str, Any], path: tuple[str, ...], value: object, origin: str, origins: dict[tuple[str, ...], str]
) -> None:
    """Set one value, replacing an earlier one."""
    expected = _type_at(path, origin)
    if isinstance(value, str):
        value = _read_text(value, expected, path, origin)
    table = values
    for section in path[:-1]:
        inner = table.setdefault(section, {})
        if not isinstance(inner, dict):
            raise BadConfig(f"{origins.get((section,), origin)}: {section}", f"is a section: write `[{section}]`")
        table = inner
    table[path[-1]] = value
    origins[path] = origin


def _read_text(text: str, expected: Any, path: tuple[str, ...], origin: str) -> object:
    """Returns a text value converted to the type of its key."""
    if get_origin(expected) is not Annotated and get_origin(expected) in (tuple, types.UnionType):
        return [_number_if_whole(part.strip()) for part in text.split(",") if part.strip()]
    if _plain(expected) not in (int, bool):
        return text
    try:
        return msgspec.convert(text, _plain(expected), strict=False)
    except msgspec.ValidationError:
        example = "true or false" if _plain(expected) is bool else "a whole number"
        raise BadConfig(f"{origin}: {'.'.join(path)}", f"{text!r} cannot be used: write {example}") from None


def _number_if_whole(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() else text


def _type_at(path: tuple[str, ...], origin: str) -> Any:
    """Returns the type of a key."""
    expected: Any = Config
    for depth, key in enumerate(path):
        known = _keys(expected) if isinstance(expected, type) and issubclass(expected, Section) else {}
        if key not in known:
            raise BadConfig(f"{origin}: {'.'.join(path)}", _unknown(key, known, path[:depth]))
        expected = known[key]
    if isinstance(expected, type) and issubclass(expected, Section):
        raise BadConfig(
            f"{origin}: {'.'.join(path)}", f"is a section: name one of its keys, {', '.join(_keys(expected))}"
        )
    return expected


def _keys(section: type[Section]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(section)}


def _plain(expected: Any) -> Any:
    """Returns the type without its bounds."""
    return expected.__origin__ if get_origin(expected) is Annotated else expected


def _unknown(key: str, known: Mapping[str, Any], within: tuple[str, ...]) -> str:
    if (*within, key) == ("api", "allow-changes"):
        return "has been replaced by tokens with roles: remove it, and see `kactl token create` and docs/security.md"
    if f"{key}-file" in known:
        name = ".".join((*within, f"{key}-file"))
        return f"secrets are not written here: write it into a file of mode 0600 and name that in {name}"
    where = f"[{'.'.join(within)}]" if within else "the top level"
    close = difflib.get_close_matches(key, known, n=1)
    guess = f"did you mean {close[0]}? There" if close else "there"
    return f"is unknown: {guess} are {', '.join(known)} in {where}" if known else f"is unknown: {where} has no keys"


# -- validation -----------------------------------------------------------------------------------------------------


def _converted(values: Any, section: type[Section], parent: tuple[str, ...], origins: Origins) -> Any:
    """Returns a section as a struct. It is converted key by key, so that an error names its key."""
    source = f"{origins.get(parent, 'configuration')}: {'.'.join(parent)}"
    if not isinstance(values, dict):
        raise BadConfig(source, f"is a section, not a value: write `[{parent[-1]}]` above its keys")
    known = _keys(section)
    fields = {}
    for key, value in values.items():
        path = (*parent, key)
        if key not in known:
            raise BadConfig(f"{_origin(path, origins)}: {'.'.join(path)}", _unknown(key, known, parent))
        expected = known[key]
        if isinstance(expected, type) and issubclass(expected, Section):
            fields[key] = _converted(value, expected, path, origins)
            continue
        try:
            fields[key] = msgspec.convert(value, expected, dec_hook=_read_duration)
        except msgspec.ValidationError as error:
            raise BadConfig(
                f"{_origin(path, origins)}: {'.'.join(path)}", f"{value!r} cannot be used: {error}"
            ) from None
    return section(**{name.replace("-", "_"): value for name, value in fields.items()})


def _origin(path: tuple[str, ...], origins: Origins) -> str:
    while path and path not in origins:
        path = path[:-1]
    return origins.get(path, "configuration")


def _read_duration(wanted: type, value: Any) -> Any:
    if wanted is Duration:
        return value if isinstance(value, Duration) else Duration.parse(value)
    raise NotImplementedError(wanted)


def _checked(config: Config, origins: Origins) -> Config:
    """Returns the configuration after the checks that concern several keys or formats."""
    listen = LISTEN.fullmatch(config.api.listen)
    if listen is None or int(listen["port"]) > _PORT_MAX:
        key = ("api", "listen")
        reason = f"{config.api.listen!r} is not an address: write it as 127.0.0.1:8080 or [::1]:8080"
        raise BadConfig(f"{_origin(key, origins)}: api.listen", reason)
    for host in config.api.hosts:
        matched = HOST.fullmatch(host)
        if matched is None or int(matched["port"] or 0) > _PORT_MAX:
            where = f"{_origin(('api', 'hosts'), origins)}: api.hosts"
            raise BadConfig(
                where, f"{host!r} is not a host: write it as kactl.example, kactl.example:443 or [::1]:8080"
            )
    if bool(config.api.tls.cert) != bool(config.api.tls.key):
        given = "cert" if config.api.tls.cert else "key"
        raise BadConfig(
            f"{_origin(('api', 'tls', given), origins)}: api.tls.{given}", "needs the other one: write cert and key"
        )
    _check_api_certificates(config.api, origins)
    _check_instances(config.api, origins)
    _check_listeners(config.kafka, origins)
    _check_kafka_client(config.kafka.client, origins)
    _check_protocols(config.kafka, origins)
    _check_store(config.store, origins)
    _check_network(config.network, origins)
    collector = OTLP_URL.fullmatch(config.telemetry.otlp)
    if config.telemetry.otlp and (collector is None or int(collector["port"] or 0) > _PORT_MAX):
        where = f"{_origin(('telemetry', 'otlp'), origins)}: telemetry.otlp"
        raise BadConfig(where, f"{config.telemetry.otlp!r} is not a URL: write it as http://127.0.0.1:4318")
    return config


def _check_network(network: NetworkConfig, origins: Origins) -> None:
    def reject(key: str, reason: str) -> NoReturn:
        raise BadConfig(f"{_origin(('network', key), origins)}: network.{key}", reason)

    addresses = [("listen", network.listen), ("advertise", network.advertise)]
    addresses += [("controllers", address) for address in network.controllers]
    for key, address in addresses:
        matched = LISTEN.fullmatch(address)
        if address and (matched is None or int(matched["port"]) > _PORT_MAX):
            reject(key, f"{address!r} is not an address: write it as 10.0.0.1:7373 or [::1]:7373")
    given = [key for key, value in (("cert", network.cert), ("key", network.key), ("ca", network.ca)) if value]
    if given and len(given) < 3:
        reject(given[0], "needs the others: write cert, key and ca")
    if not network.listen:
        for key, value in (("advertise", network.advertise), ("secret-file", network.secret_file)):
            if value:
                reject(key, "has no effect without listen: write the address to listen on, too")


def _check_store(store: StoreConfig, origins: Origins) -> None:
    def reject(key: str, reason: str) -> NoReturn:
        origin = _origin(("store", key if ("store", key) in origins else "kind"), origins)
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
        if store.client == "kazoo" and (store.tls or store.user):
            reject("client", '"kazoo" connects in clear text and without an identity: write "kactl"')
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
        raise BadConfig(f"{_origin(('kafka', *key.split('.')), origins)}: kafka.{key}", reason)

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
    if kafka.relay == "open" and kafka.authenticates:
        reject("relay", '"open" would give every client the rights of kactl at the brokers: write "checked" or "off"')
    if kafka.relay == "checked" and not kafka.authenticates:
        reject("relay", '"checked" needs a listener that authenticates clients: write "open" or "off"')
    if kafka.has_logins and not kafka.sasl_mechanisms:
        reject("sasl-mechanisms", 'is empty, and a listener has SASL: write ["SCRAM-SHA-512"]')
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
        where = f"{_origin(('api', 'instances'), origins)}: api.instances"
        if not (node_id.isascii() and node_id.isdecimal()):
            raise BadConfig(where, f'{node_id!r} is not a node-id: write it as "2" = "http://kactl2.example:8080"')
        matched = API_URL.fullmatch(url)
        if matched is None or int(matched["port"] or 0) > _PORT_MAX:
            raise BadConfig(where, f"{url!r} is not the URL of an admin API: write it as http://kactl2.example:8080")


def _check_api_certificates(api: ApiConfig, origins: Origins) -> None:
    def reject(key: str, reason: str) -> NoReturn:
        raise BadConfig(f"{_origin(('api', *key.split('.')), origins)}: api.{key}", reason)

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


def _check_kafka_client(client: KafkaClientConfig, origins: Origins) -> None:
    def reject(key: str, reason: str) -> NoReturn:
        raise BadConfig(f"{_origin(('kafka', 'client', key), origins)}: kafka.client.{key}", reason)

    if client.cert and not client.key:
        reject("cert", "needs its private key: write key, too")
    if client.key and not client.cert:
        reject("key", "needs its certificate: write cert, too")
    for key, value in (("cert", client.cert), ("server-name", client.server_name)):
        if value and not client.ca:
            reject(key, "has no effect without ca: name the file with the authority of the brokers' certificates")
    login = {
        "sasl-mechanism": client.sasl_mechanism,
        "username": client.username,
        "password-file": client.password_file,
    }
    given = [key for key, value in login.items() if value]
    if given and len(given) < len(login):
        missing = ", ".join(key for key in login if key not in given)
        reject(given[0], f"needs {missing}: write all of sasl-mechanism, username and password-file")
    if client.sasl_mechanism == "PLAIN" and not client.ca:
        reject("sasl-mechanism", '"PLAIN" sends the password as it is, and needs TLS: write ca, or use SCRAM-SHA-512')


def _check_listeners(kafka: KafkaConfig, origins: Origins) -> None:
    for key, texts in (("listeners", kafka.listeners), ("advertised-listeners", kafka.advertised_listeners)):
        where = f"{_origin(('kafka', key), origins)}: kafka.{key}"
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
            where = f"{_origin(('kafka', key), origins)}: kafka.{key}"
            raise BadConfig(where, f"{', '.join(unknown)}: there is no such name in kafka.listeners, add it there")
    for text in kafka.broker_networks:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            where = f"{_origin(('kafka', 'broker-networks'), origins)}: kafka.broker-networks"
            raise BadConfig(where, f"{text!r} is not a network: write it as 10.0.0.0/24 or fd00::/64") from None
    open_to_all = [endpoint for endpoint in kafka.advertised if endpoint.host in _ANY_HOST]
    if open_to_all:
        where = f"{_origin(('kafka', 'listeners'), origins)}: kafka.advertised-listeners"
        raise BadConfig(
            where,
            f"brokers cannot connect to {open_to_all[0].host}: write the address under which they reach this instance",
        )
