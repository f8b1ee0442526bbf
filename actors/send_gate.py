"""Whether requests may go out to brokers: not while our session with the store may have ended without our knowing.

Another controller may be acting then. Brokers tell the two apart by their epochs; that they hear only one of them is
better still.
"""

import asyncio

from kactl.runtime.logs import logger

log = logger(__name__)


class SendGate:
    """See the module. It stands open at first."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.reason = ""  # why it was shut last

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def shut(self, why: str) -> None:
        """Let no request begin. One that is on its way is not called back."""
        if self.is_open:
            log.info("nothing is sent to brokers from now on: %s", why)
            self.reason = why
            self._open.clear()

    def open(self) -> None:
        """Let those that wait go, in their order; nothing happens if it stands open."""
        if not self.is_open:
            log.info("requests are sent to brokers again")
            self._open.set()

    async def passed(self) -> None:
        """Wait until it stands open."""
        await self._open.wait()
