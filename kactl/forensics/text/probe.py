"""Detection of a file's kind, layout and broker from its first thousand lines; its name does not matter."""

import contextlib
import functools
import io
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from kactl.forensics.event_types import Kind
from kactl.forensics.storage import Location
from kactl.model.errors import BadRequest
from kactl.runtime.escaping import harmless

from . import json_parser
from .broker_id import Prefixes
from .dispatch import MARKS, STATE_SHORT, is_known, is_of_kafka, is_ours
from .forms import Fields, Forms
from .json_lines import Elements, is_export
from .json_parser import DUMP, KACTL, PAYLOADS
from .records import Cutter
from .source import LATIN1, UTF8, UTF16, Broken, Readable, Transcoded, Unpacked, packing, why
from .zone import years_ahead

SAMPLE_LINES: Final = 1000
SAMPLE_BYTES: Final = 4 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
# Formats that are not supported, or not here: archives are unpacked before.
_PACKED: Final = {
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
    "zip": re.compile(rb"PK\x03\x04"),
    # One level is decompressed before this test.
    "gzip twice": re.compile(rb"\x1f\x8b"),
    "tar": re.compile(rb"[^\0].{256}ustar", re.DOTALL),
}
_KAFKA: Final = (b"state.change.logger", b"kafka.", b"org.apache.kafka.")
# Loggers of Kafka that other programs have, too: their lines do not show that a broker wrote them.
_CLIENTS: Final = {
    "Kafka Connect": (b"org.apache.kafka.connect.",),
    "Kafka Streams": (b"org.apache.kafka.streams.",),
    "a client of Kafka": (b"org.apache.kafka.clients.", b"org.apache.kafka.common.", b"kafka.tools.", b"kafka.utils."),
}
# The client of ZooKeeper in a broker. Its lines alone, as during an outage, do not show which program wrote them.
_ZOOKEEPER_CLIENT: Final = (
    b"org.apache.zookeeper.ClientCnxn",
    b"org.apache.zookeeper.ZooKeeper",
    b"org.apache.zookeeper.client.",
    b"org.I0Itec.zkclient.",
)
# `broker-3/state-change.log`, `kafka_3.log`, `node3`: only used if no line contains a broker id. Versions, as in
# `kafka_2.13-3.6.0`, and dates are no ids.
_IN_PATH: Final = re.compile(
    r"(?:broker|kafka|node|controller|server)[-_.]?(?!(?:19|20)\d{6})(\d{1,9})(?![\d]|[-_.]\d)", re.IGNORECASE
)
# Up to 0.11, outside of brackets.
_PARTITION_ON: Final = re.compile(rb"Partition \[[\w.-]+,\d+\] on broker (\d+): ")
_NODE_ID: Final = re.compile(rb"(?:broker|node)\.id = (\d+)")
_CONTROLLER_ID: Final = re.compile(rb'"what":"elected","controller_id":(\d+)')
_ID_DIGITS: Final = 10
# Times without a day cannot be ordered across midnight or between files.
_DAYLESS_LINE: Final = re.compile(rb"\[?\d\d:\d\d:\d\d[,.]\d{3}\]? +\[?[A-Z]{4,5}\b")
_REDPANDA: Final = re.compile(rb"^(?:TRACE|DEBUG|INFO|WARN|ERROR) +\d{4}-\S+ \S+ \[shard ", re.MULTILINE)
# So much of a file is searched for lines of Kafka if its first lines have none.
_SEARCHED_BYTES: Final = 64 * 1024 * 1024
_SHOWN_BYTES: Final = 160
# A line with more than one invalid character in so many is binary.
_BINARY: Final = 10
# Of the forms in a file, so many are named.
_FORMS_SHOWN: Final = 3
_FRACTION: Final = re.compile(rb":\d\d[,.]\d")
_NO_TEXT: Final = "is no text"
_DAYLESS: Final = "its lines have a time, but no day: they cannot be ordered"


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """Result for one file.

    Attributes:
        layout: the forms of its first lines, the most frequent first, or DUMP, PAYLOADS or KACTL; empty if the file is
            not read.
        forms: their names in `forms`.
        patterns: layouts that are tried before those of the table.
        packed: the program that compressed it, a name in `source.MAGIC`; empty if none did.
        exported: whether it is an export in JSON: one document with many lines in it.
        size: bytes, as stored.
        whole_seconds: whether its times have no milliseconds.
        years_ahead: the number to subtract from the years of its times; see `zone.years_ahead`.
        broker: the broker that wrote it; None if it is not known, or if there are several.
        error: why the file is not read; empty if it is.
    """

    path: str
    kind: Kind
    layout: str = ""
    forms: tuple[str, ...] = ()
    encoding: str = UTF8
    patterns: tuple[str, ...] = ()
    packed: str = ""
    exported: bool = False
    whole_seconds: bool = False
    years_ahead: int = 0
    size: int = 0
    broker: int | None = None
    error: str = ""

    @property
    def is_log(self) -> bool:
        return bool(self.layout)

    @property
    def can_be_split(self) -> bool:
        """Whether reading can begin at any byte."""
        return not self.packed and not self.exported and self.encoding != UTF16


def probe(path: str, patterns: tuple[str, ...] = ()) -> Probe:
    """Probes a file. Errors are part of the result; none is raised.

    Args:
        patterns: layouts to be tried first, as conversion patterns.
    """
    if not _is_text(path):
        return Probe(
            path=shown(path), kind=Kind.UNREADABLE, error="cannot be read: its name is not in UTF-8; rename it"
        )
    try:
        location = Location(path)
        size = location.size()
        with location.open() as file:
            packed = packing(file)
            plain: Readable = Unpacked(file, packed) if packed else file
            begin = _begin(plain)
            found = _look(path, begin, size=size, packed=packed, forms=Forms(patterns))
            found = found if found.kind is not Kind.FOREIGN else _searched(found, plain, begin, Forms(patterns))
            return msgspec.structs.replace(found, patterns=patterns)
    except (OSError, Broken) as error:
        return Probe(path=path, kind=Kind.UNREADABLE, error=f"cannot be read: {why(error)}")


def first_lines(path: str, count: int) -> list[bytes]:
    """Returns the first lines of a file, unpacked, for people who look at them.

    Raises:
        BadRequest, OSError: the file cannot be read.
    """
    probed = probe(path)
    if probed.kind is Kind.UNREADABLE:
        raise BadRequest(path, probed.error)
    with opened(probed, start=0) as file:
        found = file.read(SAMPLE_BYTES).split(b"\n")
    return [line for line in found if line.strip()][:count]


def shown(path: str) -> str:
    """Returns a file name as text, with escapes for bytes that are not UTF-8."""
    return path if _is_text(path) else os.fsencode(path).decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def opened(probed: Probe, *, start: int) -> Iterator[Readable]:
    """Opens a probed file for `records`: positioned one byte before `start`, decompressed and in UTF-8."""
    with Location(probed.path).open() as file:
        file.seek(max(0, start - 1))
        plain: Readable = Unpacked(file, probed.packed) if probed.packed else file
        if probed.encoding == UTF16:
            plain = Transcoded(plain)
        yield Elements(plain) if probed.exported else plain


def _is_text(path: str) -> bool:
    """Returns whether a name is text; on disk, names may be any bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _begin(file: Readable) -> bytes:
    """Returns the first bytes: enough for a sample, but at most about `SAMPLE_BYTES`."""
    begin = b""
    while len(begin) < SAMPLE_BYTES and begin.count(b"\n") <= SAMPLE_LINES and (more := file.read(_READ_BYTES)):
        begin += more
    return begin


def _look(path: str, begin: bytes, *, size: int, packed: str, forms: Forms) -> Probe:
    for program, magic in _PACKED.items():
        if magic.match(begin):
            error = f"cannot be read: it is packed by {program}; unpack it first"
            return Probe(path=path, kind=Kind.UNREADABLE, packed=packed, size=size, error=error)
    encoding = UTF8
    if begin[:2] in _UTF16_MARKS:
        encoding = UTF16
        begin = begin[: len(begin) // 2 * 2].decode("utf-16", "replace").encode("utf-8", "replace")
    sample = _lines(begin)
    exported = is_export(begin)
    if exported:
        # The sample may end within a document.
        with contextlib.suppress(Broken):
            begin = b"".join(iter(functools.partial(Elements(io.BytesIO(begin), partial=True).read, SAMPLE_BYTES), b""))
        sample = _lines(begin)
    result = Probe(path=path, kind=Kind.EMPTY, encoding=encoding, packed=packed, exported=exported, size=size)
    if not any(line.strip(b"\0\r ") for line in sample):
        return result
    if encoding == UTF8 and not _is_utf8(begin):
        result = msgspec.structs.replace(result, encoding=LATIN1)
    layout = json_parser.detect(sample)
    if layout in (DUMP, PAYLOADS):
        return msgspec.structs.replace(result, kind=Kind.DUMP, layout=layout)
    if layout == KACTL:
        match = _CONTROLLER_ID.search(begin)
        return msgspec.structs.replace(result, kind=Kind.KACTL, layout=layout, broker=_id(match[1]) if match else None)
    return _of_lines(result, sample, forms)


def _of_lines(result: Probe, sample: Sequence[bytes], forms: Forms) -> Probe:
    """Fills the result from lines of the file."""
    fields, names = _fields(sample, forms)
    kind = _kind(fields) if fields else Kind.FOREIGN
    if kind is Kind.FOREIGN:
        return msgspec.structs.replace(
            result, kind=kind, error=_why_not_kafka(fields) if fields else _why_foreign(sample)
        )
    frequent = tuple(name for name, _ in names.most_common(_FORMS_SHOWN))
    return msgspec.structs.replace(
        result,
        kind=kind,
        layout=", ".join(frequent),
        forms=frequent,
        error="",
        whole_seconds=any(not _FRACTION.search(line[0] or b"") for line in fields),
        years_ahead=years_ahead([line[0] or b"" for line in fields]),
        broker=_broker(fields, sample, result.path),
    )


def _searched(found: Probe, file: Readable, begin: bytes, forms: Forms) -> Probe:
    """Search a file whose first lines are not of Kafka for lines of Kafka, as in streams of several programs.

    If the form of the first of them is not known, the result names it.
    """
    if b"\0" in begin:
        if found.error == _NO_TEXT and _is_binary(_shown(begin.replace(b"\0", b""))):
            return found
        begin, file = begin.replace(b"\0", b""), _WithoutNulls(file)
    read, rest = 0, b""
    chunk = begin
    while chunk:
        text = rest + chunk
        lines = text.split(b"\n") if any(mark in text for mark in MARKS) else [text.rpartition(b"\n")[2]]
        # A line without an end is not complete yet, unless it is longer than any log's.
        rest = lines.pop() if len(lines[-1]) < _READ_BYTES else b""
        for index, line in enumerate(lines):
            if is_of_kafka(line):
                result = _of_lines(found, lines[index : index + SAMPLE_LINES], forms)
                return result if result.is_log or found.exported else _not_understood(found, line)
        read += len(chunk)
        chunk = file.read(_READ_BYTES) if read < _SEARCHED_BYTES else b""
    if not is_of_kafka(rest):
        return found
    result = _of_lines(found, [rest], forms)
    return result if result.is_log else _not_understood(found, rest)


def _is_binary(shown: str) -> bool:
    return shown.count("\N{REPLACEMENT CHARACTER}") > len(shown) // _BINARY


def _not_understood(found: Probe, line: bytes) -> Probe:
    error = (
        found.error
        if found.error == _DAYLESS
        else (
            "has lines of a broker or controller in a layout that is not known, and was left out (`kactl forensics "
            "explain-layout` shows the known ones; --layout names another); the first of them: "
            f"{_shown(line)}"
        )
    )
    return msgspec.structs.replace(found, kind=Kind.NOT_UNDERSTOOD, error=error)


def _shown(line: bytes) -> str:
    cut = harmless(line.strip()[:_SHOWN_BYTES].decode("utf-8", "replace"))
    return cut if len(line) <= _SHOWN_BYTES else f"{cut} ..."


class _WithoutNulls:
    """UTF-16 as far as a search for ASCII characters needs it."""

    def __init__(self, file: Readable) -> None:
        self._file = file

    def read(self, size: int, /) -> bytes:
        return self._file.read(size).replace(b"\0", b"")


def _lines(begin: bytes) -> list[bytes]:
    sample = [line.strip(b"\0") for line in begin.split(b"\n", SAMPLE_LINES)[:SAMPLE_LINES]]
    # The text after the last newline is empty or may be cut off.
    return sample if len(sample) < 2 else sample[:-1]


def _is_utf8(begin: bytes) -> bool:
    try:
        begin.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start >= len(begin) - 4  # a character may be cut off at the end of the sample
    return True


def _why_foreign(sample: Sequence[bytes]) -> str:
    if sum(_DAYLESS_LINE.match(line) is not None for line in sample) * 2 > len(sample):
        return _DAYLESS
    if any(map(_REDPANDA.match, sample)):
        return "looks like Redpanda, which has no Kafka controller"
    first = next(line for line in sample if line.strip(b"\0\r "))
    shown = _shown(first)
    return _NO_TEXT if _is_binary(shown) else f"is no log whose layout is known; its first line: {shown}"


def _why_not_kafka(fields: Sequence[Fields]) -> str:
    for program, loggers in _CLIENTS.items():
        if any((line[4] or b"").startswith(loggers) for line in fields):
            return f"is a log of {program}, not of a broker or controller"
    return "is a log, but none of Kafka's brokers and controllers"


def _kind(fields: Sequence[Fields]) -> Kind:
    """Returns the kind, by the lines that can be of Kafka: a stream may have those of other programs, in any share."""
    short = _short_names(fields)
    loggers = Counter(logger for line in fields if (logger := line[4] or b"") and (b"." in logger or logger in short))
    prefixes = Prefixes()
    state = sum(count for logger, count in loggers.items() if logger.startswith((b"state.change.logger", STATE_SHORT)))
    ours = sum(count for logger, count in loggers.items() if is_ours(logger))
    if state * 2 >= len(fields):
        return Kind.STATE_CHANGE
    if ours * 2 >= len(fields):
        return Kind.CONTROLLER
    of_clients = tuple(itertools.chain(*_CLIENTS.values()))
    kafka = any(
        logger in short or (logger.startswith(_KAFKA) and not logger.startswith(of_clients)) for logger in loggers
    ) or any(prefixes[line[2]].speaker is not None for line in fields)
    is_of_client = all(logger.startswith(_ZOOKEEPER_CLIENT) for logger in loggers)
    return Kind.SERVER if kafka or (loggers and is_of_client) else Kind.FOREIGN


def _short_names(fields: Sequence[Fields]) -> set[bytes]:
    """Returns the short names of loggers that are Kafka's.

    Any program may have a logger with a short name such as `logger`. It is Kafka's if one of its lines has a known
    format or a prefix that only brokers and controllers write.
    """
    prefixes, loggers = Prefixes(), set[bytes]()
    for line in fields:
        prefix = prefixes[line[2]]
        if (
            line[4]
            and b"." not in line[4]
            and line[4] not in loggers
            and (prefix.speaker is not None or is_known(line[3] or b"", names_partition=prefix.topic is not None))
        ):
            loggers.add(line[4])
    return loggers


def _broker(fields: Sequence[Fields], sample: Sequence[bytes], path: str) -> int | None:
    """Returns the broker that the lines, or else the path, name; None if there is no such broker, or several."""
    prefixes = Prefixes()
    ids = {prefix.speaker for line in fields if (prefix := prefixes[line[2]]).speaker is not None}
    ids |= {match[1] for line in fields if (match := _PARTITION_ON.match(line[3] or b"")) is not None}
    if not ids:
        ids = {match[1] for line in sample if (match := _NODE_ID.search(line)) is not None}
    if ids:
        return _id(next(iter(ids))) if len(ids) == 1 else None
    in_path = {int(number) for number in _IN_PATH.findall(path.rsplit("/", 2)[-1] or path)} or {
        int(number) for number in _IN_PATH.findall("/".join(path.rsplit("/", 3)[-3:]))
    }
    return next(iter(in_path)) if len(in_path) == 1 else None


def _id(digits: bytes) -> int | None:
    """Returns a broker's id; None for a number out of range."""
    number = int(digits[:_ID_DIGITS])
    return number if len(digits) <= _ID_DIGITS and number < 2**31 else None


def _fields(sample: Sequence[bytes], forms: Forms) -> tuple[list[Fields], "Counter[str]"]:
    """Returns the fields of lines with a time, and how often each form occurs."""
    cutter, fields, names = Cutter(forms), list[Fields](), Counter[str]()
    for line in sample:
        cut = cutter.cut(line)
        if cut.form is not None and cut.fields is not None:
            fields.append(cut.fields)
            names[cut.form.name] += 1
    return fields, names
