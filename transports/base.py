"""Protocol of all transports.

A transport opens connections, each to one registration of one broker. A connection delivers one request at a time and
returns its response. The transport itself never sends a request twice: the channel decides whether to retry. One
contract suite runs over every transport.
"""

from typing import Protocol

from kactl.messages.control import Request, Response
from kactl.model import Broker


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
