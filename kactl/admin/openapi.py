"""OpenAPI document, generated from the types that parse requests and encode responses."""

import inspect
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from kactl.runtime import docstrings

from . import examples, problem, schema
from .route import JSON, Route
from .schema import Question

VERSION: Final = "1.0.0"
_TEMPLATE: Final = "#/components/schemas/{name}"
# Any route may fail with these.
_ALWAYS: Final = (400, 401, 403, 421, 429, 500, 503)
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


# Tag -> the first parts of its paths, and what it is about.
TAGS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "Cluster": (("/v1/cluster", "/v1/state-machines"), "Health checks and counts of the whole cluster."),
    "Controller": (("/v1/controller",), "This instance, the controller, its queue, and earlier controllers."),
    "Brokers": (("/v1/brokers",), "Brokers, and operations before they are stopped."),
    "Topics": (("/v1/topics", "/v1/partitions"), "Topics, partitions and replicas, with the reasons for their states."),
    "Elections": (("/v1/elections",), "Elections on request, and records of all elections."),
    "Reassignments": (("/v1/reassignments", "/v1/reassignment-plans"), "Moves of partitions to other replicas."),
    "What-if": (("/v1/whatif",), "Simulated failures. Nothing is changed."),
    "Events": (("/v1/events",), "The event log, page by page or as a stream."),
    "Security": (("/v1/audit", "/v1/login"), "Logins of web pages, and the audit trail."),
    "Probes": (("/livez", "/readyz", "/leader"), "Checks for load balancers and supervisors. They need no token."),
    "Documents": (("/metrics", "/openapi.json"), "Metrics for Prometheus, and this document."),
}
_IN_PATH: Final = {
    "id": "id of a broker",
    "broker": "id of a broker",
    "topic": "name of a topic",
    "partition": "number of a partition of the topic",
    "event": "id of the controller event, as in `because.event`",
}
_IN_QUERY: Final = {"dry_run": "check the request only; change nothing"}
# Examples of responses that are not JSON, or have no type.
_TEXTS: Final[dict[str, Any]] = {
    "/metrics": "# TYPE kafka_controller_active_count gauge\nkafka_controller_active_count 1.0\n",
    "/openapi.json": {"openapi": "3.1.0"},
    "/v1/events/stream": "retry: 2000\nid: 1790000000000421\n\n: ping\n\n",
}


def tag_of(route: Route) -> str:
    """Returns the tag of a route.

    Raises:
        LookupError: no tag has its path.
    """
    for name, (paths, _) in TAGS.items():
        if route.path.startswith(paths):
            return name
    raise LookupError(f"{route.path} has no tag: add its first part to TAGS")


def document(routes: Sequence[Route], *, prefix: str = "") -> dict[str, Any]:
    """Returns the document as plain values."""
    named = [*_types(routes), schema.Problem, schema.AnyEvent]
    _, components = msgspec.json.schema_components(named, ref_template=_TEMPLATE)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        methods = paths.setdefault(route.path, {})
        methods[route.method.lower()] = _operation(route, route.method)
        if route.method == "GET":
            methods["head"] = _operation(route, "HEAD")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kactl",
            "version": VERSION,
            "description": "State of a kactl controller, and the requests that it accepts.",
        },
        "servers": [{"url": prefix or "/"}],
        "tags": [{"name": name, "description": text} for name, (_, text) in TAGS.items()],
        "paths": paths,
        "components": {"schemas": {name: _cleaned(components[name]) for name in sorted(components)}},
    }


def rendered(routes: Sequence[Route], *, prefix: str = "") -> bytes:
    """Returns the document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document(routes, prefix=prefix)), indent=2) + b"\n"


def _types(routes: Sequence[Route]) -> list[Any]:
    bodies = [route.takes_body for route in routes if route.takes_body is not None]
    return [*bodies, *(answer for route in routes for answer in route.answers.values() if answer is not None)]


def _operation(route: Route, method: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation(method),
        "tags": [tag_of(route)],
        "summary": route.summary,
        "description": _description(route),
        "x-kactl-role": route.role.label,
        "parameters": [
            *_parameters(route.takes_path, "path"),
            *_parameters(route.takes_query, "query"),
            *(_parameters(schema.Precondition, "query") if route.writes else ()),
            *((_IF_MATCH,) if route.writes or route.version is not None else ()),
        ],
        "responses": {str(status): response for status, response in sorted(_responses(route, method).items())},
    }
    if route.takes_body is not None:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {
                JSON: {
                    "schema": {"$ref": _TEMPLATE.format(name=route.takes_body.__name__)},
                    "example": examples.example(route.takes_body),
                }
            },
        }
    return operation


def _description(route: Route) -> str:
    """Returns the role that a route needs, also for a dry run, and the response of a standby."""
    sentences = [f"Needs the role {route.role.label}." if route.role else "Needs no token."]
    if route.writes and route.least_role < route.role:
        sentences.append(f"With `dry_run` it changes nothing and needs the role {route.least_role.label}.")
    if route.from_copy:
        sentences.append(
            "A standby responds from its copy of the cluster: `Kactl-Standby-Age-Ms` and `as_of` have the age of it."
        )
    elif route.only_active or (route.writes and not route.concerns_process and route.path.startswith("/v1/elections")):
        sentences.append("A standby responds 307 if `api.instances` has the controller, and otherwise 503 with its id.")
    if route.writes and route.version is not None:
        sentences.append("`If-Match` makes it conditional on a version.")
    if route.is_heavy:
        sentences.append("Only a few of these run for one client at a time.")
    return " ".join(sentences)


def _parameters(question: type[Question], where: str) -> list[dict[str, Any]]:
    (_,), components = msgspec.json.schema_components([question], ref_template=_TEMPLATE)
    component = components[question.__name__]
    described = docstrings.of_fields(question, list(component["properties"]))
    types = {field.encode_name: field.type for field in msgspec.structs.fields(question)}
    parameters = []
    for name, property in component["properties"].items():
        fields = dict(property)
        parameter = {"name": name, "in": where, "required": where == "path" or name in component.get("required", ())}
        if "description" in fields:
            parameter["description"] = fields.pop("description")
        elif text := _inner_description(fields) or described.get(name) or _IN_QUERY.get(name):
            parameter["description"] = text
        if where == "path":
            parameter |= {"description": _IN_PATH[name], "example": examples.of_field(types[name], name)}
        parameters.append(parameter | {"schema": fields})
    return parameters


def _inner_description(schema: dict[str, Any]) -> str:
    return next((each["description"] for each in schema.get("anyOf", ()) if "description" in each), "")


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
    conditional = (412,) if route.writes or route.version is not None else (501,)
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
        content: dict[str, Any] = {"example": _TEXTS.get(route.path, "")}
        if answer is not None:
            content = {
                "schema": {"$ref": _TEMPLATE.format(name=answer.__name__)}, "example": examples.example(answer),
            }  # fmt: skip
        response["content"] = {route.content.partition(";")[0]: content}
    return response
