"""Sinks: many ports in a separate process, each of which accepts requests and responds immediately.

    python -m bench.sinks COUNT [CERTIFICATE KEY]

Prints the ports by security protocol as one line of JSON, and serves until its input ends. With a certificate there
are as many ports of SSL, and of SASL_SSL with a login by SCRAM-SHA-512, as of PLAINTEXT. Every response is a success
without partitions. Only the head of each frame is parsed, so that the measurement concerns the other side."""

import asyncio
import contextlib
import json
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from kactl.security.sasl import verifier
from kactl.security.sasl.scram import ScramServer
from kactl.transports.kafka.listener.sasl_apis import SASL_AUTHENTICATE_API, SASL_HANDSHAKE_API

from .run import event_loop, run

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_SSL")
USER: Final = "kactl"
PASSWORD: Final = "secret-of-the-bench"

_FRAME: Final = struct.Struct(">ihhi")  # length, API key, version, correlation id
_UPDATE_METADATA: Final = 6
# Correlation id, no tags, no error; then no tags, or an empty list and no tags.
_BARE: Final = struct.Struct(">iibhb")
_LISTED: Final = struct.Struct(">iibhbb")
_START_S: Final = 30
_VERSION_OF_LOGINS: Final = 1


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


class LoginSink(Sink):
    """A connection that begins with a login."""

    # Of all brokers, like that of a cluster's user.
    known = verifier("SCRAM-SHA-512", PASSWORD, salt=b"salt-of-the-user", iterations=4096)

    def __init__(self) -> None:
        super().__init__()
        self._login = ScramServer("SCRAM-SHA-512", pepper=b"unused")
        self._begun = False
        self._received = b""

    def buffer_updated(self, nbytes: int) -> None:
        if self._login.is_complete:
            super().buffer_updated(nbytes)
            return
        # A client waits for each response before it sends the next message, so there is at most one frame.
        self._received += bytes(self._buffer[:nbytes])
        if len(self._received) < _FRAME.size or len(self._received) < 4 + _FRAME.unpack_from(self._received)[0]:
            return
        _, key, _, correlation = _FRAME.unpack_from(self._received)
        (name_size,) = struct.unpack_from(">h", self._received, _FRAME.size)
        body = self._received[_FRAME.size + 2 + name_size :]
        self._received = b""
        answer = struct.pack(">i", correlation) + self._respond(key, body)
        self._transport.write(struct.pack(">i", len(answer)) + answer)

    def _respond(self, key: int, body: bytes) -> bytes:
        if key == SASL_HANDSHAKE_API.key:
            offered = {"error_code": 0, "mechanisms": [self._login.name]}
            return SASL_HANDSHAKE_API.response.write(offered, _VERSION_OF_LOGINS)
        message = SASL_AUTHENTICATE_API.request.read(body, _VERSION_OF_LOGINS)["auth_bytes"]
        if self._begun:
            answer = self._login.finish(message)
        else:
            self._login.begin(message)
            answer = self._login.challenge(self.known)
            self._begun = True
        response = {"error_code": 0, "error_message": None, "auth_bytes": answer, "session_lifetime_ms": 0}
        return SASL_AUTHENTICATE_API.response.write(response, _VERSION_OF_LOGINS)


@contextlib.contextmanager
def sinks(count: int) -> Iterator[list[int]]:
    """Starts sinks in another process and yields their ports."""
    with _started(str(count)) as ports:
        yield ports["PLAINTEXT"]


@contextlib.contextmanager
def protected_sinks(count: int, *, certificate: Path, key: Path) -> Iterator[dict[str, list[int]]]:
    """Starts `count` sinks of each protocol in another process and yields their ports by protocol."""
    with _started(str(count), str(certificate), str(key)) as ports:
        yield ports


@contextlib.contextmanager
def _started(*arguments: str) -> Iterator[dict[str, list[int]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.sinks", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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


async def serve(count: int, certificate: str = "", key: str = "") -> None:
    loop = asyncio.get_running_loop()
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
    kinds = {"PLAINTEXT": (Sink, None)} | ({"SSL": (Sink, tls), "SASL_SSL": (LoginSink, tls)} if tls else {})
    servers = {
        protocol: [await loop.create_server(sink, "127.0.0.1", 0, ssl=context) for _ in range(count)]
        for protocol, (sink, context) in kinds.items()
    }
    ports = {protocol: [each.sockets[0].getsockname()[1] for each in started] for protocol, started in servers.items()}
    print(json.dumps(ports), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for started in servers.values():
        for server in started:
            server.close()


if __name__ == "__main__":
    run(serve(int(sys.argv[1]), *sys.argv[2:]), event_loop("auto"))
