"""Contract suite of networks in both directions, `kactl.transports.base.Network`. A network runs it by a test class
with a fixture `network`, beside the suite of its transport in `kactl.testing.contracts.network`:

    from kactl.testing.contracts.links import LinkContract

    class TestMyNetwork(LinkContract):
        @pytest.fixture
        async def network(self) -> AsyncIterator[Network]: ...

The fixture returns a new network, which controllers and participants of one test share. It may take some time to open a
link, and to notice that the other side has ended; the tests wait for that, up to PATIENCE_S.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kactl.decide.messages import sessions
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.broker import AllocateProducerIds, AlterPartitionReceived, IsrProposal, IsrResult
from kactl.decide.messages.control import Request, Response, UpdateMetadata, UpdateMetadataResponse
from kactl.decide.messages.following import FollowerReports, FollowerReportsRequested
from kactl.decide.messages.routes import Delta, RemovedColumns, Version, Watch
from kactl.decide.messages.sessions import (
    Granted,
    Heartbeat,
    Register,
    Registered,
    Unconfirmed,
)
from kactl.model import NO_BROKER, Broker, Leadership, TopicRef
from kactl.model.errors import (
    BrokerUnreachable,
    ControllerUnreachable,
    InternalError,
    KactlError,
    NotController,
    StaleBrokerEpoch,
)
from kactl.transports.base import ControlLink, LinkState, Network

from .link_support import (
    CONTROLLER,
    OTHER_CONTROLLER,
    ROUTES,
    ContractOffice,
    ContractPort,
    answer_of,
    hangs,
    lives,
    moment,
    opened,
    until,
    watched,
)
from .network import EXCHANGES, NOTHING, PATIENCE_S, UPDATE, plain_message


class LinkContract:
    pytestmark = pytest.mark.anyio

    # -- requests of controllers ---------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("request_", "response"), EXCHANGES + NOTHING)
    async def test_request_and_response_arrive_unchanged(
        self, network: Network, request_: Request, response: Response
    ) -> None:
        port = ContractPort(1)

        async def respond(_: Request) -> Response:
            return response

        port.respond = respond
        async with network.controller_side(ContractOffice()) as transport, network.participant_side(port) as link:
            await opened(link)

            answer = await transport.connect(Broker(1, 77)).deliver(request_)

            assert [plain_message(request) for request in port.requests] == [plain_message(request_)]
            assert plain_message(answer) == plain_message(response)

    async def test_participants_are_reached_by_their_ids(self, network: Network) -> None:
        async with (
            network.controller_side(ContractOffice()) as transport,
            network.participant_side(ContractPort(1)),
            network.participant_side(ContractPort(2)),
        ):
            assert [await answer_of(transport, Broker(broker, 0)) for broker in (2, 1)] == [2, 1]
            with pytest.raises(BrokerUnreachable):
                await transport.connect(Broker(3, 0)).deliver(UPDATE)

    async def test_handler_that_fails_does_not_break_the_link(self, network: Network) -> None:
        port = ContractPort(1)

        async def fails(_: Request) -> Response:
            raise BrokerUnreachable(1, "it has ended")

        async with network.controller_side(ContractOffice()) as transport, network.participant_side(port) as link:
            await opened(link)
            connection, respond = transport.connect(Broker(1, 0)), port.respond
            port.respond = fails
            with pytest.raises(BrokerUnreachable, match="it has ended"):
                await connection.deliver(UPDATE)
            port.respond = respond

            assert (await connection.deliver(UPDATE)).error == 1

    async def test_response_to_a_cancelled_request_is_never_returned(self, network: Network) -> None:
        port, may_answer, arrived = ContractPort(1), anyio.Event(), anyio.Event()

        async def respond(request: Request) -> Response:
            if request.broker_epoch == 1:
                arrived.set()
                await may_answer.wait()
            return UpdateMetadataResponse(request.broker_epoch)

        port.respond = respond
        async with network.controller_side(ContractOffice()) as transport, network.participant_side(port) as link:
            await opened(link)
            connection = transport.connect(Broker(1, 0))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connection.deliver, UpdateMetadata(1, 1, 1, UPDATE.states))
                await arrived.wait()
                tasks.cancel_scope.cancel()
            may_answer.set()

            assert (await connection.deliver(UpdateMetadata(1, 1, 2, UPDATE.states))).error == 2

    async def test_later_registration_receives_the_requests_once_it_is_made(self, network: Network) -> None:
        ids = lives()
        earlier, later = ContractPort(1, next(ids)), ContractPort(1, next(ids))
        later.respond = _answers(22)
        async with (
            network.controller_side(ContractOffice()) as transport,
            network.participant_side(earlier) as link,
        ):
            await opened(link)
            async with network.participant_side(later) as other:
                await opened(other)
                assert await answer_of(transport, Broker(1, 0)) == 1

                other.registered(7)
                with anyio.fail_after(PATIENCE_S):
                    while await answer_of(transport, Broker(1, 0)) != 22:
                        await moment()

                link.close()
                assert await answer_of(transport, Broker(1, 0)) == 22

    # -- requests to controllers ---------------------------------------------------------------------------------------

    async def test_request_to_the_controller_and_its_answer_arrive_unchanged(self, network: Network) -> None:
        office = ContractOffice()
        request = AlterPartitionReceived(1, 77, (IsrProposal(TopicRef("a", bytes(16)), 0, 1, (1, 2), 3),))
        answered = [IsrResult(TopicRef("a"), 0, leadership=Leadership(1, 2, (1, 2), 3, 4))]
        arrived: list[ControllerRequest] = []

        async def answer(request: ControllerRequest) -> Any:
            arrived.append(request)
            return answered

        office.answer = answer
        async with network.controller_side(office), network.participant_side(ContractPort(1)) as link:
            await opened(link)

            assert await link.ask(request, controller=CONTROLLER) == answered
        assert arrived == [request]

    @pytest.mark.parametrize("error", [NotController(7), StaleBrokerEpoch(1, 2, 3)], ids=["moved", "stale"])
    async def test_error_of_the_controller_arrives_as_its_class(self, network: Network, error: KactlError) -> None:
        office = ContractOffice()

        async def answer(_: ControllerRequest) -> Any:
            raise error

        office.answer = answer
        async with network.controller_side(office), network.participant_side(ContractPort(1)) as link:
            await opened(link)

            with pytest.raises(type(error)) as raised:
                await link.ask(AllocateProducerIds(1, 77), controller=CONTROLLER)
        assert str(raised.value) == str(error)
        assert vars(raised.value) == vars(error)

    async def test_bug_of_the_controller_arrives_as_the_id_in_its_log(
        self, network: Network, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with _linked_to_a_bug(network) as link:
            with pytest.raises(InternalError) as raised:
                await _ask(link)

            assert link.state is LinkState.OPEN
            assert (await _ask(link)).broker == 1
        _check_logged(str(raised.value), caplog)

    async def test_controller_that_does_not_run_is_unreachable(self, network: Network) -> None:
        async with network.controller_side(ContractOffice()), network.participant_side(ContractPort(1)) as link:
            await opened(link)

            with pytest.raises(ControllerUnreachable):
                await link.ask(AllocateProducerIds(1, 77), controller=OTHER_CONTROLLER)

    async def test_hanging_request_delays_no_session_and_no_other_request(self, network: Network) -> None:
        office, port = ContractOffice(), ContractPort(1)
        office.answer, port.respond = hangs, hangs
        async with (
            network.controller_side(office) as transport,
            network.participant_side(port) as link,
            anyio.create_task_group() as tasks,
        ):
            await opened(link)
            tasks.start_soon(_ignoring_errors, transport.connect(Broker(1, 0)).deliver, UPDATE)
            tasks.start_soon(_ignoring_errors, _ask, link)
            await until(lambda: port.requests)

            with anyio.fail_after(PATIENCE_S):
                assert await link.session(Heartbeat(1, 41, 7)) == Granted(7, 6_000, 5, 90)
            tasks.cancel_scope.cancel()

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def test_requests_of_sessions_are_answered(self, network: Network) -> None:
        office, port = ContractOffice(), ContractPort(1)
        async with network.controller_side(office), network.participant_side(port) as link:
            await opened(link)
            before_ns = office.clock.lease_ns()
            office.received_ns.clear()

            assert await link.session(Register(1, port.incarnation, 6_000)) == Registered(41, 6_000, 5)
            assert await link.session(Heartbeat(1, 41, 7)) == Granted(7, 6_000, 5, 90)
            assert await link.session(Heartbeat(1, 40, 8)) == Unconfirmed(8, 5)
            assert await link.session(sessions.Goodbye(1, 41)) == sessions.Closed(41)

            assert all(before_ns <= at <= office.clock.lease_ns() for at in office.received_ns)

    async def test_controller_gives_an_id_to_a_participant(self, network: Network) -> None:
        request = sessions.Identify(NO_BROKER, "worker-3", b"12 bytes: id")
        async with network.controller_side(ContractOffice()):
            assert await network.identify(request) == sessions.Identified(40_000)

    async def test_standby_gives_no_id(self, network: Network) -> None:
        async with network.controller_side(ContractOffice(active=OTHER_CONTROLLER)):
            with pytest.raises(ControllerUnreachable):
                await network.identify(sessions.Identify(NO_BROKER, "worker-3", b"12 bytes: id"))

    async def test_bug_of_the_controller_refuses_a_request_of_a_session(
        self, network: Network, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with _linked_to_a_bug(network) as link:
            refused = await link.session(Heartbeat(1, 41, 7))

            assert isinstance(refused, sessions.Refused)
            assert refused.error == InternalError.__name__
            assert link.state is LinkState.OPEN
            assert await link.session(Heartbeat(1, 41, 8)) == Granted(8, 6_000, 5, 90)
        _check_logged(refused.reason, caplog)

    async def test_standby_answers_no_session(self, network: Network) -> None:
        async with (
            network.controller_side(ContractOffice(active=OTHER_CONTROLLER)),
            network.participant_side(ContractPort(1)) as link,
        ):
            with pytest.raises(ControllerUnreachable):
                await link.session(Heartbeat(1, 41, 7))

    async def test_active_controller_is_found_wherever_it_is(self, network: Network) -> None:
        first, second = ContractOffice(active=OTHER_CONTROLLER), ContractOffice(OTHER_CONTROLLER)
        async with (
            network.controller_side(first) as here,
            network.controller_side(second) as there,
            network.participant_side(ContractPort(1)) as link,
        ):
            await opened(link)
            assert await link.session(Heartbeat(1, 41, 7)) == Granted(7, 6_000, 5, 90)
            assert await answer_of(there, Broker(1, 0)) == 1

            first.active = second.active = CONTROLLER

            assert await answer_of(here, Broker(1, 0)) == 1
            await until(lambda: first.open)
            await opened(link)
            assert await link.session(Heartbeat(1, 41, 8)) == Granted(8, 6_000, 5, 90)

    # -- messages between participants ---------------------------------------------------------------------------------

    async def test_message_reaches_the_participant_that_it_names(self, network: Network) -> None:
        ports = [ContractPort(broker) for broker in (1, 2, 3)]
        message = FollowerReportsRequested(1, 2, 0, 0)
        async with (
            network.controller_side(ContractOffice()),
            network.participant_side(ports[0]) as link,
            network.participant_side(ports[1]) as other,
            network.participant_side(ports[2]) as third,
        ):
            for opening in (link, other, third):
                await opened(opening)
            link.send(FollowerReportsRequested(1, 4, 0, 0))  # no participant with that id
            link.send(message)
            await until(lambda: ports[1].received)

        assert [port.received for port in ports] == [[], [message], []]

    async def test_messages_arrive_in_order(self, network: Network) -> None:
        receiver = ContractPort(2)
        async with (
            network.controller_side(ContractOffice()),
            network.participant_side(ContractPort(1)) as link,
            network.participant_side(receiver) as other,
        ):
            await opened(link)
            await opened(other)
            for generation in range(100):
                link.send(FollowerReportsRequested(1, 2, 0, generation))
            await until(lambda: len(receiver.received) == 100)

        messages = [message for message in receiver.received if not isinstance(message, FollowerReports)]
        assert [message.generation for message in messages] == list(range(100))

    # -- spectators ----------------------------------------------------------------------------------------------------

    async def test_spectator_receives_the_routes_of_the_active_controller(self, network: Network) -> None:
        standby, office = ContractOffice(OTHER_CONTROLLER, active=CONTROLLER), ContractOffice()
        async with (
            network.controller_side(standby),
            network.controller_side(office),
            network.spectator_side() as link,
        ):
            expected = Delta(Version(5, 7), 3.0, (Broker(1, 41),), ROUTES, RemovedColumns())
            assert await watched(link, Watch(Version(5, 6), 0, ("orders",))) == expected

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(link.watch, Watch(wait_ms=60_000))
                await until(lambda: office.watches)
                assert await link.watch(Watch()) == expected  # two may wait at a time
                tasks.cancel_scope.cancel()

    async def test_bug_of_the_controller_arrives_at_a_spectator_as_the_id_in_its_log(
        self, network: Network, caplog: pytest.LogCaptureFixture
    ) -> None:
        office = ContractOffice()
        async with network.controller_side(office), network.spectator_side() as link:
            routes = await watched(link, Watch())
            office.failure = ZeroDivisionError("a bug")

            with pytest.raises(InternalError) as raised:
                await link.watch(Watch())

            assert await link.watch(Watch()) == routes
        _check_logged(str(raised.value), caplog)

    async def test_spectator_without_an_active_controller_is_told_so(self, network: Network) -> None:
        standby = ContractOffice(OTHER_CONTROLLER, active=CONTROLLER)
        async with network.controller_side(standby), network.spectator_side() as link:
            with pytest.raises(ControllerUnreachable):
                await link.watch(Watch())

    async def test_wait_of_a_spectator_that_has_left_ends(self, network: Network) -> None:
        office = ContractOffice()
        async with network.controller_side(office):
            async with network.spectator_side() as link, anyio.create_task_group() as tasks:
                await watched(link, Watch())
                tasks.start_soon(link.watch, Watch(wait_ms=60_000))
                await until(lambda: office.watches)
                tasks.cancel_scope.cancel()
            await until(lambda: not office.watches)

    # -- links ---------------------------------------------------------------------------------------------------------

    async def test_controllers_learn_of_links(self, network: Network) -> None:
        office, ids = ContractOffice(), lives()
        one, two = ContractPort(1, next(ids)), ContractPort(2, next(ids))
        async with network.controller_side(office), network.participant_side(one):
            await until(lambda: len(office.open) == 1)
            async with network.participant_side(two) as link:
                await until(lambda: len(office.open) == 2)
                assert {link[:2] for link in office.open} == {(1, one.incarnation), (2, two.incarnation)}

                link.close()

                await until(lambda: office.closed)
            assert [link[:2] for link in office.closed] == [(2, two.incarnation)]
            assert [link[:2] for link in office.open] == [(1, one.incarnation)]

    async def test_closed_link_receives_and_sends_nothing(self, network: Network) -> None:
        port, other = ContractPort(1), ContractPort(2)
        async with (
            network.controller_side(ContractOffice()) as transport,
            network.participant_side(port) as link,
            network.participant_side(other) as second,
        ):
            await opened(link)
            await opened(second)

            link.close()
            link.close()

            assert link.state is LinkState.CLOSED
            link.registered(7)
            link.send(FollowerReportsRequested(1, 2, 0, 0))
            with pytest.raises(BrokerUnreachable):
                await transport.connect(Broker(1, 0)).deliver(UPDATE)
            assert (await transport.connect(Broker(2, 0)).deliver(UPDATE)).error == 2
            assert (port.requests, other.received) == ([], [])

    async def test_participant_waits_for_a_controller_that_starts_later(self, network: Network) -> None:
        port = ContractPort(1)
        standby = ContractOffice(OTHER_CONTROLLER, active=CONTROLLER)
        async with network.controller_side(standby), network.participant_side(port) as link:
            with pytest.raises(ControllerUnreachable):
                await link.session(Heartbeat(1, 41, 7))

            async with network.controller_side(ContractOffice()) as transport:
                assert await answer_of(transport, Broker(1, 0)) == 1
                await opened(link)
                assert await link.session(Heartbeat(1, 41, 7)) == Granted(7, 6_000, 5, 90)

            with pytest.raises(ControllerUnreachable):
                await _ask(link)

    async def test_network_can_be_used_again(self, network: Network) -> None:
        for _, incarnation in zip(range(3), lives(), strict=False):
            async with (
                network.controller_side(ContractOffice()) as transport,
                network.participant_side(ContractPort(1, incarnation)),
            ):
                assert await answer_of(transport, Broker(1, 0)) == 1

    async def test_many_participants_start_and_stop(self, network: Network) -> None:
        office = ContractOffice()

        async def participate(broker: int) -> None:
            for _, incarnation in zip(range(3), lives(), strict=False):
                async with network.participant_side(ContractPort(broker, incarnation)) as link:
                    await opened(link)
                    answer = await link.ask(AllocateProducerIds(broker, 1), controller=CONTROLLER)
                    assert answer.broker == broker

        async with network.controller_side(office), anyio.create_task_group() as tasks:
            for broker in range(6):
                tasks.start_soon(participate, broker)
        assert len({link.incarnation for link in itertools.chain(office.open, office.closed)}) == 18


def _answers(number: int) -> Callable[[Request], Awaitable[Response]]:
    async def respond(_: Request) -> Response:
        return UpdateMetadataResponse(number)

    return respond


async def _ask(link: ControlLink) -> Any:
    return await link.ask(AllocateProducerIds(1, 77), controller=CONTROLLER)


@asynccontextmanager
async def _linked_to_a_bug(network: Network) -> AsyncIterator[ControlLink]:
    """Yields the open link of a participant to a controller that fails by a bug at the next request."""
    office = ContractOffice()
    async with network.controller_side(office), network.participant_side(ContractPort(1)) as link:
        await opened(link)
        office.failure = ZeroDivisionError("a bug")
        yield link


def _check_logged(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Assert that the controller has logged its bug under the id in an error, which has nothing else of it."""
    error_id = text.rpartition(" ")[2]
    assert text == str(InternalError(error_id))
    (record,) = [record for record in caplog.records if error_id in record.getMessage()]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def _ignoring_errors(call: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
    try:
        await call(*arguments)
    except KactlError:
        return
