"""The JSON Schema of configuration files accepts the files that the program accepts, and describes every key."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import msgspec
import pytest

from kactl.config.file import load
from kactl.config.json_schema import json_schema
from kactl.config.values import Duration
from kactl.model.errors import BadConfig

SCHEMA = json_schema()
VALID = jsonschema.Draft202012Validator(SCHEMA)


def keys(section: dict[str, Any], *parents: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each key below a section, with its schema."""
    for name, schema in section["properties"].items():
        if "properties" in schema:
            yield from keys(schema, *parents, name)
        yield ".".join((*parents, name)), schema


def test_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(("key", "schema"), [pytest.param(key, schema, id=key) for key, schema in keys(SCHEMA)])
def test_every_key_is_described(key: str, schema: dict[str, Any]) -> None:
    assert schema["description"]
    assert "\n    " not in schema["description"]


def test_defaults_of_the_schema_are_those_of_the_program() -> None:
    sections: dict[str, Any] = {"node-id": 1}
    for name, schema in keys(SCHEMA):
        *parents, key = name.split(".")
        if "default" in schema:
            section = sections
            for parent in parents:
                section = section.setdefault(parent, {})
            section[key] = msgspec.to_builtins(schema["default"])

    VALID.validate(sections)
    overrides = {name: sections_value(sections, name) for name, schema in keys(SCHEMA) if "default" in schema}
    # Only the file may contain this.
    del overrides["security.allow-insecure"]
    assert load(overrides={"node-id": 1, **overrides}) == load(overrides={"node-id": 1})


def sections_value(sections: dict[str, Any], name: str) -> Any:
    value: Any = sections
    for key in name.split("."):
        value = value[key]
    return value


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"node-id": -1},
        {"node-id": 1, "nodeid": 1},
        {"node-id": 1, "store": {"kind": "redis"}},
        {"node-id": 1, "store": {"session-timeout": 18}},
        {"node-id": 1, "store": {"session-timeout": "0s"}},
        {"node-id": 1, "store": {"session-timeout": "18 s"}},
        {"node-id": 1, "kafka": {"tls": {"client-auth": "always"}}},
        {"node-id": 1, "health": {"preferred-imbalance-percent": 101}},
    ],
    ids=str,
)
def test_schema_rejects_what_the_program_rejects(document: dict[str, Any], tmp_path: Any) -> None:
    file = tmp_path / "kactl.toml"
    file.write_text("".join(toml_lines(document)))

    with pytest.raises(BadConfig):
        load(file)
    assert not VALID.is_valid(document)


def toml_lines(values: dict[str, Any], *parents: str) -> Iterator[str]:
    yield from (f"{key} = {msgspec.json.encode(v).decode()}\n" for key, v in values.items() if not isinstance(v, dict))
    for key, value in values.items():
        if isinstance(value, dict):
            yield f"[{'.'.join((*parents, key))}]\n"
            yield from toml_lines(value, *parents, key)


@pytest.mark.parametrize("text", ["1ms", "500ms", "18s", "5m", "1h", "30d", "90s"])
def test_text_of_a_duration_is_read_back(text: str) -> None:
    assert Duration.parse(text).text == text
