"""Exit codes of the command line, and errors that carry one.

An error is one sentence on stderr with the object, the reason and the remedy. With JSON output it is the server's
problem document, or one of the same form.
"""

import contextlib
import enum
from collections.abc import Iterator
from typing import IO, Any

import click
import msgspec

from kactl.admin.schema import FieldError, Problem
from kactl.model.errors import KactlError
from kactl.runtime.escaping import harmless_json, harmless_lines


class Exit(enum.IntEnum):
    """Exit codes."""

    DONE = 0  # done, or nothing to do
    FAILED = 1  # the operation failed, or some partitions did
    USAGE = 2  # the command line is invalid
    UNREACHABLE = 3  # the server cannot be reached, or did not respond in time
    UNHEALTHY = 4  # `status`: a check fails
    WARNED = 5  # `status --warn-as-error`: a check warns
    PRECONDITION = 6  # not the controller, a stale epoch, or not confirmed


class Failure(click.ClickException):
    """The command failed.

    Attributes:
        message: the object, the reason and the remedy.
        code: the exit code.
        problem: the problem document, if the server sent one.
    """

    def __init__(self, message: str, code: Exit = Exit.FAILED, *, problem: Problem | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.problem = problem

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # a constant there
        return self.code

    def show(self, file: IO[Any] | None = None) -> None:
        # A message may contain text of log files: only its own line breaks are kept.
        message = harmless_lines(self.message)
        click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", file=file, err=file is None)

    def show_json(self) -> None:
        """Print the problem document to stderr, in one line."""
        document = {"title": "the command failed", "detail": self.message} if self.problem is None else self.problem
        click.echo(harmless_json(msgspec.json.encode(document)), err=True)


@contextlib.contextmanager
def harmless_errors() -> Iterator[None]:
    """Escape the messages of errors about the command line: patterns of a shell insert the names of files."""
    try:
        yield
    except click.UsageError as error:
        message = harmless_lines(error.format_message())
        setattr(error, "format_message", lambda: message)  # noqa: B010 - a method of click's class
        raise


def of_system(error: OSError, name: str) -> Failure:
    """Returns the failure of reading or writing a file or folder; `name` is used if the error names none."""
    return Failure(
        f"{error.filename or name}: {error.strerror or error}: check that it exists, its permissions, and "
        "the free disk space"
    )


# Kafka's names of errors after which the caller must find the controller or read the state again.
_PRECONDITIONS = frozenset({"NOT_CONTROLLER", "STALE_CONTROLLER_EPOCH"})


def refused(problem: Problem) -> Failure:
    """Returns the failure of a problem document."""
    if problem.error_name in _PRECONDITIONS or problem.status == 412:
        code = Exit.PRECONDITION
    elif problem.error_name == "REQUEST_TIMED_OUT" or problem.status == 504:
        code = Exit.UNREACHABLE
    else:
        code = Exit.FAILED
    return Failure(_sentence(problem), code, problem=problem)


def _sentence(problem: Problem) -> str:
    lines = [f"{problem.detail or problem.title} ({problem.error_name})"]
    lines += [_field(error) for error in problem.errors if error.detail not in problem.detail]
    if problem.retriable:
        lines.append("nothing is wrong with the request: try again")
    return "\n  ".join(lines)


def _field(error: FieldError) -> str:
    where = error.pointer or error.parameter or error.header
    return f"{where}: {error.detail}" if where else error.detail


@contextlib.contextmanager
def invalid_files_explained() -> Iterator[None]:
    """Convert kactl's errors about a file that the command was given to failures of its usage."""
    try:
        yield
    except KactlError as error:
        raise Failure(str(error), Exit.USAGE) from None
