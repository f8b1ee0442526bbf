"""How participants of one process are found: by transports, and by one another."""

from typing import Protocol

from kactl.wire import Request, Response


class Handler(Protocol):
    """Whoever answers requests under a broker id."""

    async def handle(self, request: Request) -> Response:
        """Carry out `request` and answer it; requests are carried out in the order in which they came, one at a time.

        A caller that gives up does not take its request back.

        Raises:
            BrokerUnreachable: it ended before it could answer.
        """


class Hub(Protocol):
    """Broker id -> handler. One hub is one network: who is attached to it can be reached over it."""

    def attach(self, broker: int, handler: Handler) -> None:
        """Answer under that id from now on; whoever answered under it before does so no more."""

    def detach(self, broker: int, handler: Handler) -> None:
        """Answer no more under that id, if this handler still does."""

    def find(self, broker: int) -> Handler | None:
        """Who answers under that id now."""
