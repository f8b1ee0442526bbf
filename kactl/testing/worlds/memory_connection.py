"""Server's side of a client of the simulated in-memory store, with sessions that expire."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from kactl.stores.base import StoreEvent
from kactl.stores.memory import ServerConnection

from ..clock import LoopClock
from ..nodes import on

if TYPE_CHECKING:
    from .memory import MemoryWorld


class SimConnection(ServerConnection):
    """Server's side of one client, with a deadline for the client's own session."""

    def __init__(self, world: "MemoryWorld", send: Callable[[StoreEvent], None]) -> None:
        super().__init__(world.state, clock=LoopClock(world.loop), send=send, start_task=self._start)
        self._world = world
        self._deadline_s = 0.0

    def open_session(self) -> None:
        self.touch()
        if self.session is None:
            super().open_session()
            assert self.session is not None
            self._wait_for(self.session)

    def touch(self) -> None:
        """Renew the client's own session: a message has arrived."""
        self._deadline_s = self._world.loop.now_s + self._world.session_timeout_ms / 1000

    def expire(self) -> None:
        with on(self._world.node):
            super().expire()

    def expire_session(self, session: int) -> None:
        with on(self._world.node):
            super().expire_session(session)

    def _wait_for(self, session: int) -> None:
        def check() -> None:
            if self.session != session:
                return
            if self._world.loop.now_s >= self._deadline_s:
                self.expire()
            else:
                self._wait_for(session)

        self._world.links.call_at(self._deadline_s, check, on=self._world.node)

    def _start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with on(self._world.node):
            self._world.loop.create_task(main())
