"""The type of request handlers, and the error fields of responses."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from kactl.model.errors import ErrorCode, InternalError, KactlError
from kactl.runtime.error_id import log_error
from kactl.runtime.logs import logger

from .field_types import Values

log = logger(__name__)

# An error message repeats parts of the request, which may have a megabyte; classic strings are limited to 32 KiB.
MESSAGE_MAX: Final = 1000

# Handles requests of one type: (fields, version) -> the fields of the response.
Handler = Callable[[dict[str, Any], int], Awaitable[Values]]


def error_of(error: Exception) -> tuple[ErrorCode, str]:
    """Returns the code and message of an error. An internal error is logged; the client receives the id of the line."""
    if isinstance(error, KactlError):
        return error.code, str(error)
    failed = InternalError(log_error(log, error, "a request failed with an internal error"))
    return failed.code, str(failed)


def result(code: ErrorCode, message: str) -> dict[str, Any]:
    """Returns the two error fields of most results; the message is null on success."""
    text = message if len(message) <= MESSAGE_MAX else f"{message[:MESSAGE_MAX]}..."
    return {"error_code": code, "error_message": None if code is ErrorCode.NONE else text or None}
