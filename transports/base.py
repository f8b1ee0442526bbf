"""Protocols of all transports and networks.

A transport opens connections, each to one registration of one broker. A connection delivers one request at a time and
returns its response. The transport itself never sends a request twice: the channel decides whether to retry. One
contract suite runs over every transport.

A network connects controllers with participants, in both directions. It contains a transport.
"""

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from kactl.clock import Clock
from kactl.messages.admin import ControllerRequest
from kactl.messages.control import Request, Response
from kactl.model import Broker
from kactl.participant.network import ParticipantNetwork


class Connection(Protocol):
    """Connection to one broker. It connects on the first delivery, and again on the first delivery after a failure."""

    async def deliver(self, request: Request) -> Response:
        """Send a request and wait. Returns the broker's response. Called by one task at a time.

        Cancelling the call closes the connection; the broker may or may not have carried out the request.

        Raises:
            BrokerUnreachable: the request could not be sent, no response arrived within the transport's time limit, or
                the response was malformed. The broker may have carried out the request. The connection is closed and
                can be used again.
        """

    async def close(self) -> None:
        """Close the connection for good: `deliver` raises afterwards."""


class Transport(Protocol):
    """Factory of connections to brokers."""

    def connect(self, broker: Broker) -> Connection:
        """Returns a connection to that registration. No I/O happens yet."""


class ControllerPort(Protocol):
    """A controller instance, as its network calls it."""

    @property
    def node_id(self) -> int:
        """The id of the instance."""

    @property
    def clock(self) -> Clock:
        """The clock of its time limits."""

    async def ask(self, request: ControllerRequest, /) -> Any:
        """Queue a request and wait; see `kactl.participant.network.Ask`."""


class Network(ParticipantNetwork, Protocol):
    """Connects controllers with participants, and participants with each other."""

    def controller_side(self, port: ControllerPort) -> AbstractAsyncContextManager[Transport]:
        """Let participants send requests to a controller instance, active or not, until the end of the block.

        Yields:
            the transport to the participants.
        """
