"""Interfaces between spectators and the network that connects them with controllers."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from kactl.decide.messages.routes import RouteMessage, Watch


class SpectatorLink(Protocol):
    """The network as a spectator uses it."""

    async def watch(self, asked: Watch) -> RouteMessage:
        """Send a request to the active controller, whichever that is. Returns the response.

        Several calls may wait at a time. The response takes up to `wait_ms` longer than a round trip.

        Raises:
            ControllerUnreachable: no active controller was found, or it sent no response.
            KactlError: the controller cannot respond now; InternalError if a bug of it has ended the request.
        """


class SpectatorNetwork(Protocol):
    """The side of a `kactl.transports.base.Network` that spectators use."""

    def spectator_side(self, *, controllers: Sequence[str] = ()) -> AbstractAsyncContextManager[SpectatorLink]:
        """Open a link for a spectator. The link is closed with the block.

        Args:
            controllers: their addresses, beside those that the network knows.
        """
