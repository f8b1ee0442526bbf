"""Lower bound for reading and writing many ZooKeeper nodes: prepared requests, responses not decoded.

It uses a blocking socket with a fixed number of requests in flight, and nothing else. No controller can be faster
over the same server."""

import socket
import struct
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

_SET_DATA: Final = 5
_GET_DATA: Final = 4
_CHECK: Final = 13
_MULTI: Final = 14
_MULTI_READ: Final = 22
_CLOSE: Final = -11
_LIMIT_S: Final = 60.0
_END: Final = struct.pack(">i?i", -1, True, -1)


class Floor:
    """Connection with prepared requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", buffering=1 << 20)
        self._send(struct.pack(">iqiq", 0, 0, 30_000, 0) + _buffer(bytes(16)) + b"\0")
        self._frame()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._send(struct.pack(">ii", 1, _CLOSE))
        self._file.close()
        self._socket.close()

    def run(self, requests: Sequence[bytes], *, in_flight: int) -> float:
        """Sends all requests, `in_flight` at a time. Returns the seconds until the last response.

        Raises:
            RuntimeError: the server rejected a request.
        """
        began, sent = time.perf_counter(), 0
        for answered in range(len(requests)):
            while sent < len(requests) and sent - answered < in_flight:
                self._socket.sendall(requests[sent])
                sent += 1
            _, _, error = struct.unpack_from(">iqi", self._frame())
            if error:
                raise RuntimeError(f"ZooKeeper refused a request with error {error}")
        return time.perf_counter() - began

    def _send(self, body: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def _frame(self) -> bytes:
        frame: bytes = self._file.read(int.from_bytes(self._file.read(4), "big"))
        return frame


def writes(paths: Sequence[str], data: bytes, *, fence: str, batch: int) -> list[bytes]:
    """Returns fenced multis that write `data` to all paths, at any version."""
    check = struct.pack(">i?i", _CHECK, False, -1) + _text(fence) + struct.pack(">i", -1)
    operation = struct.pack(">i?i", _SET_DATA, False, -1)
    tail = _buffer(data) + struct.pack(">i", -1)
    return [
        _request(_MULTI, check + b"".join(operation + _text(path) + tail for path in paths[at : at + batch]) + _END)
        for at in range(0, len(paths), batch)
    ]


def reads(paths: Sequence[str], *, batch: int) -> list[bytes]:
    """Returns multi-reads of all paths."""
    operation = struct.pack(">i?i", _GET_DATA, False, -1)
    return [
        _request(_MULTI_READ, b"".join(operation + _text(path) + b"\0" for path in paths[at : at + batch]) + _END)
        for at in range(0, len(paths), batch)
    ]


def _request(kind: int, body: bytes) -> bytes:
    # Only the sender uses the number of a request.
    return struct.pack(">iii", len(body) + 8, 1, kind) + body


def _text(text: str) -> bytes:
    return _buffer(text.encode())


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
