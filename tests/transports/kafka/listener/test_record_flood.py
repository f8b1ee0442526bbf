"""Strangers that send many small TLS records at the same time, over connections whose handshake has succeeded."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kactl.security.tls.encryption import PIECE
from tests.support.certificates import Authority
from tests.support.key_updates import update_key
from tests.support.raw_peer import RawPeer

from .attack.run import WORK_MAX, serving

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CONNECTIONS = 200
ADDRESSES = [f"127.0.3.{number}" for number in range(1, 11)]
PATIENCE_S = 300.0
# Units of processor time of the server between two looks at it, if it has nothing to do; and how often that has to be
# seen.
RESTS = 3
LOOKS = 20
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
# The beginning of a SaslHandshake that is allowed before a login.
REQUEST = struct.pack(">ihhi", 16_000, 17, 1, 1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _made(peer: RawPeer, record: Callable[[ssl.SSLObject, int], object]) -> bytes:
    """Returns as many records as the server receives at a time."""
    number = 0
    while peer.pending < PIECE:
        record(peer.tls, number)
        number += 1
    return peer.sealed()


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
        serving("--plain", str(signed.cert), str(signed.key), "patient") as server,
        contextlib.AsyncExitStack() as stack,
    ):
        peers = []
        for number in range(CONNECTIONS):
            address = ADDRESSES[number % len(ADDRESSES)], 0
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), source_address=address))
            peer = RawPeer(raw, context)
            # The answer shows that the server has completed the handshake, too.
            await peer.handshake(API_VERSIONS)
            assert await peer.receive()
            peers.append(peer)
        made = [_made(peer, KINDS[kind]) for peer in peers]
        await server.meters()
        for peer, records in zip(peers, made, strict=True):
            await peer.send(b"", then=records)
        worst, quiet = 0.0, 0
        while quiet < LOOKS:
            during = await server.meters()
            worst = max(worst, during["work"])
            quiet = quiet + 1 if during["cpu_s"] < RESTS * during["unit_s"] else 0
        left = during["connections"]

    print(f"{kind}: {worst:.0f} units in a step, {left} connections left")
    assert worst < WORK_MAX
    # Peers that update their keys are cut. A request that arrives slowly may still become complete.
    assert left == (0 if kind == "key updates" else CONNECTIONS)
