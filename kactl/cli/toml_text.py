"""Text of TOML documents."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec


def toml_lines(values: dict[str, Any], parent: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the lines of a document. Keys are quoted where they are no plain keys."""
    yield from (f"{_key(key)} = {_literal(value)}" for key, value in values.items() if not isinstance(value, dict))
    for name, section in values.items():
        if isinstance(section, dict):
            path = (*parent, name)
            if not section or any(not isinstance(value, dict) for value in section.values()):
                yield ""
                yield f"[{'.'.join(map(_key, path))}]"
            yield from toml_lines(section, path)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _literal(name)


def _literal(value: str | int | bool) -> str:
    # A TOML string, number or boolean is written as in JSON.
    return msgspec.json.encode(value).decode()
