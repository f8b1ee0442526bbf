"""Strangers that send many small TLS records at the same time, over connections whose handshake has succeeded."""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kactl.runtime.encryption import PIECE
from tests.support.certificates import Authority
from tests.support.key_updates import update_key

from .attack.run import serving

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CONNECTIONS = 200
ADDRESSES = [f"127.0.3.{number}" for number in range(1, 11)]
# Of processor time in one step of the event loop.
HOLD_S = 0.1
PATIENCE_S = 300.0
# Processor time of the server between two looks at it, if it has nothing to do.
_RESTS_S = 0.003
_LOOKS = 20
# The beginning of a SaslHandshake that is allowed before a login.
REQUEST = struct.pack(">ihhi", 16_000, 17, 1, 1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Stranger:
    """A client whose records are made before they are sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext) -> None:
        self.reader, self.writer = reader, writer
        self._plain, self._cipher = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._plain, self._cipher, server_hostname="127.0.0.1")

    async def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.writer.write(self._cipher.read())
                self._plain.write(await self.reader.read(65_536))
        self.writer.write(self._cipher.read())
        # An answer shows that the server has completed the handshake, too.
        self.tls.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        self.writer.write(self._cipher.read())
        assert await self.reader.read(65_536)

    def made(self, record: Callable[[ssl.SSLObject, int], object]) -> bytes:
        """Returns as many records as the server receives at a time."""
        number = 0
        while self._cipher.pending < PIECE:
            record(self.tls, number)
            number += 1
        return self._cipher.read()


def _single_byte(tls: ssl.SSLObject, number: int) -> None:
    tls.write(REQUEST[number : number + 1] or b"x")


KINDS: dict[str, Callable[[ssl.SSLObject, int], object]] = {
    "key updates": lambda tls, _: update_key(tls),
    "single bytes": _single_byte,
}


@pytest.mark.parametrize("kind", KINDS)
async def test_small_records_do_not_hold_the_loop(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signed = authority.sign("kactl")
    context = ssl.create_default_context(cafile=str(authority.cert))
    async with (
        asyncio.timeout(PATIENCE_S),
        serving("--plain", str(signed.cert), str(signed.key)) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        strangers = []
        for number in range(CONNECTIONS):
            address = ADDRESSES[number % len(ADDRESSES)]
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))
            stack.callback(writer.transport.abort)
            stranger = Stranger(reader, writer, context)
            await stranger.shake_hands()
            strangers.append(stranger)
        made = [stranger.made(KINDS[kind]) for stranger in strangers]
        await server.meters()
        for stranger, records in zip(strangers, made, strict=True):
            stranger.writer.write(records)
        worst_s, quiet = 0.0, 0
        while quiet < _LOOKS:
            during = await server.meters()
            worst_s = max(worst_s, during["work_s"])
            quiet = quiet + 1 if during["cpu_s"] < _RESTS_S else 0
        left = during["connections"]

    print(f"{kind}: {worst_s * 1000:.0f} ms in a step, {left} connections left")
    assert worst_s < HOLD_S
    # Who updates its key all the time is cut; a request that arrives slowly may become complete.
    assert left == (0 if kind == "key updates" else CONNECTIONS)
