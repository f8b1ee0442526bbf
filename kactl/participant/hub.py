"""How participants and controllers of one process are found: by transports, and by one another."""

from typing import Any, Protocol

from kactl.messages.admin import ControllerRequest
from kactl.messages.control import Request, Response


class Handler(Protocol):
    """Whoever answers requests under a broker id."""

    async def handle(self, request: Request) -> Response:
        """Carry out `request` and answer it; requests are carried out in the order in which they came, one at a time.

        A caller that gives up does not take its request back.

        Raises:
            BrokerUnreachable: it ended before it could answer.
        """


class Ask(Protocol):
    """The way to a controller."""

    async def __call__(self, asked: ControllerRequest, /) -> Any:
        """Leave a request, and wait for what its kind says is the answer.

        A caller that gives up does not take its request back.

        Raises:
            NotController: it is not the controller, or no longer.
            KactlError: it has refused the request, or takes none now; the kind of the request says why.
        """


class Hub(Protocol):
    """One hub is one network: who is attached to it can be reached over it.

    Broker id -> handler, and controller id -> the way to that controller.
    """

    def attach(self, broker: int, handler: Handler) -> None:
        """Answer under that id from now on; whoever answered under it before does so no more."""

    def detach(self, broker: int, handler: Handler) -> None:
        """Answer no more under that id, if this handler still does."""

    def find(self, broker: int) -> Handler | None:
        """Who answers under that id now."""

    def attach_controller(self, controller: int, ask: Ask) -> None:
        """A controller instance runs under that id, active or not; an earlier one of the id is asked no more."""

    def detach_controller(self, controller: int, ask: Ask) -> None:
        """It runs no more, if this is still the way to it."""

    def controller(self, controller: int) -> Ask | None:
        """The way to the controller instance of that id; None if none runs on this network."""
