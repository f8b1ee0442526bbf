"""Bytes of a file as lines, whatever it is packed or written in; never more than a few megabytes at once.

What is broken is broken from somewhere on: everything before is handed over first, then `Broken` is raised.
"""

import codecs
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, Protocol

# Read at once; some 30,000 lines.
CHUNK: Final = 4 * 1024 * 1024
# A longer line is cut, and ends in CUT. The longest that are legitimate name every partition of a cluster.
LINE_LIMIT: Final = 1024 * 1024
# It ends like the lines of layouts that have their logger there, so that these still recognise it.
CUT: Final = b" ... (cut)"
CUT_LOGGER: Final = b"cut"
_PACKED_CHUNK: Final = 256 * 1024

UTF8: Final = "utf-8"
LATIN1: Final = "latin-1"
UTF16: Final = "utf-16"


class Broken(Exception):
    """The rest of a file cannot be read. The message says what is wrong with it, and where."""


def why(error: Exception) -> str:
    """What is wrong, without number and name of the file."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


class Readable(Protocol):
    """What gives bytes; nothing at the end."""

    def read(self, size: int, /) -> bytes: ...


class Unzipped:
    """What a gzip file holds, also if it is several one behind the other."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._waiting = b""
        self._given = 0
        self._failed: str | None = None

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes.

        Raises:
            Broken: all that could be unpacked was read before.
        """
        if self._failed is not None:
            raise Broken(self._failed)
        while True:
            try:
                packed = self._waiting or self._file.read(_PACKED_CHUNK)
                if not packed:
                    if self._inflate.eof:
                        return b""
                    raise EOFError
                if self._inflate.eof:
                    if not packed.strip(b"\0"):  # padding
                        self._waiting = b""
                        continue
                    self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
                plain = self._inflate.decompress(packed, size)
                self._waiting = self._inflate.unconsumed_tail or self._inflate.unused_data
            except (EOFError, zlib.error, OSError) as error:
                what = "ends in the middle" if isinstance(error, EOFError) else f"cannot be unpacked further ({error})"
                self._failed = f"the gzip file {what}, {self._given:,} bytes of text into it"
                raise Broken(self._failed) from None
            if plain:
                self._given += len(plain)
                return plain


class Transcoded:
    """UTF-16 as UTF-8; what is no character becomes a replacement for one."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-16")("replace")
        self._ended = False

    def read(self, size: int, /) -> bytes:
        while not self._ended:
            content = self._file.read(size)
            self._ended = not content
            text = self._decode.decode(content, final=self._ended)
            if text:
                return text.encode("utf-8", "replace")
        return b""


def lines(file: Readable, *, start: int, discard_first: bool) -> Iterator[tuple[int, list[bytes]]]:
    """The lines from where a file stands, each without its newline.

    Args:
        start: where it stands, as offset.
        discard_first: whether what stands before the first newline belongs to an earlier line.

    Yields:
        the offset of the first line, and lines that lie one behind the other; a line that was cut comes alone.

    Raises:
        Broken: see the module.
    """
    at, partial = start, b""
    skipping = discard_first
    broken: Exception | None = None
    while broken is None:
        try:
            read = file.read(CHUNK)
        except (Broken, OSError) as error:
            read, broken = b"", error
        if not read:
            break
        if skipping:
            end = read.find(b"\n")
            at += len(read) if end < 0 else end + 1
            if end < 0:
                continue
            skipping, read = False, read[end + 1 :]
        buffer = partial + read if partial else read
        end = buffer.rfind(b"\n")
        if end >= 0:
            whole, partial = buffer[:end], buffer[end + 1 :]
            yield at, whole.split(b"\n")
            at += end + 1
        else:
            partial = buffer
        if len(partial) > LINE_LIMIT:
            yield at, [partial[:LINE_LIMIT] + CUT]
            at, partial, skipping = at + len(partial), b"", True
    if partial:
        yield at, [partial]
    if broken is not None:
        raise Broken(why(broken)) from None
