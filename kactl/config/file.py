"""Loading of the configuration.

Sources, in order of precedence: the command line, the environment (`KACTL_STORE__CONNECT=...` for `connect` in
`[store]`), the file, the defaults. A source overrides the ones after it key by key. Everything is validated before
anything is started, each key here and their combinations by `checks`. An unknown key is an error: a misspelt key would
silently select a default.
"""

import difflib
import os
import tomllib
import types
from collections.abc import Mapping
from typing import Annotated, Any, Final, get_origin

import msgspec

from kactl.model.errors import BadConfig
from kactl.runtime.private_files import check_trusted

from .accepted import accepted
from .checks import Origins, checked, origin_of
from .settings import SESSION_TIMEOUTS, Config
from .values import Duration, Section

ENVIRONMENT_PREFIX: Final = "KACTL_"
_NEST: Final = "__"


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
    config = _converted(values, Config, (), origins)
    if not _is_set(values, ("store", "session-timeout")):
        session_timeout = SESSION_TIMEOUTS[config.store.kind]
        config = msgspec.structs.replace(
            config, store=msgspec.structs.replace(config.store, session_timeout=session_timeout)
        )
    return checked(config, origins)


# -- sources --------------------------------------------------------------------------------------------------------


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            check_trusted(path, path, os.fstat(file.fileno()))
            return tomllib.load(file)
    except FileNotFoundError:
        raise BadConfig(path, "there is no such file: name another one, or create it with `node-id = 1`") from None
    except OSError as error:
        raise BadConfig(path, f"cannot be read ({error.strerror}): check what it is and who may read it") from None
    except UnicodeDecodeError as error:
        raise BadConfig(
            path, f"is not TOML: byte {error.start} is not UTF-8; store the file in this encoding"
        ) from None
    except tomllib.TOMLDecodeError as error:
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
    if get_origin(expected) is not Annotated and get_origin(expected) in (tuple, types.UnionType):
        return [_number_if_whole(part.strip()) for part in text.split(",") if part.strip()]
    if _plain(expected) not in (int, bool):
        return text
    try:
        return msgspec.convert(text, _plain(expected), strict=False)
    except msgspec.ValidationError:
        raise BadConfig(f"{origin}: {'.'.join(path)}", f"{text!r} cannot be used: write {accepted(expected)}") from None


def _number_if_whole(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() else text


def _type_at(path: tuple[str, ...], origin: str) -> Any:
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
            raise BadConfig(f"{origin_of(path, origins)}: {'.'.join(path)}", _unknown(key, known, parent))
        expected = known[key]
        if isinstance(expected, type) and issubclass(expected, Section):
            fields[key] = _converted(value, expected, path, origins)
            continue
        try:
            fields[key] = msgspec.convert(value, expected, dec_hook=_read_duration)
        except msgspec.ValidationError as error:
            # The error of a duration has its form, those of msgspec the names of Python's types.
            reason = str(error) if expected is Duration else f"write {accepted(expected)}"
            raise BadConfig(
                f"{origin_of(path, origins)}: {'.'.join(path)}", f"{value!r} cannot be used: {reason}"
            ) from None
    return section(**{name.replace("-", "_"): value for name, value in fields.items()})


def _read_duration(wanted: type, value: Any) -> Any:
    if wanted is Duration:
        return value if isinstance(value, Duration) else Duration.parse(value)
    raise NotImplementedError(wanted)
