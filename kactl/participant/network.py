"""Interfaces between participants and the network that they share with controllers and with each other.

    participant ── ParticipantPort ──▶ network: requests of controllers and messages of other participants arrive here
                ◀─── ControlLink ────           requests to controllers and messages to participants leave here

No side calls an object of another one: everything that crosses is a message, which may be late or lost.
"""

import enum
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from kactl.errors import BadRequest
from kactl.messages import arguments
from kactl.messages.admin import ControllerRequest
from kactl.messages.control import Request, Response
from kactl.messages.following import PeerMessage


class LinkState(enum.Enum):
    """State of a participant's link."""

    OPEN = "open"
    CLOSED = "closed"


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

    async def ask(self, request: ControllerRequest, *, controller: int) -> Any:
        """Send a request to a controller instance. Returns the response that the type of `request` documents.

        Raises:
            ControllerUnreachable: the instance cannot be reached, or sent no response. It may have carried the request
                out.
            KactlError: the controller has rejected the request; NotController if it is not active any more.
        """

    def send(self, message: PeerMessage) -> None:
        """Send a message to another participant. Messages to one participant arrive in order, at most once, or not at
        all."""

    def registered(self, broker_epoch: int) -> None:
        """Receive all requests to the broker id from now on: this registration has replaced earlier ones.

        Before this call the link receives requests as well if no other link with that id is open: a controller may
        know of a registration before the broker does.
        """

    def close(self) -> None:
        """Receive nothing any more, at once. May be called repeatedly."""


class ParticipantNetwork(Protocol):
    """The side of a `kactl.transports.base.Network` that participants use."""

    def participant_side(self, port: ParticipantPort) -> AbstractAsyncContextManager[ControlLink]:
        """Open a link for a registration of a participant, which is about to be made. The link is closed with the
        block."""


def one_network(hub: ParticipantNetwork | None, network: ParticipantNetwork | None) -> ParticipantNetwork:
    """Returns the one of two arguments that is given.

    Raises:
        BadRequest: both are given, or none.
    """
    if hub is not None and network is not None:
        raise BadRequest("network", "is given beside hub: give one of them")
    given = network if hub is None else hub
    arguments.implements(given, ParticipantNetwork, "network")
    if given is None:
        raise BadRequest("network", "is missing: give hub=controller.hub for one process, or a network")
    return given
