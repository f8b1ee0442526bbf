"""Page cursors: the position at which a page ended, as an opaque text."""

import base64
import binascii

import msgspec

from .problem import Refused, of_parameter

_PARTITION_MAX = 2**31 - 1


def write(topic: str, partition: int) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((topic, partition))).rstrip(b"=").decode()


def read(cursor: str | None) -> tuple[str, int] | None:
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        topic, partition = msgspec.json.decode(text, type=tuple[str, int])
    except (UnicodeError, binascii.Error, msgspec.DecodeError):
        raise _no_cursor() from None
    if not 0 <= partition <= _PARTITION_MAX:
        raise _no_cursor()
    return topic, partition


def _no_cursor() -> Refused:
    return of_parameter("cursor", "is invalid: omit it for the first page, then send the previous page's `next_cursor`")
