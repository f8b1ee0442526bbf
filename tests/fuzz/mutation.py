"""Random changes of inputs: bytes, numbers at limits, pieces of syntax, cuts, repetitions, parts of other inputs.

Changes take a microsecond, since decoders take as long: the random bits of a change are drawn at once.
"""

import random
from typing import Final

from kactl.transports.kafka.codec.primitive import uvarint

PIECES: Final = (
    *(number.to_bytes(4, "big", signed=True) for number in (-(2**31), -2, -1, 0, 1, 2**16, 2**31 - 1)),
    *(number.to_bytes(2, "big", signed=True) for number in (-(2**15), -2, -1, 0, 1, 2**15 - 1)),
    *(uvarint(number) for number in (127, 128, 2**14, 2**31 - 1, 2**32 - 1)),
    b"\0", b"\xff", b"\x80", b"\x7f", b"\xff" * 5, b"\xff" * 10, b"\x80" * 9 + b"\0", bytes(8), b"\x7f" + b"\xff" * 7,
    b'"', b"{", b"}", b"[" * 40, b"]", b"null", b"-1", b"1e999", b"9" * 30, b"\\ud800", b",", b"=", b":", b"true", b" ",
    b"\r\n", b"'", b"\xed\xa0\x80", b"%00", b"/",
)  # fmt: skip
# Most inputs have one change: each further one makes it less likely that the first one is reached.
_CHANGES: Final = (1, 1, 1, 1, 1, 2, 3, 4)
_BYTES: Final = tuple(bytes([value]) for value in range(256))
_REPEATED_MAX: Final = 64
_SPLICED_MAX: Final = 256


def changed(content: bytes, other: bytes, chance: random.Random) -> bytes:
    """Returns the content with one to four random changes.

    Args:
        other: an input from which parts are taken.
    """
    draw = chance.getrandbits
    for _ in range(_CHANGES[draw(3)]):
        bits = draw(64)
        offset = (bits & 0xFFFFF) * (len(content) + 1) >> 20
        kind, bits = bits >> 20 & 15, bits >> 24
        if kind < 3:
            content = content[:offset] + _BYTES[bits & 255] + content[offset + 1 :]
        elif kind < 5:
            content = content[:offset] + _BYTES[bits & 3] + content[offset + 1 :]
        elif kind == 5:
            byte = content[offset] if offset < len(content) else 0
            content = content[:offset] + _BYTES[byte ^ 1 << (bits & 7)] + content[offset + 1 :]
        elif kind < 8:
            content = content[:offset] + PIECES[bits % len(PIECES)] + content[offset:]
        elif kind < 10:
            piece = PIECES[bits % len(PIECES)]
            content = content[:offset] + piece + content[offset + len(piece) :]
        elif kind == 10:
            content = content[:offset] + content[offset + 1 + (bits & 7) :]
        elif kind == 11:
            # Up to any place behind.
            content = content[:offset] + content[offset + ((bits & 0xFFFF) * (len(content) + 1 - offset) >> 16) :]
        elif kind == 12:
            repeated = content[offset : offset + 1 + bits % _REPEATED_MAX]
            content = content[:offset] + repeated * (1 + (bits >> 8 & 15)) + content[offset:]
        elif kind == 13:
            # Exchange two neighbouring parts.
            size = 1 + bits % _REPEATED_MAX
            between = offset + size
            content = (
                content[:offset]
                + content[between : between + size]
                + content[offset:between]
                + content[between + size :]
            )
        else:
            # Of another input: the rest, or a part.
            begin = (bits & 0xFFFF) * (len(other) + 1) >> 16
            size = bits >> 16 & 0xFF
            rest = b"" if kind == 14 else content[offset + size :]
            content = content[:offset] + other[begin : begin + (size if rest else _SPLICED_MAX)] + rest
    return content
