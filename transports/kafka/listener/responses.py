"""How answers are made: what a handler is, and what an error becomes in one."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from kactl.errors import ErrorCode, KactlError
from kactl.runtime.logs import logger

from .schema import Values

log = logger(__name__)

# An error names what was asked for, which may have a megabyte; classic strings end at 32 KiB.
MESSAGE_MAX: Final = 1000

# Answers a request of one kind: what it says, and its version.
Answer = Callable[[dict[str, Any], int], Awaitable[Values]]


def said(error: Exception) -> tuple[ErrorCode, str]:
    """An error as number and text. One that is nobody's purpose is logged, and its text kept to ourselves."""
    if isinstance(error, KactlError):
        return error.code, str(error)
    log.error("a request failed by an error that should not be: %s", error, exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR, "an error in the controller; its log says more"


def result(code: ErrorCode, message: str) -> dict[str, Any]:
    """The two fields of most results; no text goes with success."""
    text = message if len(message) <= MESSAGE_MAX else f"{message[:MESSAGE_MAX]}..."
    return {"error_code": code, "error_message": None if code is ErrorCode.NONE else text or None}
