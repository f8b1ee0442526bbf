"""Log records of a run, with virtual time and node.

Records are not part of the history: its digest must not depend on the log level. A record of level ERROR whose error no
fault explains is a violation.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kactl.model.errors import KactlError
from kactl.testing.history import Event
from kactl.testing.loop import SimLoop
from kactl.testing.nodes import NODE
from kactl.testing.violations import Violation

LOGGER: Final = "kactl"
# An exception that leaves an actor unexpectedly; see docs/evidence/reliability.md.
INVARIANT: Final = "INV-51"


class LogRecord(NamedTuple):
    """One record.

    Attributes:
        node: name of the node; empty outside all nodes.
        error: class of its exception, and the innermost place of it; empty if it has none.
    """

    time_ms: float
    node: str
    level: int
    logger: str
    text: str
    error: str = ""


class _Recorder(logging.Handler):
    def __init__(self, records: list[LogRecord], explained: tuple[type[BaseException], ...]) -> None:
        super().__init__()
        self._records = records
        self._explained = explained

    def emit(self, record: logging.LogRecord) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if not isinstance(loop, SimLoop):
            return
        node = NODE.get()
        error = record.exc_info[1] if record.exc_info else None
        described = "" if error is None else f"{type(error).__name__}: {error} ({_place(error)})"
        line = LogRecord(
            loop.now_s * 1000,
            "" if node is None else node.name,
            record.levelno,
            record.name,
            record.getMessage(),
            described,
        )
        self._records.append(line)
        if record.levelno >= logging.ERROR and error is not None and not self._is_explained(error):
            loop.halt(_violation(line, error))

    def _is_explained(self, error: BaseException) -> bool:
        """Returns whether a fault may cause an error: it, one of its group, or one that it followed, is of kactl.

        A TimeoutError without a traceback was never raised: the record reports that a handler has exceeded its limit.
        """
        if isinstance(error, self._explained) or (isinstance(error, TimeoutError) and error.__traceback__ is None):
            return True
        if isinstance(error, BaseExceptionGroup):
            return all(self._is_explained(one) for one in error.exceptions)
        before = error.__cause__ or error.__context__
        return before is not None and self._is_explained(before)


@contextlib.contextmanager
def recorded(
    *, level: int = logging.ERROR, explained: tuple[type[BaseException], ...] = (KactlError,)
) -> Iterator[list[LogRecord]]:
    """Record the log records of simulated runs in the block, and end a run at an error that nothing explains.

    The records are not printed. The level of kactl's loggers is restored afterwards.

    Args:
        level: lowest level to record.
        explained: errors that faults cause.
    """
    records: list[LogRecord] = []
    logger = logging.getLogger(LOGGER)
    handler = _Recorder(records, explained)
    before = (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield records
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
        logger.setLevel(before[0])


def _violation(line: LogRecord, error: BaseException) -> Violation:
    # The class of the error is part of the signature: two different bugs are two violations.
    event = Event(-1, line.time_ms, line.node, f"log.{type(error).__name__}", {"text": line.text, "error": line.error})
    return Violation(INVARIANT, f"{line.node or 'the run'} logs an error: {line.text}: {line.error}", event=event)


def _place(error: BaseException) -> str:
    """Returns file and line of the innermost frame, without folders."""
    trace: Any = error.__traceback__
    if trace is None:
        return "nowhere"
    while trace.tb_next is not None:
        trace = trace.tb_next
    file = trace.tb_frame.f_code.co_filename.rpartition("/")[2]
    return f"{file}:{trace.tb_lineno}"
