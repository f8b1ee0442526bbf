"""Verification of the address in a session with the store, when controllers do not answer, refuse it, and change."""

from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kactl.decide.messages.sessions import EndpointVerified, Refused, SessionAnswer, SessionRequest, VerifyEndpoint
from kactl.model import Endpoint
from kactl.model.errors import ControllerUnreachable, EndpointUnreachable, InternalError
from kactl.participant.own_endpoint import VERIFY_MS, OwnEndpoint
from kactl.participant.own_link import OwnLink
from kactl.transports.base import LinkState
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

INCARNATION = bytes(range(16))
PEER = Endpoint("PEER", "10.0.0.3", 7373)
REQUEST = VerifyEndpoint(3, INCARNATION, PEER)
REFUSED = Refused("EndpointUnreachable", "10.0.0.3:7373: participant 3 was not found there")


class Network:
    """A network with one link, whose controller gives one answer after the other, or raises it."""

    def __init__(self, *answers: SessionAnswer | Exception) -> None:
        self.own = OwnLink()
        self.state = LinkState.OPEN
        self.answers = list(answers)
        self.sent: list[SessionRequest] = []

    @asynccontextmanager
    async def participant_side(self, port: Any, *, controllers: Sequence[str] = ()) -> Any:
        yield self

    async def session(self, request: SessionRequest) -> SessionAnswer:
        self.sent.append(request)
        if not self.answers:
            await anyio.sleep_forever()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def set(self, state: LinkState) -> None:
        self.state = state
        self.own.changed()


async def advertised(network: Network, clock: ManualClock, peer: Endpoint | None = PEER) -> OwnEndpoint:
    await network.own.connect(network, None, ())  # type: ignore[arg-type]
    return OwnEndpoint(3, INCARNATION, peer, network.own, clock)


async def test_participant_without_an_address_sends_nothing() -> None:
    network = Network()

    endpoint = await advertised(network, ManualClock(), None)
    await endpoint.verify_if_linked()

    assert endpoint.is_verified
    assert network.sent == []


async def test_address_that_was_found_is_verified_once_over_each_link() -> None:
    network = Network(EndpointVerified(5), EndpointVerified(6))
    endpoint = await advertised(network, ManualClock())

    await endpoint.verify_if_linked()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(endpoint.run)
        await settle()
        assert network.sent == [REQUEST]

        network.set(LinkState.CONNECTING)
        await settle()
        assert not endpoint.is_verified
        network.set(LinkState.OPEN)
        await settle()
        assert network.sent == [REQUEST, REQUEST]
        assert endpoint.is_verified
        tasks.cancel_scope.cancel()


async def test_address_of_a_session_with_the_controller_is_verified_over_later_links() -> None:
    network = Network(EndpointVerified(6))
    own = network.own
    await own.connect(network, None, ())  # type: ignore[arg-type]
    endpoint = OwnEndpoint(3, INCARNATION, PEER, own, ManualClock(), is_verified=True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(endpoint.run)
        await settle()
        assert network.sent == []

        network.set(LinkState.CONNECTING)
        await settle()
        network.set(LinkState.OPEN)
        await settle()
        assert network.sent == [REQUEST]
        tasks.cancel_scope.cancel()


async def test_refused_address_is_an_error_before_the_registration() -> None:
    endpoint = await advertised(Network(REFUSED), ManualClock())

    with pytest.raises(EndpointUnreachable, match=r"^10\.0\.0\.3:7373: participant 3 was not found there$") as raised:
        await endpoint.verify_if_linked()

    assert (raised.value.host, raised.value.port) == ("10.0.0.3", 7373)


@pytest.mark.parametrize(
    "answer", [ControllerUnreachable("it has resigned"), Refused.of(InternalError("0a1b"))], ids=["gone", "bug"]
)
async def test_closed_link_and_failing_controller_do_not_prevent_a_registration(
    answer: SessionAnswer | Exception,
) -> None:
    network = Network(answer)
    endpoint = await advertised(network, ManualClock())

    network.set(LinkState.CONNECTING)
    await endpoint.verify_if_linked()
    assert network.sent == []

    network.set(LinkState.OPEN)
    await endpoint.verify_if_linked()
    assert network.sent == [REQUEST]
    assert not endpoint.is_verified


async def test_controller_that_hangs_does_not_prevent_a_registration() -> None:
    clock, done = ManualClock(), anyio.Event()
    endpoint = await advertised(Network(), clock)

    async def register() -> None:
        await endpoint.verify_if_linked()
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(register)
        await clock.advance(VERIFY_MS - 1)
        assert not done.is_set()
        await clock.advance(1)
        assert done.is_set()


async def test_refused_address_of_a_registration_is_verified_by_the_next_controller() -> None:
    clock = ManualClock()
    network = Network(ControllerUnreachable("the link was lost"), REFUSED, EndpointVerified(6))
    network.state = LinkState.CONNECTING
    endpoint = await advertised(network, clock)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(endpoint.run)
        await settle()
        assert network.sent == []

        network.set(LinkState.OPEN)
        await settle()
        await clock.advance(500)
        assert len(network.sent) == 2
        await clock.advance(VERIFY_MS)
        assert len(network.sent) == 2  # the controller shows it, and is not asked again

        network.set(LinkState.CONNECTING)
        await settle()
        network.set(LinkState.OPEN)
        await settle()

        assert len(network.sent) == 3
        assert endpoint.is_verified
        tasks.cancel_scope.cancel()
