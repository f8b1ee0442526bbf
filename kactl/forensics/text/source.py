"""Lines of a file, decompressed and transcoded, with a few megabytes in memory at most.

If a part of a file cannot be read, everything before it is returned first, and then `Broken` is raised.
"""

import bz2
import codecs
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, Protocol

# Bytes per read; about 30,000 lines.
CHUNK: Final = 4 * 1024 * 1024
# A longer line is cut and ends in CUT. The longest legitimate lines name every partition of a cluster.
LINE_LIMIT: Final = 1024 * 1024
# Looks like a logger at the end of a line, so that layouts that end in the logger still match.
CUT: Final = b" ... (cut)"
CUT_LOGGER: Final = b"cut"
_PACKED_CHUNK: Final = 256 * 1024
# Logs become 10 to 50 times longer. A file of one repeated line becomes up to 1,032 times longer: harmless if it is
# short, and a way to occupy a machine if it is long.
RATIO_MAX: Final = 200
RATIO_FREE_BYTES: Final = 64 * 1024 * 1024

UTF8: Final = "utf-8"
LATIN1: Final = "latin-1"
UTF16: Final = "utf-16"


class Broken(Exception):
    """The rest of a file cannot be read; the message contains the cause and the position."""


def why(error: Exception) -> str:
    """Returns the message of an error without its number and file name."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


class Readable(Protocol):
    """A source of bytes; `read` returns no bytes at the end."""

    def read(self, size: int, /) -> bytes: ...


class Unpacked:
    """Decompressed content of a file with any number of members.

    Args:
        program: a name in MAGIC.
    """

    def __init__(self, file: BinaryIO, program: str = "gzip") -> None:
        self._file = file
        self._program = program
        self._codec: Any = _CODECS[program](file)
        self._waiting = b""
        self._returned = 0
        self._failed: str | None = None

    def read(self, size: int, /) -> bytes:
        """Returns at most `size` bytes.

        Raises:
            Broken: the file is damaged; everything before the damage was returned.
        """
        if self._failed is not None:
            raise Broken(self._failed)
        while True:
            try:
                plain = self._next(size)
            except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
                is_cut = isinstance(error, EOFError) or "Truncated" in str(error)
                cause = "ends in the middle" if is_cut else f"cannot be unpacked further ({error})"
                self._failed = f"the {self._program} file {cause}, {self._returned:,} bytes of text into it"
                raise Broken(self._failed) from None
            if not plain:
                if plain is None:
                    return b""
                continue
            self._returned += len(plain)
            if self._returned > max(RATIO_FREE_BYTES, RATIO_MAX * self._file.tell()):
                self._failed = (
                    f"the {self._program} file becomes more than {RATIO_MAX} times longer, which no log does: "
                    f"{self._returned:,} bytes of text; unpack it first to read it all the same"
                )
            return plain

    def _next(self, size: int) -> bytes | None:
        """Returns the next bytes, which may be none yet; None at the end."""
        packed = self._waiting
        if not packed and (self._codec.eof or getattr(self._codec, "needs_input", True)):
            packed = self._file.read(_PACKED_CHUNK)
            if not packed:
                if self._codec.eof:
                    return None
                raise EOFError
        if self._codec.eof:
            if not packed.strip(b"\0"):  # padding
                self._waiting = b""
                return b""
            self._codec = _CODECS[self._program](self._file)
        plain = self._codec.decompress(packed, size)
        self._waiting = getattr(self._codec, "unconsumed_tail", b"") or self._codec.unused_data
        return None if plain is None else bytes(plain)


class _Zstd:
    """Decompression by Arrow, which reads the file itself; it has the interface of the standard library's."""

    eof = False
    needs_input = False
    unused_data = b""

    def __init__(self, file: BinaryIO) -> None:
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")

    def decompress(self, _: bytes, size: int) -> bytes | None:
        return self._stream.read(size) or None


_CODECS: Final[dict[str, Callable[[BinaryIO], Any]]] = {
    "gzip": lambda _: zlib.decompressobj(zlib.MAX_WBITS | 16),
    "bzip2": lambda _: bz2.BZ2Decompressor(),
    "xz": lambda _: lzma.LZMADecompressor(),
    "zstd": _Zstd,
}
MAGIC: Final = {"gzip": b"\x1f\x8b", "bzip2": b"BZh", "xz": b"\xfd7zXZ\0", "zstd": b"\x28\xb5\x2f\xfd"}


def packing(file: BinaryIO) -> str:
    """Returns the program that packed an open file; empty if none did. Resets the position to the beginning."""
    begin = file.read(10)
    file.seek(0)
    return next((name for name, magic in MAGIC.items() if begin.startswith(magic)), "")


class Transcoded:
    """Content of a UTF-16 file as UTF-8, with replacement characters for invalid ones."""

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
    """Yields the lines from the current position of a file, without their newlines.

    Args:
        start: the current position.
        discard_first: whether the text before the first newline belongs to an earlier line.

    Yields:
        Consecutive lines and the offset of the first of them. A cut line is yielded alone.

    Raises:
        Broken: the rest cannot be read; everything before it has been yielded.
    """
    offset, partial = start, b""
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
            offset += len(read) if end < 0 else end + 1
            if end < 0:
                continue
            skipping, read = False, read[end + 1 :]
        buffer = partial + read if partial else read
        end = buffer.rfind(b"\n")
        if end >= 0:
            whole, partial = buffer[:end], buffer[end + 1 :]
            yield offset, whole.split(b"\n")
            offset += end + 1
        else:
            partial = buffer
        if len(partial) > LINE_LIMIT:
            yield offset, [partial[:LINE_LIMIT] + CUT]
            offset, partial, skipping = offset + len(partial), b"", True
    if partial:
        yield offset, [partial]
    if broken is not None:
        raise Broken(why(broken)) from None
