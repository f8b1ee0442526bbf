"""The OpenAPI document describes all routes and events, and equals a stored snapshot.

To update the snapshot: python -m tests.admin.test_openapi
"""

from pathlib import Path
from typing import Any, Final

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

    served = {(route.path, method) for route in ROUTES for method in _methods(route.method, route.head)}
    assert {(path, method) for path, methods in paths.items() for method in methods} == served


def _methods(method: str, head: bool) -> list[str]:
    return [method.lower(), *(["head"] if head else [])]


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

    assert {event.__name__ for event in schema.Event.__subclasses__()} <= schemas.keys()


if __name__ == "__main__":
    SNAPSHOT.write_bytes(openapi.rendered(ROUTES))
    print(f"{SNAPSHOT}: {len(msgspec.json.decode(SNAPSHOT.read_bytes())['paths'])} paths")
