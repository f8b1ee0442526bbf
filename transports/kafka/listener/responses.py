"""The type of request handlers, and the error fields of responses."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from kactl.errors import ErrorCode, KactlError
from kactl.runtime.logs import logger

from .field_types import Values

log = logger(__name__)

# An error message repeats parts of the request, which may have a megabyte; classic strings are limited to 32 KiB.
MESSAGE_MAX: Final = 1000

# Handles requests of one type: (fields, version) -> the fields of the response.
Handler = Callable[[dict[str, Any], int], Awaitable[Values]]


def error_of(error: Exception) -> tuple[ErrorCode, str]:
    """Returns the code and message of an error. An internal error is logged, and its text is not sent to the client."""
    if isinstance(error, KactlError):
        return error.code, str(error)
    log.error("a request failed with an internal error: %s", error, exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR, "internal error in the controller; see its log"


def result(code: ErrorCode, message: str) -> dict[str, Any]:
    """Returns the two error fields of most results; the message is null on success."""
    text = message if len(message) <= MESSAGE_MAX else f"{message[:MESSAGE_MAX]}..."
    return {"error_code": code, "error_message": None if code is ErrorCode.NONE else text or None}
