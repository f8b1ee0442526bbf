"""Names and certificates in DER, for tests."""

import random
from typing import NamedTuple

# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString, and three that are no texts.
_TAGS = (0x0C, 0x0C, 0x13, 0x13, 0x14, 0x16, 0x1B, 0x1E, 0x1C, 0x02, 0x04)
_TYPES = (
    "2.5.4.3", "2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.10", "2.5.4.11",
    "0.9.2342.19200300.100.1.1", "0.9.2342.19200300.100.1.25", "1.2.840.113549.1.9.1", "2.5.4.5", "2.999.3",
)  # fmt: skip
_PIECES = [
    " ",
    "  ",
    "#",
    ",",
    "+",
    '"',
    "\\",
    "<",
    ">",
    ";",
    "=",
    "a",
    "bc",
    "Ünï",
    "日本",
    "😀",
    "\r",
    "\n",
    "\0",
    "*",
]


class Attribute(NamedTuple):
    type: str
    tag: int
    value: bytes


def element(tag: int, content: bytes) -> bytes:
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    size = (len(content).bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + len(content).to_bytes(size) + content


def _object_id(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    content = b""
    for arc in (first * 40 + second, *rest):
        groups = [arc & 0x7F]
        while arc := arc >> 7:
            groups.append(arc & 0x7F | 0x80)
        content += bytes(reversed(groups))
    return element(0x06, content)


def encoded_name(name: list[list[Attribute]]) -> bytes:
    """Returns a name: a list of sets of attributes, in the order of the certificate."""
    return element(
        0x30,
        b"".join(
            element(0x31, b"".join(element(0x30, _object_id(one.type) + element(one.tag, one.value)) for one in parts))
            for parts in name
        ),
    )


BEGIN = element(0x17, b"240101000000Z")
END = element(0x18, b"20540101000000Z")


def certificate(name: bytes, validity: bytes = element(0x30, BEGIN + END)) -> bytes:
    """Returns as much of a certificate as its validity and its subject need, which is `name`."""
    empty = element(0x30, b"")
    fields = element(0xA0, element(0x02, b"\x02")) + element(0x02, b"\x01") + empty + empty + validity + name + empty
    return element(0x30, element(0x30, fields) + empty + element(0x03, b"\0"))


def random_name(draws: random.Random) -> list[list[Attribute]]:
    return [[_random_attribute(draws) for _ in range(draws.choice([1, 1, 1, 2]))] for _ in range(draws.randint(0, 5))]


def _random_attribute(draws: random.Random) -> Attribute:
    value = "".join(draws.choices(_PIECES, k=draws.randint(0, 6))).encode()
    tag = draws.choice(_TAGS)
    if tag == 0x02:
        value = value[:8] or b"\0"
    return Attribute(draws.choice(_TYPES), tag, value)
