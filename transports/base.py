"""Protocols of all transports and networks.

A transport opens connections, each to one registration of one broker. A connection delivers one request at a time and
returns its response. The transport itself never sends a request twice: the channel decides whether to retry. One
contract suite runs over every transport.

A network connects controllers with participants, in both directions, and with spectators. It contains a transport.
"""

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.control import Request, Response
from kactl.decide.messages.routes import RouteMessage, Watch
from kactl.decide.messages.sessions import NotController, ParticipantLink, SessionAnswer, SessionRequest
from kactl.model import Broker
from kactl.participant.network import ParticipantNetwork
from kactl.participant.spectator.network import SpectatorNetwork
from kactl.runtime.budget import Budget
from kactl.runtime.clock import Clock
from kactl.telemetry.attempts import Attempt


class Connection(Protocol):
    """Connection to one broker. It connects on the first delivery, and again on the first delivery after a failure."""

    async def deliver(self, request: Request) -> Response:
        """Send a request and wait. Returns the broker's response. Called by one task at a time.

        Cancelling the call closes the connection; the broker may or may not have carried out the request.

        Raises:
            BrokerUnreachable: the request could not be sent, no response arrived within the transport's time limit, the
                response was malformed, or the broker rejects every request of this sender. The broker may have carried
                out the request. The connection is closed and can be used again.
        """

    async def close(self) -> None:
        """Close the connection for good: `deliver` raises afterwards."""


class Transport(Protocol):
    """Factory of connections to brokers."""

    def connect(self, broker: Broker) -> Connection:
        """Returns a connection to that registration. No I/O happens yet."""


class ControllerPort(Protocol):
    """A controller instance, as its network calls it.

    An error that is no KactlError is a bug of the controller. The network logs it under an id, and returns the id to
    the sender of the request; see `kactl.participant.network.ControlLink`.
    """

    @property
    def node_id(self) -> int:
        """The id of the instance."""

    @property
    def clock(self) -> Clock:
        """The clock of its time limits."""

    @property
    def budget(self) -> Budget:
        """The accounts of its peers, which the network charges before it decodes and passes on a request."""

    def standby(self) -> NotController | None:
        """Returns which instance is the active controller; None if it is this one."""

    def active_term(self) -> tuple[int, int]:
        """Returns the epoch of the controllership, and how long it has lasted, in ms; NO_EPOCH and 0 without one."""

    async def ask(self, request: ControllerRequest, /) -> Any:
        """Queue a request and wait; see `kactl.participant.network.Ask`."""

    async def session(self, request: SessionRequest, *, received_ns: int) -> SessionAnswer:
        """Carry out a request of a participant's session. Returns the answer; NotController if the instance is not
        active.

        Calls may overlap. The answer to a heartbeat is returned without waiting for anything else. The network has to
        verify that the sender may act for the broker that the request names.

        Args:
            received_ns: `clock.lease_ns` when the request was read from its connection.
        """

    def link_opened(self, link: ParticipantLink) -> None:
        """A participant can be reached by a new link. It replaces an open link of the same broker and incarnation.

        Called in the event loop, also for the links that are open when the block of `Network.controller_side` begins.
        """

    def link_closed(self, link: ParticipantLink, reason: str) -> None:
        """The same link is not open any more. Not called for a link that another one has replaced."""

    def endpoint_failed(self, link: ParticipantLink, reason: str) -> None:
        """The participant of an open link was not found at the address that it advertises, or was found again.

        Args:
            reason: empty if it was found.
        """

    def attempted(self, attempt: Attempt) -> None:
        """A peer has attempted to change something, or was refused; for the audit trail."""

    async def watch_routes(self, asked: Watch, /) -> RouteMessage:
        """Respond to a spectator; see `kactl.participant.spectator.network`. Cancelling the call ends the wait."""


class Network(ParticipantNetwork, SpectatorNetwork, Protocol):
    """Connects controllers with participants and spectators, and participants with each other.

    A network that does not report links has an attribute `reports_links`, which is False. A controller then fences no
    participant.
    """

    def controller_side(self, port: ControllerPort) -> AbstractAsyncContextManager[Transport]:
        """Let participants send requests to a controller instance, active or not, until the end of the block.

        Yields:
            the transport to the participants.
        """
