"""Why a request was refused, in the form of RFC 9457, from the errors that everything else raises."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from kactl.errors import BadRequest, ErrorCode, KactlError, NotFound, Remedy

from .schema import ONE_LINE, FieldError, Problem, ProblemController

CONTENT_TYPE: Final = "application/problem+json"
# How soon a request may be sent again that only came too early.
RETRY_AFTER_S: Final = 1
_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([0-9]+)\]")
_PLACE: Final = re.compile(r" - at (?:`key` in )?`\$(.*)`$")
# The decoder names the expression, which is no help to most readers.
_NOT_ONE_LINE: Final = f"Expected `str` matching regex {ONE_LINE!r}"
_FIELD: Final = re.compile(r"(?:unknown|missing required) field `(.*)`", re.DOTALL)


class Refused(KactlError):
    """The server itself refuses a request, before anybody else has seen it.

    Args:
        status: of HTTP.
        title: what kind of refusal it is.
        detail: what is wrong with this request, and what would be right.
        errors: which parts of it are wrong.
        headers: for the response.
        retriable: whether the same request may go through later.
    """

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        code: ErrorCode = ErrorCode.INVALID_REQUEST,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        retriable: bool = False,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.error_code = code
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.retriable = retriable


class BrokerNotFound(NotFound):
    """No broker of that id is registered, or has a replica."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED

    def __init__(self, broker: int) -> None:
        super().__init__("broker", broker)


def of(error: Exception, *, instance: str, controller: ProblemController) -> tuple[Problem, dict[str, str]]:
    """The problem that an error is to the one who asked, and headers that go with it."""
    if isinstance(error, Refused):
        status, title, code = error.status, error.title, error.error_code
        errors, retriable, headers = error.errors, error.retriable, error.headers
    elif isinstance(error, KactlError):
        status, title, code = error.http_status, _words(type(error).__name__), error.code
        errors = (FieldError(error.reason, pointer=pointer(error.field)),) if isinstance(error, BadRequest) else ()
        retriable = error.remedy in (Remedy.RETRY, Remedy.RESIGN)
        headers = {}
    else:
        return of(
            Refused(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "Internal error",
                "an error of kactl's own; its log says more. Please report it",
                code=ErrorCode.UNKNOWN_SERVER_ERROR,
            ),
            instance=instance,
            controller=controller,
        )
    if status == HTTPStatus.SERVICE_UNAVAILABLE and retriable:
        headers = {"Retry-After": str(RETRY_AFTER_S)} | headers
    problem = Problem(
        type=f"urn:kactl:problem:{title.lower().replace(' ', '-')}",
        title=title,
        status=status,
        detail=str(error),
        instance=instance,
        error_code=code,
        error_name=code.name,
        retriable=retriable,
        controller=controller,
        errors=errors,
    )
    return problem, headers


def of_body(error: Exception) -> Refused:
    """A body that is no JSON, or not what was wanted; the message says where."""
    said = str(error)
    place = _PLACE.search(said)
    reason = without_place(error)
    field = _FIELD.search(reason)
    at = pointer(place[1] if place else "") + (f"/{_escaped(field[1])}" if field else "")
    return Refused(
        HTTPStatus.BAD_REQUEST,
        "Bad request",
        f"{at or 'body'}: {reason}",
        errors=[FieldError(reason, pointer=at)],
    )


def of_parameter(name: str, reason: str) -> Refused:
    """A parameter of the query or the path that cannot be used."""
    return Refused(
        HTTPStatus.BAD_REQUEST, "Bad request", f"{name}: {reason}", errors=[FieldError(reason, parameter=name)]
    )


def of_header(name: str, reason: str, *, status: int, title: str, code: ErrorCode) -> Refused:
    """A header that cannot be accepted."""
    return Refused(status, title, f"{name}: {reason}", code=code, errors=[FieldError(reason, header=name)])


def without_place(error: Exception) -> str:
    """The message of a decoder, without the place in the value."""
    said = _PLACE.sub("", str(error))
    return "contains control characters: write one line of plain text" if said == _NOT_ONE_LINE else said


def pointer(path: str) -> str:
    """The JSON pointer of a path such as `assignment.0` or `.partitions[3].topic`; a step without a name ends it."""
    path = path if path.startswith((".", "[")) or not path else f".{path}"
    found = ""
    at = 0
    while (step := _STEP.match(path, at)) is not None:
        found += f"/{_escaped(step[1] or step[2])}"
        at = step.end()
    return found


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _words(name: str) -> str:
    """`TopicExists` as "Topic exists"."""
    return _CAPITAL.sub(" ", name).capitalize()
