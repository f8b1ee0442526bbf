"""Reference of the configuration: keys, types and defaults from the code, meanings from docs/operating.md."""

import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from kactl.config.settings import Config
from kactl.config.values import Duration

_ROW: Final = re.compile(r"^\| (?:\*\*)?`([^`]+)`(?:\*\*)? \| ([^|]*)\|(.*)\|[ ]*$", re.MULTILINE)
_HEAD: Final = """# Configuration

Keys of `kactl.toml` and their environment variables. [Operating kactl](../operating.md#configuration) describes how
files, variables and options combine. `kactl config validate FILE` checks a file, and `kactl config show` prints the
effective values."""


class Undocumented(Exception):
    """A key has no row in docs/operating.md."""


def configuration_page(root: Path) -> str:
    """Returns the page: a table for each section of the file.

    Raises:
        Undocumented: docs/operating.md does not explain a key.
    """
    rows = _documented((root / "docs" / "operating.md").read_text(encoding="utf-8"))
    return "\n\n".join((_HEAD, *_sections(Config, "", rows))) + "\n"


def _documented(text: str) -> dict[str, tuple[str, str]]:
    """Returns default and meaning, as written in the page, by section and key."""
    section, found = "", {}
    for name, default, meaning in _ROW.findall(text):
        section = name if name.startswith("[") else section
        found[f"{section}{name}" if name != section else name] = (default.strip(), meaning.strip())
    return found


def _sections(section: type[msgspec.Struct], path: str, rows: dict[str, tuple[str, str]]) -> Iterator[str]:
    fields = msgspec.structs.fields(section)
    below = [field for field in fields if _is_section(field.type)]
    own = [field for field in fields if not _is_section(field.type)]
    yield f"## `[{path}]`" if path else "## Top level"
    yield f"In the environment: `{_variable(path, '...')}`, such as `{_variable(path, own[0].encode_name)}`."
    head = "| key | meaning | type | default |\n| --- | --- | --- | --- |\n"
    yield head + "\n".join(_row(field, path, rows) for field in own)
    for field in below:
        yield from _sections(field.type, f"{path}.{field.encode_name}".removeprefix("."), rows)


def _row(field: msgspec.structs.FieldInfo, path: str, rows: dict[str, tuple[str, str]]) -> str:
    key = field.encode_name
    name = f"[{path}]{key}" if path else key
    if name not in rows:
        raise Undocumented(f"docs/operating.md does not explain {name}")
    default, meaning = rows[name]
    return f"| `{key}` | {_for_reference(meaning)} | {_type(field.type)} | {default} |"


def _variable(path: str, key: str) -> str:
    parts = (*filter(None, path.split(".")), key)
    return "KACTL_" + "__".join(part.replace("-", "_").upper() for part in parts)


def _for_reference(meaning: str) -> str:
    """Links of docs/operating.md, from a page in the folder below."""
    meaning = re.sub(r"\]\(#", "](../operating.md#", meaning)
    return re.sub(r"\]\((?!\.\./|https?:)([\w-]+\.md)", r"](../\1", meaning)


def _is_section(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, msgspec.Struct)


def _type(found: Any) -> str:
    origin, arguments = typing.get_origin(found), typing.get_args(found)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{str(value).lower() if isinstance(value, bool) else value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(each) for each in arguments if each is not type(None))
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "table"
    names = {Duration: "duration", str: "text", int: "number", float: "number", bool: "`true`, `false`"}
    return names.get(found) or found.__name__.lower()
