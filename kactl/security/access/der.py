"""Reading of certificates in DER.

Source: RFC 5280; X.690.
"""

from collections.abc import Iterator
from typing import Final

SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
# Longest length of a length; a certificate has a few kilobytes.
_LENGTH_BYTES_MAX: Final = 4


class MalformedCertificate(ValueError):
    """A certificate is not encoded as X.509 demands."""


def fields_of(certificate: bytes) -> list[tuple[int, bytes, bytes]]:
    """Returns type, content and encoding of each signed field, without the version: serial number, algorithm, issuer,
    validity, subject, and so on.

    Raises:
        MalformedCertificate: it cannot be read.
    """
    outer, _, _ = _element(certificate, 0, SEQUENCE)
    signed, _, _ = _element(outer, 0, SEQUENCE)
    return [field for field in elements(signed) if field[0] != _VERSION]


def of_type(content: bytes, tag: int) -> Iterator[bytes]:
    """Yields the content of each element, all of which have one type."""
    for actual, inner, _ in elements(content):
        if actual != tag:
            raise MalformedCertificate(f"an element has type {actual:#x} in place of {tag:#x}")
        yield inner


def elements(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields type, content and encoding of each element."""
    offset = 0
    while offset < len(content):
        inner, end, tag = _element(content, offset)
        yield tag, inner, content[offset:end]
        offset = end


def _element(data: bytes, offset: int, tag: int | None = None) -> tuple[bytes, int, int]:
    """Returns the content of an element, the offset behind it, and its type."""
    header = data[offset : offset + 2]
    if len(header) < 2 or (tag is not None and header[0] != tag):
        raise MalformedCertificate("the certificate is truncated, or is none")
    length, begin = header[1], offset + 2
    if length & 0x80:
        size = length & 0x7F
        if not 1 <= size <= _LENGTH_BYTES_MAX:
            raise MalformedCertificate("an element has no definite length")
        length, begin = int.from_bytes(data[begin : begin + size]), begin + size
    if begin + length > len(data):
        raise MalformedCertificate("an element is longer than the certificate")
    return data[begin : begin + length], begin + length, header[0]
