"""Floods of wrong passwords over TLS, over real sockets and from a separate process."""

import asyncio
import ssl
import time
from pathlib import Path

import pytest

from kactl.model.errors import ErrorCode
from kactl.runtime.budget import RATES, Unit
from kactl.transports.kafka.listener.authentication import PLAIN_RATE
from kactl.transports.kafka.listener.limits import Limits
from tests.support.certificates import Authority

from .attack.passwords import connection
from .attack.run import WORK_MAX, flooding, serving
from .attack.server import BROKERS, PASSWORDS

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PLAIN_BURST = int(RATES[Unit.PASSWORDS].burst)
LOGINS = 1000
# More than one address may have at a time.
CONNECTIONS = 300
ADDRESSES = ["127.0.1.1", "127.0.1.2"]
CLIENT = "127.0.2.1"
# New connections of each well-behaved peer; as many logins are not delayed.
RETURNS = PLAIN_BURST - 2
# Each login is compared with verifiers of two hashes.
CHECKS_EACH = 2
RSS_MAX = 64 * 1024 * 1024
PATIENCE_S = 300.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_flood_of_wrong_passwords_leaves_room_for_others(tmp_path: Path) -> None:
    """A broker that has a connection, one that returns and a client that returns are served until the flood has ended.

    The attacker's addresses have no more connections and checks than an address may have.
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
        begun_s = time.monotonic()
        async with flooding(
            "passwords", server.port, authority.cert, LOGINS, CONNECTIONS, ",".join(ADDRESSES)
        ) as flood:
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
            during_s = time.monotonic() - begun_s
            after = await server.meters()

    assert sum(flood.results.values()) >= LOGINS
    assert flood.results.keys() <= {"SASL_AUTHENTICATION_FAILED", "CLOSED"}
    assert flood.results["SASL_AUTHENTICATION_FAILED"] >= PLAIN_BURST * len(ADDRESSES)
    well_behaved = CHECKS_EACH * (1 + 2 * RETURNS)
    of_flood = CHECKS_EACH * len(ADDRESSES) * (PLAIN_BURST + PLAIN_RATE * during_s)
    assert after["checks"] <= well_behaved + of_flood
    assert 0 < after["checks_max"] <= 4
    assert after["checks_in_loop"] == 0
    assert after["connections_max"] <= len(ADDRESSES) * Limits().connections_per_address_max + 3
    assert "error" not in after["refused"]
    assert after["rss_max"] - before["rss_max"] < RSS_MAX
    assert after["work"] < WORK_MAX
