"""Sinks: many ports in a separate process, each of which accepts requests and responds immediately.

    python -m bench.sinks COUNT

Prints the ports as one line of JSON, and serves until its input ends. Every response is a success without partitions.
Only the head of each frame is parsed, so that the measurement concerns the other side."""

import asyncio
import contextlib
import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Final, cast

from .run import event_loop, run

_FRAME: Final = struct.Struct(">ihhi")  # length, API key, version, correlation id
_UPDATE_METADATA: Final = 6
# Correlation id, no tags, no error; then no tags, or an empty list and no tags.
_BARE: Final = struct.Struct(">iibhb")
_LISTED: Final = struct.Struct(">iibhbb")
_START_S: Final = 30


class Sink(asyncio.BufferedProtocol):
    """One connection, which reads into one buffer repeatedly."""

    def __init__(self) -> None:
        self._buffer = bytearray(1 << 20)
        self._head = b""
        self._left = 0  # missing bytes of the current frame
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        at = 0
        while at < nbytes:
            if not self._left:
                missing = _FRAME.size - len(self._head)
                self._head += bytes(self._buffer[at : min(at + missing, nbytes)])
                at = min(at + missing, nbytes)
                if len(self._head) < _FRAME.size:
                    return
                size, key, _, correlation = _FRAME.unpack(self._head)
                self._head, self._left = b"", 4 + size - _FRAME.size
                if key == _UPDATE_METADATA:
                    self._answer = _BARE.pack(_BARE.size - 4, correlation, 0, 0, 0)
                else:
                    self._answer = _LISTED.pack(_LISTED.size - 4, correlation, 0, 0, 1, 0)
            taken = min(self._left, nbytes - at)
            at, self._left = at + taken, self._left - taken
            if not self._left:
                self._transport.write(self._answer)


@contextlib.contextmanager
def sinks(count: int) -> Iterator[list[int]]:
    """Starts sinks in another process and yields their ports."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.sinks", str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(_START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def serve(count: int) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Sink, "127.0.0.1", 0) for _ in range(count)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for server in servers:
        server.close()


if __name__ == "__main__":
    run(serve(int(sys.argv[1])), event_loop("auto"))
