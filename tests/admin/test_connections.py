"""Slow and silent connections over real sockets, and probes that are sent meanwhile."""

import asyncio
import contextlib
import http.client
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import anyio
import pytest

from kactl.admin import limits, mounting
from kactl.admin.gate import Gate
from kactl.admin.limits import Capacity, capacity
from kactl.model.errors import BadConfig
from kactl.runtime.addresses import group_of
from kactl.runtime.places import Place
from tests.admin.conftest import Served, served
from tests.support.api_access import opened
from tests.support.fork_server import Program
from tests.support.marks import fast_and_slow
from tests.support.processes import Process

HALF_HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
JSON_HEAD = "POST /v1/elections HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
PATIENCE_S = 60


async def open_connection(server: Served, content: bytes | str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    where = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(content.replace("{host}", server.host).encode() if isinstance(content, str) else content)
    await writer.drain()
    return reader, writer


async def read_until_closed(reader: asyncio.StreamReader) -> bytes:
    """Returns the data received until the server closes the connection."""
    with anyio.fail_after(PATIENCE_S):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


@contextlib.asynccontextmanager
async def crowd(server: Served, count: int, content: bytes | str) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open connections that send the same data and then nothing."""
    both = [await open_connection(server, content) for _ in range(count)]
    try:
        yield [reader for reader, _ in both]
    finally:
        for _, writer in both:
            writer.close()


async def probe(server: Served) -> int:
    """Returns the status of `/readyz` over a new connection."""
    reader, writer = await open_connection(server, "GET /readyz HTTP/1.1\r\nHost: {host}\r\n\r\n")
    with anyio.fail_after(PATIENCE_S):
        line = await reader.readline()
    writer.close()
    return int(line.split()[1]) if line else 0


# -- time limits -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_incomplete_head_is_cut(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEAD_TIMEOUT_S", 0.05)

    async with crowd(server, 3, HALF_HEAD) as silent, crowd(server, 1, b"") as mute:
        for reader in (*silent, *mute):
            assert await read_until_closed(reader) == b""

    assert b'kactl_api_refused_count_total{error_type="head"} 4.0' in (await server.get("/metrics")).body


@pytest.mark.anyio
async def test_slow_head_is_cut(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEAD_TIMEOUT_S", 0.2)
    reader, writer = await open_connection(server, HALF_HEAD)
    end = asyncio.create_task(read_until_closed(reader))

    while not end.done():
        writer.write(b"X: y\r\n")
        await asyncio.wait({end}, timeout=0.01)

    assert end.result() == b""
    writer.close()


@pytest.mark.anyio
async def test_endless_head_is_cut(server: Served) -> None:
    reader, writer = await open_connection(server, HALF_HEAD)

    with anyio.fail_after(PATIENCE_S), contextlib.suppress(ConnectionError):
        for number in range(limits.HEAD_BYTES_MAX // 1000):
            writer.write(f"X{number}: {'y' * 1200}\r\n".encode())
            await writer.drain()

    assert await read_until_closed(reader) == b""
    writer.close()
    assert b'kactl_api_refused_count_total{error_type="head"} 1.0' in (await server.get("/metrics")).body


@pytest.mark.anyio
async def test_idle_connection_is_closed(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDLE_TIMEOUT_S", 0.05)
    reader, writer = await open_connection(server, "GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n")

    answer = await read_until_closed(reader)

    assert answer.startswith(b"HTTP/1.1 200")
    writer.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "body", ["Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"], ids=["length", "chunked"]
)
async def test_missing_body_is_rejected(server: Served, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr("kactl.admin.route.BODY_GRACE_S", 0.05)
    monkeypatch.setattr(limits, "LINGERING_S", 0.05)
    reader, writer = await open_connection(server, JSON_HEAD + body)

    answer = await read_until_closed(reader)

    assert answer.startswith(b"HTTP/1.1 408")
    assert b"only 1 bytes did" in answer
    writer.close()


@pytest.mark.anyio
async def test_slow_body_is_read(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kactl.admin.route.BODY_GRACE_S", 0.2)
    monkeypatch.setattr("kactl.admin.route.BODY_BYTES_PER_S", 1000)
    body = b'{"type": "preferred", "all": true' + b" " * 4000 + b"}"
    reader, writer = await open_connection(
        server, JSON_HEAD + f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )

    for begin in range(0, len(body), 500):
        writer.write(body[begin : begin + 500])
        await writer.drain()
        await asyncio.wait([asyncio.ensure_future(server.get("/livez"))])

    assert (await read_until_closed(reader)).startswith(b"HTTP/1.1 200")
    writer.close()


@pytest.mark.anyio
async def test_client_that_does_not_read_is_cut(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNREAD_TIMEOUT_S", 0.1)
    where = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=1024)
    # More than the buffers of both ends can hold.
    writer.write(f"GET /openapi.json HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode() * 400)

    with anyio.fail_after(PATIENCE_S):
        while b'error_type="unread"} 1.0' not in (await server.get("/metrics")).body:
            pass

    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


@pytest.mark.anyio
async def test_connection_ends_after_its_last_request(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUESTS_PER_CONNECTION_MAX", 3)
    reader, writer = await open_connection(server, "GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n" * 5)

    answers = await read_until_closed(reader)

    assert answers.count(b"HTTP/1.1 200") == 3
    assert answers.count(b"Connection: close") == 1
    writer.close()


# -- number of connections ---------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    "content",
    [b"", HALF_HEAD, JSON_HEAD + "Content-Length: 10\r\n\r\n{", "GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n"],
    ids=["silent", "half a head", "half a body", "idle"],
)
async def test_waiting_connection_is_replaced_by_a_probe(content: bytes | str) -> None:
    async with served(capacity=Capacity(connections=8, probes=2)) as server:
        async with crowd(server, 40, content):
            for _ in range(5):
                assert await probe(server) == 200

        text = (await server.get("/metrics")).body.decode()
        assert 'error_type="replaced"} ' in text
        assert float(text.split('error_type="replaced"} ')[1].split()[0]) >= 32


@pytest.mark.anyio
async def test_one_connection_replaces_one() -> None:
    idle = "GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n"
    async with served(capacity=Capacity(connections=8, probes=2)) as server, crowd(server, 8, idle) as readers:
        for reader in readers:
            await reader.readuntil(b"\r\n\r\n")

        metrics = (await server.get("/metrics")).body

        assert b'kactl_api_refused_count_total{error_type="replaced"} 1.0' in metrics


@pytest.mark.anyio
async def test_arrived_head_is_answered_however_late_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FRESH_S", 0)
    async with served(capacity=Capacity(connections=2, probes=2)) as server:
        where = urlsplit(server.url)
        # The server runs in this thread: it accepts these connections when their heads have all arrived.
        sockets = [socket.create_connection((where.hostname, where.port)) for _ in range(6)]
        for each in sockets:
            each.sendall(f"GET /readyz HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode())

        for each in sockets:
            reader, writer = await asyncio.open_connection(sock=each)
            with anyio.fail_after(PATIENCE_S):
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()


@pytest.mark.anyio
async def test_streams_are_not_replaced_and_probes_have_reserved_connections() -> None:
    stream = "GET /v1/events/stream HTTP/1.1\r\nHost: {host}\r\n\r\n"
    async with (
        served(capacity=Capacity(connections=4, probes=2, streams=4)) as server,
        crowd(server, 4, stream) as streams,
    ):
        for reader in streams:
            await reader.readuntil(b"retry: ")

        reader, writer = await open_connection(server, "GET /v1/topics HTTP/1.1\r\nHost: {host}\r\n\r\n")
        refused = await read_until_closed(reader)
        writer.close()

        assert await probe(server) == 200
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"Too many connections" in refused
        assert b"Connection: close" in refused
        assert not any(reader.at_eof() for reader in streams)


@pytest.mark.anyio
async def test_connections_of_one_address_are_limited_except_on_this_machine(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_PER_ADDRESS_MAX", 3)
    # A test cannot connect from another machine, so the address of the client is taken for one.
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("kactl.admin.gate.is_loopback", lambda address: False)
        async with crowd(server, 6, HALF_HEAD) as readers:
            refused = [await read_until_closed(reader) for reader in readers[3:]]
            assert not any(reader.at_eof() for reader in readers[:3])
    async with crowd(server, 6, HALF_HEAD):
        assert await probe(server) == 200
    monkeypatch.undo()

    assert refused == [b""] * 3
    assert b'error_type="address"} 3.0' in (await server.get("/metrics")).body


@pytest.mark.anyio
async def test_clients_of_one_address_take_turns_at_its_limit(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a NAT: each keeps its connection for the next request, and none is turned away for that."""
    monkeypatch.setattr(limits, "CONNECTIONS_PER_ADDRESS_MAX", 3)
    monkeypatch.setattr("kactl.admin.gate.is_loopback", lambda address: False)

    async with contextlib.AsyncExitStack() as stack:
        for _ in range(10):
            reader, writer = await open_connection(server, "GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n")
            stack.callback(writer.close)
            with anyio.fail_after(60):
                assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
                await reader.readuntil(b"\r\n\r\n")


class OfPeer(Place):
    """The part of a connection that its place depends on."""

    uid = None
    is_idle = False

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.owner = group_of(peer)


def test_addresses_of_one_network_share_the_limit_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_PER_ADDRESS_MAX", 2)
    gate = Gate(Capacity())
    first, *others = [OfPeer(f"2001:db8::{number}") for number in range(1, 5)]

    assert gate.admit(cast(Any, first))
    assert [gate.admit(cast(Any, other)) for other in others] == [True, False, False]
    assert gate.admit(cast(Any, OfPeer("2001:db8:0:1::3")))
    gate.leave(cast(Any, first))
    assert gate.admit(cast(Any, OfPeer("2001:db8::3")))


@pytest.mark.anyio
async def test_running_handlers_are_limited_and_probes_pass(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounting, "REQUESTS_AT_ONCE_MAX", 0)

    refused = await server.get("/v1/topics")

    assert refused.status == 503
    assert refused.json()["retriable"]
    assert (await server.get("/readyz")).status == 200


@pytest.mark.parametrize(
    ("descriptors", "others", "expected"),
    [
        (1024, 0, Capacity(256, 16, 100)),
        (2**31, 1000, Capacity(256, 16, 100)),
        (128, 0, Capacity(48, 16, 18)),
        (128, 1000, Capacity(16, 16, 6)),
        (1024, 1000, Capacity(189, 16, 73)),
    ],
)
def test_connection_limit_fits_the_descriptors(descriptors: int, others: int, expected: Capacity) -> None:
    assert capacity(descriptors, others=others) == expected


def test_too_few_descriptors_are_a_configuration_error() -> None:
    with pytest.raises(BadConfig, match=r"ulimit -n: is 127: .* raise"):
        capacity(127)


# -- a process with 128 descriptors under attack -----------------------------------------------------------------------

# These parts take most of the time of a start.
IMPORTS = ("kactl.runtime.logs", "tests.admin.conftest", "uvloop")
START_S = 30
PROBES = 40
# The project's bound is 100 ms on an idle machine; test machines share two cores among many processes.


@contextlib.contextmanager
def _process(loop: str, log: Path, *arguments: str) -> Iterator[str]:
    """Run a server in a separate process with `ulimit -n 128`; yields its URL."""
    if loop == "uvloop":
        pytest.importorskip("uvloop", reason="uvloop does not exist for this platform")
    program = Program("tests.admin.small_server", [loop, *arguments], IMPORTS, descriptors_max=128)
    with Process(program, output=log) as process:
        yield process.wait_for_line(r"^http://\S+", START_S)[0]
        assert len(os.listdir(f"/proc/{process.pid}/fd")) <= 128


@pytest.fixture(params=["asyncio", "uvloop"])
def small_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Server with few descriptors, and its log."""
    with _process(request.param, tmp_path / "log") as url:
        yield url, tmp_path / "log"


def _readyz(where: SplitResult) -> int:
    """Returns the status of a probe. One whose own process sent the head too late may be cut, and is repeated."""
    while True:
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE_S)
        began_s = time.perf_counter()
        is_late = True
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/readyz")
                is_late = time.perf_counter() - began_s >= limits.FRESH_S
                return connection.getresponse().status
            except ConnectionError:
                if not is_late:
                    raise


def _is_open(connection: socket.socket) -> bool:
    """Returns whether the server has left a silent connection open; closes it otherwise."""
    with contextlib.suppress(OSError):
        try:
            if connection.recv(1):
                return True
        except BlockingIOError:
            return True
    connection.close()
    return False


def _attack(address: tuple[str, int], count: int, done: threading.Event) -> None:
    """Keep `count` incomplete requests open; those that the server cuts are replaced."""
    sockets: list[socket.socket] = []
    try:
        while not done.wait(0.1):
            sockets = [connection for connection in sockets if _is_open(connection)]
            while len(sockets) < count and not done.is_set():
                sockets.append(socket.create_connection(address, timeout=PATIENCE_S))
                with contextlib.suppress(ConnectionError):
                    sockets[-1].sendall(HALF_HEAD)
                sockets[-1].setblocking(False)
    finally:
        for connection in sockets:
            connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("attackers", fast_and_slow([200, 1000], fast=1))
def test_probe_is_answered_while_half_requests_are_open(small_server: tuple[str, Path], attackers: int) -> None:
    url, log = small_server
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    done = threading.Event()
    attack = threading.Thread(target=_attack, args=((where.hostname, where.port), attackers, done))

    attack.start()
    try:
        for _ in range(PROBES):
            assert _readyz(where) == 200
            done.wait(0.02)
    finally:
        done.set()
        attack.join()
    # Only probes are promised an answer during the attack.
    metrics = opened(f"{url}/metrics", timeout=PATIENCE_S).read().decode()

    replaced = float(metrics.split('refused_count_total{error_type="replaced"} ')[1].split()[0])
    assert replaced >= attackers - 128
    lines = log.read_text().splitlines()
    assert len(lines) < 20, "\n".join(lines[:30])
    assert not [line for line in lines if "Traceback" in line or "out of system resource" in line]


FLOOD = 20_000
# More than the server accepts.
FLOOD_OPEN = 500
FLOOD_S = 300


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_probes_are_answered_in_a_flood_of_new_connections(loop: str, tmp_path: Path, free_tcp_port: int) -> None:
    """At both addresses, from the beginning to the end of the flood; the controller stays the leader."""
    log = tmp_path / "log"
    with _process(loop, log, str(free_tcp_port)) as url:
        where = urlsplit(url)
        flood = Program("tests.admin.connection_flood", [str(where.port), str(FLOOD), str(FLOOD_OPEN)], IMPORTS)
        statuses: list[int] = []
        with Process(flood, output=tmp_path / "flood") as process:
            process.wait_for_line("^begun", START_S)
            while process.alive:
                statuses += (_readyz(urlsplit(f"http://127.0.0.1:{free_tcp_port}")), _readyz(where))
            assert process.wait_for_line("^opened .*", FLOOD_S)[0] == f"opened {FLOOD}"
        leads = opened(f"{url}/leader", timeout=PATIENCE_S).status

    assert len(statuses) > 20
    assert statuses == [200] * len(statuses)
    assert leads == 200
    assert "Traceback" not in log.read_text()
    assert "replaced" in log.read_text()
