"""kactl's `Network` over the simulated network: each node has its own view, with the latencies and faults of its links.

Controllers are reached at `controller N`, brokers at a name with their id.
"""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from kactl.decide.messages import sessions
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.following import PeerMessage
from kactl.decide.messages.routes import RouteMessage, Watch
from kactl.decide.messages.sessions import (
    Goodbye,
    Heartbeat,
    Identify,
    Refused,
    Register,
    SessionAnswer,
    SessionRequest,
    VerifyEndpoint,
)
from kactl.model import Endpoint
from kactl.model.errors import BrokerUnreachable, ControllerUnreachable, InternalError, NotController
from kactl.transports.base import ControllerPort, ControlLink, LinkState, ParticipantPort, SpectatorLink, Transport

from .history import History
from .network import Network
from .node_links import AcceptedLinks, Dial, DialedLink, HangUp, call_controller
from .nodes import Node
from .transport import BROKER, ControlMessage, SimulatedTransport

# Time limit of a response.
TIMEOUT_MS: Final = 2_000.0


class Packet(NamedTuple):
    """A message between participants."""

    message: PeerMessage


class NodeNetwork:
    """View of one node.

    Args:
        broker_name: name of the node of a broker, without its id.
        numbers: of the control messages, unique in the run.
        controllers: names of the nodes of controllers, for links and spectators.
        timeout_ms: the time limit for a response.
        dial_ms: how often participants dial, so that controllers learn of their links. None: they have no links, and
            controllers fence nothing.

    Attributes:
        reports_links: see `Network`.
    """

    def __init__(
        self,
        network: Network,
        node: Node,
        history: History,
        *,
        broker_name: str = BROKER,
        controllers: Sequence[str] = (),
        numbers: "itertools.count[int] | None" = None,
        timeout_ms: float = TIMEOUT_MS,
        dial_ms: float | None = None,
    ) -> None:
        self.reports_links = dial_ms is not None
        self.dial_ms = dial_ms
        self.network = network
        self.node = node
        self.broker_name = broker_name
        self.controllers = tuple(controllers)
        self.timeout_ms = timeout_ms
        self._history = history
        self._message_numbers = itertools.count(1) if numbers is None else numbers
        self.port: ParticipantPort | None = None  # of the registration that receives requests

    @asynccontextmanager
    async def controller_side(self, port: ControllerPort) -> AsyncIterator[Transport]:
        """See `Network`."""

        links = AcceptedLinks(port, self.node, self._history, interval_ms=self.dial_ms or 0.0)

        async def handle(arrived: Any) -> Any:
            with self.network.internal_errors(arrived):
                match arrived:
                    case Register() | Identify() | Heartbeat() | Goodbye() | VerifyEndpoint():
                        return await self._session(port, arrived)
                    case Watch():
                        return await port.watch_routes(arrived)
                    case Dial():
                        return links.dialed(arrived)
                    case HangUp():
                        return links.hung_up(arrived)
                    case _:
                        return await port.ask(arrived)

        self.network.listen(self.node, handle)
        try:
            yield SimulatedTransport(
                self.network,
                self._history,
                numbers=self._message_numbers,
                timeout_ms=self.timeout_ms,
                broker_name=self.broker_name,
            )
        finally:
            links.close()
            self.network.close(self.node)

    async def _session(self, port: ControllerPort, request: SessionRequest) -> SessionAnswer:
        try:
            with self.network.internal_errors(request):
                return await port.session(request, received_ns=port.clock.lease_ns())
        except InternalError as error:
            return Refused.of(error)

    async def identify(self, request: Identify, *, controllers: Sequence[str] = ()) -> SessionAnswer:
        """See `Network`."""
        reasons = []
        for name in self.controllers:
            try:
                answer: SessionAnswer = await call_controller(self.network, name, request, timeout_ms=self.timeout_ms)
            except ControllerUnreachable as failed:
                reasons.append(f"{name}: {failed}")
                continue
            if not isinstance(answer, sessions.NotController):
                return answer
            reasons.append(f"{name} is not active")
        raise ControllerUnreachable("; ".join(reasons) or "the network was given no controllers")

    @asynccontextmanager
    async def participant_side(
        self, port: ParticipantPort, *, controllers: Sequence[str] = ()
    ) -> AsyncIterator[ControlLink]:
        """See `Network`."""
        self.network.listen(self.node, self._handle)
        if self.port is None:
            self.port = port
        link = NodeLink(self, port)
        try:
            yield link
        finally:
            link.close()

    @asynccontextmanager
    async def spectator_side(self, *, controllers: Sequence[str] = ()) -> AsyncIterator[SpectatorLink]:
        """See `Network`."""
        yield NodeSpectatorLink(self)

    def send(self, message: PeerMessage) -> None:
        """Send a message to another participant."""
        self.network.send(f"{self.broker_name} {message.to}", Packet(message))

    async def _handle(self, arrived: Any) -> Any:
        if isinstance(arrived, Packet):
            if self.port is not None:
                self.port.receive(arrived.message)
            return None
        assert isinstance(arrived, ControlMessage)
        broker = int(self.node.name.rpartition(" ")[2])
        if self.port is None:
            raise BrokerUnreachable(broker, "no participant runs on its node")
        try:
            return await self.port.handle(arrived.request)
        except BrokerUnreachable:
            raise
        except Exception as error:
            error_id = self.network.log_error(error, arrived)
            reason = f"its handler raised {type(error).__name__}: its log has the details under {error_id}"
            raise BrokerUnreachable(broker, reason) from error


class NodeSpectatorLink:
    """The `SpectatorLink` of a spectator on a node. It remembers the controller that has responded last."""

    def __init__(self, network: NodeNetwork) -> None:
        self._network = network
        self._controllers = list(network.controllers)

    async def watch(self, asked: Watch) -> RouteMessage:
        """See `SpectatorLink`."""
        network, reasons = self._network, list[str]()
        for name in tuple(self._controllers):
            try:
                timeout_ms = network.timeout_ms + asked.wait_ms
                message: RouteMessage = await call_controller(network.network, name, asked, timeout_ms=timeout_ms)
            except (ControllerUnreachable, NotController) as failed:
                reasons.append(f"{name}: {failed}")
                continue
            self._controllers.remove(name)
            self._controllers.insert(0, name)
            return message
        raise ControllerUnreachable("; ".join(reasons))


class NodeLink:
    """The `ControlLink` of a participant on a node."""

    def __init__(self, network: NodeNetwork, port: ParticipantPort) -> None:
        self._network = network
        self._port = port
        self.peer: Endpoint | None = None
        self._is_closed = False
        self._dialed: DialedLink | None = None
        if network.dial_ms is not None:
            self._dialed = DialedLink(
                network.network,
                port,
                controllers=network.controllers,
                interval_ms=network.dial_ms,
                timeout_ms=network.timeout_ms,
            )

    @property
    def state(self) -> LinkState:
        """See `ControlLink`."""
        if self._is_closed:
            return LinkState.CLOSED
        return LinkState.OPEN if self._dialed is None else self._dialed.state

    async def ask(self, request: ControllerRequest, *, controller: int) -> Any:
        """See `ControlLink`."""
        network = self._network
        return await call_controller(
            network.network, f"controller {controller}", request, timeout_ms=network.timeout_ms
        )

    async def session(self, request: SessionRequest) -> SessionAnswer:
        """See `ControlLink`."""
        if self._dialed is None:
            raise ControllerUnreachable("participants without links have their sessions with the store")
        return await self._dialed.session(request)

    def send(self, message: PeerMessage) -> None:
        """See `ControlLink`."""
        if not self._is_closed:
            self._network.send(message)

    def registered(self, broker_epoch: int) -> None:
        """See `ControlLink`."""
        if not self._is_closed:
            self._network.port = self._port

    def close(self) -> None:
        """See `ControlLink`."""
        self._is_closed = True
        if self._dialed is not None:
            self._dialed.close()
        if self._network.port is self._port:
            self._network.port = None
