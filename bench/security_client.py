"""Client process of `bench.security`.

It reads commands, `connection|request PORT PROTOCOL COUNT`, and answers each with `done`.
"""

import socket
import ssl
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from kactl.security.sasl import ScramClient, salted_password
from kactl.transports.kafka.listener.apis import APIS
from kactl.transports.kafka.listener.sasl_apis import SASL_AUTHENTICATE_API, SASL_HANDSHAKE_API

USER: Final = "bench"
PASSWORD: Final = "secret-of-the-bench"
BROKER: Final = 1
_API_VERSIONS: Final = 18
_ALLOCATE_PRODUCER_IDS: Final = 67
_LIST_REASSIGNMENTS: Final = 46
_TIMEOUT_S: Final = 60.0
_APIS: Final = {**APIS, SASL_HANDSHAKE_API.key: SASL_HANDSHAKE_API, SASL_AUTHENTICATE_API.key: SASL_AUTHENTICATE_API}


@cache
def _salted(salt: bytes, iterations: int) -> bytes:
    return salted_password("SCRAM-SHA-512", PASSWORD, salt, iterations)


def _frame(key: int, version: int, values: dict[str, Any]) -> bytes:
    request = _APIS[key].request
    header = struct.pack(">hhi", key, version, 1) + b"\0\x05bench" + (b"\0" if request.is_flexible(version) else b"")
    content = header + request.write(values, version)
    return struct.pack(">i", len(content)) + content


def _received(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        piece = connection.recv(size - len(content))
        if not piece:
            raise ConnectionResetError("closed by the listener")
        content += piece
    return content


def _asked(connection: socket.socket, frame: bytes) -> bytes:
    """Returns the response without the correlation id."""
    connection.sendall(frame)
    (size,) = struct.unpack(">i", _received(connection, 4))
    return _received(connection, size)[4:]


def _log_in(connection: socket.socket) -> None:
    _asked(connection, _frame(SASL_HANDSHAKE_API.key, 1, {"mechanism": "SCRAM-SHA-512"}))
    login = ScramClient("SCRAM-SHA-512", USER, PASSWORD, derive=_salted)
    token = login.first()
    while not login.is_complete:
        body = _asked(connection, _frame(SASL_AUTHENTICATE_API.key, 1, {"auth_bytes": token}))
        response = SASL_AUTHENTICATE_API.response.read(body, 1)
        token = login.respond(response["auth_bytes"])


@contextmanager
def _connected(port: int, protocol: str, tls: ssl.SSLContext) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if protocol.endswith("SSL"):
            connection = tls.wrap_socket(connection, server_hostname="127.0.0.1")
        with connection:
            if protocol.startswith("SASL"):
                _log_in(connection)
            _asked(connection, _frame(_API_VERSIONS, 0, {}))
            yield connection


def main() -> None:
    tls = ssl.create_default_context(cafile=sys.argv[1])
    identify = _frame(_ALLOCATE_PRODUCER_IDS, 0, {"broker_id": BROKER, "broker_epoch": int(sys.argv[2])})
    ask = _frame(_LIST_REASSIGNMENTS, 0, {"timeout_ms": 1000, "topics": []})
    for line in sys.stdin:
        what, port, protocol, count = line.split()
        if what == "connection":
            for _ in range(int(count)):
                with _connected(int(port), protocol, tls):
                    pass
        else:
            with _connected(int(port), protocol, tls) as connection:
                _asked(connection, identify)
                for _ in range(int(count)):
                    _asked(connection, ask)
        print("done", flush=True)


if __name__ == "__main__":
    main()
