"""Interfaces through which the participants and controllers of one process find each other."""

from typing import Any, Protocol

from kactl.messages.admin import ControllerRequest
from kactl.messages.control import Request, Response


class Handler(Protocol):
    """Handler of the requests to one broker id."""

    async def handle(self, request: Request) -> Response:
        """Carry out a request. Returns the response.

        Requests are carried out one at a time, in the order of the calls. Cancelling the call does not cancel the
        request.

        Raises:
            BrokerUnreachable: the broker ended before it sent a response.
        """


class Ask(Protocol):
    """Function that sends a request to a controller."""

    async def __call__(self, request: ControllerRequest, /) -> Any:
        """Queue a request and wait. Returns the response that the type of the request documents.

        Cancelling the call does not cancel the request.

        Raises:
            NotController: the instance is not the active controller, or not any more.
            KactlError: the controller has rejected the request, or accepts none now; see the type of the request.
        """


class Hub(Protocol):
    """One network: a registry of broker id -> handler, and of controller id -> function that sends it requests."""

    def attach(self, broker: int, handler: Handler) -> None:
        """Register the handler of a broker id; it replaces an earlier one."""

    def detach(self, broker: int, handler: Handler) -> None:
        """Remove the handler of a broker id, unless another handler has replaced it."""

    def find(self, broker: int) -> Handler | None:
        """Returns the handler of a broker id."""

    def attach_controller(self, controller: int, ask: Ask) -> None:
        """Register a controller instance, active or not; it replaces an earlier one of the same id."""

    def detach_controller(self, controller: int, ask: Ask) -> None:
        """Remove a controller instance, unless another one has replaced it."""

    def controller(self, controller: int) -> Ask | None:
        """Returns the function that sends requests to a controller instance; None if none runs on this network."""
