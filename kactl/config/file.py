"""Where the values of a configuration come from, and whether they can be used.

Defaults, then the file, then the environment (`KACTL_STORE__CONNECT=...` for `connect` in `[store]`), then what the
command line says; each takes the place of the one before, key by key. Everything is checked before anything is
started, and an unknown key is an error: a misspelt one would be a default that nobody chose.
"""

import difflib
import ipaddress
import os
import tomllib
import types
from collections.abc import Mapping
from typing import Annotated, Any, Final, get_origin

import msgspec

from kactl.errors import BadConfig

from .settings import ENDPOINT, HOST, LISTEN, Config, Duration, KafkaConfig, Section

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
    """Read the configuration.

    Args:
        path: the file; None reads none.
        env: the environment, or None for an empty one. Variables that name no key are an error if they have a `__`,
            and somebody else's if they have none.
        overrides: what the command line says, by dotted key (`store.kind`); text is read as in the environment, and
            None is passed over.
        defaults: of the command, by dotted key, where they differ from those of `Config`.

    Raises:
        BadConfig: names the file or variable, the key, what is wrong and what would be right.
    """
    values: dict[str, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    if path is not None:
        values = _read(os.fspath(path))
        _mark(values, (), os.fspath(path), origins)
    for name, text in sorted((env or {}).items()):
        at = _key_of(name)
        if at is not None:
            _put(values, at, text, name, origins)
    for key, value in (overrides or {}).items():
        if value is not None:
            _put(values, tuple(key.split(".")), value, "command line", origins)
    for key, value in (defaults or {}).items():
        at = tuple(key.split("."))
        if not _is_set(values, at):
            _put(values, at, value, "default of the command", origins)
    if "node-id" not in values:
        where = os.fspath(path) if path is not None else "configuration"
        raise BadConfig(f"{where}: node-id", "is missing: write `node-id = 1`, a number that no broker has")
    return _checked(_converted(values, Config, (), origins), origins)


# -- where values come from --------------------------------------------------------------------------------------------


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


def _mark(value: Any, at: tuple[str, ...], origin: str, origins: dict[tuple[str, ...], str]) -> None:
    """Note where a value, and every value in it, comes from; sections are one level deep."""
    origins[at] = origin
    if isinstance(value, dict) and len(at) < 2:
        for key, inner in value.items():
            _mark(inner, (*at, key), origin, origins)


def _key_of(variable: str) -> tuple[str, ...] | None:
    """The key that a variable names; None if it is somebody else's."""
    if not variable.startswith(ENVIRONMENT_PREFIX):
        return None
    at = tuple(part.lower().replace("_", "-") for part in variable.removeprefix(ENVIRONMENT_PREFIX).split(_NEST))
    return at if len(at) > 1 or at[0] in _keys(Config) else None


def _is_set(values: Any, at: tuple[str, ...]) -> bool:
    """Whether there is a value for a key, be it one that cannot be used."""
    for key in at:
        if not isinstance(values, dict):
            return True  # a section that is none is refused later
        if key not in values:
            return False
        values = values[key]
    return True


def _put(
    values: dict[str, Any], at: tuple[str, ...], value: object, origin: str, origins: dict[tuple[str, ...], str]
) -> None:
    """Lay one value over what is there."""
    wanted = _type_at(at, origin)
    if isinstance(value, str):
        value = _read_text(value, wanted, at, origin)
    within = values
    for section in at[:-1]:
        inner = within.setdefault(section, {})
        if not isinstance(inner, dict):
            raise BadConfig(f"{origins.get((section,), origin)}: {section}", f"is a section: write `[{section}]`")
        within = inner
    within[at[-1]] = value
    origins[at] = origin


def _read_text(text: str, wanted: Any, at: tuple[str, ...], origin: str) -> object:
    """A value that could only be written as text, as what its key wants."""
    if get_origin(wanted) is not Annotated and get_origin(wanted) in (tuple, types.UnionType):
        return [_number_if_whole(part.strip()) for part in text.split(",") if part.strip()]
    if _plain(wanted) not in (int, bool):
        return text
    try:
        return msgspec.convert(text, _plain(wanted), strict=False)
    except msgspec.ValidationError:
        example = "true or false" if _plain(wanted) is bool else "a whole number"
        raise BadConfig(f"{origin}: {'.'.join(at)}", f"{text!r} cannot be used: write {example}") from None


def _number_if_whole(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() else text


def _type_at(at: tuple[str, ...], origin: str) -> Any:
    """What the key wants."""
    wanted: Any = Config
    for depth, key in enumerate(at):
        known = _keys(wanted) if isinstance(wanted, type) and issubclass(wanted, Section) else {}
        if key not in known:
            raise BadConfig(f"{origin}: {'.'.join(at)}", _unknown(key, known, at[:depth]))
        wanted = known[key]
    if isinstance(wanted, type) and issubclass(wanted, Section):
        raise BadConfig(f"{origin}: {'.'.join(at)}", f"is a section: name one of its keys, {', '.join(_keys(wanted))}")
    return wanted


def _keys(section: type[Section]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(section)}


def _plain(wanted: Any) -> Any:
    """The type without its bounds."""
    return wanted.__origin__ if get_origin(wanted) is Annotated else wanted


def _unknown(key: str, known: Mapping[str, Any], within: tuple[str, ...]) -> str:
    where = f"[{'.'.join(within)}]" if within else "the top level"
    close = difflib.get_close_matches(key, known, n=1)
    guess = f"did you mean {close[0]}? There" if close else "there"
    return f"is unknown: {guess} are {', '.join(known)} in {where}" if known else f"is unknown: {where} has no keys"


# -- what they have to be ----------------------------------------------------------------------------------------------


def _converted(values: Any, section: type[Section], at: tuple[str, ...], origins: Origins) -> Any:
    """The section as a struct, key by key, so that what is wrong can be named."""
    where = f"{origins.get(at, 'configuration')}: {'.'.join(at)}"
    if not isinstance(values, dict):
        raise BadConfig(where, f"is a section, not a value: write `[{at[-1]}]` above its keys")
    known = _keys(section)
    read = {}
    for key, value in values.items():
        path = (*at, key)
        if key not in known:
            raise BadConfig(f"{_origin(path, origins)}: {'.'.join(path)}", _unknown(key, known, at))
        wanted = known[key]
        if isinstance(wanted, type) and issubclass(wanted, Section):
            read[key] = _converted(value, wanted, path, origins)
            continue
        try:
            read[key] = msgspec.convert(value, wanted, dec_hook=_read_duration)
        except msgspec.ValidationError as error:
            raise BadConfig(
                f"{_origin(path, origins)}: {'.'.join(path)}", f"{value!r} cannot be used: {error}"
            ) from None
    return section(**{name.replace("-", "_"): value for name, value in read.items()})


def _origin(path: tuple[str, ...], origins: Origins) -> str:
    while path and path not in origins:
        path = path[:-1]
    return origins.get(path, "configuration")


def _read_duration(wanted: type, value: Any) -> Any:
    if wanted is Duration:
        return value if isinstance(value, Duration) else Duration.parse(value)
    raise NotImplementedError(wanted)


def _checked(config: Config, origins: Origins) -> Config:
    """What no single type can say."""
    listen = LISTEN.fullmatch(config.api.listen)
    if listen is None or int(listen["port"]) > _PORT_MAX:
        at = ("api", "listen")
        reason = f"{config.api.listen!r} is no address: write it as 127.0.0.1:8080 or [::1]:8080"
        raise BadConfig(f"{_origin(at, origins)}: api.listen", reason)
    for host in config.api.hosts:
        matched = HOST.fullmatch(host)
        if matched is None or int(matched["port"] or 0) > _PORT_MAX:
            where = f"{_origin(('api', 'hosts'), origins)}: api.hosts"
            raise BadConfig(where, f"{host!r} is no host: write it as kactl.example, kactl.example:443 or [::1]:8080")
    _check_listeners(config.kafka, origins)
    if config.store.kind == "zookeeper" and not config.store.connect:
        at = ("store", "kind")
        raise BadConfig(
            f"{_origin(at, origins)}: store.connect",
            'is missing, and the store is ZooKeeper: write where it is, as in connect = "127.0.0.1:2181/kafka"',
        )
    return config


def _check_listeners(kafka: KafkaConfig, origins: Origins) -> None:
    for key, texts in (("listeners", kafka.listeners), ("advertised-listeners", kafka.advertised_listeners)):
        where = f"{_origin(('kafka', key), origins)}: kafka.{key}"
        for text in texts:
            matched = ENDPOINT.fullmatch(text)
            if matched is None or int(matched["port"]) > _PORT_MAX:
                raise BadConfig(where, f"{text!r} is no listener: write it as INTERNAL://127.0.0.1:9190")
        names = [text.partition("://")[0] for text in texts]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise BadConfig(where, f"{twice} is named twice: a listener has one address")
    listened = {each.listener for each in kafka.endpoints}
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
            raise BadConfig(where, f"{text!r} is no network: write it as 10.0.0.0/24 or fd00::/64") from None
    open_to_all = [each for each in kafka.advertised if each.host in _ANY_HOST]
    if open_to_all:
        where = f"{_origin(('kafka', 'listeners'), origins)}: kafka.advertised-listeners"
        raise BadConfig(
            where, f"nobody can connect to {open_to_all[0].host}: write under which address brokers reach this one"
        )
