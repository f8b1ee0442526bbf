"""Records for the audit trail: who takes part, which topics are ensured, and everything that is refused."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kactl
from kactl.decide.messages.admin import ElectionKind, EnsureTopic, TopicProgress
from kactl.decide.messages.broker import AllocateProducerIds
from kactl.decide.messages.log import TopicEvent
from kactl.decide.messages.sessions import (
    Goodbye,
    Heartbeat,
    Refused,
    Register,
    Registered,
    SessionAnswer,
    SessionRequest,
)
from kactl.decide.messages.sessions import NotController as Redirect
from kactl.model import NO_EPOCH, TopicPartition
from kactl.model.errors import NotAuthorized, NotFound, ProtocolMismatch
from kactl.security.access import Principal, stranger
from kactl.telemetry.attempts import Attempt, Attempts, Recorded
from kactl.testing.contracts.link_support import ContractOffice, ContractPort, opened, until
from kactl.transports.tcp.framing import Kind
from kactl.transports.tcp.identity import Role
from kactl.transports.tcp.limits import Limits
from kactl.transports.tcp.network import TcpNetwork
from kactl.transports.tcp.rights import RIGHTS, Right
from kactl.transports.tcp.tls import Tls

from .support import hello_of, raw_client
from .test_handshake import LOOPBACK, SECRET, Pki, controller, participant
from .test_rights import OWN

pytestmark = pytest.mark.anyio

HOST = "127.0.0.1"
ONE = Principal("1", "participant", peer=HOST, method="secret")
STRANGER = stranger(HOST)
LIFE = bytes(12) + b"\x00\x00\x00\x01"
# Requests that only administrators may send, with the fewest arguments.
ADMIN: dict[str, tuple[Any, ...]] = {
    "UndrainBroker": (1,),
    "ResetReplica": (TopicPartition("orders", 0), 1),
    "CreateTopic": ("orders",),
    "DeleteTopic": ("orders",),
    "AddPartitions": ("orders", 2),
    "ApiPartitionReassignment": ({},),
    "ListPartitionReassignments": (None,),
    "UpdateFeatures": ((),),
    "EnableUncleanElections": (),
    "ReplicaLeaderElection": (ElectionKind.PREFERRED,),
    "ResignController": (),
    "ReleaseController": (100,),
    "AllocateBrokerId": (-1, "", b""),
    "AwaitEvents": (),
}


def denied(request: type) -> str:
    return f"network {request.__name__.removesuffix('Received')}"


@pytest.mark.parametrize("request_", [one for one, right in RIGHTS.items() if right is Right.NONE])
async def test_each_request_of_administrators_leaves_one_denial(request_: Any) -> None:
    office = ContractOffice()
    async with controller(office) as network, participant(network.address) as link:
        await opened(link)
        with pytest.raises(NotAuthorized):
            await link.ask(request_(*ADMIN[request_.__name__]), controller=100)

    (attempt,) = office.attempts
    assert attempt[:3] == (ONE, denied(request_), "denied")
    assert "use the admin API" in attempt.detail


@pytest.mark.parametrize("request_", OWN, ids=lambda request: request.__name__)
@pytest.mark.parametrize(("named", "epoch"), [(2, 7), (1, NO_EPOCH)])
async def test_each_request_for_another_broker_leaves_one_denial(request_: Any, named: int, epoch: int) -> None:
    office = ContractOffice()
    async with controller(office) as network, participant(network.address) as link:
        await opened(link)
        with pytest.raises(NotAuthorized):
            await link.ask(request_(broker=named, broker_epoch=epoch, **OWN[request_]), controller=100)

    (attempt,) = office.attempts
    assert attempt[:4] == (ONE, denied(request_), "denied", f"broker {named}")


@pytest.mark.parametrize("request_", [Register(2, LIFE, 6_000), Register(1, LIFE, 6_000), Heartbeat(2, 41, 1)])
async def test_session_of_another_registration_leaves_one_denial(request_: SessionRequest) -> None:
    office = ContractOffice()
    async with controller(office) as network, participant(network.address) as link:
        await opened(link)
        with pytest.raises(NotAuthorized):
            await link.session(request_)

    assert [attempt[:3] for attempt in office.attempts] == [(ONE, denied(type(request_)), "denied")]


async def test_registrations_and_their_ends_are_recorded_and_work_is_not() -> None:
    office, port = ContractOffice(), ContractPort(1)
    async with controller(office) as network:
        other = TcpNetwork(controllers=[str(network.address)])
        async with other.participant_side(port) as link:
            await opened(link)
            await link.session(Register(1, port.incarnation, 6_000))
            await link.session(Heartbeat(1, 41, 1))
            await link.ask(AllocateProducerIds(1, 41), controller=100)
            await link.session(Goodbye(1, 41))

    assert office.attempts == [
        Attempt(ONE, "network Register", "done", "broker 1", "broker epoch 41"),
        Attempt(ONE, "network Goodbye", "done", "broker 1"),
    ]


@pytest.mark.parametrize(
    ("answer", "outcomes"),
    [
        (Registered(41, 6_000, 5), ["done"]),
        (Refused("BrokerIdTaken", "taken"), ["denied"]),
        (Refused("EndpointUnreachable", "not there"), ["denied"]),
        (Refused("StoreError", "no quorum"), ["failed"]),
        (Redirect(101), []),  # the other instance records it
    ],
)
async def test_outcome_of_a_registration(answer: SessionAnswer, outcomes: list[str]) -> None:
    office, port = ContractOffice(), ContractPort(1)

    async def session(request: SessionRequest, *, received_ns: int) -> SessionAnswer:
        return answer

    office.session = session  # type: ignore[method-assign]
    async with controller(office) as network:
        other = TcpNetwork(controllers=[str(network.address)])
        async with other.participant_side(port) as link:
            await opened(link)
            try:
                await link.session(Register(1, port.incarnation, 6_000))
            except kactl.KactlError:
                assert isinstance(answer, Redirect)

    assert [attempt.outcome for attempt in office.attempts] == outcomes


@pytest.mark.parametrize(
    ("answer", "outcomes"),
    [
        (TopicProgress(created=True, waiting=1), ["done"]),
        (TopicProgress(created=False, waiting=1), []),  # the same request, repeated until no leader is awaited
        (NotFound("topic", "orders"), ["failed"]),
        (ValueError("a bug"), ["unknown"]),
    ],
)
async def test_outcome_of_an_ensured_topic(answer: Any, outcomes: list[str]) -> None:
    office = ContractOffice()

    async def answered(_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    office.answer = answered
    async with controller(office) as network, participant(network.address) as link:
        await opened(link)
        try:
            await link.ask(EnsureTopic("orders"), controller=100)
        except kactl.KactlError:
            assert isinstance(answer, Exception)

    assert [attempt[:4] for attempt in office.attempts] == [
        (ONE, "network EnsureTopic", outcome, "orders") for outcome in outcomes
    ]


# -- connections that are refused --------------------------------------------------------------------------------------


async def refusal(office: ContractOffice) -> Attempt:
    """Returns the only record of a refused connection."""
    await until(lambda: office.attempts)
    (attempt,) = office.attempts
    assert attempt[1:3] == ("network Handshake", "denied")
    assert attempt.principal.peer == HOST
    return attempt


@pytest.mark.parametrize(
    ("hello", "secret", "text"),
    [
        (hello_of(), b"another secret..", "does not know the shared secret"),
        (hello_of(cluster="other"), SECRET, "belongs to cluster 'other'"),
        (msgspec.structs.replace(hello_of(), minimum=5, maximum=9), SECRET, "speaks versions"),
    ],
)
async def test_stranger_leaves_one_record_without_a_name(hello: Any, secret: bytes, text: str) -> None:
    office = ContractOffice()
    async with controller(office, secret=SECRET) as network, raw_client(network.address) as client:
        with pytest.raises((NotAuthorized, ProtocolMismatch)):
            await client.greet(hello, secret)

        attempt = await refusal(office)

    assert attempt.principal == STRANGER
    assert text in attempt.detail


async def test_known_identity_in_a_wrong_role_is_named() -> None:
    office = ContractOffice()
    async with controller(office) as network, raw_client(network.address) as client:
        with pytest.raises(NotAuthorized):
            await client.greet(hello_of(7, role=Role.CONTROLLER))

        assert (await refusal(office)).principal == Principal("7", "controller", peer=HOST, method="secret")


@pytest.mark.parametrize("kind", ["name", "authority", "none"])
async def test_refused_certificate_leaves_one_record(kind: str, tmp_path: Path) -> None:
    office, pki = ContractOffice(), Pki(tmp_path)
    server = pki.tls("kactl://kactl/controller/100")
    async with controller(office, tls=server) as network:
        tls: Tls | None = None
        if kind == "name":
            tls = pki.tls("kactl://kactl/participant/2")
        elif kind == "authority":
            tls = Pki(tmp_path, "other").tls("kactl://kactl/participant/1", authority=pki)
        other = TcpNetwork(controllers=[str(network.address)], tls=tls)  # it tries again after a pause
        async with other.participant_side(ContractPort(1)):
            attempt = await refusal(office)

    assert attempt.principal == STRANGER
    text = {"name": "its certificate names", "authority": "certificate", "none": "requires TLS"}[kind]
    assert text in attempt.detail


async def test_crowd_of_strangers_and_silent_ones_are_recorded() -> None:
    office = ContractOffice()
    limits = Limits(handshake_ms=100, strangers=1)
    async with controller(office, limits=limits) as network, AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(raw_client(network.address))
        await until(lambda: len(office.attempts) == 2)

    assert [attempt[:3] for attempt in office.attempts] == [(STRANGER, "network Handshake", "denied")] * 2
    assert "too many connections" in office.attempts[0].detail
    assert "no handshake within 100 ms" in office.attempts[1].detail


async def test_peer_that_leaves_by_itself_is_not_recorded() -> None:
    office = ContractOffice()
    async with controller(office) as network:
        async with raw_client(network.address):
            pass
        async with raw_client(network.address) as client:
            await client.greet(hello_of())
            await until(lambda: office.open)
        await until(lambda: office.closed)

    assert office.attempts == []


@pytest.mark.parametrize("role", [Role.PARTICIPANT, Role.SPECTATOR])
async def test_message_of_another_role_leaves_one_record(role: Role) -> None:
    office = ContractOffice()
    async with controller(office) as network, raw_client(network.address) as client:
        await client.greet(hello_of(1, role=role))
        await client.send(Kind.ORDER, b"x")
        await client.ended()

    assert [(attempt.principal.label, *attempt[1:3]) for attempt in office.attempts] == [
        (f"{role.value}:1", "network Message", "denied")
    ]


@pytest.mark.parametrize("is_greeted", [True, False])
async def test_hostile_bytes_leave_one_record(is_greeted: bool) -> None:
    office = ContractOffice()
    async with controller(office) as network, raw_client(network.address) as client:
        if is_greeted:
            await client.greet(hello_of())
        await client.write(b"\xff" * 20)
        await client.ended()

    (attempt,) = office.attempts
    assert attempt[:3] == (ONE if is_greeted else STRANGER, attempt.operation, "denied")


async def test_request_that_cannot_be_decoded_leaves_one_record() -> None:
    office = ContractOffice()
    async with controller(office) as network, raw_client(network.address) as client:
        await client.greet(hello_of())
        await client.send(Kind.ASK, b"\xc1")
        assert (await client.receive()).error

    assert [attempt[:3] for attempt in office.attempts] == [(ONE, "network Message", "denied")]


# -- in a controller ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sessions", ["store", "controller"])
async def test_life_of_a_participant_in_the_records_of_its_controller(sessions: str) -> None:
    """A participant in a session with the store registers there, and not over the network."""
    network = TcpNetwork(listen=LOOPBACK)
    found: list[Recorded] = []
    async with kactl.Controller(100, network=network) as controller:
        controller.attempts.attach(found.append)
        await controller.wait_active()
        options: dict[str, Any] = {"store": controller.store} if sessions == "store" else {}
        async with kactl.Participant(1, network=network, **options) as one:
            assert await one.ensure_topic("orders", partitions=2, replication_factor=1)
            assert not await one.ensure_topic("orders", partitions=2)

    records = [(each.attempt.operation, each.attempt.outcome, each.attempt.target) for each in found]
    ensured = ("network EnsureTopic", "done", "orders")
    registered, left = (("network Register", "done", "broker 1"), ("network Goodbye", "done", "broker 1"))
    assert records == ([ensured] if sessions == "store" else [registered, ensured, left])
    assert {each.controller_epoch for each in found} == {1}
    assert {each.attempt.principal for each in found} == {ONE}
    events, _ = controller.history.read(after=0, limit=1000)
    (created,) = [event for event in events if isinstance(event, TopicEvent)]
    assert created.because is not None
    assert created.because.caller == "participant:1"


def test_first_attempts_wait_for_a_trail() -> None:
    attempts, found = Attempts(), list[Recorded]()
    first, second, third = (Recorded(Attempt(STRANGER, name, "denied"), 1, 2) for name in "abc")
    take: Callable[[Recorded], None] = found.append

    attempts.add(first)
    attempts.attach(take)
    attempts.add(second)
    attempts.detach(take)
    attempts.add(third)

    assert found == [first, second]
