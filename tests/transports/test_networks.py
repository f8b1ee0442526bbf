"""Networks between controllers and participants: the choice of the network, and links of participants."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

import kactl
from kactl.decide.messages.admin import ControllerRequest, UndrainBroker
from kactl.decide.messages.control import Request, Response, UpdateMetadataResponse
from kactl.decide.messages.following import FollowerReportsRequested, PeerMessage
from kactl.decide.messages.routes import RouteMessage, Watch
from kactl.decide.messages.sessions import (
    Granted,
    Heartbeat,
    Identify,
    NotController,
    ParticipantLink,
    SessionAnswer,
    SessionRequest,
)
from kactl.model import Broker, TopicPartition
from kactl.model.errors import BadRequest, BrokerNotAvailable, ControllerUnreachable, IllegalState
from kactl.runtime.budget import Budget
from kactl.telemetry.attempts import Attempt
from kactl.transports.base import (
    ControllerPort,
    ControlLink,
    LinkState,
    Network,
    ParticipantPort,
    SpectatorLink,
    Transport,
)
from kactl.transports.memory import MemoryHub, MemoryTransport
from tests.support.clocks import ManualClock, settle
from tests.support.control_requests import update_metadata

pytestmark = pytest.mark.anyio

MESSAGE = FollowerReportsRequested(1, 2, 0, 0)


class Port:
    """Participant that answers with its name as the error code."""

    def __init__(self, broker: int, name: int = 0) -> None:
        self.broker = broker
        self.name = name
        self.incarnation = b""
        self.claim = str(broker)
        self.received: list[PeerMessage] = []

    async def why_foreign(self, controller: int, epoch: int) -> str:
        raise AssertionError

    def link_changed(self, state: LinkState, reason: str = "") -> None:
        raise AssertionError(f"the link became {state}")

    async def handle(self, request: Request) -> Response:
        return UpdateMetadataResponse(error=self.name)

    def receive(self, message: PeerMessage) -> None:
        self.received.append(message)


async def answer_of(hub: MemoryHub, broker: int) -> int:
    response = await MemoryTransport(hub).connect(Broker(broker, 0)).deliver(update_metadata())
    return response.error


# -- links -------------------------------------------------------------------------------------------------------------


async def test_message_reaches_the_participant_that_it_names() -> None:
    hub, one, two, three = MemoryHub(), Port(1), Port(2), Port(3)
    async with hub.participant_side(one) as link, hub.participant_side(two), hub.participant_side(three):
        link.send(MESSAGE)

    assert (one.received, two.received, three.received) == ([], [MESSAGE], [])
    link.send(MESSAGE)
    assert two.received == [MESSAGE]


async def test_message_to_an_absent_participant_is_lost() -> None:
    hub = MemoryHub()
    async with hub.participant_side(Port(1)) as link:
        link.send(MESSAGE)


async def test_requests_reach_the_later_registration_once_it_is_made() -> None:
    hub, earlier, later = MemoryHub(), Port(1, 11), Port(1, 22)
    async with hub.participant_side(earlier) as link, hub.participant_side(later) as other:
        assert await answer_of(hub, 1) == 11  # a controller may know of a registration before the broker does

        other.registered(7)
        assert await answer_of(hub, 1) == 22

        link.close()
        assert await answer_of(hub, 1) == 22
        assert (link.state, other.state) == (LinkState.CLOSED, LinkState.OPEN)


async def test_closed_link_receives_nothing() -> None:
    hub = MemoryHub()
    async with hub.participant_side(Port(1)) as link:
        link.close()
        link.registered(7)

        with pytest.raises(kactl.KactlError, match="no participant with that id"):
            await answer_of(hub, 1)


async def test_controller_is_reached_until_it_stops() -> None:
    hub = MemoryHub()
    async with hub.participant_side(Port(1)) as link:
        async with kactl.Controller(7, hub=hub) as controller:
            await controller.wait_active()
            with pytest.raises(BrokerNotAvailable):
                await link.ask(UndrainBroker(1), controller=7)

        with pytest.raises(ControllerUnreachable, match="no controller with that id"):
            await link.ask(UndrainBroker(1), controller=7)


class ControllerLinks:
    """Controller instance that records links and requests of sessions. It is active if it has an answer."""

    def __init__(self, node_id: int, answer: SessionAnswer | None = None) -> None:
        self.node_id = node_id
        self.clock = ManualClock()
        self.answer = answer or NotController()
        self.links: list[tuple[int, bytes] | str] = []
        self.received: list[tuple[SessionRequest, int]] = []
        self.budget = Budget(lambda: 0.0, lambda: 0.0)

    def attempted(self, attempt: Attempt) -> None:
        raise AssertionError

    async def ask(self, request: ControllerRequest) -> Any:
        raise AssertionError

    def standby(self) -> NotController | None:
        return self.answer if isinstance(self.answer, NotController) else None

    def active_term(self) -> tuple[int, int]:
        raise AssertionError

    async def session(self, request: SessionRequest, *, received_ns: int) -> SessionAnswer:
        self.received.append((request, received_ns))
        return self.answer

    async def watch_routes(self, asked: Watch) -> RouteMessage:
        raise AssertionError

    def link_opened(self, link: ParticipantLink) -> None:
        self.links.append((link.broker, link.incarnation))

    def endpoint_failed(self, link: ParticipantLink, reason: str) -> None:
        raise AssertionError

    def link_closed(self, link: ParticipantLink, reason: str) -> None:
        self.links.append(f"{link.broker} closed: {reason}")


async def test_controllers_learn_of_links_that_open_before_and_after_they_start() -> None:
    hub, office, one, two = MemoryHub(), ControllerLinks(7), Port(1), Port(2)
    one.incarnation, two.incarnation = b"1", b"2"
    async with hub.participant_side(one), hub.controller_side(office), hub.participant_side(two) as link:
        assert office.links == [(1, b"1"), (2, b"2")]

        link.close()
        link.close()

        assert office.links[2:] == ["2 closed: the participant has closed it"]
    assert len(office.links) == 3


async def test_request_of_a_session_reaches_the_active_controller() -> None:
    hub, standby, active = MemoryHub(), ControllerLinks(7), ControllerLinks(8, Granted(3, 6_000, 1))
    await active.clock.advance(5)
    async with hub.controller_side(standby), hub.participant_side(Port(1)) as link:
        with pytest.raises(ControllerUnreachable, match="controller 7 is not active"):
            await link.session(Heartbeat(1, 41, 3))

        async with hub.controller_side(active):
            assert await link.session(Heartbeat(1, 41, 3)) == Granted(3, 6_000, 1)
            assert active.received == [(Heartbeat(1, 41, 3), active.clock.lease_ns())]

    with pytest.raises(ControllerUnreachable, match="no controller runs"):
        await link.session(Heartbeat(1, 41, 4))


# -- choice of the network ---------------------------------------------------------------------------------------------


class OwnNetwork:
    """A network that is not a `MemoryHub`; it records its controllers and participants."""

    def __init__(self) -> None:
        self.inner = MemoryHub()
        self.sides: list[str] = []

    @contextmanager
    def _open(self, side: str) -> Iterator[None]:
        self.sides.append(f"{side} opens")
        yield
        self.sides.append(f"{side} closes")

    @asynccontextmanager
    async def controller_side(self, port: ControllerPort) -> AsyncIterator[Transport]:
        with self._open(f"controller {port.node_id}"):
            async with self.inner.controller_side(port) as transport:
                yield transport

    async def identify(self, request: Identify, *, controllers: Sequence[str] = ()) -> SessionAnswer:
        return await self.inner.identify(request, controllers=controllers)

    @asynccontextmanager
    async def participant_side(
        self, port: ParticipantPort, *, controllers: Sequence[str] = ()
    ) -> AsyncIterator[ControlLink]:
        with self._open(f"participant {port.broker}"):
            async with self.inner.participant_side(port, controllers=controllers) as link:
                yield link

    @asynccontextmanager
    async def spectator_side(self, *, controllers: Sequence[str] = ()) -> AsyncIterator[SpectatorLink]:
        with self._open("spectator"):
            async with self.inner.spectator_side() as link:
                yield link


@pytest.mark.parametrize("network", [OwnNetwork(), MemoryHub()], ids=["own", "hub"])
async def test_cluster_runs_over_the_given_network(network: Network) -> None:
    clock = ManualClock()
    async with (
        kactl.Controller(100, network=network, clock=clock) as controller,
        kactl.Participants(3, store=controller.store, network=network, clock=clock) as brokers,
    ):
        await settle()
        await controller.create_topic("orders", partitions=1, replication_factor=3)
        await settle()

        view = controller.partition("orders-0")
        assert view is not None
        assert sorted(view.isr) == [1, 2, 3]
        assert brokers[1].leader(TopicPartition("orders", 0)) == view.leader
    if isinstance(network, OwnNetwork):
        opened = [f"{side} opens" for side in ("controller 100", "participant 1", "participant 2", "participant 3")]
        assert network.sides[:4] == opened
        assert sorted(network.sides[4:]) == [side.replace("opens", "closes") for side in opened]
        with pytest.raises(IllegalState, match="pass it on as network="):
            _ = controller.hub
    else:
        assert controller.hub is network


def test_hub_and_network_exclude_each_other() -> None:
    both: Any = {"hub": MemoryHub(), "network": MemoryHub()}
    makers = (
        lambda: kactl.Controller(1, **both),
        lambda: kactl.Participant(1, store=kactl.MemoryStore(), **both),
        lambda: kactl.Participants(1, store=kactl.MemoryStore(), **both),
    )
    for make in makers:
        with pytest.raises(BadRequest) as refused:
            make()
        assert refused.value.field == "network"


def test_participant_without_a_network_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"hub=controller\.hub"):
        kactl.Participant(1, store=kactl.MemoryStore())


def test_controller_makes_a_hub_of_its_own() -> None:
    hub = MemoryHub()

    assert kactl.Controller(1, hub=hub).hub is hub
    assert kactl.Controller(1).hub is not kactl.Controller(1).hub


async def test_participant_leaves_the_network_with_its_registration(clock: ManualClock) -> None:
    network = OwnNetwork()
    async with kactl.MemoryStore(clock=clock) as store:
        options: Any = {"store": store, "network": network, "clock": clock, "shutdown_attempts": 0}
        async with kactl.Participant(1, **options) as participant:
            await participant.restart()
            await participant.kill()
            assert network.sides == ["participant 1 opens", "participant 1 closes"] * 2
