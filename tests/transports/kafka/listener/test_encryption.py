"""TLS of the listener's connections: nothing is lost or held in memory, whatever the sizes and the order of events."""

import array
import asyncio
import contextlib
import errno
import functools
import gc
import random
import socket
import ssl
import struct
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import kactl.security.tls.encryption as encryption_module
from kactl.security.tls.certificate_file import expiry_in
from kactl.security.tls.encryption import EMPTY_MAX, PIECE, Encryption
from kactl.security.tls.tls_turns import TlsTurns, Turns
from kactl.transports.kafka.listener.stream import PIECE_SIZE, Stream, shared_buffer
from tests.support.certificates import Authority, Signed
from tests.support.key_updates import update_key
from tests.support.raw_peer import RawPeer

from .attack.run import serving

pytestmark = pytest.mark.anyio

HANDSHAKE_S = 60.0
SIZE = 3_000_000
# Of 200 connections. asyncio's own TLS exceeds both.
IDLE_MAX = 12 * 1024 * 1024
BUSY_MAX = 20 * 1024 * 1024


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def signed(authority: Authority) -> Signed:
    return authority.sign("server")


def _server_tls(signed: Signed) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.cert, signed.key)
    return context


def _client_tls(authority: Authority, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.cert))
    context.maximum_version = version
    return context


class Peer:
    """A client of asyncio's own, and the server's side of its connection."""

    def __init__(self, stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stream = stream
        self.reader = reader
        self.writer = writer


@asynccontextmanager
async def connected(signed: Signed, client: ssl.SSLContext) -> AsyncIterator[Peer]:
    loop = asyncio.get_running_loop()
    buffer = shared_buffer()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        port = listening.getsockname()[1]
        opening = asyncio.create_task(asyncio.open_connection("127.0.0.1", port, ssl=client))
        accepted, _ = await loop.sock_accept(listening)
    stream = Stream(buffer)
    encryption = Encryption(_server_tls(signed), stream, buffer)
    try:
        await loop.connect_accepted_socket(lambda: encryption, accepted)
        await encryption.handshake(HANDSHAKE_S)
        reader, writer = await opening
        try:
            yield Peer(stream, reader, writer)
        finally:
            writer.transport.abort()
    finally:
        opening.cancel()
        stream.abort() if hasattr(stream, "transport") else encryption.abort()


async def _read(stream: Stream, size: int, draw: Callable[[], int]) -> bytes:
    content = bytearray()
    while len(content) < size:
        piece = await stream.read(draw())
        assert piece, "the stream ended early"
        content += piece
    return bytes(content)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_bytes_arrive_in_both_directions(authority: Authority, signed: Signed, version: ssl.TLSVersion) -> None:
    rng = random.Random(7)
    sent = rng.randbytes(SIZE)

    async def write(peer: Peer) -> None:
        left = memoryview(sent)
        while left:
            size = rng.choice((1, 100, 16_384, 100_000))
            peer.writer.write(left[:size])
            await peer.writer.drain()
            left = left[size:]

    async def echo(peer: Peer) -> None:
        content = await _read(peer.stream, SIZE, lambda: rng.choice((1, 4_096, PIECE_SIZE, PIECE_SIZE, PIECE_SIZE)))
        for begin in range(0, SIZE, 500_000):
            peer.stream.write(content[begin : begin + 500_000])
            await peer.stream.drain()

    async with connected(signed, _client_tls(authority, version)) as peer:
        writing, echoing = asyncio.create_task(write(peer)), asyncio.create_task(echo(peer))
        received = await peer.reader.readexactly(SIZE)
        await asyncio.gather(writing, echoing)

    assert received == sent


async def test_unread_bytes_stay_at_the_peer(authority: Authority, signed: Signed) -> None:
    """The stream reads only while a caller waits: the rest is in the buffers of the sockets and of the sender."""
    async with connected(signed, _client_tls(authority)) as peer:
        peer.writer.write(bytes(20_000_000))
        assert await peer.stream.read(10) == bytes(10)
        for _ in range(1000):
            await asyncio.sleep(0)
        encryption: Any = peer.stream.transport
        assert len(peer.stream._buffer) + encryption._incoming.pending + encryption._tls.pending() < 64 * 1024
        assert len(await _read(peer.stream, 20_000_000 - 10, lambda: PIECE_SIZE)) == 20_000_000 - 10


async def test_end_of_the_peer_is_the_end_of_the_stream(authority: Authority, signed: Signed) -> None:
    async with connected(signed, _client_tls(authority)) as peer:
        peer.writer.write(b"last")
        peer.writer.close()
        assert await _read(peer.stream, 4, lambda: 4) == b"last"
        assert await peer.stream.read(1) == b""
        assert peer.stream.at_eof


def _read_to_the_end(port: int, tls: ssl.SSLContext) -> int:
    """Returns the number of bytes before the end. Raises ssl.SSLEOFError if TLS did not announce it."""
    with (
        socket.create_connection(("127.0.0.1", port), HANDSHAKE_S) as raw,
        tls.wrap_socket(raw, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as connection,
    ):
        count = 0
        while piece := connection.recv(PIECE_SIZE):
            count += len(piece)
        return count


async def test_end_of_the_stream_is_the_end_of_the_peer(authority: Authority, signed: Signed) -> None:
    """The peer receives what was written before, and an end that is not a cut."""
    loop = asyncio.get_running_loop()
    buffer = shared_buffer()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        # Not a peer of uvloop, which loses bytes at the end of a connection whose reading is paused.
        reading = asyncio.create_task(
            asyncio.to_thread(_read_to_the_end, listening.getsockname()[1], _client_tls(authority))
        )
        accepted, _ = await loop.sock_accept(listening)
    stream = Stream(buffer)
    encryption = Encryption(_server_tls(signed), stream, buffer)
    await loop.connect_accepted_socket(lambda: encryption, accepted)
    await encryption.handshake(HANDSHAKE_S)
    stream.write(bytes(1_000_000))
    stream.close(abort_s=HANDSHAKE_S)
    assert await reading == 1_000_000


async def test_peer_that_does_not_shake_hands_is_closed(signed: Signed) -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    buffer = shared_buffer()
    encryption = Encryption(_server_tls(signed), Stream(buffer), buffer)
    with theirs:
        await loop.connect_accepted_socket(lambda: encryption, ours)
        with pytest.raises(TimeoutError):
            await encryption.handshake(0)
        theirs.settimeout(HANDSHAKE_S)
        assert await asyncio.to_thread(theirs.recv, 1) == b""


async def test_failed_handshake_leaves_nothing_for_the_garbage_collector(signed: Signed) -> None:
    """Each would hold the memory of its TLS until the next collection, before which a flood has thousands."""
    loop = asyncio.get_running_loop()
    buffer = shared_buffer()
    context = _server_tls(signed)
    failed: list[weakref.ref[Encryption]] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            encryption = Encryption(context, Stream(buffer), buffer)
            failed.append(weakref.ref(encryption))
            await loop.connect_accepted_socket(functools.partial(_same, encryption), ours)
            theirs.close()
            with pytest.raises(OSError, match=r"closed|EOF"):
                await encryption.handshake(HANDSHAKE_S)
            del encryption
        for _ in range(10):
            await asyncio.sleep(0)
        left = [each for each in failed if each() is not None]
    finally:
        gc.enable()

    assert len(left) <= 1  # the last exception is kept by pytest


def _same(protocol: Encryption) -> Encryption:
    return protocol


class Recorder:
    """The protocol of a connection: records what its transport reports.

    Attributes:
        on_made: called with the transport when it is connected.
    """

    def __init__(self, on_made: Callable[[Encryption], None] = lambda _: None) -> None:
        self.on_made = on_made
        self.events: list[str] = []
        self.data = b""
        self.error: Exception | None = None
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def ended(self) -> None:
        await self.until(lambda: "lost" in self.events)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Encryption)
        self._record("made")
        self.on_made(transport)

    def received(self, data: bytes) -> None:
        self.data += data
        self._changed.set()

    def eof_received(self) -> bool:
        self._record("eof")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self._record("lost")

    def pause_writing(self) -> None:
        self._record("paused")

    def resume_writing(self) -> None:
        self._record("resumed")

    def _record(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()


class Whole(Recorder, asyncio.Protocol):
    """Receives the plain text as bytes."""

    def data_received(self, data: bytes) -> None:
        self.received(data)


class Buffered(Recorder, asyncio.BufferedProtocol):
    """Receives the plain text in a buffer, of two bytes."""

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = memoryview(bytearray(2))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received(bytes(self._buffer[:nbytes]))


Facing = tuple[Encryption, RawPeer]
Connect = Callable[[Whole | Buffered], AbstractAsyncContextManager[Facing]]


class Late(Turns):
    """Turns of which each is in the next iteration of the loop."""

    def take(self, step: Callable[[], None]) -> bool:
        asyncio.get_running_loop().call_soon(step)
        return False


class Held(Turns):
    """Turns whose steps the test carries out."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: asyncio.Queue[Callable[[], None]] = asyncio.Queue()

    def take(self, step: Callable[[], None]) -> bool:
        self.steps.put_nowait(step)
        return False


def _turns_of(handshakes: Turns, records: Turns) -> TlsTurns:
    turns = TlsTurns()
    turns.handshakes, turns.records = handshakes, records
    return turns


@asynccontextmanager
async def _facing(
    authority: Authority, signed: Signed, protocol: Whole | Buffered, turns: TlsTurns | None
) -> AsyncIterator[Facing]:
    """Connects a protocol with a peer. The handshake has not begun."""
    with contextlib.closing(_Pair()) as pair:
        encryption = Encryption(_server_tls(signed), protocol, shared_buffer(), turns=turns)
        async with asyncio.timeout(HANDSHAKE_S):
            await pair.serve(encryption)
            yield encryption, RawPeer(pair.theirs, _client_tls(authority))
            encryption.abort()


@pytest.fixture(params=[None, Turns, Late], ids=["without turns", "with turns", "with late turns"])
def facing(request: pytest.FixtureRequest, authority: Authority, signed: Signed) -> Connect:
    """Connects as `_facing` does."""

    def connect(protocol: Whole | Buffered) -> AbstractAsyncContextManager[Facing]:
        turns = request.param and _turns_of(request.param(), request.param())
        return _facing(authority, signed, protocol, turns)

    return connect


async def _shake_hands(encryption: Encryption, peer: RawPeer, last: bytes = b"") -> None:
    """Complete the handshake on both sides. `last` is sent together with its last message."""
    await peer.handshake(last)
    await encryption.handshake(HANDSHAKE_S)


class _Pair:
    """Two sockets that are connected, over TCP unless others are named."""

    def __init__(self, *sockets: socket.socket) -> None:
        self.ours, self.theirs = sockets or _tcp_pair()
        for each in (self.ours, self.theirs):
            each.setblocking(False)

    async def serve(self, encryption: Encryption) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: encryption, self.ours)

    def close(self) -> None:
        self.theirs.close()


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        return listening.accept()[0], theirs


async def _turns() -> None:
    """Let the event loop do what it can do without the peer."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", [Whole, Buffered])
async def test_protocol_is_connected_receives_sends_and_ends(kind: type[Whole | Buffered], facing: Connect) -> None:
    protocol = kind()
    async with facing(protocol) as (encryption, peer):
        assert encryption.can_write_eof() is False
        await _shake_hands(encryption, peer)
        assert not encryption.is_closing()
        await peer.send(b"from the peer")
        await protocol.until(lambda: protocol.data == b"from the peer")
        encryption.write(b"to the peer")
        assert await peer.receive() == b"to the peer"
        await peer.close()
        await protocol.ended()

    assert protocol.events == ["made", "eof", "lost"]
    assert protocol.error is None


async def test_end_that_tls_does_not_announce_is_an_end(facing: Connect) -> None:
    protocol = Whole()
    async with facing(protocol) as (encryption, peer):
        await _shake_hands(encryption, peer)
        peer.raw.shutdown(socket.SHUT_WR)
        with pytest.raises(ssl.SSLError, match=r"alert decode error|EOF"):
            await peer.receive()
        await protocol.ended()

    assert protocol.events == ["made", "eof", "lost"]


@pytest.mark.parametrize("kind", [Whole, Buffered])
async def test_protocol_that_pauses_at_its_start_receives_after_it_resumes(
    kind: type[Whole | Buffered], facing: Connect
) -> None:
    protocol = kind(lambda transport: transport.pause_reading())
    async with facing(protocol) as (encryption, peer):
        await _shake_hands(encryption, peer, last=b"early")
        await _turns()
        assert protocol.data == b""
        assert not encryption._socket.is_reading()  # so that the peer has to wait

        encryption.resume_reading()
        encryption.pause_reading()
        await _turns()
        assert protocol.data == b""
        assert not encryption._socket.is_reading()  # so that the peer has to wait

        encryption.resume_reading()
        assert protocol.data == b""  # not during the call
        await protocol.until(lambda: protocol.data == b"early")
        await peer.send(b", later")
        await protocol.until(lambda: protocol.data == b"early, later")


async def test_protocol_that_closes_at_its_start_receives_nothing(facing: Connect) -> None:
    def close(transport: Encryption) -> None:
        transport.close()
        transport.write(b"late")

    protocol = Whole(close)
    async with facing(protocol) as (encryption, peer):
        await _shake_hands(encryption, peer, last=b"early")
        assert encryption.is_closing()
        # What it still does is without effect.
        encryption.write(b"late")
        encryption.pause_reading()
        encryption.resume_reading()
        encryption.close()
        assert await peer.receive() == b""
        await protocol.ended()
        encryption.pause_reading()
        encryption.resume_reading()
        await _turns()

    assert protocol.events == ["made", "lost"]
    assert protocol.data == b""
    assert protocol.error is None


async def test_protocol_that_closes_receives_no_more(facing: Connect) -> None:
    class Closing(Buffered):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            transport.close()

    protocol = Closing()
    async with facing(protocol) as (transport, peer):
        await _shake_hands(transport, peer)
        await peer.send(b"early")
        await protocol.ended()

    assert protocol.data == b"ea"


async def test_all_kinds_of_data_are_sent(facing: Connect) -> None:
    async with facing(Whole()) as (encryption, peer):
        await _shake_hands(encryption, peer)
        encryption.write(b"")
        encryption.write(memoryview(b""))
        encryption.writelines([b"one", bytearray(b"two"), memoryview(b"three")])
        assert await peer.receive() == b"onetwothree"
        numbers = array.array("i", range(50_000))
        encryption.write(memoryview(numbers))
        received = b""
        while len(received) < 200_000:
            received += await peer.receive()
        assert received == numbers.tobytes()


async def test_damaged_record_ends_the_connection_with_an_alert(facing: Connect) -> None:
    protocol = Whole()
    async with facing(protocol) as (encryption, peer):
        await _shake_hands(encryption, peer)
        await asyncio.get_running_loop().sock_sendall(peer.raw, b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises(ssl.SSLError, match="alert bad record mac"):
            await peer.receive()
        await protocol.ended()

    assert protocol.events == ["made", "lost"]
    assert isinstance(protocol.error, ssl.SSLError)
    assert protocol.error.reason == "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"


async def test_data_before_the_handshake_ends_the_connection(facing: Connect) -> None:
    protocol = Whole()
    async with facing(protocol) as (encryption, peer):
        encryption.write(b"early")
        with pytest.raises(ssl.SSLError):
            await encryption.handshake(HANDSHAKE_S)
        assert await asyncio.get_running_loop().sock_recv(peer.raw, 1) == b""

    assert protocol.events == []


async def test_data_for_a_peer_that_is_gone_is_dropped(facing: Connect) -> None:
    protocol = Whole()
    async with facing(protocol) as (encryption, peer):
        await _shake_hands(encryption, peer)
        _reset(peer.raw)
        for _ in range(3):
            encryption.write(b"lost")
        await protocol.ended()
        assert encryption.is_closing()
        encryption.write(b"lost")

    assert protocol.events == ["made", "lost"]
    assert isinstance(protocol.error, OSError)


async def test_reset_during_the_handshake_is_its_error(facing: Connect) -> None:
    protocol = Whole()
    async with facing(protocol) as (encryption, peer):
        _reset(peer.raw)
        with pytest.raises(ConnectionResetError) as raised:
            await encryption.handshake(HANDSHAKE_S)

    assert raised.value.errno == errno.ECONNRESET
    assert protocol.events == []


def _reset(raw: socket.socket) -> None:
    """Close a socket so that its peer has an error, and not the end."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()


async def test_abort_during_the_handshake_ends_it(facing: Connect) -> None:
    protocol = Whole()
    async with facing(protocol) as (encryption, peer):
        encryption.abort()
        with pytest.raises(ConnectionResetError, match="closed during the TLS handshake"):
            await encryption.handshake(HANDSHAKE_S)
        assert await asyncio.get_running_loop().sock_recv(peer.raw, 1) == b""

    assert protocol.events == []


async def test_bytes_before_a_turn_stay_at_the_peer(signed: Signed, authority: Authority) -> None:
    """A stranger cannot fill memory while its handshake waits, and what it sent is not lost."""
    handshakes, protocol = Held(), Whole()
    async with _facing(authority, signed, protocol, _turns_of(handshakes, Turns())) as (encryption, peer):
        shaking = asyncio.create_task(peer.handshake(bytes(100_000)))
        (await handshakes.steps.get())()
        step = await handshakes.steps.get()
        await _turns()
        assert handshakes.steps.empty()
        assert not encryption._socket.is_reading()
        assert 0 < len(encryption._held) + encryption._incoming.pending <= PIECE
        assert "made" not in protocol.events
        step()
        await encryption.handshake(HANDSHAKE_S)
        await protocol.until(lambda: len(protocol.data) == 100_000)
        await shaking


@asynccontextmanager
async def sending(authority: Authority, signed: Signed, *parts: bytes) -> AsyncIterator[tuple[Encryption, Whole, Held]]:
    """Connects a protocol with a peer that has sent some records. The test carries out the turns of records."""
    records, protocol = Held(), Whole()
    async with _facing(authority, signed, protocol, _turns_of(Turns(), records)) as (encryption, peer):
        await _shake_hands(encryption, peer)
        for part in parts:
            peer.tls.write(part)
        await peer.flush()
        yield encryption, protocol, records


async def test_small_records_take_turns(signed: Signed, authority: Authority) -> None:
    """Each costs as much as a large one, and 700 of them are received at once."""
    parts = [bytes([number]) for number in range(100)]
    received = []
    async with sending(authority, signed, *parts) as (encryption, protocol, records):
        while len(protocol.data) < len(parts):
            step = await records.steps.get()
            await _turns()
            # Nothing is received while the turn is waited for.
            assert records.steps.empty()
            assert not encryption._socket.is_reading()
            before = len(protocol.data)
            step()
            received.append(len(protocol.data) - before)
        assert protocol.data == b"".join(parts)
        assert encryption._socket.is_reading()

    assert received == [16, 16, 16, 16, 16, 16, 4]


async def test_large_records_of_one_receipt_are_one_step(signed: Signed, authority: Authority) -> None:
    async with sending(authority, signed, *8 * [bytes(1000)]) as (_, protocol, records):
        (await records.steps.get())()
        assert len(protocol.data) == 8000


async def test_small_records_take_turns_after_a_pause(signed: Signed, authority: Authority) -> None:
    """What was received before the pause is not decrypted in one step at its end."""
    async with sending(authority, signed, *50 * [b"x"]) as (encryption, protocol, records):
        step = await records.steps.get()
        encryption.pause_reading()
        step()
        await _turns()
        assert protocol.data == b""
        assert records.steps.empty()

        encryption.resume_reading()
        step = await records.steps.get()
        assert len(protocol.data) == 16
        step()
        assert len(protocol.data) == 32


async def test_records_before_an_end_are_delivered(signed: Signed, authority: Authority) -> None:
    async with sending(authority, signed, *50 * [b"x"]) as (encryption, protocol, records):
        step = await records.steps.get()
        encryption.eof_received()
        step()
        await protocol.ended()
        assert (protocol.data, protocol.events) == (50 * b"x", ["made", "eof", "lost"])


@pytest.mark.parametrize("count", [EMPTY_MAX, EMPTY_MAX + 1])
async def test_peer_that_updates_its_key_all_the_time_is_cut(count: int, facing: Connect) -> None:
    """Each update costs 30 µs, and a stranger can send 600 of them in 16 KB."""
    protocol = Whole()
    async with facing(protocol) as (encryption, peer):
        await _shake_hands(encryption, peer)
        for number in range(count):
            update_key(peer.tls)
            if number % 2:
                # What has content does not make up for it.
                peer.tls.write(b"x")
        await peer.flush()
        if encryption._turns is None or count <= EMPTY_MAX:
            await peer.send(b"last")
            await protocol.until(lambda: protocol.data.endswith(b"last"))
            assert protocol.events == ["made"]
        else:
            await protocol.ended()
            assert protocol.data == b"x" * (count // 2)
            assert "more than 32 records without content" in str(protocol.error)


@pytest.mark.parametrize("is_lost", [False, True], ids=["aborted", "lost"])
async def test_turn_of_a_connection_that_has_ended_does_nothing(
    signed: Signed, authority: Authority, is_lost: bool
) -> None:
    handshakes, protocol = Held(), Whole()
    async with _facing(authority, signed, protocol, _turns_of(handshakes, Turns())) as (encryption, peer):
        shaking = asyncio.create_task(peer.handshake())
        step = await handshakes.steps.get()
        shaking.cancel()
        if is_lost:
            encryption._socket.abort()
        else:
            encryption.abort()
        await _turns()
        step()
        with pytest.raises(OSError, match="closed"):
            await encryption.handshake(HANDSHAKE_S)

    assert encryption._outgoing.pending == 0
    assert protocol.events == []


async def test_connection_that_was_aborted_before_it_began_is_closed(signed: Signed) -> None:
    protocol = Whole()
    encryption = Encryption(_server_tls(signed), protocol, shared_buffer())
    encryption.abort()
    with contextlib.closing(_Pair()) as pair:
        async with asyncio.timeout(HANDSHAKE_S):
            await pair.serve(encryption)
            with pytest.raises(ConnectionResetError, match="closed during the TLS handshake"):
                await encryption.secured
            assert await asyncio.get_running_loop().sock_recv(pair.theirs, 1) == b""

    assert protocol.events == []


async def test_protocol_is_paused_while_much_is_unsent(facing: Connect) -> None:
    protocol = Whole()
    async with facing(protocol) as (encryption, peer):
        await _shake_hands(encryption, peer)
        encryption.set_write_buffer_limits(high=1000, low=10)
        encryption.resume_writing()  # is not reported without a pause
        assert encryption.get_write_buffer_size() == 0
        encryption.write(bytes(20_000_000))
        await protocol.until(lambda: protocol.events == ["made", "paused"])
        assert encryption.get_write_buffer_size() > 1000
        left = 20_000_000
        while left:
            left -= len(await peer.receive())
        await protocol.until(lambda: "resumed" in protocol.events)
        assert encryption.get_write_buffer_size() == 0
        encryption.resume_writing()  # is not reported twice
        assert protocol.events == ["made", "paused", "resumed"]


async def test_pause_during_the_handshake_is_not_reported(signed: Signed, authority: Authority) -> None:
    """The buffers of the sockets are full, so that the server's part of the handshake has to wait."""

    class Watched(Encryption):
        def pause_writing(self) -> None:
            super().pause_writing()
            paused.set()

    paused = asyncio.Event()
    protocol = Whole()
    with contextlib.closing(_Pair(*socket.socketpair())) as pair:
        filled = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                filled += pair.ours.send(bytes(65_536))
        encryption = Watched(_server_tls(signed), protocol, shared_buffer())
        async with asyncio.timeout(HANDSHAKE_S):
            await pair.serve(encryption)
            encryption.set_write_buffer_limits(high=0)
            peer = RawPeer(pair.theirs, _client_tls(authority))
            with pytest.raises(ssl.SSLWantReadError):
                peer.tls.do_handshake()
            await peer.flush()
            await paused.wait()
            assert encryption.get_write_buffer_size() > 0
            while filled:
                filled -= len(await asyncio.get_running_loop().sock_recv(pair.theirs, min(filled, 65_536)))
            await _shake_hands(encryption, peer)
            assert protocol.events == ["made"]
            encryption.abort()


async def test_transport_knows_its_connection_and_the_peer(authority: Authority, signed: Signed) -> None:
    client = authority.sign("client")
    server_context, client_context = _server_tls(signed), _client_tls(authority)
    server_context.load_verify_locations(authority.cert)
    server_context.verify_mode = ssl.CERT_REQUIRED
    client_context.load_cert_chain(client.cert, client.key)
    with contextlib.closing(_Pair()) as pair:
        ours, theirs = pair.ours.getsockname(), pair.theirs.getsockname()
        encryption = Encryption(server_context, Whole(), shared_buffer())
        async with asyncio.timeout(HANDSHAKE_S):
            await pair.serve(encryption)
            await _shake_hands(encryption, RawPeer(pair.theirs, client_context))
        assert encryption.get_extra_info("peercert")["subject"] == ((("commonName", "client"),),)
        assert encryption.get_extra_info("sslcontext") is server_context
        assert encryption.get_extra_info("ssl_object").version() == "TLSv1.3"
        assert encryption.get_extra_info("sockname") == ours
        assert encryption.get_extra_info("peername", "unknown") == theirs
        assert encryption.get_extra_info("compression", "unknown") == "unknown"
        assert encryption.get_extra_info("compression") is None
        encryption.abort()


async def test_certificate_is_known_after_the_connection_has_failed(authority: Authority, signed: Signed) -> None:
    """Otherwise the peer would pass for one without a certificate: OpenSSL forgets it."""
    client = authority.sign("failing")
    server_context, client_context = _server_tls(signed), _client_tls(authority)
    server_context.load_verify_locations(authority.cert)
    server_context.verify_mode = ssl.CERT_REQUIRED
    client_context.load_cert_chain(client.cert, client.key)
    protocol = Whole()
    with contextlib.closing(_Pair()) as pair:
        encryption = Encryption(server_context, protocol, shared_buffer())
        async with asyncio.timeout(HANDSHAKE_S):
            await pair.serve(encryption)
            peer = RawPeer(pair.theirs, client_context)
            await _shake_hands(encryption, peer)
            await asyncio.get_running_loop().sock_sendall(peer.raw, b"no TLS")
            await protocol.ended()
    with pytest.raises(ValueError, match="handshake"):
        encryption.get_extra_info("ssl_object").getpeercert()
    assert encryption.get_extra_info("peercert")["subject"] == ((("commonName", "failing"),),)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_expired_certificate_does_not_resume_its_session(
    version: ssl.TLSVersion, authority: Authority, signed: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL verifies the certificate in the first handshake only."""
    server_context, client_context = _server_tls(signed), _client_tls(authority, version)
    server_context.load_verify_locations(authority.cert)
    server_context.verify_mode = ssl.CERT_REQUIRED
    client = authority.sign("holder")
    client_context.load_cert_chain(client.cert, client.key)
    expires_s = expiry_in(client.cert)
    assert expires_s is not None
    now_s = expires_s - 1
    monkeypatch.setattr(encryption_module, "time", SimpleNamespace(time=lambda: now_s))

    async def session_of(session: ssl.SSLSession | None) -> ssl.SSLSession:
        """Connect, end in an orderly way, and return the session for the next connection."""
        protocol = Whole()
        server = Encryption(server_context, protocol, shared_buffer())
        with contextlib.closing(_Pair()) as pair:
            await pair.serve(server)
            peer = RawPeer(pair.theirs, client_context, session)
            await _shake_hands(server, peer)
            assert peer.tls.session_reused is (session is not None)
            server.write(b"x")
            assert await peer.receive() == b"x"  # and the tickets before it
            resumable = peer.tls.session
            await peer.close()
            await protocol.ended()
        assert resumable is not None
        return resumable

    async with asyncio.timeout(HANDSHAKE_S):
        session = await session_of(await session_of(None))
        now_s = expires_s
        with pytest.raises(ssl.SSLError, match="the certificate of the resumed session has expired"):
            await session_of(session)


@pytest.mark.parametrize(("name", "is_accepted"), [("localhost", True), ("127.0.0.1", True), ("another", False)])
async def test_client_verifies_the_name_of_the_server(
    name: str, is_accepted: bool, authority: Authority, signed: Signed
) -> None:
    buffer = shared_buffer()
    accepting, dialing = Whole(), Buffered()
    server = Encryption(_server_tls(signed), accepting, buffer)
    client = Encryption(_client_tls(authority), dialing, buffer, server_hostname=name)
    loop = asyncio.get_running_loop()
    pair = _Pair()
    async with asyncio.timeout(HANDSHAKE_S):
        await pair.serve(server)
        await loop.create_connection(lambda: client, sock=pair.theirs)
        if is_accepted:
            await asyncio.gather(client.handshake(HANDSHAKE_S), server.handshake(HANDSHAKE_S))
            client.write(b"question")
            await accepting.until(lambda: accepting.data == b"question")
            server.write(b"answer")
            await dialing.until(lambda: dialing.data == b"answer")
            client.close()
            await asyncio.gather(accepting.ended(), dialing.ended())
            assert accepting.events == ["made", "eof", "lost"]
        else:
            with pytest.raises(ssl.SSLCertVerificationError, match="not valid for 'another'"):
                await client.handshake(HANDSHAKE_S)
            with pytest.raises(ssl.SSLError, match="alert bad certificate"):
                await server.handshake(HANDSHAKE_S)
            assert accepting.events == dialing.events == []


@pytest.mark.slow
async def test_idle_and_busy_connections_are_small(authority: Authority, signed: Signed) -> None:
    """200 connections, each with a burst of 400 KB that the listener does not read to its end."""
    burst = struct.pack(">ihhi", 900_000, 19, 4, 1) + b"\xff\xff" + bytes(400_000)
    context = _client_tls(authority)
    async with serving("--tls", str(signed.cert), str(signed.key)) as server:
        before = await server.meters()
        opened = [
            await asyncio.open_connection("127.0.0.1", server.port, ssl=context, local_addr=(f"127.0.2.{host + 1}", 0))
            for host in range(8)
            for _ in range(25)
        ]
        idle = await server.meters()
        for _, writer in opened:
            writer.write(burst)
        # Some are refused meanwhile, for their rate or for the memory of requests.
        await asyncio.gather(*(writer.drain() for _, writer in opened), return_exceptions=True)
        busy = await server.meters()
        for _, writer in opened:
            writer.transport.abort()

    assert idle["connections"] == 200
    assert idle["rss"] - before["rss"] < IDLE_MAX
    assert busy["rss"] - before["rss"] < BUSY_MAX
