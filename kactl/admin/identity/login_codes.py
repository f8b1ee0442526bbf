"""Codes by which a web page logs in: each works once, and for a minute.

`kactl dashboard` opens the page with a code behind the `#` of its address, which browsers do not send. The browser's
history keeps it, where it is worthless.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

PREFIX: Final = "kactlcode_"
LIFETIME_S: Final = 60.0
# Codes that have not been used yet; the oldest one makes room.
CODES_MAX: Final = 1000
_SECRET_BYTES: Final = 32

Client = TypeVar("Client")


class LoginCodes(Generic[Client]):
    """The codes that have not been used yet, in memory."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._open: OrderedDict[str, tuple[Client, float]] = OrderedDict()

    def make(self, client: Client) -> str:
        """Returns a code for a client."""
        code = f"{PREFIX}{secrets.token_urlsafe(_SECRET_BYTES)}"
        self._open[code] = client, self._now_s() + LIFETIME_S
        if len(self._open) > CODES_MAX:
            self._open.popitem(last=False)
        return code

    def take(self, code: str) -> Client | None:
        """Returns the client of a code, which cannot be used again; None if it is unknown or too old."""
        client, until_s = self._open.pop(code, (None, 0.0))
        return client if self._now_s() < until_s else None
