"""Ids of unexpected errors, which join the log of a server with the response to a client."""

import secrets
from typing import Final, Protocol

# Two errors of one log have the same id with a probability of 1e-9 after 500 errors.
_BYTES: Final = 6


class Log(Protocol):
    """The part of a logger that is used."""

    def error(self, text: str, /, *arguments: object, exc_info: BaseException) -> None: ...


def log_error(log: Log, error: BaseException, text: str, *arguments: object) -> str:
    """Log an unexpected exception with its traceback. Returns an id that is in the line of the log.

    A response contains the id, and nothing of the exception.

    Args:
        text: what failed, with a place for each of the arguments.
    """
    error_id = secrets.token_hex(_BYTES)
    log.error("%s [error %s]: %s", text % arguments, error_id, error, exc_info=error)
    return error_id
