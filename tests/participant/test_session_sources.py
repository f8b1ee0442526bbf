"""Choice of the session and the network of a participant, and failures to begin a session with the controller."""

import itertools
from typing import Any

import anyio
import pytest

import kactl
from kactl.config.settings import SESSION_TIMEOUTS
from kactl.errors import ActionTimedOut, BadRequest, ControllerUnreachable, SessionExpired, StoreError
from kactl.messages.sessions import (
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
from kactl.participant.network import LinkState
from kactl.participant.sessions import REMOTE_TIMEOUT_MS, RemoteSession
from kactl.stores.etcd.store import SESSION_TIMEOUT_MS as ETCD_MS
from kactl.stores.sqlite.lease import SESSION_TIMEOUT_MS as SQLITE_MS
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
        ({"hub": kactl.MemoryHub(), "alter_partition": False}, "alter_partition"),
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


async def test_start_without_a_controller_fails_after_two_timeouts() -> None:
    clock, failures = ManualClock(), list[BaseException]()

    async def enter() -> None:
        try:
            async with kactl.Participant(1, hub=kactl.MemoryHub(), clock=clock):
                pass
        except ControllerUnreachable as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(enter)
        await clock.advance(2 * REMOTE_TIMEOUT_MS - 500)
        assert failures == []
        await clock.advance(1_000)

    assert "no controller runs on this network" in str(failures[0])


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
    session = RemoteSession(link, 6_000, ManualClock())
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


async def test_registration_without_an_answer_is_given_up_after_the_timeout() -> None:
    clock, link, failures = ManualClock(), Link(), list[BaseException]()
    session = RemoteSession(link, 6_000, clock)

    async def register() -> None:
        try:
            await session.register(BROKER)
        except ControllerUnreachable as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(register)
        await clock.advance(5_999)
        assert failures == []
        await clock.advance(1)
        await settle()

    assert "within 6000 ms" in str(failures[0])
    await session.close()
    assert len(link.sent) == 1


async def test_registration_is_repeated_until_a_controller_answers() -> None:
    clock, link, epochs = ManualClock(), Link(*[ControllerUnreachable("not yet")] * 3, BEGIN), list[int]()
    session = RemoteSession(link, 6_000, clock)

    async def register() -> None:
        epochs.append(await session.register(BROKER))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(register)
        await clock.advance(1_000)

    assert epochs == [41]
    assert link.sent == [Register(1, INCARNATION, 6_000)] * 4


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
