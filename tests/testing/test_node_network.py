"""Networks of nodes: what links of participants and spectators raise when a controller fails."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kactl.errors import ControllerUnreachable
from kactl.messages.admin import ControllerRequest
from kactl.messages.broker import ProducerIdsRequested
from kactl.messages.routes import RouteMessage, Watch
from kactl.messages.sessions import Heartbeat, SessionAnswer, SessionRequest
from kactl.participant.network import ControlLink, LinkState
from kactl.spectator.network import SpectatorLink
from kactl.testing import Schedule, SimLoop, on, sim
from kactl.testing.clock import LoopClock
from kactl.testing.contracts.link_support import ContractOffice, ContractPort
from kactl.testing.history import History
from kactl.testing.links import Links
from kactl.testing.network import Network
from kactl.testing.node_network import NodeNetwork
from kactl.testing.points import InjectedError

Call = Callable[[ControlLink, SpectatorLink], Awaitable[Any]]


class FailingOffice(ContractOffice):
    """A controller instance that fails at each request."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(100)
        self.clock = LoopClock(loop)  # type: ignore[assignment]

    async def ask(self, request: ControllerRequest) -> Any:
        raise InjectedError("ask before")

    async def session(self, request: SessionRequest, *, received_ns: int) -> SessionAnswer:
        raise InjectedError("session before")

    async def watch_routes(self, asked: Watch) -> RouteMessage:
        raise InjectedError("watch before")


@pytest.mark.parametrize(
    "call",
    [
        lambda link, spectator: link.session(Heartbeat(1, 41, 1)),
        lambda link, spectator: link.ask(ProducerIdsRequested(1, 41), controller=100),
        lambda link, spectator: spectator.watch(Watch()),
    ],
    ids=["session", "ask", "watch"],
)
def test_failed_controller_cannot_be_reached(call: Call) -> None:
    """The error of the run itself passed through the link, and ended the participant."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        history = History(lambda: loop.now_s * 1000)
        network = Network(loop, Links(loop, {"network": (1.0, 1.0)}))

        def view(name: str) -> NodeNetwork:
            node = loop.node(name)
            return NodeNetwork(network, node, history, controllers=["controller 100"], dial_ms=500.0)

        controller, broker = view("controller 100"), view("broker 1")

        async def participate() -> None:
            async with broker.participant_side(ContractPort(1, b"life")) as link, broker.spectator_side() as spectator:
                await asyncio.sleep(1)
                assert link.state is LinkState.OPEN
                with pytest.raises(ControllerUnreachable, match=r"controller 100: .* before"):
                    await call(link, spectator)

        with on(controller.node):
            async with controller.controller_side(FailingOffice(loop)):
                await loop.start(broker.node, participate())

    sim.run(main, schedule=Schedule("fifo"))
