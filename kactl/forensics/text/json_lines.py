"""Lines in JSON, of loggers and of collectors, as the lines of text that they stand for.

A document of a logger (log4j2, ECS, logstash, GELF) becomes `TIME LEVEL message (logger) [thread]`, followed by its
stack trace. A document of a collector (Docker, Filebeat, Fluent Bit, CloudWatch, Loki ...) becomes the message in it,
which may again be in any form, after `stream | ` if it names the writer. To support another key, add it to KEYS. A key
with dots is also found in objects inside each other.
"""

import datetime
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .source import LINE_LIMIT, Broken, Readable

KEYS: Final = {
    "message": (
        "message msg @m @message log MESSAGE short_message full_message textPayload _raw line Message text body "
        "event.original event content log.message"
    ),
    "level": (
        "level log.level severity levelname loggerLevel level_name severity_text severityText logLevel lvl @l "
        "level.name"
    ),
    "logger": (
        "loggerName logger_name log.logger logger.name logger _logger_name _loggerName source_class_name "
        "_sourceClassName _logger category sourceContext SourceContext name"
    ),
    "thread": "thread thread_name threadName process.thread.name logger.thread_name _thread_name _threadName _thread",
    "time": (
        "@timestamp timestamp instant timeMillis time ts @t datetime date asctime eventTime __REALTIME_TIMESTAMP _time"
    ),
    "trace": (
        "stack_trace error.stack_trace thrown.extendedStackTrace exception.stacktrace exception.stackTrace stacktrace "
        "stackTrace throwable exception _StackTrace thrown exc_info error.stack @x"
    ),
    "stream": (
        "kubernetes.pod_name kubernetes.pod.name container.name container_name pod_name pod logStreamName logStream "
        "@logStream resource.labels.pod_name labels.pod stream.pod stream.container labels.container _HOSTNAME "
        "host.name hostname agent.hostname beat.hostname host"
    ),
}
# Objects around a document; `values` of Loki are documents of their own, see `Elements`.
_AROUND: Final = ("_source", "result", "attributes", "jsonPayload", "fields", "json", "data")
_KEYS: Final = {what: tuple((key, tuple(key.split("."))) for key in keys.split()) for what, keys in KEYS.items()}
_LEVELS: Final = {
    "WARNING": "WARN", "NOTICE": "INFO", "CRITICAL": "FATAL", "CRIT": "FATAL", "ERR": "ERROR", "EMERGENCY": "FATAL",
    "ALERT": "FATAL", "DEFAULT": "INFO", "INFORMATION": "INFO", "VERBOSE": "TRACE", "FINE": "DEBUG",
}  # fmt: skip
_SYSLOG: Final = ("FATAL", "FATAL", "FATAL", "ERROR", "WARN", "INFO", "INFO", "DEBUG")
_KNOWN: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_DEPTH_MAX: Final = 4
_PREFIX_MAX: Final = 200
_DOCUMENT: Final = re.compile(rb'\{\s*"')
# A message that begins with a time or a level is a line of its own; one that begins so continues another.
_IS_LINE: Final = re.compile(
    r"\s*[\[(<]*(?:(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\]? *\[?)?(?:\w{3} )?"
    r"(?:\d\d\d\d[-/]\d\d|\d\d[:/]\d\d[:/]\d\d|\w{3} [ \d]\d \d\d:)"
)
_IS_TIME: Final = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d")
# No time of a log: the line counts as unparsed.
_NO_TIME: Final = "0000-00-00T00:00:00.000Z"
_CONTINUES: Final = re.compile(r"\s|at |Caused by|Suppressed: |[\w.$]+(?:Exception|Error)\b|===>|$")
# Docker keeps longer lines in pieces of 16 KiB, of which the last one ends in a newline.
DOCKER_PIECE: Final = 16_000
_NOT_IN_NAMES: Final = re.compile(r"[^\w.@-]+")


def plain(line: bytes) -> bytes | None:
    """Return the text of a line in JSON, which may be several lines; None for another line.

    What is before the JSON stays before each line if it names a stream, as `name | ` does.
    """
    begin = line.find(b"{", 0, _PREFIX_MAX)
    end = line.rstrip(b"\r, ")
    if begin < 0 or not end.endswith(b"}") or _DOCUMENT.match(line, begin) is None:
        return None
    document = _decoded(end[begin:])
    if not isinstance(document, dict):
        return None
    try:
        text = _text(document, {}, 0)
    except (TypeError, ValueError, OverflowError, OSError):
        return None  # a value of another type, such as a list for a time
    if text is None:
        return None
    before = line[:begin]
    # A prefix that names no stream is of a collector; `data: ` is of the journal.
    if not before.rstrip().endswith((b"|", b":", b" F", b"]")) or before == b"data: ":
        return text.encode("utf-8", "replace")
    return b"\n".join(before + each for each in text.encode("utf-8", "replace").split(b"\n"))


def printed_by_docker(line: bytes) -> bytes:
    """Return what a container has printed, from a line of Docker's `json-file`; the line itself if it is damaged."""
    document = _decoded(line)
    printed = document.get("log") if isinstance(document, dict) else None
    return printed.encode("utf-8", "replace") if isinstance(printed, str) else line


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _found(document: dict[str, Any], what: str) -> Any:
    for key, path in _KEYS[what]:
        value: Any = document.get(key)
        if value is None and len(path) > 1:
            value = document
            for part in path:
                value = value.get(part) if isinstance(value, dict) else None
        if value is None or value == "" or (isinstance(value, dict) and not _may_be_object(value, what)):
            continue
        if what == "message" and not isinstance(value, str | list | dict):
            continue
        return value
    return None


def _may_be_object(value: dict[str, Any], what: str) -> bool:
    return what in ("time", "trace") or (what == "message" and _found(value, what) is not None)


def _text(document: dict[str, Any], outer: dict[str, Any], depth: int) -> str | None:
    """Return the text of a document; `outer` has what documents around it know."""
    own = {what: value for what in ("time", "stream") if (value := _found(document, what)) is not None}
    known = outer | own
    message = _found(document, "message")
    if depth < _DEPTH_MAX:
        if message is None:
            inner = next((value for key in _AROUND if isinstance(value := document.get(key), dict)), None)
            return None if inner is None else _text(inner, known, depth + 1)
        if isinstance(message, str) and message.lstrip().startswith("{"):
            inner = _decoded(message.strip().encode())
            message = inner if isinstance(inner, dict) and _found(inner, "message") else message
        if isinstance(message, dict):
            return _text(message, known, depth + 1)
    if isinstance(message, list):  # of the journal, for texts with control characters
        codes = bytes(each for each in message if isinstance(each, int) and 0 <= each < 256)
        message = codes.decode("utf-8", "replace")
    if not isinstance(message, str):
        return None
    message = message.removesuffix("\n") if "log" in document else message.rstrip("\n")
    level, logger = _found(document, "level"), _found(document, "logger")
    if (
        (level is None and not isinstance(logger, str))
        or _IS_LINE.match(message)
        or (not isinstance(logger, str) and _CONTINUES.match(message))
    ):
        text = message
    else:
        text = _line(message, level, logger, known.get("time"), document)
    stream = _NOT_IN_NAMES.sub("-", str(known.get("stream", ""))).strip("-")
    return "\n".join(f"{stream} | {each}" for each in text.split("\n")) if stream else text


def _line(message: str, level: Any, logger: Any, time: Any, document: dict[str, Any]) -> str:
    thread = _found(document, "thread")
    logger = _NOT_IN_NAMES.sub("-", logger) if isinstance(logger, str) else "unknown"
    line = f"{_time(time)} {_level(level)} {message} ({logger}) [{_one_line(thread)}]"
    trace = _found(document, "trace")
    if isinstance(trace, dict):
        trace = _found(trace, "trace") or trace.get("message")
    if isinstance(trace, list):
        trace = "\n".join(str(each) for each in trace)
    return f"{line}\n{trace.rstrip()}" if isinstance(trace, str) else line


def _one_line(value: Any) -> str:
    return re.sub(r"[\[\]\n]", " ", str(value)) if isinstance(value, str) else "main"


def _level(level: Any) -> str:
    if isinstance(level, int | float):
        return _SYSLOG[int(level)] if 0 <= level < len(_SYSLOG) else _KNOWN[max(0, min(5, int(level) // 10 - 1))]
    name = str(level or "INFO").upper().strip()
    return name if name in _KNOWN else _LEVELS.get(name, "INFO")


def _time(time: Any) -> str:
    """Return a time in the form of a layout."""
    if isinstance(time, dict):
        time = time.get("epochSecond", 0) + time.get("nanoOfSecond", 0) / 1e9
    if isinstance(time, str) and re.fullmatch(r"\d{9,19}(?:\.\d+)?", time):
        time = float(time)
    if isinstance(time, int | float):
        while time > 1e11:  # milliseconds, microseconds or nanoseconds
            time /= 1000
        moment = datetime.datetime.fromtimestamp(round(time, 3), datetime.UTC)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"
    return time if isinstance(time, str) and _IS_TIME.match(time) else _NO_TIME


# -- documents that fill more than a line ------------------------------------------------------------------------------

_STEP: Final = 1 << 20
# So much of an export is held at once, because most are sorted from the newest to the oldest line.
_EXPORT_MAX: Final = 1 << 30
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|["\[\]{}]', re.DOTALL)


def is_export(begin: bytes) -> bool:
    """Return whether a file is a document with many lines in it, or documents of several lines each."""
    text = begin.lstrip(b"\xef\xbb\xbf \t\r\n")
    if re.match(rb"\[\s*[{\[]", text):
        return True
    if not re.match(rb'\{\s*"', text):
        return False
    first = text.partition(b"\n")[0].rstrip(b"\r, ")
    document = _decoded(first)
    if document is None:
        return len(first) < _PREFIX_MAX or len(first) > LINE_LIMIT or first.count(b"{") > first.count(b"}")
    return _found(document, "message") is None and _has_documents(document)


def _has_documents(value: Any, depth: int = 0) -> bool:
    """Return whether a value has an array of documents in it."""
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], dict | list)
    inner = value.values() if isinstance(value, dict) and depth < _DEPTH_MAX else ()
    return any(_has_documents(each, depth + 1) for each in inner)


class Elements:
    """The documents in an export, one on each line, from the oldest to the newest."""

    def __init__(self, file: Readable, *, partial: bool = False) -> None:
        self._file = file
        self._is_partial = partial
        self._lines: Iterator[bytes] | None = None

    def read(self, size: int, /) -> bytes:
        """Return at least one line, or no bytes at the end.

        Raises:
            Broken: the export is larger than `_EXPORT_MAX`, or its last document is not complete.
        """
        if self._lines is None:
            found = [line for element in _elements(self._file, self._is_partial) for line in _lines(element)]
            times = [each for each in (found[:1] + found[-1:]) if each]
            is_backward = len(times) == 2 and _instant(times[0]) > _instant(times[1]) > ""
            self._lines = iter(reversed(found) if is_backward else found)
        collected = b""
        for line in self._lines:
            collected += line + b"\n"
            if len(collected) >= size:
                break
        return collected


def _elements(file: Readable, is_partial: bool) -> Iterator[bytes]:
    """Yield the members of the outermost array of documents, or else the outermost documents."""
    text, begin, at, total = b"", -1, 0, 0
    base: int | None = None  # depth of the members of the array
    is_done = False  # the array of this document has ended
    kinds: list[bytes] = []
    while more := file.read(_STEP):
        total += len(more)
        if total > _EXPORT_MAX:
            raise Broken(f"the export has more than {_EXPORT_MAX:,} bytes: write a document a line, as jq -c does")
        text += more
        for match in _TOKEN.finditer(text, at):
            token = match[0]
            if token == b'"':
                break  # the end of the text is not read yet
            if token[0] in b"[{":
                if base is None and not is_done and kinds[-1:] == [b"["] and not text[at : match.start()].strip():
                    base = len(kinds)
                if len(kinds) == (base or 0):
                    begin = match.start()
                kinds.append(token)
            elif token[0] in b"]}" and kinds:
                kinds.pop()
                if len(kinds) == (base or 0) and begin >= 0 and not is_done:
                    yield text[begin : match.end()].replace(b"\n", b" ").replace(b"\r", b" ")
                    begin = -1
                is_done = bool(kinds) and (is_done or (base is not None and len(kinds) < base))
                base = None if base is None or len(kinds) < base else base
            at = match.end()
        cut = at if begin < 0 else begin
        text, begin, at = text[cut:], begin if begin < 0 else 0, at - cut
    if kinds and not is_partial:
        raise Broken("the last document of the export is not complete")


def _lines(element: bytes) -> list[bytes]:
    """Return a document as lines; of Loki one for each value, and of a query's result its fields."""
    document = _decoded(element)
    if isinstance(document, list):  # CloudWatch Logs Insights
        fields = [each for each in document if isinstance(each, dict) and "field" in each]
        document = {each["field"]: each.get("value") for each in fields}
        return [msgspec.json.encode(document)] if fields else []
    values = document.get("values") if isinstance(document, dict) else None
    if not isinstance(values, list):
        return [element]
    labels = document.get("stream") or document.get("metric") or {}
    return [
        msgspec.json.encode({"stream": labels, "time": value[0], "line": value[1]})
        for value in values
        if isinstance(value, list) and len(value) > 1
    ]


def _instant(line: bytes) -> str:
    document = _decoded(line)
    inner = document
    for _ in range(_DEPTH_MAX):
        if not isinstance(inner, dict):
            return ""
        time = _found(inner, "time")
        if time is not None:
            return _time(time)
        inner = next((value for key in _AROUND if isinstance(value := inner.get(key), dict)), None)
    return ""
