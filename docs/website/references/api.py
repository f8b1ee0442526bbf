"""Reference of the admin API, from its OpenAPI document."""

from collections.abc import Iterator
from typing import Any, Final

from kactl.admin import openapi
from kactl.admin.routes.route_table import ROUTES

from .docstrings import cell, escaped

_HEAD: Final = """# Admin API

The API uses plain JSON. `kactl up` and `kactl controller` serve it, with this description as an OpenAPI document at
`/openapi.json`. [Operating kactl](../operating.md#the-admin-api) describes its conventions, and
[Security](../security.md#the-admin-api) the roles. Every `GET` route also accepts `HEAD`. The response to a rejected
request is a [Problem](#problem)."""
_SCHEMA: Final = "#/components/schemas/"


def api_page() -> str:
    """Returns the page: a section for each route, then one for each type."""
    document = openapi.document(ROUTES)
    routes = [
        part
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method != "head"
        for part in _route(path, method, operation)
    ]
    types = [part for name, schema in document["components"]["schemas"].items() for part in _type(name, schema)]
    return "\n\n".join((_HEAD, "## Routes", *routes, "## Types", *types)) + "\n"


def _route(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`"
    yield f"{escaped(operation['summary'])}. Role: {operation['x-kactl-role']}."
    parameters = [
        f"| `{each['name']}` | {each['in']} | {_shape(each['schema'])} | {cell(escaped(_words(each)))} |"
        for each in operation["parameters"]
    ]
    if parameters:
        yield "\n".join(("| parameter | in | type | meaning |", "| --- | --- | --- | --- |", *parameters))
    if "requestBody" in operation:
        yield f"Body: {_content(operation['requestBody'])}."
    yield (
        "Responses: "
        + "; ".join(
            f"{status} {_content(response)}".strip()
            for status, response in operation["responses"].items()
            if status.startswith("2")
        )
        + _rejections(operation)
    )


def _rejections(operation: dict[str, Any]) -> str:
    codes = [status for status in operation["responses"] if not status.startswith("2")]
    return f". Rejections: {', '.join(codes)}." if codes else "."


def _content(carrier: dict[str, Any]) -> str:
    return ", ".join(
        _shape(media["schema"]) if kind.endswith("json") and "schema" in media else f"`{kind}`"
        for kind, media in carrier.get("content", {}).items()
    )


def _type(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    text, _, attributes = schema.get("description", "").partition("\n\nAttributes:\n")
    if text:
        yield escaped(text)
    words = _attributes(attributes)
    if "properties" in schema:
        described = {field: _words({"schema": shape}) for field, shape in schema["properties"].items()}
        rows = (
            f"| `{field}` | {_shape(shape)} | {cell(escaped(described[field] or words.get(field, '')))} |"
            for field, shape in schema["properties"].items()
        )
        yield "\n".join(("| field | type | meaning |", "| --- | --- | --- |", *rows))
    else:
        yield _shape(schema)


def _attributes(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        if line.startswith("    ") and not line.startswith("     ") and ": " in line:
            named, _, words = line.strip().partition(": ")
            names = named.split(", ")
            found |= dict.fromkeys(names, words)
        elif names:
            found |= {name: f"{found[name]} {line.strip()}".strip() for name in names}
    return found


def _words(parameter: dict[str, Any]) -> str:
    schema = parameter["schema"]
    inner = next((each["description"] for each in schema.get("anyOf", ()) if "description" in each), "")
    return str(parameter.get("description") or schema.get("description") or inner)


def _shape(schema: dict[str, Any]) -> str:
    """Returns a schema in a few words of Markdown."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_SCHEMA)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_shape(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "prefixItems" in schema:
        return "list of " + ", ".join(_shape(each) for each in schema["prefixItems"])
    if schema.get("type") == "array":
        return f"list of {_shape(schema.get('items') or {})}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map to {_shape(schema['additionalProperties'])}"
    return str(schema.get("type", "any value")) + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and high is None:
        return ""
    return f" {low if low is not None else ''}..{high if high is not None else ''}"
