"""Gate that makes a participant hang, as a stopped process does."""

import anyio


class PauseGate:
    """Gate before every action of a participant; the action waits while the participant is paused."""

    def __init__(self) -> None:
        self._open = anyio.Event()
        self._open.set()

    @property
    def paused(self) -> bool:
        return not self._open.is_set()

    def pause(self) -> None:
        if not self.paused:
            self._open = anyio.Event()

    def resume(self) -> None:
        self._open.set()

    async def wait_open(self) -> None:
        """Wait until the participant is not paused; return at once if it is not."""
        while self.paused:
            await self._open.wait()
