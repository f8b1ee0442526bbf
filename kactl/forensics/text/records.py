"""Records: a line with a time, and the following lines without one.

In most layouts the logger follows the message, so the first line of a message of several lines has no logger. The next
lines are part of the message, up to the one that ends with the logger; only lines after it are joined to the record.

A file is cut into splits at arbitrary bytes. A record belongs to the split that contains its first byte, with all lines
that continue it, even beyond the end of the split. Lines at the beginning of a file that continue no record belong to
the first split.
"""

import bisect
import codecs
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from . import settings
from .dispatch import is_of_kafka
from .forms import Fields, Form, Forms
from .json_lines import DOCKER_PIECE, plain, printed_by_docker
from .source import Broken, Readable, lines

# Limit of the stored first line that continues a record, in bytes. It contains the reason of an error.
JOINED_LIMIT: Final = 4096
# A record that lines of the same writer may continue is so many records back at most.
_BACK: Final = 5000
# Forms that are tried for each line before all others; a stream of containers has a handful.
_RECENT: Final = 8
_REMOVED: Final = re.compile(rb"\x1b\[[0-9;:?]*[A-Za-z]|[\0\x1e]")
_OF_DOCKER: Final = b'{"log":"'
_PIECE: Final = re.compile(rb"(\S+ std(?:out|err)) ([PF]) ")
# Lines that begin so have a form that is not known, rather than to continue another line.
_BEGINS: Final = re.compile(
    rb"[\s\[(<\"']*(?:[A-Z]{4,5}\]? +\[?)?(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d|\d\d[:/]\d\d[:/]\d\d[,. ]\d)|"
    rb'\{.{0,2000}?"(?:log\.)?(?:level|severity)":'
)
# What shells of container images, the JVM and the journal print around Kafka's lines.
_NOISE: Final = re.compile(
    rb"===> |uid=\d|\++ \w|SLF4J: |log4j:|OpenJDK |Picked up |```|--$|-- |\s*_?[A-Z][A-Z_]+=|\s*__[A-Z]+_|"
    rb"\w{3} \d{4}-\d\d-\d\d [\d:.]+ \w+ \[s=|[\[\]{}],?$"
)


class Records(NamedTuple):
    """Records as columns; `joined` and `settings` have the index of a record as key.

    Attributes:
        offsets: offset of the first byte.
        fields: texts of the groups `forms.GROUPS`. A line that continues no record, or has no known form, has its text
            as `msg` and no `ts`; the text is empty if it cannot be of Kafka. A message of several lines contains
            newlines; a cut one has no `logger`.
        lengths: number of lines.
        forms: the form of each; None without a time.
        joined: the first line that continues the record, if there is one.
        settings: settings of a configuration dump that continues the record, as `settings.setting` returns them.
    """

    offsets: list[int]
    fields: list[Fields]
    lengths: list[int]
    forms: list[Form | None]
    joined: dict[int, bytes]
    settings: dict[int, list[bytes]]

    @classmethod
    def none(cls) -> "Records":
        return cls([], [], [], [], {}, {})

    def take_last(self) -> "Records":
        """Removes and returns the last record, because the next line may continue it."""
        last = Records([self.offsets.pop()], [self.fields.pop()], [self.lengths.pop()], [self.forms.pop()], {}, {})
        joined = self.joined.pop(len(self.offsets), None)
        if joined is not None:
            last.joined[0] = joined
        configured = self.settings.pop(len(self.offsets), None)
        if configured is not None:
            last.settings[0] = configured
        return last


def records(file: Readable, forms: Forms, *, start: int, end: int | None) -> Iterator[Records]:
    """Yields the records of one split.

    Args:
        file: positioned one byte before `start`, or at the beginning if `start` is 0.
        start, end: offsets; `end` is None for the end of the file.

    Raises:
        source.Broken: the rest cannot be read; everything before it has been yielded.
    """
    cutter = Cutter(forms, start=start, end=end)
    broken: Broken | None = None
    try:
        for offset, texts in lines(file, start=max(0, start - 1), discard_first=start > 0):
            if cutter.add(offset, texts):
                break
            if len(cutter.batch.offsets) > 1:
                last = cutter.batch.take_last()
                yield cutter.batch
                cutter.batch = last
    except Broken as error:
        broken = error
    cutter.finish()
    if cutter.batch.offsets:
        yield cutter.batch
    if broken is not None:
        raise broken


class _Line(NamedTuple):
    """A line that the most frequent form does not match: its fields if it begins a record, and its text otherwise.

    Attributes:
        rest: lines in the same line of the file, as in JSON, that continue it.
    """

    fields: Fields | None
    form: Form | None
    text: bytes
    rest: tuple[bytes, ...]


class Cutter:
    """Cuts lines of one split into records, which are added to `batch`.

    Forms are looked for in each line. Those found before are tried first, the most frequent of them for all lines at
    once.
    """

    def __init__(self, forms: Forms, *, start: int = 0, end: int | None = None) -> None:
        self.batch = Records.none()
        self._forms = forms
        self._is_first = start == 0
        self._end = end
        self._recent = list(forms.expected)
        # Stream -> offset, text and number of the pieces of a line that is not complete yet.
        self._pieces: dict[bytes, tuple[int, bytes, int]] = {}

    def add(self, offset: int, texts: list[bytes]) -> bool:
        """Adds consecutive lines; returns whether the next split has begun.

        Almost all lines begin a record and are added by the thousand. The others are added one by one.
        """
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1) + offset
        offsets, counts = [offset, *ends.tolist()], [1] * len(texts)
        if self._pieces or any(map(_may_be_piece, texts)):
            offsets, texts, counts = self._whole(offsets, texts)
        return self._add_whole(offsets, texts, counts)

    def finish(self) -> None:
        """Adds lines whose last piece is missing."""
        for offset, text, count in self._pieces.values():
            self._add_whole([offset, offset + 1], [text], [count])
        self._pieces.clear()

    def cut(self, text: bytes, *, at_begin: bool = False) -> _Line:
        """Looks for the form of a line."""
        if at_begin:
            text = text.removeprefix(codecs.BOM_UTF8)
        if b"\x1b" in text or b"\0" in text or b"\x1e" in text:
            text = _REMOVED.sub(b"", text)
        unpacked = plain(text)
        text, *rest = [text] if unpacked is None else unpacked.split(b"\n")
        for form in self._recent:
            match = form.match(text)
            if match is not None:
                return _Line(form.fields(match), form, text, tuple(rest))
        found = self._forms.find(text)
        if found is not None:
            self._recent = (
                [found, *self._recent[: _RECENT - 1]]
                if len(self._recent) < 2
                else [self._recent[0], found, *self._recent[1 : _RECENT - 1]]
            )
            match = found.match(text)
            assert match is not None
            return _Line(found.fields(match), found, text, tuple(rest))
        for form in self._recent:
            match = None if form.begin is None else form.begin(text)
            if match is not None:
                return _Line(form.fields(match), form, text, tuple(rest))
        stream, inner = self._stream_of(text)
        if _BEGINS.match(inner) is not None and _NOISE.match(inner) is None:
            shown = inner if stream is None or is_of_kafka(inner) else b""
            return _Line((None, None, None, shown, None, None, stream), None, text, tuple(rest))
        return _Line(None, None, text, tuple(rest))

    def _stream_of(self, text: bytes) -> tuple[bytes | None, bytes]:
        for form in self._recent:
            stream, rest = form.stream_of(text)
            if stream is not None or len(rest) < len(text):
                return stream, rest
        return None, text

    def _whole(self, offsets: list[int], texts: list[bytes]) -> tuple[list[int], list[bytes], list[int]]:
        """Joins the pieces in which containers' runtimes keep long lines."""
        result: list[tuple[int, bytes, int]] = []
        for offset, text in zip(offsets[:-1], texts, strict=True):
            key, piece, is_last = _piece(text)
            if key is None:
                result.append((offset, text, 1))
                continue
            first, before, count = self._pieces.pop(key, (offset, b"", 0))
            joined = (first, before + (piece if before or not is_last else text), count + 1)
            if is_last:
                result.append(joined)
            else:
                self._pieces[key] = joined if before else (first, text if key != b"docker" else piece, 1)
        if not result:
            return [offsets[-1]], [], []
        begins, whole, counts = zip(*result, strict=True)
        return [*begins, offsets[-1]], list(whole), list(counts)

    def _add_whole(self, offsets: list[int], texts: list[bytes], counts: list[int]) -> bool:
        main = self._recent[0] if self._recent else None
        matches = [None] * len(texts) if main is None else list(map(main.match, texts))
        fields = [None if main is None or match is None else main.fields(match) for match in matches]
        forms: list[Form | None] = [main] * len(texts)
        others: dict[int, _Line] = {}
        for index in (index for index, match in enumerate(matches) if match is None):
            line = others[index] = self.cut(texts[index], at_begin=offsets[index] == 0)
            fields[index], forms[index] = line.fields, line.form
        stop = len(texts)
        if self._end is not None and offsets[-1] > self._end:
            # Lines that continue the last record belong to this split.
            first = bisect.bisect_left(offsets, self._end)
            stop = next((index for index in range(first, stop) if fields[index] is not None), stop)
        batch, done = self.batch, 0
        single = [index for index, line in others.items() if index < stop and (line.fields is None or line.rest)]
        for index in (*single, stop):
            batch.fields.extend(each for each in fields[done:index] if each is not None)
            batch.offsets.extend(offsets[done:index])
            batch.lengths.extend(counts[done:index])
            batch.forms.extend(forms[done:index])
            if index < stop:
                line = others[index]
                if line.fields is None:
                    self._join(line.text, offsets[index], counts[index])
                else:
                    batch.fields.append(line.fields)
                    batch.offsets.append(offsets[index])
                    batch.lengths.append(counts[index])
                    batch.forms.append(line.form)
                for text in line.rest:
                    self._join(text, offsets[index], 0)
            done = index + 1
        self._sort(forms)
        return stop < len(texts)

    def _sort(self, forms: list[Form | None]) -> None:
        """Moves the most frequent form to the front."""
        if len(self._recent) > 1:
            names = [form.name for form in forms if form is not None]
            self._recent.sort(key=lambda form: -names.count(form.name))

    def _join(self, text: bytes, offset: int, count: int) -> None:
        """Adds a line that does not begin a record."""
        batch = self.batch
        stream, text = self._stream_of(text)
        at = self._last_of(stream)
        if not batch.offsets:
            if not self._is_first:
                return
            shown = text if text[:1].isspace() or is_of_kafka(text) else b""
        elif at is not None:
            batch.lengths[at] += count
            if _NOISE.match(text) is None:
                self._continue(at, text)
            return
        else:
            shown = b""
        batch.fields.append((None, None, None, shown, None, None, stream))
        batch.offsets.append(offset)
        batch.lengths.append(count)
        batch.forms.append(None)

    def _last_of(self, stream: bytes | None) -> int | None:
        """Returns the index of the last record of a stream; the last of all if the line names none."""
        last = len(self.batch.offsets) - 1
        if stream is None or last < 0:
            return last if last >= 0 else None
        fields = self.batch.fields
        return next((index for index in range(last, max(-1, last - _BACK), -1) if fields[index][-1] == stream), None)

    def _continue(self, at: int, text: bytes) -> None:
        batch = self.batch
        ts, level, prefix, message, logger, *others = batch.fields[at]
        form = batch.forms[at]
        if ts is not None and logger is None and form is not None and form.end is not None:
            match = form.end(text)
            if match is not None:
                text, logger = match["msg"] or b"", match["logger"]
            if text.strip() and message is not None and len(message) < JOINED_LIMIT:
                message = b"%b\n%b" % (message, text[:JOINED_LIMIT])
            batch.fields[at] = (ts, level, prefix, message, logger, *others)
        elif text and at not in batch.joined:
            batch.joined[at] = text[:JOINED_LIMIT].strip()
        if settings.MARK in text:
            setting = settings.setting(text[:JOINED_LIMIT])
            if setting is not None and len(batch.settings.get(at, ())) < settings.COUNT_LIMIT:
                batch.settings.setdefault(at, []).append(setting)


def _may_be_piece(text: bytes) -> bool:
    return text.find(b" P ", 0, 60) > 0 or (len(text) > DOCKER_PIECE and text.startswith(_OF_DOCKER))


def _piece(text: bytes) -> tuple[bytes | None, bytes, bool]:
    """Returns the stream of a piece of a line, its text, and whether it is the last one; no stream of another line."""
    match = _PIECE.match(text)
    if match is not None:
        return match[1].rpartition(b" ")[2], text[match.end() :], match[2] == b"F"
    if text.startswith(_OF_DOCKER):
        printed = printed_by_docker(text)
        return b"docker", printed.removesuffix(b"\n"), printed.endswith(b"\n") or len(printed) < DOCKER_PIECE
    return None, text, True
