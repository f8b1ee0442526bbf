"""The largest request of each kind that a participant or a spectator may send: no step of it holds the event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import anyio
import msgspec
import pytest

import kactl
from kactl.decide.messages import broker, leases, sessions
from kactl.decide.messages.admin import EnsureTopic
from kactl.decide.messages.leases import LeaderEpochs
from kactl.decide.messages.routes import LeaderColumns, Watch
from kactl.model import PARTITIONS_OF_A_TOPIC_MAX, Endpoint, ReplicaStatus, TopicPartition, TopicRef
from kactl.model.errors import InternalError, KactlError
from kactl.runtime.budget import Rate, Unit
from kactl.runtime.prices import PARTICIPANT_PRICES
from kactl.transports.tcp import wire
from kactl.transports.tcp.framing import Kind, Message
from kactl.transports.tcp.identity import Role
from kactl.transports.tcp.limits import REQUEST_BYTES_MAX, SESSION_BYTES_MAX
from kactl.transports.tcp.relayed import Envelope
from tests.support.loop_steps import STEP_UNITS_MAX, Steps, loop_steps

from .support import RawClient, hello_of, raw_client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PATIENCE_S = 300
REPEATED = 3
INCARNATION = bytes(range(16))
TOPIC = TopicRef("large-0", bytes(16))
# Filled in when the participant has registered.
EPOCH = -7


class Sent(NamedTuple):
    """A request.

    Attributes:
        request: or a function that returns another one for each repetition.
        fills: whether it is nearly as long as its kind may be.
    """

    name: str
    kind: Kind
    request: Any
    fills: bool = True
    role: Role = Role.PARTICIPANT


def _filled(make: Any) -> Any:
    """Returns the request with the most entries that fit; `make` takes their number."""
    few, many = wire.encode(make(2_000)), wire.encode(make(4_000))
    bytes_max = min(wire.begin_of(few).bytes_max, REQUEST_BYTES_MAX)
    return make(2_000 + int((bytes_max - len(few)) * 0.97 / (len(many) - len(few)) * 2_000))


def _proposals(count: int) -> Any:
    return tuple(
        broker.IsrProposal(TOPIC, number % PARTITIONS_OF_A_TOPIC_MAX, 1, (1, 2, 3), 1) for number in range(count)
    )


def _reports(count: int) -> Any:
    status = ReplicaStatus.READY
    return tuple(broker.PartitionReport(TopicPartition("large-0", number), 1, status) for number in range(count))


def _columns(count: int, *, fields: int) -> Any:
    number = bytes(4 * count)
    if fields == 3:
        return LeaderEpochs((TOPIC,), number, b"".join(n.to_bytes(4, "little") for n in range(count)), number)
    return LeaderColumns(("large-0",), number, number, number, bytes(count))


def largest(epoch: int) -> Iterator[Sent]:
    """Yields at least one request of each kind, from the weakest role that may send it."""
    ask, session = Kind.ASK, Kind.SESSION
    endpoints = tuple(Endpoint(f"L{number}", "host" * 20, 1, "PLAINTEXT") for number in range(60))
    yield Sent(
        "Register",
        session,
        sessions.Register(1, INCARNATION, timeout_ms=3_600_000, endpoints=endpoints),
        fills=False,
    )
    yield Sent("Heartbeat", session, sessions.Heartbeat(1, epoch, 1), fills=False)
    yield Sent(
        "VerifyEndpoint",
        session,
        sessions.VerifyEndpoint(1, INCARNATION, Endpoint("P", "127.0.0.1", 1, "PLAINTEXT")),
        fills=False,
    )
    yield Sent(
        "AlterPartitionReceived",
        ask,
        _filled(lambda n: broker.AlterPartitionReceived(1, epoch, _proposals(n))),
    )
    yield Sent(
        "ReportPartitions",
        ask,
        _filled(lambda n: broker.ReportPartitions(1, epoch, _reports(n))),
    )
    yield Sent(
        "ReportLeaders",
        ask,
        _filled(lambda n: broker.ReportLeaders(1, epoch, _columns(n, fields=4))),
    )
    yield Sent(
        "ReportLeaderships",
        ask,
        _filled(lambda n: leases.ReportLeaderships(1, epoch, 1, _columns(n, fields=3), LeaderEpochs())),
    )
    yield Sent("AllocateProducerIds", ask, broker.AllocateProducerIds(1, epoch), fills=False)
    created = lambda number: EnsureTopic(f"large-{number}", PARTITIONS_OF_A_TOPIC_MAX, 1)  # noqa: E731
    yield Sent("EnsureTopic", ask, created, fills=False)
    text = tuple(f"{number:07}" for number in range(SESSION_BYTES_MAX // 8 - 10))
    for role in (Role.SPECTATOR, Role.PARTICIPANT):
        yield Sent("Watch", Kind.METADATA, Watch(topics=text), role=role)
        yield Sent("Watch", Kind.METADATA, Watch(), fills=False, role=role)
    yield Sent("Peer", Kind.PEER, Envelope(1, msgspec.Raw(msgspec.msgpack.encode(bytes(REQUEST_BYTES_MAX - 100)))))
    yield Sent("ControlledShutdown", ask, broker.ControlledShutdown(1, epoch), fills=False)
    yield Sent("Goodbye", session, sessions.Goodbye(1, epoch), fills=False)


def _encoded(sent: Sent, number: int = 0) -> bytes:
    request = sent.request(number) if callable(sent.request) else sent.request
    return msgspec.msgpack.encode(request) if sent.kind is Kind.PEER else wire.encode(request)


def _bytes_max(sent: Sent) -> int:
    if sent.kind is not Kind.ASK:
        return REQUEST_BYTES_MAX if sent.kind is Kind.PEER else SESSION_BYTES_MAX
    return int(min(wire.begin_of(_encoded(sent)).bytes_max, REQUEST_BYTES_MAX))


def test_each_kind_has_a_largest_request() -> None:
    """A new kind is not served without a price, and not without an entry here."""
    # Identify is a part of the handshake, and links do not accept it.
    assert {sent.name for sent in largest(EPOCH)} == set(PARTICIPANT_PRICES) - {"Identify"}


def test_largest_requests_use_most_of_what_is_allowed() -> None:
    shares = {sent.name: len(_encoded(sent)) / _bytes_max(sent) for sent in largest(EPOCH) if sent.fills}

    assert {name: share for name, share in shares.items() if not 0.8 < share <= 1} == {}


@contextlib.asynccontextmanager
async def linked(address: str | None, role: Role) -> AsyncIterator[RawClient]:
    async with raw_client(address) as client:
        is_participant = role is Role.PARTICIPANT
        await client.greet(hello_of(1 if is_participant else "", role=role, incarnation=INCARNATION * is_participant))
        yield client


async def _exchange(client: RawClient, sent: Sent, content: bytes) -> Message | KactlError:
    """Send a request. Returns its answer, or the error that rejects it; a message to another participant comes back."""
    await client.send(sent.kind, content)
    while True:
        message = await client.receive()
        if message.kind is sent.kind and (message.answer or sent.kind is Kind.PEER):
            return wire.decode(message.head, wire.ERRORS) if message.error else message


async def _longest(steps: Steps, client: RawClient, sent: Sent) -> tuple[float, str]:
    """Returns the shortest of the longest steps of some requests: a collection of garbage may fall into one of them."""
    found = list[tuple[float, str]]()
    for number in range(REPEATED):
        content = _encoded(sent, number)
        await asyncio.sleep(0)  # the step that has encoded the request ends here
        steps.take()
        with anyio.fail_after(PATIENCE_S):
            answer = await _exchange(client, sent, content)
        assert not isinstance(answer, InternalError), answer
        found.append(steps.take())
    return min(found)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop whose steps can be measured."""
    return "asyncio", {"use_uvloop": False}


async def test_no_request_of_a_participant_or_a_spectator_holds_the_event_loop() -> None:
    network = kactl.TcpNetwork(listen="127.0.0.1:0", limits=kactl.Limits(silence_ms=3_600_000))
    slow = dict[str, str]()
    async with kactl.Controller(100, network=network) as controller:
        await controller.wait_active()
        for unit in (Unit.WORK, Unit.PARTITIONS):
            controller.budget.limit(unit, Rate(0, 0))  # the work itself is measured here
        async with linked(network.address, Role.PARTICIPANT) as one, linked(network.address, Role.SPECTATOR) as other:
            register = next(largest(EPOCH))
            answer = await _exchange(one, register, _encoded(register))
            assert isinstance(answer, Message), answer
            epoch = wire.decode(answer.head, wire.ANSWERS_OF_SESSIONS).broker_epoch
            requests = sorted(largest(epoch), key=lambda sent: sent.name != "EnsureTopic")
            with loop_steps() as steps:
                for number, sent in enumerate(requests):
                    units, what = await _longest(steps, one if sent.role is Role.PARTICIPANT else other, sent)
                    print(f"{number:2} {sent.name:28} {units:6.1f} units")
                    if units > STEP_UNITS_MAX:
                        slow[f"{number} {sent.name}"] = f"{units:.0f} units: {what[:300]}"

    assert not slow
