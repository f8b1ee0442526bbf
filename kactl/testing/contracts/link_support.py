"""Both ends of a network, and what a test waits for, for the contract suite of networks."""

import os
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import anyio

from kactl.decide.messages import sessions
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.broker import AllocateProducerIds
from kactl.decide.messages.control import Request, Response, UpdateMetadataResponse
from kactl.decide.messages.following import PeerMessage
from kactl.decide.messages.routes import Delta, RemovedColumns, RouteColumns, RouteMessage, Version, Watch
from kactl.decide.messages.sessions import (
    EndpointVerified,
    Granted,
    Heartbeat,
    ParticipantLink,
    Register,
    Registered,
    SessionAnswer,
    SessionRequest,
    Unconfirmed,
    VerifyEndpoint,
    incarnation_ids,
)
from kactl.model import Broker, ProducerIdBlock
from kactl.model.errors import (
    BrokerUnreachable,
    ControllerUnreachable,
    NotController,
)
from kactl.runtime.budget import Budget
from kactl.runtime.clock import SystemClock
from kactl.telemetry.attempts import Attempt
from kactl.transports.base import ControlLink, LinkState, SpectatorLink, Transport

from .network import PATIENCE_S, UPDATE

CONTROLLER: Final = 100
ROUTES: Final = RouteColumns(("orders",), bytes(4), bytes(4), bytes(4), bytes(4), bytes(8), b"\x01", bytes(8))
OTHER_CONTROLLER: Final = 101


def lives() -> Iterator[bytes]:
    """Returns the ids of the registrations of one participant, which is another one on each call."""
    return incarnation_ids(os.urandom(sessions.START_BYTES))


class ContractPort:
    """A participant's registration, which answers requests by a function and records what it receives."""

    def __init__(self, broker: int, incarnation: bytes | None = None) -> None:
        self.broker = broker
        self.claim = str(broker)
        self.incarnation = next(lives()) if incarnation is None else incarnation
        self.requests: list[Request] = []
        self.received: list[PeerMessage] = []
        self.states: list[LinkState] = []
        self.respond: Callable[[Request], Awaitable[Response]] = self._respond

    async def _respond(self, request: Request) -> Response:
        return UpdateMetadataResponse(self.broker)

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        return await self.respond(request)

    def receive(self, message: PeerMessage) -> None:
        self.received.append(message)

    async def why_foreign(self, controller: int, epoch: int) -> str:
        return ""

    def link_changed(self, state: LinkState, reason: str = "") -> None:
        self.states.append(state)


class ContractOffice:
    """A controller instance, which answers by functions. It is active if `active` is its own id."""

    def __init__(self, node_id: int = CONTROLLER, *, active: int | None = None) -> None:
        self.node_id = node_id
        self.active = node_id if active is None else active
        self.active_address = ""
        self.clock = SystemClock()
        self.open: list[ParticipantLink] = []
        self.closed: list[ParticipantLink] = []
        self.unverified: dict[ParticipantLink, str] = {}
        self.received_ns: list[int] = []
        self.attempts: list[Attempt] = []
        self.budget = Budget(time.monotonic, time.thread_time)
        self.watches = 0  # that wait for a change
        self.given = 40_000  # the id of each participant that has not chosen one
        self.failure: Exception | None = None  # raised for the next request
        self.answer: Callable[[ControllerRequest], Awaitable[Any]] = self._answer

    async def _answer(self, request: ControllerRequest) -> Any:
        assert isinstance(request, AllocateProducerIds)
        return ProducerIdBlock(request.broker, 1_000, 1_000)

    def _fail(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    async def ask(self, request: ControllerRequest) -> Any:
        self._fail()
        if self.active != self.node_id:
            raise NotController(self.active)
        return await self.answer(request)

    def standby(self) -> sessions.NotController | None:
        return None if self.active == self.node_id else sessions.NotController(self.active, self.active_address)

    def active_term(self) -> tuple[int, int]:
        return 5, 0

    async def session(self, request: SessionRequest, *, received_ns: int) -> SessionAnswer:
        if (standby := self.standby()) is not None:
            return standby
        self._fail()
        self.received_ns.append(received_ns)
        if isinstance(request, Register):
            return Registered(41, request.timeout_ms, 5)
        if isinstance(request, Heartbeat):
            return Granted(request.seq, 6_000, 5, 90) if request.broker_epoch == 41 else Unconfirmed(request.seq, 5)
        if isinstance(request, VerifyEndpoint):
            return EndpointVerified(5)
        if isinstance(request, sessions.Identify):
            return sessions.Identified(self.given)
        return sessions.Closed(request.broker_epoch)

    async def watch_routes(self, asked: Watch) -> RouteMessage:
        self._fail()
        if self.active != self.node_id:
            raise NotController(self.active)
        self.watches += 1
        if asked.wait_ms:
            try:
                await anyio.sleep_forever()
            finally:
                self.watches -= 1
        self.watches -= 1
        return Delta(Version(5, 7), 3.0, (Broker(1, 41),), ROUTES, RemovedColumns())

    def attempted(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def link_opened(self, link: ParticipantLink) -> None:
        self.open = [other for other in self.open if other[:2] != link[:2]] + [link]

    def endpoint_failed(self, link: ParticipantLink, reason: str) -> None:
        self.unverified[link] = reason

    def link_closed(self, link: ParticipantLink, reason: str) -> None:
        self.open.remove(link)
        self.closed.append(link)


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, which other tasks or the peer make true."""
    with anyio.fail_after(PATIENCE_S):
        while not condition():
            await moment()


async def moment() -> None:
    """Let other tasks run, and the peer, which may be another process."""
    await anyio.sleep(0.001)


async def opened(link: ControlLink) -> None:
    """Wait until a link is open."""
    await until(lambda: link.state is LinkState.OPEN)


async def answer_of(transport: Transport, broker: Broker) -> int:
    """Returns the number with which a broker answers, once it can be reached."""
    connection = transport.connect(broker)
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                return (await connection.deliver(UPDATE)).error
            except BrokerUnreachable:
                await moment()


async def watched(link: SpectatorLink, asked: Watch) -> RouteMessage:
    """Returns the answer to a spectator, once it has found the controller."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                return await link.watch(asked)
            except ControllerUnreachable:
                await moment()


async def hangs(_: object) -> Any:
    await anyio.sleep_forever()
