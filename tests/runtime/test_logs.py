"""Log records occupy one line for all values, in every module of kactl."""

import ast
import io
import logging
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

import numpy as np
import pytest

from kactl.model import TopicPartition
from kactl.model.errors import StoreUnavailable
from kactl.runtime.escaping import TEXT_LENGTH_MAX
from kactl.runtime.logs import LINE_LENGTH_MAX, TRACE_LINES_MAX, TRACE_MARGIN, LineFormatter, logger

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("kactl", "actors", "transports") for path in (ROOT / folder).rglob("*.py"))
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
FORGED = "done\r\n12:00:00.000 INFO    kactl.admin: forged\x1b[2J\x1b]0;owned\x07\u202e"


@pytest.fixture
def formatted_output() -> Iterator[io.StringIO]:
    """Returns the output of a handler with the formatter of the server; the root logger is unchanged."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("kactl")
    root.addHandler(handler)
    level, root.level = root.level, logging.DEBUG
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.mark.parametrize(
    "value",
    [FORGED, StoreUnavailable(FORGED), TopicPartition(FORGED, 3), [FORGED], {FORGED: 1}, FORGED.encode()],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("conversion", ["%s", "%r"])
def test_argument_cannot_forge_a_line_under_any_formatter(
    caplog: pytest.LogCaptureFixture, value: object, conversion: str
) -> None:
    caplog.set_level(logging.INFO)

    logger("kactl.tests").info(f"the reason is {conversion}", value)

    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert "forged" in record.getMessage()


def test_numbers_and_named_arguments_are_formatted_as_before(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    logger("kactl.tests").info("%d of %x in %g s: %s, %s", np.int32(3), 255, 0.5, None, True)
    logger("kactl.tests").info("%(name)s: %(count)d", {"name": "a\nb", "count": 2})

    assert caplog.messages == ["3 of ff in 0.5 s: None, True", "a\\u000ab: 2"]


def test_argument_is_truncated(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    logger("kactl.tests").info("%s", "x" * 100_000)

    assert len(caplog.messages[0]) < TEXT_LENGTH_MAX + 40


def test_records_of_other_loggers_are_one_line_too(formatted_output: io.StringIO) -> None:
    logging.getLogger("kactl.not_ours").warning("a library prints %s", FORGED)
    logging.getLogger("kactl.not_ours").warning("x" * 100_000)

    first, second, end = formatted_output.getvalue().split("\n")
    assert end == ""
    assert first.isprintable()
    assert len(second) < LINE_LENGTH_MAX + 40


def test_traceback_lines_cannot_be_confused_with_records(formatted_output: io.StringIO) -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger("kactl.tests").exception("it failed")

    first, *trace = formatted_output.getvalue().rstrip("\n").split("\n")
    assert first == "ERROR kactl.tests: it failed"
    assert len(trace) > 3
    assert all(line.startswith(TRACE_MARGIN) and line.isprintable() for line in trace)


def test_long_traceback_keeps_its_end(formatted_output: io.StringIO) -> None:
    cause = ValueError("the first")
    for number in range(TRACE_LINES_MAX):
        later = ValueError(f"error {number}")
        later.__cause__, cause = cause, later
    try:
        raise RuntimeError("the last") from cause
    except RuntimeError:
        logger("kactl.tests").exception("it failed")

    _, *trace = formatted_output.getvalue().rstrip("\n").split("\n")
    assert len(trace) == TRACE_LINES_MAX + 1
    assert "more lines" in trace[0]
    assert trace[-1] == f"{TRACE_MARGIN}RuntimeError: the last"


# -- the whole tree ----------------------------------------------------------------------------------------------------


def nodes_if_named(path: Path, attributes: AbstractSet[str]) -> Iterator[ast.AST]:
    """Yields the nodes of a module, or none if its text has none of the attributes: most modules do not log."""
    text = path.read_text(encoding="utf-8")
    if any(f".{name}" in text for name in attributes):
        yield from ast.walk(ast.parse(text))


def test_every_module_uses_the_protected_logger() -> None:
    # Conditions name the type, the package needs a logger for its null handler; the others configure loggers of
    # libraries.
    allowed = {
        "kactl/runtime/logs.py",
        "kactl/runtime/conditions.py",
        "kactl/__init__.py",
        "kactl/cli/forensics.py",
        "kactl/cli/sql.py",
    }
    makers = {"getLogger", "Logger", "LoggerAdapter"}

    offenders = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        if str(path.relative_to(ROOT)) not in allowed
        for node in nodes_if_named(path, makers)
        if isinstance(node, ast.Attribute) and node.attr in makers
    ]

    assert offenders == []


def test_log_messages_are_constants_with_arguments() -> None:
    offenders = []
    calls = 0
    for path in SOURCES:
        for node in nodes_if_named(path, LEVELS):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value
            if node.func.attr not in LEVELS or not isinstance(owner, ast.Name) or "log" not in owner.id.lower():
                continue
            calls += 1
            message = node.args[1 if node.func.attr == "log" else 0]
            if not (isinstance(message, ast.Constant) and isinstance(message.value, str)):
                offenders.append(f"{path.relative_to(ROOT)}:{node.lineno}")

    assert calls > 100
    assert offenders == []
