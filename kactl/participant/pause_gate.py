"""A process that can be made to hang."""

import anyio


class Pause:
    """Everything that a participant does passes here first, and waits while the participant is paused."""

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

    async def over(self) -> None:
        """Wait until the participant runs; at once if it does."""
        while self.paused:
            await self._open.wait()
