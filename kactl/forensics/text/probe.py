"""Detection of a file's kind, layout and broker from its first thousand lines; its name does not matter."""

import contextlib
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from kactl.forensics.event_types import Kind
from kactl.forensics.storage import Location

from . import envelope
from .broker_id import Prefixes
from .dispatch import STATE_SHORT, is_known, is_ours
from .envelope import DUMP, KACTL, LAYOUTS, PAYLOADS
from .source import LATIN1, UTF8, UTF16, Broken, Readable, Transcoded, Unwrapped, Unzipped, is_wrapped, why
from .zone import TIME_LENGTH, years_ahead

SAMPLE_LINES: Final = 1000
SAMPLE_BYTES: Final = 4 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
# Formats that are not supported. Brokers compress with gzip, but archived logs may be compressed otherwise.
_PACKED: Final = {
    "bzip2": re.compile(rb"BZh[1-9]1AY&SY"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
    "zip": re.compile(rb"PK\x03\x04"),
    # One level of gzip is decompressed before this test.
    "gzip twice": re.compile(rb"\x1f\x8b"),
    "tar": re.compile(rb"[^\0].{256}ustar", re.DOTALL),
}
_KAFKA: Final = (b"state.change.logger", b"kafka.", b"org.apache.kafka.")
# The client of ZooKeeper in a broker. Its lines alone, as during an outage, do not show which program wrote them.
_ZOOKEEPER_CLIENT: Final = (
    b"org.apache.zookeeper.ClientCnxn",
    b"org.apache.zookeeper.ZooKeeper",
    b"org.apache.zookeeper.client.",
    b"org.I0Itec.zkclient.",
)
# `broker-3/state-change.log`, `kafka_3.log`, `node3`: only used if no line contains a broker id.
_IN_PATH: Final = re.compile(r"(?:broker|kafka|node|controller|server)[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE)
# Up to 0.11, outside of brackets.
_PARTITION_ON: Final = re.compile(rb"Partition \[[\w.-]+,\d+\] on broker (\d+): ")
_NODE_ID: Final = re.compile(rb"(?:broker|node)\.id = (\d+)")
_CONTROLLER_ID: Final = re.compile(rb'"what":"elected","controller_id":(\d+)')
_ID_DIGITS: Final = 10


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """Result for one file.

    Attributes:
        layout: a name in `envelope.LAYOUTS`, or DUMP, PAYLOADS or KACTL; empty if the file is not read.
        packed: whether it is compressed with gzip.
        wrapped: whether its lines are in JSON, as Docker keeps what containers print.
        size: bytes, as stored.
        whole_seconds: whether its times have no milliseconds.
        years_ahead: the number to subtract from the years of its times; see `zone.years_ahead`.
        broker: the broker that wrote it; None if it is not known, or if there are several.
        error: why the file is not read; empty if it is.
    """

    path: str
    kind: Kind
    layout: str = ""
    encoding: str = UTF8
    packed: bool = False
    wrapped: bool = False
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
        return not self.packed and not self.wrapped and self.encoding != UTF16


def probe(path: str) -> Probe:
    """Probes a file. Errors are part of the result; none is raised."""
    if not _is_text(path):
        return Probe(
            path=shown(path), kind=Kind.UNREADABLE, error="cannot be read: its name is not in UTF-8; rename it"
        )
    try:
        location = Location(path)
        size = location.size()
        with location.open() as file:
            packed = location.is_packed(file)
            plain: Readable = Unzipped(file) if packed else file
            begin = _begin(plain)
    except (OSError, Broken) as error:
        return Probe(path=path, kind=Kind.UNREADABLE, error=f"cannot be read: {why(error)}")
    return _look(path, begin, size=size, packed=packed)


def shown(path: str) -> str:
    """Returns a file name as text, with escapes for bytes that are not UTF-8."""
    return path if _is_text(path) else os.fsencode(path).decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def opened(probed: Probe, *, start: int) -> Iterator[Readable]:
    """Opens a probed file for `records`: positioned one byte before `start`, decompressed and in UTF-8."""
    with Location(probed.path).open() as file:
        file.seek(max(0, start - 1))
        plain: Readable = Unzipped(file) if probed.packed else file
        if probed.encoding == UTF16:
            plain = Transcoded(plain)
        yield Unwrapped(plain) if probed.wrapped else plain


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


def _look(path: str, begin: bytes, *, size: int, packed: bool) -> Probe:
    for program, magic in _PACKED.items():
        if magic.match(begin):
            error = f"cannot be read: it is packed by {program}; unpack it first"
            return Probe(path=path, kind=Kind.UNREADABLE, packed=packed, size=size, error=error)
    encoding = UTF8
    if begin[:2] in _UTF16_MARKS:
        encoding = UTF16
        begin = begin[: len(begin) // 2 * 2].decode("utf-16", "replace").encode("utf-8", "replace")
    sample = _lines(begin)
    wrapped = sum(map(is_wrapped, sample)) * 2 > len(sample)
    if wrapped:
        begin = Unwrapped(io.BytesIO(begin)).read(len(begin))
        sample = _lines(begin)
    result = Probe(path=path, kind=Kind.EMPTY, encoding=encoding, packed=packed, wrapped=wrapped, size=size)
    if not any(line.strip(b"\0\r ") for line in sample):
        return result
    if encoding == UTF8 and not _is_utf8(begin):
        result = msgspec.structs.replace(result, encoding=LATIN1)
    layout = envelope.detect(sample)
    if layout is None:
        return msgspec.structs.replace(result, kind=Kind.FOREIGN, error=_why_foreign(sample))
    if layout in (DUMP, PAYLOADS):
        return msgspec.structs.replace(result, kind=Kind.DUMP, layout=layout)
    if layout == KACTL:
        match = _CONTROLLER_ID.search(begin)
        return msgspec.structs.replace(result, kind=Kind.KACTL, layout=layout, broker=_id(match[1]) if match else None)
    fields = _fields(sample, layout)
    kind = _kind(fields)
    if kind is Kind.FOREIGN:
        return msgspec.structs.replace(result, kind=kind, error="is a log, but none of Kafka's brokers and controllers")
    return msgspec.structs.replace(
        result,
        kind=kind,
        layout=layout,
        whole_seconds=any(len(line[0]) < TIME_LENGTH for line in fields),
        years_ahead=years_ahead([line[0] for line in fields]),
        broker=_broker(fields, sample, path),
    )


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
    if envelope.is_dayless(sample):
        return "its lines have a time, but no day: they cannot be ordered"
    return "is no log whose layout is known: none of its first lines begins with a time and a level"


def _kind(fields: "Sequence[_Fields]") -> Kind:
    loggers = Counter(line[4] for line in fields)
    total = sum(loggers.values())
    short = _short_names(fields)
    if short is not None:
        loggers = Counter({logger: count for logger, count in loggers.items() if logger in short})
    state = sum(count for logger, count in loggers.items() if logger.startswith((b"state.change.logger", STATE_SHORT)))
    ours = sum(count for logger, count in loggers.items() if is_ours(logger))
    if state * 2 >= total:
        return Kind.STATE_CHANGE
    if ours * 2 >= total:
        return Kind.CONTROLLER
    kafka = sum(count for logger, count in loggers.items() if short is not None or logger.startswith(_KAFKA))
    is_of_client = all(logger.startswith(_ZOOKEEPER_CLIENT) for logger in loggers)
    return Kind.SERVER if kafka or (loggers and is_of_client) else Kind.FOREIGN


def _short_names(fields: "Sequence[_Fields]") -> set[bytes] | None:
    """Returns the loggers that are Kafka's in a log with short logger names; None for a log with full names.

    Any program may have a logger with a short name such as `logger`. It is Kafka's if one of its lines has a known
    format or a prefix that only brokers and controllers write.
    """
    if any(b"." in line[4] for line in fields):
        return None
    prefixes, loggers = Prefixes(), set[bytes]()
    for line in fields:
        prefix = prefixes[line[2]]
        if line[4] not in loggers and (
            prefix.speaker is not None or is_known(line[3], names_partition=prefix.topic is not None)
        ):
            loggers.add(line[4])
    return loggers


def _broker(fields: "Sequence[_Fields]", sample: Sequence[bytes], path: str) -> int | None:
    """Returns the broker that the lines, or else the path, name; None if there is no such broker, or several."""
    prefixes = Prefixes()
    ids = {prefix.speaker for line in fields if (prefix := prefixes[line[2]]).speaker is not None}
    ids |= {match[1] for line in fields if (match := _PARTITION_ON.match(line[3])) is not None}
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


# ts, level, prefix, message, logger
_Fields = tuple[bytes, ...]


def _fields(sample: Sequence[bytes], layout: str) -> list[_Fields]:
    match, groups = LAYOUTS[layout].match, LAYOUTS[layout].groups
    return [matched.group(*groups) for matched in map(match, sample) if matched is not None]
