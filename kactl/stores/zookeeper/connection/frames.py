"""What arrives from a server, cut into frames: four bytes of length, most significant first, and as many bytes.

Pieces of an unfinished frame are kept as they come and joined once, when it is whole; a reply of many megabytes is
copied twice in all, and one that came in one piece once.
"""

import struct
from collections.abc import Iterator
from typing import Final

# A thousand topics of a hundred kilobytes each in one answer would fit, or the names of a million topics. A server has
# no limit of its own for what it answers.
FRAME_BYTES_MAX: Final = 128 * 1024 * 1024
_LENGTH: Final = struct.Struct("!i")


class MalformedFrame(Exception):
    """What a server said is nothing that a ZooKeeper server says here; nothing after it can be understood either."""


class Frames:
    """See the module.

    Args:
        bytes_max: the longest frame that is taken.
    """

    def __init__(self, *, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._pieces: list[bytes] = []
        self._held = 0
        self._wanted = _LENGTH.size  # with less than this, joining the pieces would tell nothing new

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Take what arrived, and give the frames that are whole now, each as bytes of its own. To be exhausted.

        Raises:
            Garbled: after all frames before it were given: no frame has this length.
        """
        if self._pieces:
            self._pieces.append(piece)
            self._held += len(piece)
            if self._held < self._wanted:
                return
            piece = b"".join(self._pieces)
            self._pieces.clear()
        at, end, wanted = 0, len(piece), _LENGTH.size
        while end - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(piece, at)
            if not 0 <= length <= self._bytes_max:
                raise MalformedFrame(f"a frame of {length} bytes, where 0 to {self._bytes_max} are taken")
            stop = at + _LENGTH.size + length
            if stop > end:
                wanted = _LENGTH.size + length
                break
            yield piece[at + _LENGTH.size : stop]
            at = stop
        if at < end:
            self._pieces.append(piece[at:] if at else piece)
            self._held, self._wanted = end - at, wanted
