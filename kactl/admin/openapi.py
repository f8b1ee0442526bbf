"""OpenAPI document, generated from the types that parse requests and encode responses."""

import inspect
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from . import problem, schema
from .route import JSON, Route
from .schema import Question

VERSION: Final = "1.0.0"
_TEMPLATE: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
# Any route may fail with these.
_ALWAYS: Final = (400, 403, 421, 500, 503)
# Names of RFC 9110. Python adopted them in 3.13, and the document must not depend on the interpreter.
_RENAMED: Final = {
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}
_WITH_A_BODY: Final = (408, 413, 415)
_IF_MATCH: Final = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "412 unless this is the ETag of the broker, topic or partition; for other routes, of the controller",
    "schema": {"type": "string"},
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Returns the document as plain values."""
    named = [*_types(routes), schema.Problem, schema.AnyEvent]
    _, components = msgspec.json.schema_components(named, ref_template=_TEMPLATE)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        methods = paths.setdefault(route.path, {})
        methods[route.method.lower()] = _operation(route, route.method)
        if route.head:
            methods["head"] = _operation(route, "HEAD")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kactl",
            "version": VERSION,
            "description": "State of a kactl controller, and the requests that it accepts.",
        },
        "paths": paths,
        "components": {"schemas": {name: _cleaned(components[name]) for name in sorted(components)}},
    }


def rendered(routes: Sequence[Route]) -> bytes:
    """Returns the document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document(routes)), indent=2) + b"\n"


def _types(routes: Sequence[Route]) -> list[Any]:
    bodies = [route.takes_body for route in routes if route.takes_body is not None]
    return [*bodies, *(answer for route in routes for answer in route.answers.values() if answer is not None)]


def _operation(route: Route, method: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route, method),
        "summary": route.summary,
        "parameters": [
            *_parameters(route.takes_path, "path"),
            *_parameters(route.takes_query, "query"),
            *((*_parameters(schema.Precondition, "query"), _IF_MATCH) if route.writes else ()),
        ],
        "responses": {str(status): response for status, response in sorted(_responses(route, method).items())},
    }
    if route.takes_body is not None:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {JSON: {"schema": {"$ref": _TEMPLATE.format(name=route.takes_body.__name__)}}},
        }
    return operation


def _operation_id(route: Route, method: str) -> str:
    words = _PARAMETER.sub(r"by/\1", route.path)
    return (method.lower() + words).replace("/", "_").replace(".", "_")


def _parameters(question: type[Question], where: str) -> list[dict[str, Any]]:
    """Returns one parameter for each field of the struct that parses them."""
    (_,), components = msgspec.json.schema_components([question], ref_template=_TEMPLATE)
    component = components[question.__name__]
    parameters = []
    for name, property in component["properties"].items():
        fields = dict(property)
        parameter = {"name": name, "in": where, "required": where == "path" or name in component.get("required", ())}
        if "description" in fields:
            parameter["description"] = fields.pop("description")
        parameters.append(parameter | {"schema": fields})
    return parameters


def _phrase(status: int) -> str:
    """Returns the name of a status code, the same for every version of Python."""
    return _RENAMED.get(status) or HTTPStatus(status).phrase


def _cleaned(value: Any) -> Any:
    """Returns a schema with dedented descriptions. They are docstrings, which Python dedents only since 3.13."""
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: inspect.cleandoc(item) if key == "description" and isinstance(item, str) else _cleaned(item)
        for key, item in value.items()
    }


def _responses(route: Route, method: str) -> dict[int, dict[str, Any]]:
    responses = {status: _response(status, answer, route, method) for status, answer in route.answers.items()}
    conditional = (412,) if route.writes else ()
    refusals = (*_ALWAYS, *conditional, *(_WITH_A_BODY if route.takes_body is not None else ()), *route.problems)
    for status in refusals:
        # The 503 response of a probe is not a problem document.
        if status not in responses:
            responses[status] = {"description": _phrase(status)}
            if method != "HEAD":
                content = {"schema": {"$ref": _TEMPLATE.format(name=schema.Problem.__name__)}}
                responses[status]["content"] = {problem.CONTENT_TYPE: content}
    return responses


def _response(status: int, answer: type[schema.Answer] | None, route: Route, method: str) -> dict[str, Any]:
    response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if route.version is not None and not route.writes:
        response["headers"] = {"ETag": {"description": "the version, for If-Match", "schema": {"type": "string"}}}
    if method != "HEAD":
        content = {} if answer is None else {"schema": {"$ref": _TEMPLATE.format(name=answer.__name__)}}
        response["content"] = {route.content.partition(";")[0]: content}
    return response
