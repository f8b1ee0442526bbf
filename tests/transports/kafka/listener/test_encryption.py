"""TLS of the listener's connections: nothing is lost or held in memory, whatever the sizes and the order of events."""

import asyncio
import functools
import gc
import random
import socket
import ssl
import struct
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kactl.runtime.encryption import Encryption
from kactl.transports.kafka.listener.stream import PIECE_SIZE, Stream, shared_buffer
from tests.support.certificates import Authority, Signed

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
