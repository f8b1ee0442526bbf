"""Network between the nodes of a simulated cluster: requests and responses over links of kind `network`.

Controllers reach participants by a transport, and participants reach controllers by a hub; each node has its own view
of both. What the receiver does runs on its own node.

Participants of one process read each other's replicas through the hub. Here they can do so if the two nodes run and no
cut separates them; this needs no time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kactl.errors import BrokerUnreachable, ControllerUnreachable
from kactl.messages.admin import ControllerRequest
from kactl.messages.control import Request, Response
from kactl.model import Broker
from kactl.participant.hub import Ask, Handler

from ..links import Links
from ..nodes import NODE, Node

KIND: Final = "network"
# Time limit of a response. A controller waits for it before it sends the next request to the same broker.
TIMEOUT_MS: Final = 2_000.0


class SimNetwork:
    """All participants and controllers, by id, each with the node that it runs on."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.handlers: dict[int, tuple[Handler, Node]] = {}
        self.controllers: dict[int, tuple[Ask, Node]] = {}

    def are_connected(self, one: Node, other: Node) -> bool:
        """Returns whether two nodes run, and no cut separates them."""
        if one is other:
            return True
        channels = (self._channel(one.name, other.name), self._channel(other.name, one.name))
        return one.state == other.state == "running" and not any(channel.is_cut for channel in channels)

    async def call(
        self,
        source: Node,
        target: str,
        find: Callable[[], tuple[Callable[[], Awaitable[Any]], Node] | None],
        unreachable: Callable[[str], Exception],
    ) -> Any:
        """Run a function on another node. Returns its result, or raises its error.

        Args:
            target: name of the node.
            find: called when the request arrives; returns the function, and the node that it belongs to.
            unreachable: returns the error for a request or a response that was lost.
        """
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Any] = loop.create_future()
        back = self._channel(target, source.name)

        def answer(result: Any, error: Exception | None) -> None:
            if answered.done():
                return
            answered.set_result(result) if error is None else answered.set_exception(error)

        async def run(function: Callable[[], Awaitable[Any]]) -> None:
            result, failure = None, None
            try:
                result = await function()
            except Exception as error:
                failure = error
            back.send(lambda: answer(result, failure), to=source)

        def arrive() -> None:
            found = find()
            if found is None:
                back.send(lambda: answer(None, unreachable("nothing listens there")), to=source)
            elif found[1].state == "running":
                self.links.call_at(self.links.loop.now_s, lambda: loop.create_task(run(found[0])), on=found[1])

        self._channel(source.name, target).send(arrive, to=None)
        late = loop.call_later(TIMEOUT_MS / 1000, answer, None, unreachable(f"no response within {TIMEOUT_MS:g} ms"))
        try:
            return await answered
        finally:
            late.cancel()

    def _channel(self, source: str, target: str) -> Any:
        return self.links.channel(KIND, source, target)


class NodeHub:
    """The `Hub` of one node."""

    def __init__(self, network: SimNetwork, node: Node) -> None:
        self._network = network
        self._node = node

    def attach(self, broker: int, handler: Handler) -> None:
        self._network.handlers[broker] = (handler, self._node)

    def detach(self, broker: int, handler: Handler) -> None:
        if self._network.handlers.get(broker, (None,))[0] is handler:
            del self._network.handlers[broker]

    def find(self, broker: int) -> Handler | None:
        handler, node = self._network.handlers.get(broker, (None, self._node))
        return handler if self._network.are_connected(self._node, node) else None

    def attach_controller(self, controller: int, ask: Ask) -> None:
        self._network.controllers[controller] = (ask, self._node)

    def detach_controller(self, controller: int, ask: Ask) -> None:
        if self._network.controllers.get(controller, (None,))[0] == ask:
            del self._network.controllers[controller]

    def controller(self, controller: int) -> Ask | None:
        if controller not in self._network.controllers:
            return None
        return RemoteController(self._network, self._node, controller)


class RemoteController:
    """Function that sends requests to a controller on another node; see `Ask`."""

    def __init__(self, network: SimNetwork, node: Node, controller: int) -> None:
        self._network = network
        self._node = node
        self._controller = controller

    async def __call__(self, request: ControllerRequest, /) -> Any:
        def find() -> tuple[Callable[[], Awaitable[Any]], Node] | None:
            found = self._network.controllers.get(self._controller)
            return None if found is None else (lambda: found[0](request), found[1])

        return await self._network.call(self._node, f"controller {self._controller}", find, ControllerUnreachable)


class SimTransport:
    """The `Transport` of one controller."""

    def __init__(self, network: SimNetwork) -> None:
        self._network = network

    def connect(self, broker: Broker) -> "SimConnection":
        return SimConnection(self._network, broker.id)


class SimConnection:
    """Connection of a controller to one broker."""

    def __init__(self, network: SimNetwork, broker: int) -> None:
        self._network = network
        self._broker = broker
        self._is_closed = False

    async def deliver(self, request: Request) -> Response:
        if self._is_closed:
            raise BrokerUnreachable(self._broker, "the connection was closed: open a new one")
        node = NODE.get()
        assert node is not None, "a controller runs on a node"

        def find() -> tuple[Callable[[], Awaitable[Any]], Node] | None:
            found = self._network.handlers.get(self._broker)
            return None if found is None else (lambda: found[0].handle(request), found[1])

        def unreachable(reason: str) -> Exception:
            return BrokerUnreachable(self._broker, reason)

        response: Response = await self._network.call(node, f"node {self._broker}", find, unreachable)
        return response

    async def close(self) -> None:
        self._is_closed = True
