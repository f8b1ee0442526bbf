"""A flood of TLS handshakes, over real sockets and from a separate process."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from kactl.model.errors import ErrorCode
from kactl.runtime.budget import RATES, Unit
from kactl.transports.kafka.listener.limits import Limits
from tests.support.certificates import Authority
from tests.support.hostile_minutes import SECONDS

from .attack.handshakes import client_hello
from .attack.passwords import connection
from .attack.run import WORK_MAX, flooding, serving
from .attack.server import BROKERS, PASSWORDS

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PLAIN_BURST = int(RATES[Unit.PASSWORDS].burst)
RATE = 1000
# Few enough attempts of each address that the limit of new connections lets most of them begin a handshake.
ADDRESSES = [f"127.0.1.{number}" for number in range(1, 21)]
CLIENT = "127.0.2.1"
AT_ONCE = 900
# New connections of each well-behaved peer, with as many logins as are not delayed.
RETURNS = PLAIN_BURST - 2
RSS_MAX = 64 * 1024 * 1024
PATIENCE_S = 300.0 + 5 * SECONDS


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_handshakes_that_begin_at_the_same_time_do_not_hold_the_loop(tmp_path: Path) -> None:
    """Each connection is open before the first of them sends a byte. A step of all of them takes 0.2 s."""
    authority = Authority(tmp_path)
    signed = authority.sign("kactl")
    hello = client_hello(str(authority.cert))
    async with (
        asyncio.timeout(PATIENCE_S),
        serving("--plain", str(signed.cert), str(signed.key)) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        peers = []
        for number in range(AT_ONCE):
            address = ADDRESSES[number % len(ADDRESSES)]
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))
            stack.callback(writer.transport.abort)
            peers.append((reader, writer))
        while (await server.meters())["connections"] < AT_ONCE:
            pass
        for _, writer in peers:
            writer.write(hello)
        answers = await asyncio.gather(*(reader.read(4096) for reader, _ in peers))
        during = await server.meters()

    assert all(answers)
    assert during["work"] < WORK_MAX, during


@pytest.mark.parametrize(
    "attempts", [3000, pytest.param(round(RATE * SECONDS), marks=pytest.mark.long)], ids=["short", "long"]
)
async def test_flood_of_handshakes_leaves_room_for_others(tmp_path: Path, attempts: int) -> None:
    """A broker that has a connection, one that returns and a client that returns are served until the flood has ended.

    The flood takes bounded memory, no long step of the event loop, and leaves no descriptor behind.
    """
    authority = Authority(tmp_path)
    signed = authority.sign("kactl")
    tls = ssl.create_default_context(cafile=str(authority.cert))
    async with (
        asyncio.timeout(PATIENCE_S),
        serving("--plain", str(signed.cert), str(signed.key)) as server,
        connection(server.port, tls, BROKERS[3]) as kept,
    ):
        assert await kept.log_in("broker-3", PASSWORDS["broker-3"]) is ErrorCode.NONE
        await kept.allocate(3, server.epochs[3])
        before = await server.meters()
        async with flooding("handshakes", server.port, authority.cert, RATE, attempts, ",".join(ADDRESSES)) as flood:
            ending = asyncio.create_task(flood.run())
            for number in range(RETURNS):
                if ending.done():  # on a busy machine
                    break
                async with connection(server.port, tls, BROKERS[3]) as broker:
                    assert await broker.log_in("broker-3", PASSWORDS["broker-3"]) is ErrorCode.NONE
                    await broker.allocate(3, server.epochs[3])
                async with connection(server.port, tls, CLIENT) as client:
                    assert await client.log_in("client", PASSWORDS["client"]) is ErrorCode.NONE
                    await client.create(f"created-{number}")
            while not ending.done():
                await kept.allocate(3, server.epochs[3])
            await ending
            during = await server.meters()
        after = during
        while after["connections"] > 1:
            after = await server.meters()

    assert sum(flood.results.values()) == attempts
    assert flood.results["SIGNED"] > attempts / 2
    assert during["connections_max"] <= len(ADDRESSES) * Limits().connections_per_address_max + 3
    assert "error" not in during["refused"]
    assert during["rss_max"] - before["rss_max"] < RSS_MAX
    assert during["work"] < WORK_MAX, during
    assert after["descriptors"] <= before["descriptors"]
