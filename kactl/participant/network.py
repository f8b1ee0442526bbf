"""Interfaces between participants and the network that they share with controllers and with each other.

    participant ── ParticipantPort ──▶ network: requests of controllers and messages of other participants arrive here
                ◀─── ControlLink ────           requests to controllers and messages to participants leave here

No side calls an object of another one: everything that crosses is a message, which may be late or lost.
"""

import enum
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.control import Request, Response
from kactl.decide.messages.following import PeerMessage
from kactl.decide.messages.sessions import SessionAnswer, SessionRequest
from kactl.model import Endpoint


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

    def receive(self, message: PeerMessage) -> None:
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

    def send(self, message: PeerMessage) -> None:
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


class ParticipantNetwork(Protocol):
    """The side of a `kactl.transports.base.Network` that participants use.

    A network through which participants get ids has a method `identify(request, *, controllers=())` besides. It returns
    the active controller's answer to an `Identify`, and raises what `ControlLink.session` raises. Such a network
    verifies that the sender may use the name, at each link.
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
