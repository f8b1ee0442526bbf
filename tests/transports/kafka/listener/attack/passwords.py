"""Logins with PLAIN over TLS: a flood of wrong passwords from a separate process, and sessions of well-behaved peers.

Run as `python -m tests.transports.kafka.listener.attack.passwords PORT AUTHORITY LOGINS CONNECTIONS ADDRESSES` for the
flood. It prints "begun" after one login of every connection. When all logins have ended, it prints their number by
result.
"""

import asyncio
import contextlib
import json
import os
import ssl
import struct
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from kactl.model.errors import ErrorCode
from kactl.transports.kafka.listener.api import Api
from kactl.transports.kafka.listener.api_keys import ALLOCATE_PRODUCER_IDS, CREATE_TOPICS
from kactl.transports.kafka.listener.apis import APIS
from kactl.transports.kafka.listener.sasl_apis import SASL_AUTHENTICATE_API, SASL_HANDSHAKE_API

from .server import PASSWORDS

# Delay before a connection that was not accepted is opened again.
_AGAIN_S = 0.1


class Session:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, api: Api, version: int, values: dict[str, Any]) -> dict[str, Any]:
        """Send a request. Returns its response.

        Raises:
            OSError, asyncio.IncompleteReadError: the connection was closed.
        """
        flexible = b"\0" if api.request.is_flexible(version) else b""
        content = struct.pack(">hhi", api.key, version, 1) + b"\0\4peer" + flexible + api.request.write(values, version)
        self._writer.write(struct.pack(">i", len(content)) + content)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        answer = await self._reader.readexactly(size)
        return dict(api.response.read(answer[4 + len(flexible) :], version))

    async def log_in(self, user: str, password: str) -> ErrorCode:
        """Returns the result of a login."""
        chosen = await self.ask(SASL_HANDSHAKE_API, 1, {"mechanism": "PLAIN"})
        assert chosen["error_code"] == ErrorCode.NONE
        result = await self.ask(SASL_AUTHENTICATE_API, 1, {"auth_bytes": f"\0{user}\0{password}".encode()})
        return ErrorCode(result["error_code"])

    async def allocate(self, broker: int, epoch: int) -> None:
        """Allocate producer ids for a broker."""
        request = {"broker_id": broker, "broker_epoch": epoch}
        assert (await self.ask(APIS[ALLOCATE_PRODUCER_IDS], 0, request))["error_code"] == ErrorCode.NONE

    async def create(self, name: str) -> None:
        """Create a topic."""
        new = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        request = {"topics": [new], "timeout_ms": 60_000, "validate_only": False}
        (result,) = (await self.ask(APIS[CREATE_TOPICS], 2, request))["topics"]
        assert result["error_code"] == ErrorCode.NONE

    def close(self) -> None:
        self._writer.close()


@contextlib.asynccontextmanager
async def connection(port: int, tls: ssl.SSLContext | None, address: str) -> AsyncIterator[Session]:
    """Connect from an address, in clear text if `tls` is None.

    Raises:
        OSError: the listener did not accept the connection.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, local_addr=(address, 0))
    try:
        yield Session(reader, writer)
    finally:
        writer.transport.abort()


async def guess(port: int, tls: ssl.SSLContext, address: str) -> str:
    """Log in with a wrong password. Returns the result."""
    try:
        async with connection(port, tls, address) as session:
            return (await session.log_in("client", f"not {PASSWORDS['client']}")).name
    except (OSError, asyncio.IncompleteReadError):
        await asyncio.sleep(_AGAIN_S)
        return "CLOSED"


async def main(port: int, authority: str, logins: int, connections: int, addresses: list[str]) -> None:
    tls = ssl.create_default_context(cafile=authority)
    results: Counter[str] = Counter()

    async def guesses(address: str, begun: asyncio.Future[None]) -> None:
        while results.total() < logins:
            results[await guess(port, tls, address)] += 1
            if not begun.done():
                begun.set_result(None)

    loop = asyncio.get_running_loop()
    firsts = [loop.create_future() for _ in range(connections)]
    running = [
        asyncio.create_task(guesses(addresses[number % len(addresses)], first)) for number, first in enumerate(firsts)
    ]
    await asyncio.gather(*firsts)
    print("begun", flush=True)
    await asyncio.gather(*running)
    print(json.dumps(results), flush=True)


if __name__ == "__main__":
    # A remote attacker has its own processors; this one must not use those of the measured processes.
    os.nice(10)
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5].split(",")))
