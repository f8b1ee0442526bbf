"""What requests of participants and spectators take from their accounts."""

from typing import Any

import anyio
import msgspec
import pytest

import kactl
from kactl.decide.messages.routes import Watch
from kactl.decide.messages.sessions import Heartbeat, Register
from kactl.runtime.budget import Rate, Unit
from kactl.transports.tcp import wire
from kactl.transports.tcp.framing import Kind
from kactl.transports.tcp.identity import Role
from kactl.transports.tcp.relayed import Envelope

from .support import RawClient, hello_of, raw_client

pytestmark = pytest.mark.anyio

PATIENCE_S = 60
INCARNATION = bytes(range(16))
# One request, and none after it.
ONE = Rate(0.001, 1)


async def answer(client: RawClient, kind: Kind, request: Any) -> Any:
    """Returns the next message after a request that is no order of the controller."""
    await client.send(kind, wire.encode(request))
    return await received(client)


async def received(client: RawClient) -> Any:
    with anyio.fail_after(PATIENCE_S):
        while (message := await client.receive()).kind is Kind.ORDER:
            pass
        return message


async def test_watch_of_a_spectator_is_charged_to_its_address() -> None:
    network = kactl.TcpNetwork(listen="127.0.0.1:0")
    async with kactl.Controller(100, network=network) as controller, raw_client(network.address) as client:
        await controller.wait_active()
        controller.budget.limit(Unit.WORK, ONE)
        await client.greet(hello_of("", role=Role.SPECTATOR))

        first = await answer(client, Kind.METADATA, Watch())

        assert first.answer
        assert controller.budget.charge("spectator:127.0.0.1", {Unit.WORK: 0}) is not None


async def test_message_beyond_its_account_is_lost_and_sessions_go_on() -> None:
    network = kactl.TcpNetwork(listen="127.0.0.1:0")
    async with kactl.Controller(100, network=network) as controller, raw_client(network.address) as client:
        await controller.wait_active()
        controller.budget.limit(Unit.WORK, ONE)
        await client.greet(hello_of(1, incarnation=INCARNATION))
        registered = await answer(client, Kind.SESSION, Register(1, INCARNATION, timeout_ms=60_000))
        epoch = wire.decode(registered.head, wire.ANSWERS_OF_SESSIONS).broker_epoch
        message = msgspec.msgpack.encode(Envelope(1, msgspec.Raw(b"\x01")))

        await client.send(Kind.PEER, message)
        assert (await received(client)).kind is Kind.PEER
        await client.send(Kind.PEER, message)
        granted = await answer(client, Kind.SESSION, Heartbeat(1, epoch, 1))

        assert granted.kind is Kind.SESSION
        assert wire.decode(granted.head, wire.ANSWERS_OF_SESSIONS).seq == 1


async def test_messages_are_not_lost_for_the_work_of_other_requests() -> None:
    network = kactl.TcpNetwork(listen="127.0.0.1:0")
    async with kactl.Controller(100, network=network) as controller, raw_client(network.address) as client:
        await controller.wait_active()
        await client.greet(hello_of(1, incarnation=INCARNATION))
        controller.budget.settle("participant:1", Unit.WORK, 1_000_000)

        await client.send(Kind.PEER, msgspec.msgpack.encode(Envelope(1, msgspec.Raw(b"\x01"))))

        assert (await received(client)).kind is Kind.PEER
