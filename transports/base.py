"""What every transport promises.

A transport makes a connection to one registration of one broker. A connection delivers one request at a time and
brings its answer. Nothing is sent twice by the transport itself: whether to try again is for the channel to decide.
One contract suite runs over every transport.
"""

from typing import Protocol

from kactl.messages.control import Request, Response
from kactl.model import Broker


class Connection(Protocol):
    """A way to one broker. Connects on the first delivery, and again on the first one after a failure."""

    async def deliver(self, request: Request) -> Response:
        """Send `request` and wait for its answer. Called by one task at a time.

        Cancelling it closes the connection; the broker may or may not have acted on the request.

        Raises:
            BrokerUnreachable: it could not be sent, no answer came within the transport's time limit, or what came
                was no answer. The broker may have acted on it. The connection is closed and can be used again.
        """

    async def close(self) -> None:
        """Give up the connection. Nothing can be delivered afterwards."""


class Transport(Protocol):
    """How brokers are reached."""

    def connect(self, broker: Broker) -> Connection:
        """A connection to that registration. No I/O happens yet."""
