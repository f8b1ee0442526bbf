"""The ends of TLS records in received bytes, which show how much work they are before OpenSSL reads them.

Source: RFC 8446, 5.1: a record has its type, a version, and the length of what follows, which is not encrypted.
"""

from typing import Final

_HEAD: Final = 5
_LENGTH: Final = slice(3, 5)


class TlsRecords:
    """The records of one direction of a connection, from its beginning."""

    def __init__(self) -> None:
        self._head = b""
        # Of the record whose head is complete.
        self._missing = 0

    def take(self, content: bytes | memoryview, ends_max: int) -> tuple[int, int]:
        """Take bytes up to the end of that many records, or all of them.

        Returns:
            the number of bytes, and the number of records that end in them.
        """
        at = ends = 0
        while at < len(content):
            if not self._missing:
                begin = content[at : at + _HEAD - len(self._head)]
                at += len(begin)
                self._head += begin
                if len(self._head) < _HEAD:
                    break
                self._missing = int.from_bytes(self._head[_LENGTH], "big")
                self._head = b""
            skipped = min(self._missing, len(content) - at)
            at += skipped
            self._missing -= skipped
            if not self._missing:
                ends += 1
                if ends == ends_max:
                    break
        return at, ends
