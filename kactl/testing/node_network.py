"""kactl's `Network` over the simulated network: each node has its own view, with the latencies and faults of its links.

Controllers are reached at `controller N`, brokers at a name with their id.
"""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from kactl.errors import BrokerUnreachable, ControllerUnreachable
from kactl.messages.admin import ControllerRequest
from kactl.messages.following import PeerMessage
from kactl.participant.network import ControlLink, LinkState, ParticipantPort
from kactl.transports.base import ControllerPort, Transport

from .history import History
from .network import Network, Unreachable
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
        timeout_ms: the time limit for a response.
    """

    def __init__(
        self,
        network: Network,
        node: Node,
        history: History,
        *,
        broker_name: str = BROKER,
        numbers: "itertools.count[int] | None" = None,
        timeout_ms: float = TIMEOUT_MS,
    ) -> None:
        self.network = network
        self.node = node
        self.broker_name = broker_name
        self.timeout_ms = timeout_ms
        self._history = history
        self._message_numbers = itertools.count(1) if numbers is None else numbers
        self.port: ParticipantPort | None = None  # of the registration that receives requests

    @asynccontextmanager
    async def controller_side(self, port: ControllerPort) -> AsyncIterator[Transport]:
        """See `Network`."""
        self.network.listen(self.node, port.ask)
        try:
            yield SimulatedTransport(
                self.network,
                self._history,
                numbers=self._message_numbers,
                timeout_ms=self.timeout_ms,
                broker_name=self.broker_name,
            )
        finally:
            self.network.close(self.node)

    @asynccontextmanager
    async def participant_side(self, port: ParticipantPort) -> AsyncIterator[ControlLink]:
        """See `Network`."""
        self.network.listen(self.node, self._handle)
        if self.port is None:
            self.port = port
        link = NodeLink(self, port)
        try:
            yield link
        finally:
            link.close()

    def send(self, message: PeerMessage) -> None:
        """Send a message to another participant."""
        self.network.send(f"{self.broker_name} {message.to}", Packet(message))

    async def _handle(self, arrived: Any) -> Any:
        if isinstance(arrived, Packet):
            if self.port is not None:
                self.port.receive(arrived.message)
            return None
        assert isinstance(arrived, ControlMessage)
        if self.port is None:
            raise BrokerUnreachable(int(self.node.name.rpartition(" ")[2]), "no participant runs on its node")
        return await self.port.handle(arrived.request)


class NodeLink:
    """The `ControlLink` of a participant on a node."""

    def __init__(self, network: NodeNetwork, port: ParticipantPort) -> None:
        self._network = network
        self._port = port
        self.state = LinkState.OPEN

    async def ask(self, request: ControllerRequest, *, controller: int) -> Any:
        """See `ControlLink`."""
        network = self._network
        try:
            return await network.network.call(f"controller {controller}", request, timeout_ms=network.timeout_ms)
        except Unreachable as failed:
            raise ControllerUnreachable(str(failed)) from None

    def send(self, message: PeerMessage) -> None:
        """See `ControlLink`."""
        if self.state is LinkState.OPEN:
            self._network.send(message)

    def registered(self, broker_epoch: int) -> None:
        """See `ControlLink`."""
        if self.state is LinkState.OPEN:
            self._network.port = self._port

    def close(self) -> None:
        """See `ControlLink`."""
        self.state = LinkState.CLOSED
        if self._network.port is self._port:
            self._network.port = None
