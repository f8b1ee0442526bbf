"""Invalid input of unknown clients: the connection is closed, counted and logged, and no request is handled."""

import asyncio
import contextlib
import datetime
import logging
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioError

from kactl.decide.messages.broker import ControlledShutdown
from kactl.model.errors import BadRequest
from kactl.runtime.conditions import REPEAT_MS
from kactl.telemetry.metrics import COUNTERS, GAUGES
from kactl.transports.kafka.listener.api_keys import REJECTED
from kactl.transports.kafka.listener.counters import ListenerCounters, PeerRejected
from kactl.transports.kafka.listener.limits import EXPANSION, Limits
from tests.support.marks import at_most

from .client import Client, connected, frame, request_class
from .listener_stub import ControllerStub, listening, until

pytestmark = pytest.mark.anyio


def head(size: int, key: int = 7, version: int = 3) -> bytes:
    return struct.pack(">ihhi", size, key, version, 1)


SHUTDOWN = frame(request_class(7, 3)(broker_id=2, broker_epoch=1), 1)


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (struct.pack(">i", -1), "length"),
        (struct.pack(">i", 0), "length"),
        (struct.pack(">i", 7), "length"),
        (struct.pack(">i", 2**31 - 1), "length"),
        (struct.pack(">i", 100 * 1024 * 1024 + 1), "length"),
        (head(17 * 1024 * 1024, key=56), "length"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "length"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40), "tls"),
        (head(8, key=9999, version=0), "unknown_api"),
        (head(8, key=-1, version=0), "unknown_api"),
        (head(8, key=19, version=-1), "unknown_api"),
        (head(8, key=7, version=4), "unsupported_version"),
        (head(8, key=56, version=99), "unsupported_version"),
    ],
    ids=[
        "negative length", "no length", "no header", "length bomb", "just above the limit", "large request of ours",
        "http", "tls", "wrong key", "negative key", "negative version", "newer version", "wild version",
    ],
)  # fmt: skip
async def test_invalid_request_closes_the_connection(sent: bytes, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    controller = ControllerStub()
    async with listening(controller) as (listener, port), connected(port) as client:
        client.writer.write(sent)
        closed = await client.is_closed()

    assert closed
    assert controller.requests == []
    assert listener.counters.rejected == {kind: 1}
    assert listener.held == 0
    assert [record.levelno for record in caplog.records if "the connection is closed" in record.message] == [
        logging.WARNING
    ]


@pytest.mark.parametrize(
    "sent",
    [
        head(8),
        head(20) + b"\xff\xff\x00" + bytes(9),
        head(14) + b"\x7f\xff" + bytes(4),
    ],
    ids=["no body", "half a body", "client id beyond the end"],
)
async def test_malformed_request_gets_invalid_request_and_is_closed(sent: bytes) -> None:
    controller = ControllerStub()
    async with listening(controller) as (listener, port), connected(port) as client:
        client.writer.write(sent + SHUTDOWN)
        answer = await client.frame()
        closed = await client.is_closed()

    assert struct.unpack(">ibh", answer[:7]) == (1, 0, KioError.invalid_request.value)
    assert closed
    assert controller.requests == []
    assert listener.counters.rejected == {"malformed": 1}


@pytest.mark.parametrize("key", sorted(REJECTED))
async def test_broker_requests_of_controllers_are_rejected_unread(key: int) -> None:
    """The listener is not a broker: requests of another controller are rejected before their body is read."""
    controller = ControllerStub()
    async with listening(controller) as (listener, port), connected(port) as client:
        client.writer.write(head(8 + 40, key=key, version=1) + bytes(40))
        closed = await client.is_closed()

    assert closed
    assert listener.counters.rejected == {"not_for_us": 1}
    assert (controller.requests, listener.held) == ([], 0)


async def test_requests_of_a_controller_with_a_high_epoch_have_no_effect() -> None:
    """Complete requests, as a controller sends them. Later requests get the same response as before."""
    controller = ControllerStub({ControlledShutdown: lambda _: []})
    orders = [
        request_class(4, 4)(
            controller_id=1, controller_epoch=2**31 - 1, broker_epoch=1, topic_states=(), live_leaders=()
        ),
        request_class(6, 6)(
            controller_id=1, controller_epoch=2**31 - 1, broker_epoch=1, topic_states=(), live_brokers=()
        ),
        request_class(5, 3)(controller_id=1, controller_epoch=2**31 - 1, broker_epoch=1, topic_states=()),
    ]
    async with listening(controller) as (listener, port):
        for order in orders:
            async with connected(port) as client:
                client.writer.write(frame(order, 1))
                assert await client.is_closed()
        async with connected(port) as client:
            answer = await client.ask(request_class(7, 3)(broker_id=2, broker_epoch=1))

    assert answer.error_code is KioError.none
    assert controller.requests == [ControlledShutdown(2, 1)]
    assert listener.counters.rejected == {"not_for_us": 3}


async def test_truncated_frame_is_rejected() -> None:
    controller = ControllerStub()
    async with listening(controller) as (listener, port), connected(port) as client:
        client.writer.write(SHUTDOWN[:-3])
        client.writer.write_eof()
        closed = await client.is_closed()

    assert closed
    assert listener.counters.rejected == {"truncated": 1}
    assert controller.requests == []


async def test_connection_without_bytes_is_not_counted() -> None:
    async with listening(ControllerStub()) as (listener, port), connected(port) as client:
        client.writer.write_eof()
        closed = await client.is_closed()

    assert closed
    assert listener.counters.rejected == {}


async def drip(client: Client) -> bool:
    """Send single bytes, and never a whole frame. Returns whether the connection was closed."""
    for byte in SHUTDOWN[:-1]:
        client.writer.write(bytes((byte,)))
        try:
            async with asyncio.timeout(0.05):
                return await client.is_closed()
        except TimeoutError:
            continue
    return False


async def test_slow_sender_is_disconnected() -> None:
    limits = Limits(frame_timeout_s=0.2)
    async with listening(ControllerStub(), limits=limits) as (listener, port), connected(port) as client:
        thrown_out = await drip(client)

    assert thrown_out
    assert listener.counters.rejected == {"slow": 1}


@pytest.mark.parametrize(
    ("limits", "sends_first"),
    [(Limits(first_timeout_s=0.05), False), (Limits(idle_timeout_s=0.05), True)],
    ids=["from the beginning", "after a request"],
)
async def test_silent_client_is_disconnected(limits: Limits, sends_first: bool) -> None:
    async with listening(ControllerStub(), limits=limits) as (listener, port), connected(port) as client:
        if sends_first:
            await client.ask(request_class(18, 0)())
        closed = await client.is_closed()

    assert closed
    assert listener.counters.rejected == {}


async def test_connections_above_the_limit_are_rejected() -> None:
    controller = ControllerStub({ControlledShutdown: lambda _: []})
    ask = request_class(7, 3)(broker_id=2, broker_epoch=1)
    async with listening(controller, limits=Limits(connections_max=2)) as (listener, port):
        async with connected(port) as first, connected(port) as second:
            await first.ask(ask)
            await second.ask(ask)
            async with connected(port) as third:
                rejected = await third.is_closed()
            await first.ask(ask)
        await until(lambda: not listener.counters.connections)
        async with connected(port) as fourth:
            await fourth.ask(ask)

    assert rejected
    assert listener.counters.rejected == {"connections": 1}
    assert len(controller.requests) == 4


async def test_unfinished_frames_of_one_address_hold_one_reservation() -> None:
    """Twenty frames of 1 MiB are announced and begun. One is reserved; the others are closed after a timeout."""
    limits = Limits(reserve_timeout_s=0.1, frame_timeout_s=20)
    announced = head(1024 * 1024, key=19, version=0) + bytes(200 * 1024)
    async with listening(ControllerStub(), limits=limits) as (listener, port), contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connected(port)) for _ in range(20)]
        for client in opened:
            client.writer.write(announced)
        await until(lambda: listener.counters.rejected["busy"] == 19)
        reserved_bytes = listener.held
        async with connected(port) as client:
            await client.ask(request_class(18, 0)())
        await stack.aclose()
        await until(lambda: not listener.counters.connections)

    assert reserved_bytes == (1024 * 1024 - 8) * EXPANSION
    assert listener.held == 0


async def test_pipelined_requests_are_served_in_order() -> None:
    going = 0
    most = 0

    class Slow(ControllerStub):
        async def ask(self, request: object) -> list[object]:
            nonlocal going, most
            going += 1
            most = max(most, going)
            await asyncio.sleep(0)
            going -= 1
            return []

    ask = request_class(7, 3)(broker_id=2, broker_epoch=1)
    async with listening(Slow()) as (_, port), connected(port) as client:
        client.writer.write(b"".join(frame(ask, number) for number in range(50)))
        for number in range(50):
            Client.read(ask, await client.frame(), number)

    assert most == 1


SEEDS: list[bytes] = [
    SHUTDOWN,
    frame(request_class(67, 0)(broker_id=2, broker_epoch=1), 1),
    frame(request_class(56, 3)(broker_id=2, broker_epoch=1, topics=()), 1),
    frame(request_class(18, 0)(), 1),
    frame(request_class(3, 12)(topics=None, include_topic_authorized_operations=False), 1),
    frame(request_class(20, 5)(topic_names=("a", "b"), timeout=datetime.timedelta(seconds=1)), 1),
]
CHANGES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=6)


class Everything(dict[Any, Any]):
    """Stub that rejects every request."""

    def __missing__(self, kind: object) -> Any:
        return lambda _: BadRequest("all of it", "nothing is done here")


async def _send(port: int, content: bytes) -> None:
    async with connected(port) as client:
        client.writer.write(content)
        client.writer.write_eof()
        try:
            async with asyncio.timeout(60):
                while await client.reader.read(4096):
                    pass
        except ConnectionError:
            pass


@settings(max_examples=at_most(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    content=st.one_of(
        st.binary(max_size=300),
        st.tuples(st.integers(-5, 400), st.integers(-2, 110), st.integers(-1, 20), st.binary(max_size=200)).map(
            lambda of: struct.pack(">ihhi", *of[:3], 1) + of[3]
        ),
        st.tuples(st.sampled_from(SEEDS), CHANGES).map(lambda of: _changed(*of)),
    )
)
async def test_random_bytes_cause_no_error_and_hold_no_memory(content: bytes) -> None:
    """Afterwards the listener holds no memory, has met no unexpected error, and serves the next client."""
    async with listening(ControllerStub(Everything())) as (listener, port):
        await _send(port, content)
        async with connected(port) as client:
            await client.ask(request_class(18, 0)())
        await until(lambda: not listener.counters.connections)

    assert listener.counters.rejected["error"] == 0
    assert listener.held == 0


def _changed(content: bytes, changes: list[tuple[int, int]]) -> bytes:
    changed = bytearray(content)
    for offset, byte in changes:
        changed[offset % len(changed)] = byte
    return bytes(changed)


def test_listener_counters_are_exported() -> None:
    counters = ListenerCounters()
    counters.requests["relayed"] += 3
    counters.reject(PeerRejected("length", "a frame of -1 bytes"), "10.0.0.1:5 on CLIENT")
    counters.connections = 2

    readings = {name: list(read()) for name, read in counters.readings().items()}

    assert readings == {
        "kactl.listener.request.count": [(3, {"rpc.method": "relayed"})],
        "kactl.listener.refused.count": [(1, {"error.type": "length"})],
        "kactl.listener.connections": [(2, {"kactl.peer.kind": "client"}), (0, {"kactl.peer.kind": "broker"})],
        "kactl.listener.memory.reserved": [],
    }
    assert readings.keys() <= {name for name, _, _ in (*GAUGES, *COUNTERS)}


def test_many_rejections_are_all_counted_and_rarely_logged(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 0.0
    counters = ListenerCounters(now_ms=lambda: now_ms)

    for _ in range(1000):
        counters.reject(PeerRejected("length", "a frame of -1 bytes"), "10.0.0.1:5 on CLIENT")
    now_ms = REPEAT_MS
    counters.reject(PeerRejected("length", "a frame of -1 bytes"), "10.0.0.1:6 on CLIENT")

    assert counters.rejected == {"length": 1001}
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "10.0.0.1:5 on CLIENT: a frame of -1 bytes; the connection is closed",
        "10.0.0.1:6 on CLIENT: a frame of -1 bytes; the connection is closed (1,001 times in 60 s)",
    ]
