"""Loggers with escaped records, which cannot forge lines.

`logger` is the only source of loggers in kactl. Its filter escapes the arguments of each record, so that a program that
embeds kactl is protected regardless of its own handlers. The filter indents tracebacks, too: none of their lines looks
like a record. `LineFormatter` is the formatter of the server: it escapes the whole message, which covers the loggers of
libraries.

kactl adds no handler. In a program that configures no logging, Python's handler of last resort prints warnings and
errors on stderr. `kactl.runtime.conditions` keeps what is repeated from filling them.
"""

import logging
import numbers
from collections.abc import Mapping
from typing import Any, Final

from .escaping import escaped

# A message is one sentence with a few values of at most 1,000 characters each.
LINE_LENGTH_MAX: Final = 8000
# The innermost frames explain an error; a group of errors may print thousands of lines.
TRACE_LINES_MAX: Final = 400
TRACE_MARGIN: Final = "    | "


def logger(name: str) -> logging.Logger:
    """Returns the logger of a module."""
    result = logging.getLogger(name)
    result.addFilter(_escape)  # once: an equal filter is not added again
    return result


class _Escape(logging.Filter):
    """Replaces the arguments of a record by values that print on one line. Rejects no record."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            # Formatters use this text in place of their own, also that of Python's handler of last resort.
            record.exc_text = LineFormatter().formatException(record.exc_info)
        args = record.args
        if isinstance(args, tuple):
            record.args = tuple(map(_safe, args))
        elif isinstance(args, Mapping):
            record.args = {name: _safe(value) for name, value in args.items()}
        return True


_escape: Final = _Escape()


class _Shown:
    """Escaped value of a record. Converted when a handler formats the record, like any other value."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return escaped(str(self._value))

    def __repr__(self) -> str:
        return escaped(repr(self._value))


def _safe(value: Any) -> Any:
    if value is None or isinstance(value, numbers.Number | _Shown):
        return value  # `%d` needs the number itself
    return _Shown(value)


class LineFormatter(logging.Formatter):
    """Formats each record as one line, and the lines of a traceback with a margin."""

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # another handler may have formatted it without a margin
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        return escaped(super().formatMessage(record), LINE_LENGTH_MAX)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return _with_margin(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _with_margin(super().formatStack(stack_info))


def _with_margin(trace: str) -> str:
    lines = trace.split("\n")
    left_out = len(lines) - TRACE_LINES_MAX
    shown = [escaped(line, LINE_LENGTH_MAX) for line in (lines if left_out <= 0 else lines[-TRACE_LINES_MAX:])]
    if left_out > 0:
        shown.insert(0, f"... ({left_out} more lines)")
    return "\n".join(TRACE_MARGIN + line for line in shown)
