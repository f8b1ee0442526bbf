"""Protocols of all transports and networks.

A transport opens connections, each to one registration of one broker. A connection delivers one request at a time and
returns its response. The transport itself never sends a request twice: the channel decides whether to retry. One
contract suite runs over every transport.

A network connects controllers with participants, in both directions, and with spectators. It contains a transport.

    participant ── ParticipantPort ──▶ network: requests of controllers and messages of other participants arrive here
                ◀─── ControlLink ────           requests to controllers and messages to participants leave here
    controller  ── ControllerPort ───▶ network: requests of participants and spectators arrive here
                ◀──── Transport ─────           requests to participants leave here

No side calls an object of another one: everything that crosses is a message, which may be late or lost.
"""

import enum
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.control import Request, Response
from kactl.decide.messages.routes import RouteMessage, Watch
from kactl.decide.messages.sessions import Identify, NotController, ParticipantLink, SessionAnswer, SessionRequest
from kactl.model import Broker, Endpoint
from kactl.runtime.budget import Budget
from kactl.runtime.clock import Clock
from kactl.telemetry.attempts import Attempt

if TYPE_CHECKING:
    from kactl.decide.messages.following import PeerMessage


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


class LinkState(enum.Enum):
    """State of a participant's link.

    CONNECTING ──▶ OPEN ──▶ CONNECTING ──▶ ... CLOSED
    """

    CONNECTING = "connecting"  # no active controller has been reached yet, or the connection was lost
    OPEN = "open"
    CLOSED = "closed"  # for good


class Handler(Protocol):
    """Handler of the requests to one broker id."""

    async def handle(self, request: Request) -> Response:
        """Carry out a request. Returns the response.

        Requests are carried out one at a time, in the order of the calls. Cancelling the call does not cancel the
        request.

        Raises:
            BrokerUnreachable: the broker ended before it sent a response.
        """


class ParticipantPort(Handler, Protocol):
    """A participant under one registration, as its network calls it."""

    @property
    def broker(self) -> int:
        """The broker id."""

    @property
    def incarnation(self) -> bytes:
        """The id of the registration; see `kactl.decide.messages.sessions.incarnation_ids`."""

    @property
    def claim(self) -> str:
        """The identity that the network proves: the broker id, or what stands for one that was given; see
        `kactl.decide.messages.sessions.claim_of`."""

    def link_changed(self, state: LinkState, reason: str = "") -> None:
        """Called in the event loop after each change of the link's state, except by `ControlLink.close`.

        Args:
            reason: why the link is not open.
        """

    async def why_foreign(self, controller: int, epoch: int) -> str:
        """Returns why an active controller uses another store than this participant; empty if that is unknown."""

    def receive(self, message: "PeerMessage") -> None:
        """Queue a message of another participant. Returns at once."""


class Ask(Protocol):
    """Function that sends a request to a controller."""

    async def __call__(self, request: ControllerRequest, /) -> Any:
        """Queue a request and wait. Returns the response that the type of the request documents.

        Cancelling the call does not cancel the request.

        Raises:
            NotController: the instance is not the active controller, or not any more.
            KactlError: the controller has rejected the request, or accepts none now; see the type of the request.
        """


class ControlLink(Protocol):
    """The network as one registration of a participant uses it."""

    @property
    def state(self) -> LinkState:
        """The present state."""

    @property
    def peer(self) -> Endpoint | None:
        """Where other participants connect to this one; None if they cannot. It becomes a part of the registration."""

    async def ask(self, request: ControllerRequest, *, controller: int) -> Any:
        """Send a request to a controller instance. Returns the response that the type of `request` documents.

        Raises:
            ControllerUnreachable: the instance cannot be reached, or sent no response. It may have carried the request
                out.
            InternalError: a bug of the controller has ended the request. The network logs any error that is no
                KactlError at the controller, under the id in this error.
            KactlError: the controller has rejected the request; NotController if it is not active any more.
        """

    async def session(self, request: SessionRequest) -> SessionAnswer:
        """Send a request of a session to the active controller, whichever instance that is. Returns its answer, never
        NotController. The answer to a request that a bug of the controller has ended is Refused with InternalError.

        Calls may overlap. Heartbeats do not wait for other requests or for orders. The network does not repeat a
        request.

        Raises:
            ControllerUnreachable: no active controller can be reached, or it sent no answer. It may have carried the
                request out. The text has each address with its reason.
            NotAuthorized, ProtocolMismatch: for Register, if every controller has refused the link for that reason.
        """

    def send(self, message: "PeerMessage") -> None:
        """Send a message to another participant. Messages to one participant arrive in order, at most once, or not at
        all."""

    def registered(self, broker_epoch: int) -> None:
        """Receive all requests to the broker id from now on: this registration has replaced earlier ones.

        Controllers to which the link is open consider the broker linked under its incarnation, before and after this.

        Before this call the link receives requests as well if no other link with that id is open: a controller may
        know of a registration before the broker does.
        """

    def close(self) -> None:
        """Receive nothing any more, at once. May be called repeatedly."""


class SpectatorLink(Protocol):
    """The network as a spectator uses it."""

    async def watch(self, asked: Watch) -> RouteMessage:
        """Send a request to the active controller, whichever that is. Returns the response.

        Several calls may wait at a time. The response takes up to `wait_ms` longer than a round trip.

        Raises:
            ControllerUnreachable: no active controller was found, or it sent no response.
            KactlError: the controller cannot respond now; InternalError if a bug of it has ended the request.
        """


class ControllerPort(Protocol):
    """A controller instance, as its network calls it.

    An error that is no KactlError is a bug of the controller. The network logs it under an id, and returns the id to
    the sender of the request; see `ControlLink`.
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
        """Queue a request and wait; see `Ask`."""

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
        """Respond to a spectator; see `SpectatorLink`. Cancelling the call ends the wait."""


class ParticipantNetwork(Protocol):
    """The side of a `Network` that participants use.

    It verifies at each link that the sender may use the id or the name.
    """

    async def identify(self, request: Identify, *, controllers: Sequence[str] = ()) -> SessionAnswer:
        """Returns the active controller's answer about the id of a participant, which has no link yet.

        Raises:
            KactlError: what `ControlLink.session` raises.
        """

    def participant_side(
        self, port: ParticipantPort, *, controllers: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[ControlLink]:
        """Open a link for a registration of a participant, which is about to be made. The link is closed with the
        block.

        Args:
            controllers: addresses of the controllers, `host:port`, in addition to those that the network knows.

        Raises:
            BadRequest: the network does not use addresses, and some are given; or it needs them, and knows none.
        """


class SpectatorNetwork(Protocol):
    """The side of a `Network` that spectators use."""

    def spectator_side(self, *, controllers: Sequence[str] = ()) -> AbstractAsyncContextManager[SpectatorLink]:
        """Open a link for a spectator. The link is closed with the block.

        Args:
            controllers: their addresses, beside those that the network knows.
        """


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
