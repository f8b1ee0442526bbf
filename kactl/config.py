"""The configuration: what a `kactl.toml` may say, and where its values come from.

Defaults, then the file, then the environment (`KACTL_STORE__CONNECT=...` for `connect` in `[store]`), then what the
command line says; each takes the place of the one before, key by key. Everything is checked before anything is
started, and an unknown key is an error: a misspelt one would be a default that nobody chose.
"""

import difflib
import os
import re
import tomllib
import types
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, get_origin

import msgspec
from msgspec import Meta

from kactl.errors import BadConfig
from kactl.model import Endpoint

ENVIRONMENT_PREFIX: Final = "KACTL_"
_NEST: Final = "__"
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_LISTEN: Final = re.compile(r"(?:\[(?P<ipv6>[0-9a-fA-F:.]+)\]|(?P<name>[^:\[\]\s/]+)):(?P<port>[0-9]{1,5})")
_ANY_HOST: Final = ("0.0.0.0", "::")
_PORT_MAX: Final = 65_535
_INT16_MAX: Final = 2**15 - 1
_INT32_MAX: Final = 2**31 - 1
_ENDPOINT: Final = re.compile(r"(?P<listener>[A-Za-z0-9_-]+)://" + _LISTEN.pattern)

Origins = Mapping[tuple[str, ...], str]


class Duration(int):
    """Milliseconds; written with a unit, as in `18s` or `500ms`."""

    @classmethod
    def parse(cls, text: object) -> "Duration":
        """Raises ValueError unless it is a text with a unit, and more than nothing."""
        matched = _DURATION.fullmatch(text) if isinstance(text, str) else None
        if matched is None or not int(matched[1]):
            raise ValueError(f'{text!r} is no duration: write it in quotes and with a unit, as in "18s" or "500ms"')
        return cls(int(matched[1]) * _UNITS_MS[matched[2]])


class _Section(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """Keys are written with dashes."""


class StoreConfig(_Section, frozen=True):
    """`[store]`: where the cluster is kept.

    Attributes:
        path: the file, for sqlite; relative to the working directory.
        connect: hosts and chroot, for zookeeper.
        session_timeout: after which a broker or controller that says nothing counts as dead.
        max_in_flight: writes that are on their way to ZooKeeper at one time; each holds `batch_partitions`.
        sticky: for zookeeper: the controllership stays with kactl's instances even while none of them runs, so that no
            broker takes it; all instances have to agree on it.
    """

    kind: Literal["sqlite", "memory", "zookeeper"] = "sqlite"
    path: Annotated[str, Meta(min_length=1)] = "kactl.db"
    connect: str = ""
    session_timeout: Duration = Duration(18_000)
    max_in_flight: Annotated[int, Meta(ge=1, le=1000)] = 20
    batch_partitions: Annotated[int, Meta(ge=1, le=1000)] = 100
    sticky: bool = False


class ControllerConfig(_Section, frozen=True):
    """`[controller]`.

    Attributes:
        unclean_leader_election: whether topics that say nothing of it allow it; a default for all brokers that is
            kept in the store goes before it.
        auto_leader_rebalance: whether leaders return to their preferred replicas by themselves: every
            `leader_imbalance_check_interval`, where others lead more than `leader_imbalance_percent` of the partitions
            that prefer a broker.
        delete_topics: whether topics may be deleted.
        takeover: take the controllership from whoever holds it, when starting.
        warm_standby: whether an instance that stands by follows what changes, so that it has little to read when it
            takes over.
        controller_socket_timeout: how long one request to a broker may take.
    """

    unclean_leader_election: bool = False
    auto_leader_rebalance: bool = True
    leader_imbalance_percent: Annotated[int, Meta(ge=0, le=100)] = 10
    leader_imbalance_check_interval: Duration = Duration(300_000)
    delete_topics: bool = True
    takeover: bool = False
    warm_standby: bool = True
    controller_socket_timeout: Duration = Duration(30_000)


class KafkaConfig(_Section, frozen=True):
    """`[kafka]`: how real brokers are spoken to.

    Attributes:
        ibp: `inter.broker.protocol.version`, the same as on every broker.
        listener_name: `inter.broker.listener.name` of the brokers.
        listeners: where we listen for brokers and tools, as `NAME://host:port`; the names are those of the brokers'
            listeners. Without any, brokers cannot ask us anything.
        advertised_listeners: how they reach us, where that is something else; in the same form.
        visible_on: the names of those listeners on which brokers list us as one of them, so that what looks for the
            controller finds it there; None for all.
        controller_ids: ids that are, or may be, those of kactl's instances besides our own: no replica is placed on
            them.
        num_partitions, default_replication_factor: of topics that tools ask us to create without. Kafka's names.
        max_connections: of all listeners together.
        socket_request_max_bytes: the largest request that is taken from anybody. Kafka's name.
    """

    ibp: str = "2.6"
    listener_name: Annotated[str, Meta(min_length=1)] = "PLAINTEXT"
    listeners: tuple[str, ...] = ()
    advertised_listeners: tuple[str, ...] = ()
    visible_on: tuple[str, ...] | None = None
    controller_ids: tuple[Annotated[int, Meta(ge=0, le=_INT32_MAX)], ...] = ()
    num_partitions: Annotated[int, Meta(ge=1, le=50_000)] = 1
    default_replication_factor: Annotated[int, Meta(ge=1, le=_INT16_MAX)] = 1
    max_connections: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    socket_request_max_bytes: Annotated[int, Meta(ge=1024, le=_INT32_MAX)] = 100 * 1024 * 1024

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where we listen."""
        return tuple(map(_endpoint, self.listeners))

    @property
    def advertised(self) -> tuple[Endpoint, ...]:
        """Under which addresses brokers list us; empty if they are not to."""
        said = {each.listener: each for each in map(_endpoint, self.advertised_listeners)}
        shown = [each.listener for each in self.endpoints] if self.visible_on is None else self.visible_on
        return tuple(said.get(each.listener, each) for each in self.endpoints if each.listener in shown)


def _endpoint(text: str) -> Endpoint:
    matched = _ENDPOINT.fullmatch(text)
    assert matched is not None, "checked when it was read"
    return Endpoint(matched["listener"], matched["ipv6"] or matched["name"], int(matched["port"]))


class Listen(NamedTuple):
    """Where a server listens. Port 0 takes a free one."""

    host: str
    port: int


class ApiConfig(_Section, frozen=True):
    """`[api]`: where the admin API listens, as `host:port` or `[ipv6]:port`."""

    listen: str = "127.0.0.1:8080"

    @property
    def address(self) -> Listen:
        matched = _LISTEN.fullmatch(self.listen)
        assert matched is not None, "checked when it was read"
        return Listen(matched["ipv6"] or matched["name"], int(matched["port"]))


class ParticipantsConfig(_Section, frozen=True):
    """`[participants]`: how many brokers `kactl up` runs in its own process."""

    count: Annotated[int, Meta(ge=0, le=1000)] = 3


class Config(_Section, frozen=True):
    """All of it. Only `node-id` has no default."""

    node_id: Annotated[int, Meta(ge=0, le=_INT32_MAX)]
    cluster: Annotated[str, Meta(min_length=1, max_length=249)] = "kactl"
    store: StoreConfig = StoreConfig()
    controller: ControllerConfig = ControllerConfig()
    kafka: KafkaConfig = KafkaConfig()
    api: ApiConfig = ApiConfig()
    participants: ParticipantsConfig = ParticipantsConfig()


def load(
    path: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """Read the configuration.

    Args:
        path: the file; None reads none.
        env: the environment, or None for an empty one. Variables that name no key are an error if they have a `__`,
            and somebody else's if they have none.
        overrides: what the command line says, by dotted key (`store.kind`); text is read as in the environment, and
            None is passed over.

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
        known = _keys(wanted) if isinstance(wanted, type) and issubclass(wanted, _Section) else {}
        if key not in known:
            raise BadConfig(f"{origin}: {'.'.join(at)}", _unknown(key, known, at[:depth]))
        wanted = known[key]
    if isinstance(wanted, type) and issubclass(wanted, _Section):
        raise BadConfig(f"{origin}: {'.'.join(at)}", f"is a section: name one of its keys, {', '.join(_keys(wanted))}")
    return wanted


def _keys(section: type[_Section]) -> dict[str, Any]:
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


def _converted(values: Any, section: type[_Section], at: tuple[str, ...], origins: Origins) -> Any:
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
        if isinstance(wanted, type) and issubclass(wanted, _Section):
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
    listen = _LISTEN.fullmatch(config.api.listen)
    if listen is None or int(listen["port"]) > _PORT_MAX:
        at = ("api", "listen")
        reason = f"{config.api.listen!r} is no address: write it as 127.0.0.1:8080 or [::1]:8080"
        raise BadConfig(f"{_origin(at, origins)}: api.listen", reason)
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
            matched = _ENDPOINT.fullmatch(text)
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
    open_to_all = [each for each in kafka.advertised if each.host in _ANY_HOST]
    if open_to_all:
        where = f"{_origin(('kafka', 'listeners'), origins)}: kafka.advertised-listeners"
        raise BadConfig(
            where, f"nobody can connect to {open_to_all[0].host}: write under which address brokers reach this one"
        )
