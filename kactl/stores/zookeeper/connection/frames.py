"""Splitting of received data into frames: four bytes of length, most significant first, and that many bytes.

The parts of an unfinished frame are kept as received and joined once, when it is complete; a response of many megabytes
is copied twice in all, and one that was received as one part once.
"""

import struct
from collections.abc import Iterator
from typing import Final

# A thousand topics of 100 KB each in one response would fit, or the names of a million topics. Servers do not limit
# their responses.
FRAME_BYTES_MAX: Final = 128 * 1024 * 1024
_LENGTH: Final = struct.Struct("!i")


class MalformedFrame(Exception):
    """A server sent data that no ZooKeeper server sends here; later data cannot be interpreted either."""


class Frames:
    """Incremental frame parser.

    Args:
        bytes_max: the longest accepted frame.
    """

    def __init__(self, *, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._wanted = _LENGTH.size  # joining is useless before this many bytes

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Add received data and yield the frames that are complete now, each as bytes of its own. Has to be exhausted.

        Raises:
            MalformedFrame: a frame has an impossible length; raised after all frames before it were yielded.
        """
        if self._pieces:
            self._pieces.append(piece)
            self._buffered += len(piece)
            if self._buffered < self._wanted:
                return
            piece = b"".join(self._pieces)
            self._pieces.clear()
        begin, end, wanted = 0, len(piece), _LENGTH.size
        while end - begin >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(piece, begin)
            if not 0 <= length <= self._bytes_max:
                raise MalformedFrame(f"a frame of {length} bytes; 0 to {self._bytes_max} are accepted")
            stop = begin + _LENGTH.size + length
            if stop > end:
                wanted = _LENGTH.size + length
                break
            yield piece[begin + _LENGTH.size : stop]
            begin = stop
        if begin < end:
            self._pieces.append(piece[begin:] if begin else piece)
            self._buffered, self._wanted = end - begin, wanted
