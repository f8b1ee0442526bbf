"""JSON Schema of the configuration file, generated from the classes of its sections."""

from typing import Any, Final

import msgspec

from kactl.runtime import docstrings

from .settings import Config
from .values import Duration, Section

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DURATION: Final = {
    "type": "string",
    "pattern": "^0*[1-9][0-9]{0,11}(ms|s|m|h|d)$",
    "examples": ["500ms", "18s", "5m"],
}


def json_schema() -> dict[str, Any]:
    """Returns the schema of a configuration file. Editors complete and check files by it."""
    return {"$schema": DIALECT, "title": "kactl.toml", **_section(Config)}


def _section(section: type[Section]) -> dict[str, Any]:
    """Returns the schema of a section. Its keys are those of the file, and unknown keys are errors."""
    fields = msgspec.structs.fields(section)
    described = docstrings.of_fields(section, [field.name for field in fields])
    properties = {field.encode_name: _key(field, described.get(field.name, "")) for field in fields}
    return {
        "type": "object",
        "description": docstrings.summary(section),
        "properties": properties,
        "required": [field.encode_name for field in fields if field.required],
        "additionalProperties": False,
    }


def _key(field: msgspec.structs.FieldInfo, description: str) -> dict[str, Any]:
    if isinstance(field.type, type) and issubclass(field.type, Section):
        return _section(field.type)
    schema = msgspec.json.schema(field.type, schema_hook=_of_type)
    if description:
        schema["description"] = description
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory
    if default is msgspec.NODEFAULT or default is None:
        return schema
    value = default() if callable(default) else default
    plain = value.text if isinstance(value, Duration) else value
    schema["default"] = msgspec.json.decode(msgspec.json.encode(plain))
    return schema


def _of_type(kind: type) -> dict[str, Any]:
    if kind is Duration:
        return dict(_DURATION)
    raise NotImplementedError(kind)
