"""The way to participants of the same process: a call in place of a connection.

Nothing is encoded, so whoever handles a request gets the sender's own columns: neither side writes into them.
"""

from typing import Final

import anyio

from kactl.clock import Clock, SystemClock
from kactl.errors import BrokerUnreachable
from kactl.messages.control import Request, Response
from kactl.model import Broker
from kactl.participant.hub import Ask, Handler

# Kafka's default (request.timeout.ms).
REQUEST_TIMEOUT_MS: Final = 30_000


class MemoryHub:
    """Who answers for each broker id, and who is asked for each controller id. Of one process and one event loop."""

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}
        self._controllers: dict[int, Ask] = {}

    def attach(self, broker: int, handler: Handler) -> None:
        """Answer under that id from now on; whoever answered under it before does so no more."""
        self._handlers[broker] = handler

    def detach(self, broker: int, handler: Handler) -> None:
        """Answer no more under that id, if this handler still does."""
        if self._handlers.get(broker) is handler:
            del self._handlers[broker]

    def find(self, broker: int) -> Handler | None:
        """Who answers under that id now."""
        return self._handlers.get(broker)

    def attach_controller(self, controller: int, ask: Ask) -> None:
        """A controller instance runs under that id, active or not; an earlier one of the id is asked no more."""
        self._controllers[controller] = ask

    def detach_controller(self, controller: int, ask: Ask) -> None:
        """It runs no more, if this is still the way to it."""
        if self._controllers.get(controller) == ask:
            del self._controllers[controller]

    def controller(self, controller: int) -> Ask | None:
        """The way to the controller instance of that id; None if none runs in this process."""
        return self._controllers.get(controller)


class MemoryConnection:
    """To an id, not to a registration: a broker that registered again sees by the broker epoch whom a request was
    for, as one does that listens on the same port as before."""

    def __init__(self, hub: MemoryHub, broker: int, *, clock: Clock, request_timeout_ms: float) -> None:
        self._hub = hub
        self._broker = broker
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._closed = False

    async def deliver(self, request: Request) -> Response:
        """See `Connection`."""
        if self._closed:
            raise BrokerUnreachable(self._broker, "the connection was closed: make a new one")
        handler = self._hub.find(self._broker)
        if handler is None:
            raise BrokerUnreachable(self._broker, "no participant with that id runs in this process")
        answer: Response | Exception = BrokerUnreachable(
            self._broker, f"no answer came within {self._request_timeout_ms:.0f} ms"
        )

        async def ask(handler: Handler) -> None:
            nonlocal answer
            try:
                answer = await handler.handle(request)
            except Exception as error:
                answer = error
            timed.cancel_scope.cancel()

        # The clock is handed in, so that time limits are ours to keep and not the event loop's.
        async with anyio.create_task_group() as timed:
            timed.start_soon(ask, handler)
            await self._clock.sleep_ms(self._request_timeout_ms)
            timed.cancel_scope.cancel()
        if isinstance(answer, BrokerUnreachable):
            raise answer
        if isinstance(answer, Exception):
            raise BrokerUnreachable(self._broker, f"it failed over the request: {answer!r}") from answer
        return answer

    async def close(self) -> None:
        """See `Connection`."""
        self._closed = True


class MemoryTransport:
    """See the module.

    Args:
        request_timeout_ms: how long an answer may take.
    """

    def __init__(
        self, hub: MemoryHub, *, clock: Clock | None = None, request_timeout_ms: float = REQUEST_TIMEOUT_MS
    ) -> None:
        self._hub = hub
        self._clock = clock or SystemClock()
        self._request_timeout_ms = request_timeout_ms

    def connect(self, broker: Broker) -> MemoryConnection:
        """See `Transport`."""
        return MemoryConnection(self._hub, broker.id, clock=self._clock, request_timeout_ms=self._request_timeout_ms)
