"""Gate that holds back all requests to brokers while the store session may have expired unnoticed.

Another controller may be active then. Brokers distinguish the two by their epochs; it is better still that they receive
requests from only one of them.
"""

import asyncio

from kactl.runtime.logs import logger

log = logger(__name__)


class SendGate:
    """Holds back requests to brokers; open at first."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.reason = ""  # why it was closed last

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def pause(self, why: str) -> None:
        """Pause sending. In-flight requests are not cancelled."""
        if self.is_open:
            log.info("nothing is sent to brokers from now on: %s", why)
            self.reason = why
            self._open.clear()

    def open(self) -> None:
        """Resume sending. Does nothing if the gate is open."""
        if not self.is_open:
            log.info("requests are sent to brokers again")
            self._open.set()

    async def wait_open(self) -> None:
        """Wait until the gate is open. It is open when this returns."""
        # It may have been paused again after it woke this task.
        while not self._open.is_set():
            await self._open.wait()
