"""Codes by which a web page logs in: each works once, and for a minute.

`kactl dashboard` opens the page with a code behind the `#` of its address, which browsers do not send. The browser's
history keeps it, where it is worthless.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

PREFIX: Final = "kactlcode_"
LIFETIME_S: Final = 60.0
# Codes of one client that have not been used yet; its oldest one makes room. A page needs one, scripts a few more.
CODES_MAX: Final = 10
_SECRET_BYTES: Final = 32

Client = TypeVar("Client")


class LoginCodes(Generic[Client]):
    """The codes that have not been used yet, in memory. A client cannot push out those of another one.

    Args:
        owner: returns what identifies a client: all of its requests have the same.
    """

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        *,
        owner: Callable[[Client], Hashable] = lambda client: client,
    ) -> None:
        self._now_s = now_s
        # In the order of their ends.
        self._open: OrderedDict[str, tuple[Client, float]] = OrderedDict()
        self._of: dict[Hashable, OrderedDict[str, None]] = {}
        self._owner = owner

    @property
    def held(self) -> int:
        """The number of codes that have not been used yet."""
        return len(self._open)

    def make(self, client: Client) -> str:
        """Returns a code for a client."""
        now_s = self._now_s()
        while self._open and next(iter(self._open.values()))[1] <= now_s:
            self._remove(next(iter(self._open)))
        own = self._of.setdefault(self._owner(client), OrderedDict())
        if len(own) >= CODES_MAX:
            self._remove(next(iter(own)))
        code = f"{PREFIX}{secrets.token_urlsafe(_SECRET_BYTES)}"
        self._open[code] = client, now_s + LIFETIME_S
        own[code] = None
        return code

    def _remove(self, code: str) -> tuple[Client, float] | None:
        found = self._open.pop(code, None)
        if found is not None:
            owner = self._owner(found[0])
            del self._of[owner][code]
            if not self._of[owner]:
                del self._of[owner]
        return found

    def take(self, code: str) -> Client | None:
        """Returns the client of a code, which cannot be used again; None if it is unknown or too old."""
        client, until_s = self._remove(code) or (None, 0.0)
        return client if self._now_s() < until_s else None
