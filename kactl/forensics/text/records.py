"""Lines joined to records: one that has a time, and those behind it that have none.

A file is cut into splits at any byte. A record belongs to the split in which its first byte lies, with all lines that
continue it, wherever these end; lines that continue nothing stand at the beginning of a file and belong to its first
split.
"""

import bisect
import codecs
import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from . import settings
from .envelope import Layout
from .source import Broken, Readable, lines

# What is kept of the first line that continues a record; it has the reason of an error.
JOINED_LIMIT: Final = 4096
_NUL: Final = b"\0"


class Records(NamedTuple):
    """Some records, one item for each in every list.

    Attributes:
        offsets: of the first byte of each.
        fields: what the layout's groups held: ts, level, prefix, msg, logger. Of lines that continue nothing, the text
            as `msg` and no `ts`.
        lengths: lines that each is made of.
        joined: the first line that continues it, if there is one.
        settings: those of a configuration dump that continues it, as `settings.setting` returns them.
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
        """The last one alone, which is no longer part of these: the next line may continue it."""
        last = Records([self.offsets.pop()], [self.fields.pop()], [self.lengths.pop()], {}, {})
        joined = self.joined.pop(len(self.offsets), None)
        if joined is not None:
            last.joined[0] = joined
        configured = self.settings.pop(len(self.offsets), None)
        if configured is not None:
            last.settings[0] = configured
        return last


def records(file: Readable, layout: Layout, *, start: int, end: int | None) -> Iterator[Records]:
    """The records of one split.

    Args:
        file: stands one byte before `start`, or at the beginning if that is 0.
        start, end: bytes of the file; end None is its end.

    Raises:
        source.Broken: the rest cannot be read; what was before it has been yielded.
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
    """Make lines part of what there is; true once they belong to the next split.

    Nearly all lines begin a record, and are taken by the thousand; only between them those that do not, one by one.
    """
    begun = list(map(layout.match, texts))
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1) + offset
    offsets = [offset, *ends.tolist()]
    others = [at for at, matched in enumerate(begun) if matched is None] if None in begun else []
    for at in others:
        if _NUL in texts[at]:
            begun[at] = layout.match(texts[at].strip(_NUL))
        elif offsets[at] == 0:
            begun[at] = layout.match(texts[at].removeprefix(codecs.BOM_UTF8))
    stop = len(texts)
    if end is not None and offsets[-1] > end:
        # Lines that continue the last record are still ours.
        stop = next((at for at in range(bisect.bisect_left(offsets, end), stop) if begun[at] is not None), stop)
    done = 0
    for at in (*(at for at in others if at < stop and begun[at] is None), stop):
        batch.fields.extend([matched.group(*layout.groups) for matched in begun[done:at] if matched is not None])
        batch.offsets.extend(offsets[done:at])
        batch.lengths.extend(itertools.repeat(1, at - done))
        if at < stop:
            _join(batch, texts[at], layout, offsets[at], is_first=start == 0)
        done = at + 1
    return stop < len(texts)


def _join(batch: Records, text: bytes, layout: Layout, offset: int, *, is_first: bool) -> None:
    """Make a line part that begins no record."""
    last = len(batch.offsets) - 1
    if last >= 0:
        batch.lengths[-1] += 1
        if text and last not in batch.joined:
            batch.joined[last] = layout.outer.sub(b"", text[:JOINED_LIMIT], count=1).strip()
        _configure(batch, last, text, layout)
    elif is_first:
        batch.fields.append((None, None, None, text, None))
        batch.offsets.append(offset)
        batch.lengths.append(1)


def _configure(batch: Records, last: int, text: bytes, layout: Layout) -> None:
    """Keep the line's setting, if it is one of a configuration dump."""
    if settings.MARK not in text:
        return
    found = settings.setting(layout.outer.sub(b"", text[:JOINED_LIMIT], count=1))
    if found is not None:
        kept = batch.settings.setdefault(last, [])
        if len(kept) < settings.COUNT_LIMIT:
            kept.append(found)
