"""Ids of unexpected errors, which join the log of a server with the response to a client."""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from kactl.model.errors import InternalError, KactlError

# Two errors of one log have the same id with a probability of 1e-9 after 500 errors.
_BYTES: Final = 6


class Log(Protocol):
    """The part of a logger that is used."""

    def error(self, text: str, /, *arguments: object, exc_info: BaseException) -> None: ...


def _random_id() -> str:
    return secrets.token_hex(_BYTES)


def log_error(
    log: Log, error: BaseException, text: str, *arguments: object, new_id: Callable[[], str] = _random_id
) -> str:
    """Log an unexpected exception with its traceback. Returns an id that is in the line of the log.

    A response contains the id, and nothing of the exception.

    Args:
        text: what failed, with a place for each of the arguments.
        new_id: returns the id.
    """
    error_id = new_id()
    log.error("%s [error %s]: %s", text % arguments, error_id, error, exc_info=error)
    return error_id


@contextlib.contextmanager
def internal_errors(log: Log, text: str, *arguments: object, new_id: Callable[[], str] = _random_id) -> Iterator[None]:
    """Log an error of the block that is no KactlError, which is a bug, and raise InternalError with the id instead.

    Args:
        text, arguments, new_id: as for `log_error`.
    """
    try:
        yield
    except KactlError:
        raise
    except Exception as error:
        raise InternalError(log_error(log, error, text, *arguments, new_id=new_id)) from error
