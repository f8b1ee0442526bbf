"""kactl's `Network` over the simulated network: each node has its own view, with the latencies and faults of its links.

Controllers are reached at `controller N`, brokers at a name with their id.
"""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.following import PeerMessage
from kactl.decide.messages.routes import RouteMessage, Watch
from kactl.decide.messages.sessions import Identify, SessionAnswer, SessionRequest
from kactl.model import Endpoint
from kactl.model.errors import BrokerUnreachable, ControllerUnreachable, IllegalState, NotController
from kactl.transports.base import ControllerPort, ControlLink, LinkState, ParticipantPort, SpectatorLink, Transport

from .history import History
from .network import Network, Unreachable
from .nodes import Node
from .transport import BROKER, ControlMessage, SimulatedTransport

# Time limit of a response.
TIMEOUT_MS: Final = 2_000.0


async def call_controller(network: Network, name: str, message: Any, *, timeout_ms: float) -> Any:
    """Send a message to a controller instance from the current node. Returns the answer.

    Raises:
        ControllerUnreachable: there was no answer in time.
        KactlError: the answer.
    """
    try:
        return await network.call(name, message, timeout_ms=timeout_ms)
    except Unreachable as failed:
        raise ControllerUnreachable(f"{name}: {failed}") from None


class Packet(NamedTuple):
    """A message between participants."""

    message: PeerMessage


class NodeNetwork:
    """View of one node. Participants have chosen ids, and sessions with the store.

    Args:
        broker_name: name of the node of a broker, without its id.
        controllers: names of the nodes of controllers, for spectators.
        numbers: of the control messages, unique in the run.
        timeout_ms: the time limit for a response.

    Attributes:
        reports_links: see `Network`.
    """

    reports_links = False

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
    ) -> None:
        self.network = network
        self.node = node
        self.broker_name = broker_name
        self.controllers = tuple(controllers)
        self.timeout_ms = timeout_ms
        self.history = history
        self._message_numbers = itertools.count(1) if numbers is None else numbers
        self.port: ParticipantPort | None = None  # of the registration that receives requests

    @asynccontextmanager
    async def controller_side(self, port: ControllerPort) -> AsyncIterator[Transport]:

        async def handle(arrived: Any) -> Any:
            with self.network.internal_errors(arrived):
                return await self.answer(port, arrived)

        self.network.listen(self.node, handle)
        try:
            yield SimulatedTransport(
                self.network,
                self.history,
                numbers=self._message_numbers,
                timeout_ms=self.timeout_ms,
                broker_name=self.broker_name,
            )
        finally:
            self.network.close(self.node)

    async def answer(self, port: ControllerPort, arrived: Any) -> Any:
        """Returns the answer of a controller to a message."""
        return await (port.watch_routes(arrived) if isinstance(arrived, Watch) else port.ask(arrived))

    async def identify(self, request: Identify, *, controllers: Sequence[str] = ()) -> SessionAnswer:
        raise IllegalState("participants of a simulated cluster have chosen ids: give broker_id")

    @asynccontextmanager
    async def participant_side(
        self, port: ParticipantPort, *, controllers: Sequence[str] = ()
    ) -> AsyncIterator[ControlLink]:
        self.network.listen(self.node, self._handle)
        if self.port is None:
            self.port = port
        link = self.new_link(port)
        try:
            yield link
        finally:
            link.close()

    def new_link(self, port: ParticipantPort) -> "NodeLink":
        """Returns the link of a new registration."""
        return NodeLink(self, port)

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

    @property
    def state(self) -> LinkState:
        return LinkState.CLOSED if self._is_closed else LinkState.OPEN

    async def ask(self, request: ControllerRequest, *, controller: int) -> Any:
        network = self._network
        return await call_controller(
            network.network, f"controller {controller}", request, timeout_ms=network.timeout_ms
        )

    async def session(self, request: SessionRequest) -> SessionAnswer:
        raise ControllerUnreachable("participants without links have their sessions with the store")

    def send(self, message: PeerMessage) -> None:
        if not self._is_closed:
            self._network.send(message)

    def registered(self, broker_epoch: int) -> None:
        if not self._is_closed:
            self._network.port = self._port

    def close(self) -> None:
        self._is_closed = True
        if self._network.port is self._port:
            self._network.port = None
