"""Conversion of errors to problem documents (RFC 9457)."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from kactl.model.errors import BadRequest, ErrorCode, KactlError, NotController, NotFound, Remedy

from .schema import ONE_LINE, FieldError, Problem, ProblemController

CONTENT_TYPE: Final = "application/problem+json"
# Sent with 503: the delay before a retry.
RETRY_AFTER_S: Final = 1
_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([0-9]+)\]")
_PLACE: Final = re.compile(r" - at (?:`key` in )?`\$(.*)`$")
# The decoder's message contains the regular expression, which does not help the client.
_NOT_ONE_LINE: Final = f"Expected `str` matching regex {ONE_LINE!r}"
_FIELD: Final = re.compile(r"(?:unknown|missing required) field `(.*)`", re.DOTALL)


class Refused(KactlError):
    """The server rejects a request before it reaches the controller.

    Args:
        status: HTTP status.
        title: the kind of error.
        detail: the error in this request, and how to correct it.
        errors: the invalid parts of the request.
        headers: for the response.
        retriable: whether the same request may succeed later.
        closes: whether the client loses its connection.
        is_denial: whether the audit trail has a record, besides those of the statuses of denials.
        error_id: of an exception in the log.
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
        closes: bool = False,
        is_denial: bool = False,
        error_id: str = "",
    ) -> None:
        super().__init__(detail)
        self.closes = closes
        self.is_denial = is_denial
        self.error_id = error_id
        self.status = status
        self.title = title
        self.error_code = code
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.retriable = retriable


class BrokerNotFound(NotFound):
    """No broker with this id is registered or has a replica."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED

    def __init__(self, broker: int) -> None:
        super().__init__("broker", broker)


def is_internal(error: Exception) -> bool:
    """Returns whether an error is the fault of kactl."""
    if isinstance(error, Refused):
        return error.status == HTTPStatus.INTERNAL_SERVER_ERROR
    return not isinstance(error, KactlError) or error.http_status == HTTPStatus.INTERNAL_SERVER_ERROR


def internal(error_id: str, status: int = HTTPStatus.INTERNAL_SERVER_ERROR) -> Refused:
    """Returns the error for clients in place of an unexpected exception, which is in the log under an id."""
    under = f" under {error_id}" if error_id else ""
    return Refused(
        status,
        "Internal error",
        f"internal error of kactl: the server's log has the details{under}. Please report it",
        code=ErrorCode.UNKNOWN_SERVER_ERROR,
        error_id=error_id,
    )


def of(
    error: Exception, *, instance: str, controller: ProblemController, error_id: str = ""
) -> tuple[Problem, dict[str, str]]:
    """Returns the problem document of an error, and the headers to send with it.

    Args:
        error_id: under which the error is in the log, if it is an internal one.
    """
    if isinstance(error, Refused):
        status, title, code = error.status, error.title, error.error_code
        error_id = error.error_id or error_id
        errors, retriable, headers = error.errors, error.retriable, error.headers
    elif isinstance(error, KactlError):
        status, title, code = error.http_status, _words(type(error).__name__), error.code
        errors = (FieldError(error.reason, pointer=pointer(error.field)),) if isinstance(error, BadRequest) else ()
        retriable = error.remedy in (Remedy.RETRY, Remedy.RESIGN)
        headers = {}
    else:
        return of(internal(error_id), instance=instance, controller=controller)
    if status == HTTPStatus.SERVICE_UNAVAILABLE and retriable:
        headers = {"Retry-After": str(RETRY_AFTER_S)} | headers
    detail = str(error)
    if isinstance(error, NotController) and controller.api_url:
        detail += f", at {controller.api_url}"
    problem = Problem(
        type=f"urn:kactl:problem:{title.lower().replace(' ', '-')}",
        title=title,
        status=status,
        detail=detail,
        instance=instance,
        error_code=code,
        error_name=code.name,
        retriable=retriable,
        controller=controller,
        errors=errors,
        error_id=error_id,
    )
    return problem, headers


def of_body(error: Exception) -> Refused:
    """Returns the error for a body that is not JSON or does not match its schema; it names the position."""
    message = str(error)
    place = _PLACE.search(message)
    reason = without_place(error)
    field = _FIELD.search(reason)
    position = pointer(place[1] if place else "") + (f"/{_escaped(field[1])}" if field else "")
    return Refused(
        HTTPStatus.BAD_REQUEST,
        "Bad request",
        f"{position or 'body'}: {reason}",
        errors=[FieldError(reason, pointer=position)],
    )


def of_parameter(name: str, reason: str) -> Refused:
    """Returns the error for an invalid parameter of the query or path."""
    return Refused(
        HTTPStatus.BAD_REQUEST, "Bad request", f"{name}: {reason}", errors=[FieldError(reason, parameter=name)]
    )


def of_header(name: str, reason: str, *, status: int, title: str, code: ErrorCode) -> Refused:
    """Returns the error for an invalid header."""
    return Refused(status, title, f"{name}: {reason}", code=code, errors=[FieldError(reason, header=name)])


def without_place(error: Exception) -> str:
    """Returns a decoder's message without the position in the value."""
    message = _PLACE.sub("", str(error))
    return "contains control characters: write one line of plain text" if message == _NOT_ONE_LINE else message


def pointer(path: str) -> str:
    """Returns the JSON pointer of a path such as `assignment.0` or `.partitions[3].topic`; stops at a step without a
    name.
    """
    path = path if path.startswith((".", "[")) or not path else f".{path}"
    result = ""
    position = 0
    while (step := _STEP.match(path, position)) is not None:
        result += f"/{_escaped(step[1] or step[2])}"
        position = step.end()
    return result


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _words(name: str) -> str:
    """Returns `TopicExists` as "Topic exists"."""
    return _CAPITAL.sub(" ", name).capitalize()
