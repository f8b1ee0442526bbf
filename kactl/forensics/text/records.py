"""Records: a line with a time, and the following lines without one.

In most layouts the logger follows the message, so the first line of a message of several lines has no logger. The next
lines are part of the message, up to the one that ends with the logger; only lines after it are joined to the record.

A file is cut into splits at arbitrary bytes. A record belongs to the split that contains its first byte, with all lines
that continue it, even beyond the end of the split. Lines at the beginning of a file that continue no record belong to
the first split.
"""

import bisect
import codecs
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from . import settings
from .envelope import Layout
from .source import Broken, Readable, lines

# Limit of the stored first line that continues a record, in bytes. It contains the reason of an error.
JOINED_LIMIT: Final = 4096
_NUL: Final = b"\0"


class Records(NamedTuple):
    """Records as columns; `joined` and `settings` have the index of a record as key.

    Attributes:
        offsets: offset of the first byte.
        fields: texts of the layout's groups: ts, level, prefix, msg, logger. A line that continues no record has its
            text as `msg` and no `ts`. A message of several lines contains newlines; a cut one has no `logger`.
        lengths: number of lines.
        joined: the first line that continues the record, if there is one.
        settings: settings of a configuration dump that continues the record, as `settings.setting` returns them.
    """

    offsets: list[int]
    fields: list[tuple[bytes | None, ...]]
    lengths: list[int]
    joined: dict[int, bytes]
    settings: dict[int, list[bytes]]

    @classmethod
    def none(cls) -> "Records":
        return cls([], [], [], {}, {})

    def take_last(self) -> "Records":
        """Removes and returns the last record, because the next line may continue it."""
        last = Records([self.offsets.pop()], [self.fields.pop()], [self.lengths.pop()], {}, {})
        joined = self.joined.pop(len(self.offsets), None)
        if joined is not None:
            last.joined[0] = joined
        configured = self.settings.pop(len(self.offsets), None)
        if configured is not None:
            last.settings[0] = configured
        return last


def records(file: Readable, layout: Layout, *, start: int, end: int | None) -> Iterator[Records]:
    """Yields the records of one split.

    Args:
        file: positioned one byte before `start`, or at the beginning if `start` is 0.
        start, end: offsets; `end` is None for the end of the file.

    Raises:
        source.Broken: the rest cannot be read; everything before it has been yielded.
    """
    batch = Records.none()
    broken: Broken | None = None
    try:
        for offset, texts in lines(file, start=max(0, start - 1), discard_first=start > 0):
            if _add(batch, texts, layout, offset, start, end):
                break
            if len(batch.offsets) > 1:
                last = batch.take_last()
                yield batch
                batch = last
    except Broken as error:
        broken = error
    if batch.offsets:
        yield batch
    if broken is not None:
        raise broken


def _add(batch: Records, texts: list[bytes], layout: Layout, offset: int, start: int, end: int | None) -> bool:
    """Adds lines to a batch; returns whether the next split has begun.

    Almost all lines begin a record and are added by the thousand. The others are added one by one.
    """
    matches = list(map(layout.match, texts))
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1) + offset
    offsets = [offset, *ends.tolist()]
    others = [index for index, match in enumerate(matches) if match is None] if None in matches else []
    for index in others:
        text = texts[index]
        if _NUL in text:
            matches[index] = layout.match(text := text.strip(_NUL))
        elif offsets[index] == 0:
            matches[index] = layout.match(text := text.removeprefix(codecs.BOM_UTF8))
        if matches[index] is None and layout.begin is not None:
            matches[index] = layout.begin(text)
    stop = len(texts)
    if end is not None and offsets[-1] > end:
        # Lines that continue the last record belong to this split.
        first = bisect.bisect_left(offsets, end)
        stop = next((index for index in range(first, stop) if matches[index] is not None), stop)
    done = 0
    for index in (*(index for index in others if index < stop and matches[index] is None), stop):
        batch.fields.extend([match.group(*layout.groups) for match in matches[done:index] if match is not None])
        batch.offsets.extend(offsets[done:index])
        batch.lengths.extend(itertools.repeat(1, index - done))
        if index < stop:
            _join(batch, texts[index], layout, offsets[index], is_first=start == 0)
        done = index + 1
    return stop < len(texts)


def _join(batch: Records, text: bytes, layout: Layout, offset: int, *, is_first: bool) -> None:
    """Adds a line that does not begin a record."""
    last = len(batch.offsets) - 1
    if last >= 0:
        batch.lengths[-1] += 1
        ts, _, _, _, logger = batch.fields[-1]
        if ts is not None and logger is None and layout.end is not None:
            batch.fields[-1] = _continued(batch.fields[-1], layout.outer.sub(b"", text, count=1), layout.end)
        elif text and last not in batch.joined:
            batch.joined[last] = layout.outer.sub(b"", text[:JOINED_LIMIT], count=1).strip()
        if settings.MARK in text:
            setting = settings.setting(layout.outer.sub(b"", text[:JOINED_LIMIT], count=1))
            if setting is not None and len(batch.settings.get(last, ())) < settings.COUNT_LIMIT:
                batch.settings.setdefault(last, []).append(setting)
    elif is_first:
        batch.fields.append((None, None, None, text, None))
        batch.offsets.append(offset)
        batch.lengths.append(1)


def _continued(
    fields: tuple[bytes | None, ...], text: bytes, end: "Callable[[bytes], re.Match[bytes] | None]"
) -> tuple[bytes | None, ...]:
    ts, level, prefix, message, logger = fields
    match = end(text)
    if match is not None:
        text, logger = match["msg"] or b"", match["logger"]
    if text.strip() and message is not None and len(message) < JOINED_LIMIT:
        message = b"%b\n%b" % (message, text[:JOINED_LIMIT])
    return ts, level, prefix, message, logger
