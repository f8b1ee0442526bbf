"""The OpenAPI document describes all routes and events, and equals a stored snapshot.

To update the snapshot: python -m tests.admin.test_openapi
"""

import dataclasses
from pathlib import Path
from typing import Any, Final, get_args

import jsonschema
import msgspec
import pytest

from kactl.admin import openapi, schema
from kactl.admin.routes.route_table import ROUTES
from tests.admin.conftest import Served

SNAPSHOT: Final = Path(__file__).with_name("openapi.json")


def references(value: Any) -> set[str]:
    """Returns all references in a document."""
    if isinstance(value, dict):
        here = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return here.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_document_equals_the_snapshot() -> None:
    assert openapi.rendered(ROUTES).decode() == SNAPSHOT.read_text(encoding="utf-8")


@pytest.mark.anyio
async def test_document_is_served(server: Served) -> None:
    answer = await server.get("/openapi.json")

    assert answer.status == 200
    assert answer.body == openapi.rendered(ROUTES)


def test_document_contains_every_route() -> None:
    paths = openapi.document(ROUTES)["paths"]

    served = {(route.path, method) for route in ROUTES for method in _methods(route.method)}
    assert {(path, method) for path, methods in paths.items() for method in methods} == served


def _methods(method: str) -> list[str]:
    return [method.lower(), *(["head"] if method == "GET" else [])]


def test_references_of_the_document_resolve() -> None:
    document = msgspec.json.decode(openapi.rendered(ROUTES))

    named = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= named
    assert len({operation["operationId"] for path in document["paths"].values() for operation in path.values()}) == sum(
        len(path) for path in document["paths"].values()
    )


def test_document_describes_every_path_parameter() -> None:
    for path, methods in openapi.document(ROUTES)["paths"].items():
        for operation in methods.values():
            described = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert described == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_document_contains_all_events_of_the_stream() -> None:
    schemas = openapi.document(ROUTES)["components"]["schemas"]

    assert {event.__name__ for event in get_args(schema.AnyEvent)} <= schemas.keys()


def operations() -> list[tuple[str, dict[str, Any]]]:
    """Returns all operations of the document, with method and path."""
    paths = openapi.document(ROUTES)["paths"]
    return [(f"{method} {path}", each) for path, methods in paths.items() for method, each in methods.items()]


@pytest.mark.parametrize(("name", "operation"), [pytest.param(*each, id=each[0]) for each in operations()])
def test_operation_has_a_tag_a_description_and_examples(name: str, operation: dict[str, Any]) -> None:
    (tag,) = operation["tags"]

    assert tag in openapi.TAGS
    assert operation["summary"]
    assert operation["description"].endswith(".")
    for parameter in operation["parameters"]:
        assert parameter.get("description"), parameter["name"]
        assert parameter["in"] != "path" or "example" in parameter
    contents = [operation["requestBody"]["content"]] if "requestBody" in operation else []
    if not name.startswith("head "):
        contents += [answer["content"] for status, answer in operation["responses"].items() if status.startswith("2")]
    for content in contents:
        assert all("example" in each for each in content.values())


def test_examples_are_valid() -> None:
    document = msgspec.json.decode(openapi.rendered(ROUTES))
    checked = 0
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        types: list[tuple[Any, Any]] = [
            (operation["responses"][str(status)], answer) for status, answer in route.answers.items() if answer
        ]
        if route.takes_body is not None:
            types.append((operation["requestBody"], route.takes_body))
        for part, kind in types:
            (content,) = part["content"].values()
            msgspec.convert(content["example"], kind, str_keys=True)
            schema_ = {**content["schema"], "components": document["components"]}
            jsonschema.Draft202012Validator(schema_).validate(content["example"])
            checked += 1
    assert checked > 50


def test_every_tag_is_used_and_an_unknown_path_is_an_error() -> None:
    assert {openapi.tag_of(route) for route in ROUTES} == openapi.TAGS.keys()
    with pytest.raises(LookupError, match="/v1/new has no tag"):
        openapi.tag_of(dataclasses.replace(ROUTES[0], path="/v1/new"))


if __name__ == "__main__":
    SNAPSHOT.write_bytes(openapi.rendered(ROUTES))
    print(f"{SNAPSHOT}: {len(msgspec.json.decode(SNAPSHOT.read_bytes())['paths'])} paths")
