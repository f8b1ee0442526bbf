"""Choice of the session and the network of a participant, and failures to begin a session with the controller."""

import itertools
import re
import traceback
from typing import Any

import anyio
import pytest

import kactl
from kactl.config.settings import SESSION_TIMEOUTS
from kactl.decide.messages.sessions import (
    START_BYTES,
    Closed,
    Goodbye,
    Granted,
    Heartbeat,
    NotController,
    Refused,
    Register,
    Registered,
    SessionAnswer,
    SessionRequest,
    Unconfirmed,
    incarnation_ids,
)
from kactl.model import Broker, Endpoint
from kactl.model.errors import ActionTimedOut, BadRequest, ControllerUnreachable, KactlError, SessionExpired, StoreError
from kactl.participant.sessions import REMOTE_TIMEOUT_MS, RemoteSession
from kactl.runtime.patience import START_TIMEOUT_MS
from kactl.stores.etcd.store import SESSION_TIMEOUT_MS as ETCD_MS
from kactl.stores.sqlite.lease import SESSION_TIMEOUT_MS as SQLITE_MS
from kactl.transports.base import LinkState
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "network"),
        ({"store": kactl.MemoryStore()}, "network"),
        ({"controllers": ["host:7373"]}, "network"),
        ({"hub": kactl.MemoryHub(), "network": kactl.MemoryHub()}, "network"),
        ({"hub": kactl.MemoryHub(), "controllers": ["host:7373"]}, "controllers"),
        ({"network": kactl.MemoryHub(), "controllers": "host:7373"}, "controllers"),
        ({"hub": kactl.MemoryHub(), "lease": kactl.LeaseConfig(clock_drift=0.4)}, "clock_drift"),
    ],
)
def test_contradicting_arguments_are_rejected(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest, match=field):
        kactl.Participant(1, **arguments)


async def test_network_without_addresses_rejects_them() -> None:
    with pytest.raises(BadRequest, match="has no addresses"):
        async with kactl.Participant(1, network=kactl.MemoryHub(), controllers=["host:7373"]):
            pass


async def test_store_gives_sessions_with_the_store() -> None:
    async with kactl.Controller(100) as controller, kactl.Participant(1, store=controller.store, hub=controller.hub):
        broker = await controller.store.broker(1)

    assert broker is not None
    assert (broker.session, broker.timeout_ms, len(broker.incarnation)) == ("store", 18_000, 16)


async def test_hub_alone_gives_sessions_with_the_controller() -> None:
    async with kactl.Controller(100) as controller, kactl.Participants(2, hub=controller.hub, shutdown_attempts=0):
        brokers = await controller.store.brokers()

    assert [(broker.session, broker.timeout_ms) for broker in brokers.values()] == [("controller", 9_000)] * 2


@pytest.mark.parametrize("controllership_ms", [SQLITE_MS, ETCD_MS, SESSION_TIMEOUTS["etcd"]])
def test_leases_outlast_the_controllership_by_default(controllership_ms: int) -> None:
    assert controllership_ms <= REMOTE_TIMEOUT_MS / 3


class Start:
    """The start of a participant, in a task. Use as a context manager."""

    def __init__(self, clock: ManualClock, hub: kactl.MemoryHub, **options: Any) -> None:
        self.failures: list[BaseException] = []
        self.started = anyio.Event()
        self._participant = kactl.Participant(1, hub=hub, clock=clock, shutdown_attempts=0, **options)

    async def run(self) -> None:
        try:
            async with self._participant:
                self.started.set()
        except KactlError as error:
            self.failures.append(error)


@pytest.mark.parametrize("session_timeout_ms", [2_000, None, 40_000])
async def test_patience_of_a_start_is_its_own(session_timeout_ms: int | None) -> None:
    clock = ManualClock()
    start = Start(clock, kactl.MemoryHub(), session_timeout_ms=session_timeout_ms)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start.run)
        await clock.advance(START_TIMEOUT_MS - 1_000)
        assert start.failures == []

        await clock.advance(2_000)

    (failure,) = start.failures
    assert isinstance(failure, ControllerUnreachable)
    assert "no controller runs on this network" in str(failure)


async def test_error_of_a_start_is_not_a_chain() -> None:
    clock = ManualClock()
    start = Start(clock, kactl.MemoryHub(), start_timeout_ms=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start.run)
        await clock.advance(1_000)

    (failure,) = start.failures
    assert len(traceback.format_exception(failure)) == len(traceback.format_exception(failure, chain=False))


async def test_start_without_a_limit_waits_and_logs_why(caplog: pytest.LogCaptureFixture) -> None:
    clock, hub = ManualClock(), kactl.MemoryHub()
    start = Start(clock, hub, start_timeout_ms=None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start.run)
        await clock.advance(1_500)
        lines = [record.getMessage() for record in caplog.records if "is not registered" in record.getMessage()]
        assert len(lines) == 1  # soon
        assert re.match("broker 1 is not registered after 1 s.*no controller runs on this network", lines[0])

        await clock.advance(600_000)
        lines = [record.getMessage() for record in caplog.records if "is not registered" in record.getMessage()]
        assert len(lines) in (10, 11)  # once a minute
        assert "times in" in lines[-1]
        assert start.failures == []

        async with kactl.Controller(100, hub=hub, clock=clock):
            await clock.advance(1_000)
            assert start.started.is_set()
            await clock.advance(1_000)

    assert start.failures == []


@pytest.mark.parametrize("start_timeout_ms", [-1, "soon", 1.5])
def test_invalid_patience_is_rejected(start_timeout_ms: Any) -> None:
    with pytest.raises(BadRequest, match="start_timeout_ms"):
        kactl.Participant(1, hub=kactl.MemoryHub(), start_timeout_ms=start_timeout_ms)


async def test_failed_directory_is_reported_without_a_store() -> None:
    clock = ManualClock()
    async with (
        kactl.Controller(100, clock=clock) as controller,
        kactl.Participants(2, hub=controller.hub, clock=clock, shutdown_attempts=0) as brokers,
    ):
        await settle()
        await controller.create_topic("orders", assignment={0: [1, 2]})
        await settle()

        await brokers[1].fail_directory(["orders-0"])
        await settle()

        view = controller.partition("orders-0")
        assert view is not None
        assert view.leader == 2


# -- the session -------------------------------------------------------------------------------------------------------


class Link:
    """Link to a controller that gives one answer after the other, or raises it."""

    def __init__(self, *answers: SessionAnswer | Exception) -> None:
        self.state = LinkState.OPEN
        self.peer: Endpoint | None = None
        self.answers = list(answers)
        self.sent: list[SessionRequest] = []

    async def ask(self, request: Any, *, controller: int) -> Any:
        raise AssertionError

    async def session(self, request: SessionRequest) -> SessionAnswer:
        self.sent.append(request)
        if not self.answers:
            await anyio.sleep_forever()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send(self, message: Any) -> None:
        raise AssertionError

    def registered(self, broker_epoch: int) -> None: ...

    def close(self) -> None: ...


INCARNATION = next(itertools.islice(incarnation_ids(bytes(START_BYTES)), 1))
BROKER = Broker(1, 0, incarnation=INCARNATION)
BEGIN = Registered(41, 4_000, 2)


async def begun(*answers: SessionAnswer | Exception) -> tuple[RemoteSession, Link]:
    link = Link(BEGIN, *answers)
    session = RemoteSession(link, 6_000)
    assert await session.register(BROKER) == 41
    return session, link


async def test_granted_timeout_is_used() -> None:
    session, link = await begun(Granted(1, 4_000, 2), Granted(2, 4_000, 3), Closed(41))

    await session.renew(0)
    await session.keep_alive()
    await session.close()
    await session.close()

    assert session.timeout_ms == 4_000
    assert link.sent == [
        Register(1, INCARNATION, 6_000),
        Heartbeat(1, 41, 1),
        Heartbeat(1, 41, 2),
        Goodbye(1, 41),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        Unconfirmed(1, 2),
        Granted(2, 4_000, 2),  # of another heartbeat
        Granted(1, 3_000, 2),  # for less time than the lease has
        NotController(100),
        Refused("StoreUnavailable", "cut off", 1),
        ControllerUnreachable("cut off"),
    ],
    ids=repr,
)
async def test_heartbeat_that_is_not_granted_renews_nothing(answer: SessionAnswer | Exception) -> None:
    session, _ = await begun(answer)

    with pytest.raises((StoreError, ControllerUnreachable)) as raised:
        await session.renew(0)

    assert not isinstance(raised.value, SessionExpired)


async def test_ended_session_is_not_renewed_and_not_closed_again() -> None:
    session, link = await begun(Refused("SessionExpired", "it has ended", 1))
    for _ in range(2):
        with pytest.raises(SessionExpired):
            await session.renew(0)

    await session.close()

    assert len(link.sent) == 2


async def test_registration_without_an_answer_is_given_up_with_the_start() -> None:
    clock, controller = ManualClock(), kactl.Controller(100, clock=ManualClock())  # its clock stands still
    async with anyio.create_task_group() as tasks, controller:
        controller.sessions.answer = hangs  # type: ignore[method-assign]
        start = Start(clock, controller.hub, start_timeout_ms=5_000)
        tasks.start_soon(start.run)
        await clock.advance(4_900)
        assert start.failures == []

        await clock.advance(1_000)

    assert "no controller has answered the registration of broker 1" in str(start.failures[0])


async def hangs(request: SessionRequest, *, received_ns: int) -> SessionAnswer:
    await anyio.sleep_forever()
    raise AssertionError


async def test_registration_is_repeated_under_the_same_incarnation() -> None:
    clock, asked = ManualClock(), list[SessionRequest]()
    controller = kactl.Controller(100, clock=clock)
    answer = controller.sessions.answer

    async def third(request: SessionRequest, *, received_ns: int) -> SessionAnswer:
        asked.append(request)
        if len(asked) < 3:
            raise ControllerUnreachable("not yet")
        return await answer(request, received_ns=received_ns)

    async with controller, anyio.create_task_group() as tasks:
        controller.sessions.answer = third  # type: ignore[method-assign]
        start = Start(clock, controller.hub)
        tasks.start_soon(start.run)
        await clock.advance(1_000)

        assert start.started.is_set()
        await clock.advance(1_000)

    assert isinstance(asked[0], Register)
    assert asked[:3] == [asked[0]] * 3


async def test_waiting_for_the_link_is_bounded() -> None:
    clock = ManualClock()
    hub = kactl.MemoryHub()
    participant = kactl.Participant(1, store=kactl.MemoryStore(clock=clock), hub=hub, clock=clock)
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            with pytest.raises(ActionTimedOut, match="linking broker 1"):
                await participant.wait_linked(timeout_ms=2_000)

        tasks.start_soon(wait)
        await clock.advance(2_000)
        await settle()
