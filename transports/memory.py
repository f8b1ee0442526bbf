"""Network of one process: a function call in place of a connection.

Nothing is encoded. A receiver gets the sender's own columns, and neither side may write to them. Receivers queue what
arrives and handle it in tasks of their own.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.control import Request, Response
from kactl.decide.messages.routes import RouteMessage, Watch
from kactl.decide.messages.sessions import (
    Identify,
    NotController,
    ParticipantLink,
    Refused,
    SessionAnswer,
    SessionRequest,
)
from kactl.model import Broker, Endpoint, errors
from kactl.model.errors import BadRequest, BrokerUnreachable, ControllerUnreachable, InternalError
from kactl.runtime import forks
from kactl.runtime.clock import Clock, SystemClock
from kactl.runtime.error_id import internal_errors
from kactl.runtime.logs import logger
from kactl.runtime.time_limit import limited

from .base import Ask, ControllerPort, ControlLink, Handler, LinkState, ParticipantPort, SpectatorLink, Transport

if TYPE_CHECKING:
    from kactl.decide.messages.following import PeerMessage

log = logger(__name__)

_UNANSWERED: Final = "a request could not be answered: %s"
# Kafka's default (request.timeout.ms).
REQUEST_TIMEOUT_MS: Final = 30_000


class MemoryHub:
    """The `Network` of one process and one event loop.

        kactl.Participant(1, store=controller.store, hub=controller.hub, handler=Shard)

    A controller without a network has one of its own, as `controller.hub`.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}
        self._controllers: dict[int, Ask] = {}
        self._ports: dict[int, ControllerPort] = {}
        self._links: dict[ParticipantLink, None] = {}
        self._home: forks.Home | None = None  # the process in which it is used

    def _check_process(self) -> None:
        if self._home is None:
            self._home = forks.home()
        self._home.check("the hub")

    def attach(self, broker: int, handler: Handler) -> None:
        """Register the handler of a broker id; it replaces an earlier one."""
        self._handlers[broker] = handler

    def detach(self, broker: int, handler: Handler) -> None:
        """Remove the handler of a broker id, unless another handler has replaced it."""
        if self._handlers.get(broker) is handler:
            del self._handlers[broker]

    def find(self, broker: int) -> Handler | None:
        """Returns the handler of a broker id."""
        return self._handlers.get(broker)

    def attach_controller(self, controller: int, ask: Ask) -> None:
        """Register a controller instance, active or not; it replaces an earlier one of the same id."""
        self._controllers[controller] = ask

    def detach_controller(self, controller: int, ask: Ask) -> None:
        """Remove a controller instance, unless another one has replaced it."""
        if self._controllers.get(controller) == ask:
            del self._controllers[controller]

    def controller(self, controller: int) -> Ask | None:
        """Returns the function that sends requests to a controller instance; None if none runs in this process."""
        return self._controllers.get(controller)

    async def ask(self, request: ControllerRequest, *, controller: int) -> Any:
        """See `ControlLink`."""
        ask = self._controllers.get(controller)
        if ask is None:
            reason = f"its id is {controller}, and no controller with that id runs on this network"
            raise ControllerUnreachable(reason)
        with internal_errors(log, _UNANSWERED, type(request).__name__):
            return await ask(request)

    async def session(self, request: SessionRequest) -> SessionAnswer:
        """See `ControlLink`."""
        reasons = []
        for number, port in tuple(self._ports.items()):
            try:
                with internal_errors(log, _UNANSWERED, type(request).__name__):
                    answer = await port.session(request, received_ns=port.clock.lease_ns())
            except InternalError as error:
                return Refused.of(error)
            if not isinstance(answer, NotController):
                return answer
            reasons.append(f"controller {number} is not active")
        raise ControllerUnreachable("; ".join(reasons) or "no controller runs on this network")

    async def identify(self, request: Identify, *, controllers: Sequence[str] = ()) -> SessionAnswer:
        """See `ParticipantNetwork`."""
        self._check_process()
        return await self.session(request)

    def link_opened(self, link: ParticipantLink) -> None:
        """Report an open link to all controllers."""
        if link not in self._links:
            self._links[link] = None
            for port in self._ports.values():
                port.link_opened(link)

    def link_closed(self, link: ParticipantLink, reason: str) -> None:
        """Report a closed link to all controllers."""
        if link in self._links:
            del self._links[link]
            for port in self._ports.values():
                port.link_closed(link, reason)

    def send(self, message: "PeerMessage") -> None:
        """See `ControlLink`. A message to a broker id without a participant is lost."""
        receive = getattr(self._handlers.get(message.to), "receive", None)
        if receive is not None:
            receive(message)

    @asynccontextmanager
    async def controller_side(self, port: ControllerPort) -> AsyncIterator[Transport]:
        self._check_process()
        ask = port.ask
        self.attach_controller(port.node_id, ask)
        self._ports[port.node_id] = port
        for link in self._links:
            port.link_opened(link)
        try:
            yield MemoryTransport(self, clock=port.clock)
        finally:
            self.detach_controller(port.node_id, ask)
            if self._ports.get(port.node_id) is port:
                del self._ports[port.node_id]

    @asynccontextmanager
    async def participant_side(
        self, port: ParticipantPort, *, controllers: Sequence[str] = ()
    ) -> AsyncIterator[ControlLink]:
        self._check_process()
        if controllers:
            raise BadRequest("controllers", "are given with a network of one process, which has no addresses")
        link = MemoryLink(self, port)
        if self.find(port.broker) is None:
            self.attach(port.broker, port)
        self.link_opened(link.identity)
        try:
            yield link
        finally:
            link.close()

    @asynccontextmanager
    async def spectator_side(self, *, controllers: Sequence[str] = ()) -> AsyncIterator[SpectatorLink]:
        if controllers:
            raise BadRequest("controllers", "are given with a network of one process, which has no addresses")
        yield MemorySpectatorLink(self._ports)


class MemorySpectatorLink:
    """The `SpectatorLink` of a spectator in this process.

    Args:
        ports: the controller instances of the process, by id.
    """

    def __init__(self, ports: Mapping[int, ControllerPort]) -> None:
        self._ports = ports

    async def watch(self, asked: Watch) -> RouteMessage:
        for port in tuple(self._ports.values()):
            try:
                with internal_errors(log, _UNANSWERED, type(asked).__name__):
                    return await port.watch_routes(asked)
            except errors.NotController:
                continue
        raise ControllerUnreachable("no controller of this network is active")


class MemoryLink:
    """The `ControlLink` of a participant in this process."""

    def __init__(self, hub: MemoryHub, port: ParticipantPort) -> None:
        self._hub = hub
        self._port = port
        self.identity = ParticipantLink(port.broker, port.incarnation)
        self.state = LinkState.OPEN
        self.peer: Endpoint | None = None

    async def ask(self, request: ControllerRequest, *, controller: int) -> Any:
        return await self._hub.ask(request, controller=controller)

    async def session(self, request: SessionRequest) -> SessionAnswer:
        return await self._hub.session(request)

    def send(self, message: "PeerMessage") -> None:
        if self.state is LinkState.OPEN:
            self._hub.send(message)

    def registered(self, broker_epoch: int) -> None:
        if self.state is LinkState.OPEN:
            self._hub.attach(self._port.broker, self._port)

    def close(self) -> None:
        self.state = LinkState.CLOSED
        self._hub.detach(self._port.broker, self._port)
        self._hub.link_closed(self.identity, "the participant has closed it")


class MemoryConnection:
    """Connection to a broker id, not to one registration.

    A broker that has registered again compares the broker epoch of each request with its own, as a Kafka broker does
    that listens on the same port as before.
    """

    def __init__(self, hub: MemoryHub, broker: int, *, clock: Clock, request_timeout_ms: float) -> None:
        self._hub = hub
        self._broker = broker
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._closed = False

    async def deliver(self, request: Request) -> Response:
        if self._closed:
            raise BrokerUnreachable(self._broker, "the connection was closed: open a new one")
        handler = self._hub.find(self._broker)
        if handler is None:
            raise BrokerUnreachable(self._broker, "no participant with that id runs in this process")
        late = BrokerUnreachable(self._broker, f"no response within {self._request_timeout_ms:.0f} ms")
        try:
            return await limited(self._clock, self._request_timeout_ms, lambda: handler.handle(request), late)
        except BrokerUnreachable:
            raise
        except Exception as error:
            raise BrokerUnreachable(self._broker, f"its handler raised {error!r}") from error

    async def close(self) -> None:
        self._closed = True


class MemoryTransport:
    """The `Transport` to the participants attached to one hub.

    Args:
        request_timeout_ms: the time limit for a response.
    """

    def __init__(
        self, hub: MemoryHub, *, clock: Clock | None = None, request_timeout_ms: float = REQUEST_TIMEOUT_MS
    ) -> None:
        self._hub = hub
        self._clock = clock or SystemClock()
        self._request_timeout_ms = request_timeout_ms

    def connect(self, broker: Broker) -> MemoryConnection:
        return MemoryConnection(self._hub, broker.id, clock=self._clock, request_timeout_ms=self._request_timeout_ms)
