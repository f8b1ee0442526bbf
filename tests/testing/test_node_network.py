"""Networks of nodes: bugs of a program arrive at the other side as over real networks."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.broker import AllocateProducerIds
from kactl.decide.messages.control import Request, Response
from kactl.decide.messages.routes import RouteMessage, Watch
from kactl.decide.messages.sessions import Heartbeat, Identified, Identify, Refused, SessionAnswer, SessionRequest
from kactl.model import NO_BROKER, Broker
from kactl.model.errors import BrokerUnreachable, ControllerUnreachable, InternalError, KactlError
from kactl.testing import Schedule, SimLoop, on, sim
from kactl.testing.clock import LoopClock
from kactl.testing.contracts.link_support import ContractOffice, ContractPort
from kactl.testing.contracts.network import UPDATE
from kactl.testing.history import History
from kactl.testing.links import Links
from kactl.testing.network import Network
from kactl.transports.base import ControlLink, LinkState, SpectatorLink
from tests.sim.engine.linked_network import LinkedNetwork
from tests.sim.engine.points import InjectedError

Call = Callable[[ControlLink, SpectatorLink], Awaitable[Any]]
ERRORS = [InjectedError("ask before"), ZeroDivisionError("a bug")]


class FailingOffice(ContractOffice):
    """A controller instance that fails at each request."""

    def __init__(self, loop: SimLoop, error: Exception) -> None:
        super().__init__(100)
        self.clock = LoopClock(loop)  # type: ignore[assignment]
        self._error = error

    async def ask(self, request: ControllerRequest) -> Any:
        raise self._error

    async def session(self, request: SessionRequest, *, received_ns: int) -> SessionAnswer:
        raise self._error

    async def watch_routes(self, asked: Watch) -> RouteMessage:
        raise self._error


class View:
    """Networks of one controller and one broker, between which messages take a millisecond."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        self._history = History(lambda: loop.now_s * 1000)
        self._network = Network(loop, Links(loop, {"network": (1.0, 1.0)}))
        self.controller, self.broker = self._of("controller 100"), self._of("broker 1")

    def _of(self, name: str) -> LinkedNetwork:
        node = self.loop.node(name)
        return LinkedNetwork(self._network, node, self._history, controllers=["controller 100"], dial_ms=500.0)


@contextmanager
def logged(caplog: pytest.LogCaptureFixture, error: Exception) -> Iterator[Callable[[str], None]]:
    """Yields a function that asserts that a text has nothing but the id of the only error in the log."""
    caplog.clear()

    def check(text: str) -> None:
        error_id = text.rpartition(" ")[2]
        (record,) = [record for record in caplog.records if f"[error {error_id}]" in record.getMessage()]
        assert record.exc_info is not None
        assert record.exc_info[1] is error
        assert str(error) not in text

    yield check


@pytest.mark.parametrize("error", ERRORS, ids=["injected", "bug"])
@pytest.mark.parametrize(
    "call",
    [
        lambda link, spectator: link.ask(AllocateProducerIds(1, 41), controller=100),
        lambda link, spectator: spectator.watch(Watch()),
    ],
    ids=["ask", "watch"],
)
def test_bug_of_the_controller_arrives_as_its_id(
    call: Call, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        view = View()

        async def participate() -> None:
            async with (
                view.broker.participant_side(ContractPort(1, b"life")) as link,
                view.broker.spectator_side() as spectator,
            ):
                await asyncio.sleep(1)
                with logged(caplog, error) as check, pytest.raises(InternalError) as raised:
                    await call(link, spectator)
                check(str(raised.value))

        with on(view.controller.node):
            async with view.controller.controller_side(FailingOffice(view.loop, error)):
                await view.loop.start(view.broker.node, participate())

    sim.run(main, schedule=Schedule("fifo"))


@pytest.mark.parametrize("active", [100, 101])
def test_controller_on_a_node_gives_an_id_if_it_is_active(active: int) -> None:
    async def main() -> None:
        view = View()
        office = ContractOffice(100, active=active)
        office.clock = LoopClock(view.loop)  # type: ignore[assignment]

        async def participate() -> None:
            request = Identify(NO_BROKER, "worker-3", b"12 bytes: id")
            if active == 100:
                assert await view.broker.identify(request) == Identified(office.given)
            else:
                with pytest.raises(ControllerUnreachable, match="controller 100 is not active"):
                    await view.broker.identify(request)

        with on(view.controller.node):
            async with view.controller.controller_side(office):
                await view.loop.start(view.broker.node, participate())

    sim.run(main, schedule=Schedule("fifo"))


@pytest.mark.parametrize("error", ERRORS, ids=["injected", "bug"])
def test_bug_of_the_controller_refuses_a_request_of_a_session(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        view = View()

        async def participate() -> None:
            async with view.broker.participant_side(ContractPort(1, b"life")) as link:
                await asyncio.sleep(1)
                with logged(caplog, error) as check:
                    answer = await link.session(Heartbeat(1, 41, 1))
                assert isinstance(answer, Refused)
                assert answer.error == InternalError.__name__
                check(answer.reason)
                assert link.state is LinkState.OPEN

        with on(view.controller.node):
            async with view.controller.controller_side(FailingOffice(view.loop, error)):
                await view.loop.start(view.broker.node, participate())

    sim.run(main, schedule=Schedule("fifo"))


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a bug"), KactlError("not for a controller")], ids=["bug", "of kactl"]
)
def test_bug_of_a_participant_makes_it_unreachable(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        view = View()

        async def fail(request: Request) -> Response:
            raise error

        async def participate() -> None:
            port = ContractPort(1, b"life")
            port.respond = fail
            async with view.broker.participant_side(port):
                await asyncio.sleep(10)

        participant = view.loop.start(view.broker.node, participate())
        with on(view.controller.node):
            async with view.controller.controller_side(ContractOffice(100)) as transport:
                await asyncio.sleep(1)
                with logged(caplog, error) as check, pytest.raises(BrokerUnreachable) as raised:
                    await transport.connect(Broker(1, 41)).deliver(UPDATE)
                check(str(raised.value))
        await participant

    sim.run(main, schedule=Schedule("fifo"))
