"""The transport of a controller to the participants that are linked to it."""

import anyio

from kactl.decide.messages.control import Request, Response
from kactl.model import Broker
from kactl.model.errors import BrokerUnreachable, MalformedMessage
from kactl.transports.tcp import wire

from .controller_links import ControllerLinks
from .framing import Kind, Message
from .lanes import LaneFull
from .link import LinkClosed


class TcpTransport:
    """See `Transport`."""

    def __init__(self, links: ControllerLinks) -> None:
        self._links = links

    def connect(self, broker: Broker) -> "TcpConnection":
        return TcpConnection(self._links, broker)


class TcpConnection:
    """Requests to one registration of one broker, over whichever link it has at the time."""

    def __init__(self, links: ControllerLinks, broker: Broker) -> None:
        self._links = links
        self._broker = broker
        self._is_closed = False
        self._waits: anyio.CancelScope | None = None

    async def deliver(self, request: Request) -> Response:
        """See `Connection`. Cancelling the call does not close the link, which others use; the response is ignored."""
        if self._is_closed:
            raise self._unreachable("the connection was closed: open a new one")
        link = self._links.find(self._broker)
        limit_ms = self._links.limits.request_ms
        answer: Message | None = None
        with anyio.move_on_after(limit_ms / 1000) as self._waits:
            try:
                answer = await link.request(Kind.ORDER, wire.encode_pieces(request))
            except (LinkClosed, LaneFull) as error:
                raise self._unreachable(str(error)) from error
        if answer is None:
            reason = "the connection was closed" if self._is_closed else f"no response within {limit_ms} ms"
            raise self._unreachable(f"{reason} (limits.request_ms)")
        try:
            if answer.error:
                raise self._unreachable(str(wire.decode(answer.head, wire.ERRORS)))
            response: Response = wire.decode(answer.head, wire.RESPONSES)
        except MalformedMessage as error:
            link.abort(str(error))
            raise self._unreachable(f"what it sent is no response: {error}") from error
        return response

    async def close(self) -> None:
        """See `Connection`. A request that is in flight fails."""
        self._is_closed = True
        if self._waits is not None:
            self._waits.cancel()

    def _unreachable(self, reason: str) -> BrokerUnreachable:
        return BrokerUnreachable(self._broker.id, reason)
