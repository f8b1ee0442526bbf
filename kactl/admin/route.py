"""Definition of a route: its request, its responses and its handler. The server and the OpenAPI document use these.

Parameters and bodies are described by structs. They are parsed and validated here, completely, before a handler runs.
"""

import asyncio
import dataclasses
import enum
import functools
import itertools
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from types import NoneType
from typing import Any, Final, Generic, Literal, TypeVar, get_args, get_origin

import msgspec
from aiohttp import HttpVersion11, web

from kactl.model.errors import ErrorCode
from kactl.runtime.escaping import escaped
from kactl.security.access.role import Role

from . import problem
from .connections import receiving
from .limits import BODY_BYTES_PER_S, BODY_GRACE_S
from .problem import Refused
from .schema import Answer, FieldError, NoData, Precondition, Question
from .service import Service

JSON: Final = "application/json"
# Fits the longest election by name, at about 80 bytes a name, and any topic.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
# Arrays and objects in a body: the partitions of the largest topic, or of the largest election, and some more. A body
# of 4 MiB could have a million, which take a third of a second to decode, in one step.
BODY_ELEMENTS_MAX: Final = 60_000
# Fits a reason and a few fields.
SMALL_BODY_BYTES_MAX: Final = 256 * 1024

PathT = TypeVar("PathT", bound=Question)
QueryT = TypeVar("QueryT", bound=Question)
BodyT = TypeVar("BodyT", bound=Question)
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
# Parts of paths that are not collections.
_UNCOUNTABLE: Final = frozenset({"metrics"})
_Question = TypeVar("_Question", bound=Question)
_CONDITIONS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(Precondition))


@dataclasses.dataclass(frozen=True, slots=True)
class ApiRequest(Generic[PathT, QueryT, BodyT]):
    """A parsed and validated request."""

    path: PathT
    query: QueryT
    body: BodyT
    http: web.Request
    expected_epoch: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """A response with a status other than 200, or with headers."""

    answer: Answer
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


Handler = Callable[[Service, ApiRequest[Any, Any, Any]], Awaitable[Answer | Reply | web.StreamResponse]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route of the API.

    Attributes:
        role: of clients that may use it.
        is_heavy: only a few of these run for one client at a time.
        partitions: returns how many partitions a request plans, creates or moves, which its price depends on.
        raises_role: returns the role that the content of a request needs, if that is a higher one.
        needs_reason: returns whether a request needs a reason: its effect cannot be undone, or stops a process.
        answers: the type of the response by success status; None if it is not JSON.
        content: content type of the responses.
        problems: error statuses of this route, in addition to those of any route.
        body_bytes_max: maximum size of the body.
        concerns_process: it acts on this process, in place of the cluster.
        only_active: only the controller serves it.
        from_copy: standbys also serve it, from their copy of the cluster.
        version: for a read, the `ETag`; for a write, the version that `If-Match` is compared with.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    role: Role
    answers: Mapping[int, type[Answer] | None]
    takes_path: type[Question] = NoData
    takes_query: type[Question] = NoData
    takes_body: type[Question] | None = None
    body_required: bool = True
    body_bytes_max: int = SMALL_BODY_BYTES_MAX
    content: str = JSON
    problems: tuple[int, ...] = ()
    concerns_process: bool = False
    only_active: bool = False
    from_copy: bool = False
    is_heavy: bool = False
    partitions: Callable[[Service, ApiRequest[Any, Any, Any]], int] | None = None
    raises_role: Callable[[ApiRequest[Any, Any, Any]], Role] | None = None
    needs_reason: Callable[[ApiRequest[Any, Any, Any]], bool] | None = None
    version: Callable[[Service, Any], Awaitable[str | None]] | None = None

    @property
    def writes(self) -> bool:
        return self.method in ("POST", "PATCH", "DELETE")

    @property
    def action(self) -> Literal["read", "write", "admin"]:
        """The kind of access, for authorization."""
        if not self.writes:
            return "read"
        return "admin" if self.concerns_process else "write"

    @property
    def resource_kind(self) -> str:
        """What the path leads to, in the singular: its last collection with a parameter, or else its first part."""
        parts = self.path.strip("/").removeprefix("v1/").split("/")
        named = [
            part for part, after in itertools.pairwise(parts) if after.startswith("{") and not part.startswith("{")
        ]
        kind = named[-1] if named else parts[0]
        return kind if kind in _UNCOUNTABLE else kind.removesuffix("s")

    @property
    def least_role(self) -> Role:
        """The role that the body of a request is read for: whether it is a dry run is part of it."""
        return min(self.role, Role.VIEWER) if self._has_dry_run else self.role

    def role_of(self, asked: ApiRequest[Any, Any, Any]) -> Role:
        """Returns the role that a request needs. A dry run changes nothing, so reading suffices."""
        if _is_dry_run(asked):
            return self.least_role
        return self.role if self.raises_role is None else max(self.role, self.raises_role(asked))

    @property
    def _has_dry_run(self) -> bool:
        return hasattr(self.takes_body, "dry_run") or hasattr(self.takes_query, "dry_run")

    def operation(self, method: str) -> str:
        """Returns the operation id of this route with a method."""
        words = _PARAMETER.sub(r"by/\1", self.path)
        return (method.lower() + words).replace("/", "_").replace(".", "_")


def _is_dry_run(asked: ApiRequest[Any, Any, Any]) -> bool:
    return bool(getattr(asked.body, "dry_run", False) or getattr(asked.query, "dry_run", False))


def check_reason(route: Route, asked: ApiRequest[Any, Any, Any]) -> None:
    """Check that a request says why, if it has to.

    Raises:
        Refused: 400.
    """
    if route.needs_reason is None or _is_dry_run(asked) or not route.needs_reason(asked):
        return
    in_query = hasattr(asked.query, "reason")
    if (asked.query if in_query else asked.body).reason.strip():
        return
    why = "is missing: say why, for the audit trail; this cannot be undone, or stops a process"
    if in_query:
        raise problem.of_parameter("reason", why)
    raise Refused(HTTPStatus.BAD_REQUEST, "Bad request", f"/reason: {why}", errors=[FieldError(why, pointer="/reason")])


async def read(route: Route, http: web.Request) -> ApiRequest[Any, Any, Any]:
    """Parse and validate a request.

    Raises:
        Refused: the request does not match the route.
    """
    path = _parameters(route.takes_path, [(name, text) for name, text in http.match_info.items()])
    given = list(http.query.items())
    condition = Precondition()
    if route.writes:
        condition = _parameters(Precondition, [pair for pair in given if pair[0] in _CONDITIONS])
        given = [pair for pair in given if pair[0] not in _CONDITIONS]
    query = _parameters(route.takes_query, given)
    if route.takes_body is not None:
        body = _body(route, await _content(route, http))
    elif http.can_read_body:
        raise _too_large(0)
    else:
        body = NoData()
    return ApiRequest(path, query, body, http, condition.expected_controller_epoch)


def _parameters(wanted: type[_Question], given: list[tuple[str, str]]) -> _Question:
    """Parse the parameters of a path or query; list values are repeated or separated by commas."""
    known = _fields(wanted)
    values: dict[str, Any] = {}
    for name, text in given:
        if name not in known:
            raise problem.of_parameter(name, f"is not a parameter of this route; its parameters: {_listed(known)}")
        if _is_list(known[name]):
            values.setdefault(name, []).extend(part for part in text.split(",") if part)
        elif name in values:
            raise problem.of_parameter(name, "was given twice; give it once")
        else:
            values[name] = text
    read = {}
    for name, value in values.items():
        try:
            read[name] = msgspec.convert(value, known[name], strict=False)
        except msgspec.ValidationError as error:
            raise problem.of_parameter(name, _reason(value, known[name], error)) from None
    return wanted(**read)


@functools.cache
def _fields(wanted: type[Question]) -> dict[str, Any]:
    """Returns the types of the fields of a path, query or precondition, by name; not to be changed."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(wanted)}


def _reason(value: Any, wanted: Any, error: Exception) -> str:
    """Returns why a value is invalid, with the allowed ones if they can be listed."""
    choices = _choices(wanted)
    wrong = [each for each in (value if isinstance(value, list) else [value]) if each not in choices]
    if not choices or not wrong:
        return f"{value!r} is invalid: {problem.without_place(error)}"
    return f"{', '.join(map(repr, wrong))} is invalid: choose from {', '.join(choices)}"


def _choices(wanted: Any) -> list[str]:
    """Returns the values of a type that is a choice of texts, perhaps optional, or a list of such; empty otherwise."""
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return [str(member.value) for member in wanted]
    if get_origin(wanted) is Literal:
        return [str(choice) for choice in get_args(wanted)]
    parts = [
        part for part in get_args(wanted)[: 1 if hasattr(wanted, "__metadata__") else None] if part is not NoneType
    ]
    return _choices(parts[0]) if len(parts) == 1 else []


def _is_list(wanted: Any) -> bool:
    return get_origin(get_args(wanted)[0] if hasattr(wanted, "__metadata__") else wanted) is list


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def check_type(route: Route, http: web.Request) -> None:
    """Check the type of a body before anything of it is read.

    Raises:
        Refused: 415.
    """
    if route.takes_body is None:
        return
    if http.content_type != JSON or "Content-Type" not in http.headers:
        raise problem.of_header(
            "Content-Type",
            f"send the body as {JSON}",
            status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            title="Unsupported media type",
            code=ErrorCode.INVALID_REQUEST,
        )
    if http.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise problem.of_header(
            "Content-Encoding",
            "send the body uncompressed",
            status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            title="Unsupported media type",
            code=ErrorCode.INVALID_REQUEST,
        )


def _body(route: Route, content: bytes) -> Any:
    assert route.takes_body is not None
    if not content.strip():
        if not route.body_required:
            return route.takes_body()
        raise problem.of_body(ValueError(f"is empty; send a {route.takes_body.__name__} as JSON"))
    elements = content.count(b"[") + content.count(b"{")
    if elements > BODY_ELEMENTS_MAX:
        why = f"has {elements} arrays and objects, at most {BODY_ELEMENTS_MAX}: send less in one request"
        raise problem.of_body(ValueError(why))
    try:
        return msgspec.json.decode(content, type=route.takes_body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise problem.of_body(error) from None


async def _content(route: Route, http: web.Request) -> bytes:
    """Receive a body, at a minimum rate."""
    length = http.content_length
    if length is not None and length > route.body_bytes_max:
        raise _too_large(route.body_bytes_max)
    await _invite(http)
    loop = asyncio.get_running_loop()
    began_s, received = loop.time(), bytearray()
    try:
        with receiving(http):
            while not http.content.at_eof():
                due_s = began_s + BODY_GRACE_S + len(received) / BODY_BYTES_PER_S
                async with asyncio.timeout_at(due_s):
                    received += await http.content.readany()
                if len(received) > route.body_bytes_max:
                    raise _too_large(route.body_bytes_max)
    except TimeoutError:
        raise Refused(
            HTTPStatus.REQUEST_TIMEOUT,
            "Request timeout",
            f"the body did not arrive in time, only {len(received)} bytes did: send it at once, and at "
            f"{BODY_BYTES_PER_S} bytes/s at least",
        ) from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise Refused(
            HTTPStatus.BAD_REQUEST, "Bad request", f"the body cannot be read: {escaped(str(error), 200)}"
        ) from None
    return bytes(received)


async def _invite(http: web.Request) -> None:
    """Respond to `Expect: 100-continue` once the request may have a body."""
    expected = http.headers.get("Expect")
    if expected is None:
        return
    if expected.strip().lower() != "100-continue":
        raise problem.of_header(
            "Expect",
            "only 100-continue is supported",
            status=HTTPStatus.EXPECTATION_FAILED,
            title="Expectation failed",
            code=ErrorCode.INVALID_REQUEST,
        )
    if http.version >= HttpVersion11:
        await http.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # These bytes are not part of the response.
        http.writer.output_size = 0


def _too_large(limit: int) -> Refused:
    detail = f"the body has more than {limit} bytes; send less at once" if limit else "this route takes no body"
    return Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Body too large", detail, errors=[FieldError(detail, pointer="")]
    )
