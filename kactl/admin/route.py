"""One route: what it takes, what it answers, and who answers. The server and the OpenAPI document are made of these.

Parameters and bodies are described by structs and read here, wholly or not at all, before a handler sees anything.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

import msgspec
from aiohttp import HttpVersion11, web

from kactl.errors import ErrorCode
from kactl.runtime.escaping import escaped

from . import problem
from .connections import receiving
from .limits import BODY_BYTES_PER_S, BODY_GRACE_S
from .problem import Refused
from .schema import Answer, FieldError, NoQuestion, Precondition, Question
from .service import Service

JSON: Final = "application/json"
# The longest election that can be asked for by name fits, at some 80 bytes a name; so does any topic.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
# A reason and a few fields.
SMALL_BODY_BYTES_MAX: Final = 256 * 1024

PathT = TypeVar("PathT", bound=Question)
QueryT = TypeVar("QueryT", bound=Question)
BodyT = TypeVar("BodyT", bound=Question)
_Question = TypeVar("_Question", bound=Question)
_CONDITIONS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(Precondition))


@dataclasses.dataclass(frozen=True, slots=True)
class Asked(Generic[PathT, QueryT, BodyT]):
    """What a handler is asked, read and checked."""

    path: PathT
    query: QueryT
    body: BodyT
    http: web.Request
    expected_epoch: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """An answer with another status than 200, or with headers."""

    answer: Answer
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


Handler = Callable[[Service, Asked[Any, Any, Any]], Awaitable[Answer | Reply | web.StreamResponse]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """See the module.

    Attributes:
        answers: what comes with each status that is no problem; None for what is no JSON.
        content: of the answers.
        problems: the statuses with which this route may refuse, besides those that any may.
        body_bytes_max: the largest body it reads.
        head: whether HEAD is answered too.
        only_active: answered by the controller alone.
        from_copy: answered by instances that stand by, too, from their copy of the cluster.
        version: `ETag` of a read, or what `If-Match` of a write is compared with.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answers: Mapping[int, type[Answer] | None]
    takes_path: type[Question] = NoQuestion
    takes_query: type[Question] = NoQuestion
    takes_body: type[Question] | None = None
    body_required: bool = True
    body_bytes_max: int = SMALL_BODY_BYTES_MAX
    content: str = JSON
    problems: tuple[int, ...] = ()
    head: bool = False
    only_active: bool = False
    from_copy: bool = False
    version: Callable[[Service, Any], Awaitable[str | None]] | None = None

    @property
    def writes(self) -> bool:
        return self.method in ("POST", "PATCH", "DELETE")


async def read(route: Route, http: web.Request) -> Asked[Any, Any, Any]:
    """What is asked.

    Raises:
        Refused: some part of it is not what the route takes.
    """
    path = _parameters(route.takes_path, [(name, text) for name, text in http.match_info.items()])
    given = list(http.query.items())
    condition = Precondition()
    if route.writes:
        condition = _parameters(Precondition, [each for each in given if each[0] in _CONDITIONS])
        given = [each for each in given if each[0] not in _CONDITIONS]
    query = _parameters(route.takes_query, given)
    if route.takes_body is not None:
        body = await _body(route, http)
    elif http.can_read_body:
        raise _too_large(0)
    else:
        body = NoQuestion()
    return Asked(path, query, body, http, condition.expected_controller_epoch)


def _parameters(wanted: type[_Question], given: list[tuple[str, str]]) -> _Question:
    """The parameters of a path or query as a struct; lists are repeated, or parted by commas."""
    known = {field.encode_name: field.type for field in msgspec.structs.fields(wanted)}
    values: dict[str, Any] = {}
    for name, text in given:
        if name not in known:
            raise problem.of_parameter(name, f"is no parameter of this route; there are {_listed(known)}")
        if _is_list(known[name]):
            values.setdefault(name, []).extend(part for part in text.split(",") if part)
        elif name in values:
            raise problem.of_parameter(name, "is given twice; give it once")
        else:
            values[name] = text
    read = {}
    for name, value in values.items():
        try:
            read[name] = msgspec.convert(value, known[name], strict=False)
        except msgspec.ValidationError as error:
            raise problem.of_parameter(name, f"{value!r} cannot be used: {problem.without_place(error)}") from None
    return wanted(**read)


def _is_list(wanted: Any) -> bool:
    return get_origin(get_args(wanted)[0] if hasattr(wanted, "__metadata__") else wanted) is list


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


async def _body(route: Route, http: web.Request) -> Any:
    assert route.takes_body is not None
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
            "send the body as it is, not compressed",
            status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            title="Unsupported media type",
            code=ErrorCode.INVALID_REQUEST,
        )
    content = await _content(route, http)
    if not content.strip():
        if not route.body_required:
            return route.takes_body()
        raise problem.of_body(ValueError(f"is empty; send a {route.takes_body.__name__} as JSON"))
    try:
        return msgspec.json.decode(content, type=route.takes_body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise problem.of_body(error) from None


async def _content(route: Route, http: web.Request) -> bytes:
    """The bytes of a body, as long as they keep coming."""
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
            f"the body did not arrive in time, {len(received)} bytes of it did: send it at once, and at "
            f"{BODY_BYTES_PER_S} bytes/s at least",
        ) from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise Refused(
            HTTPStatus.BAD_REQUEST, "Bad request", f"the body cannot be read: {escaped(str(error), 200)}"
        ) from None
    return bytes(received)


async def _invite(http: web.Request) -> None:
    """Answer `Expect: 100-continue`, once the request may have a body."""
    expected = http.headers.get("Expect")
    if expected is None:
        return
    if expected.strip().lower() != "100-continue":
        raise problem.of_header(
            "Expect",
            "only 100-continue can be expected",
            status=HTTPStatus.EXPECTATION_FAILED,
            title="Expectation failed",
            code=ErrorCode.INVALID_REQUEST,
        )
    if http.version >= HttpVersion11:
        await http.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # What was written is no part of the response.
        http.writer.output_size = 0


def _too_large(limit: int) -> Refused:
    detail = f"the body has more than {limit} bytes; send less at a time" if limit else "this route takes no body"
    return Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Body too large", detail, errors=[FieldError(detail, pointer="")]
    )
