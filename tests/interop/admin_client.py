"""Admin requests in any version, valid or not, over a connection to one broker or to kactl."""

import socket
import struct
from typing import Any, Final

from kactl.transports.kafka.codec.primitive import NO_TAGS
from kactl.transports.kafka.listener.api import Api

ANSWER_S: Final = 60.0
_HEADER: Final = struct.Struct(">hhi")


class AdminClient:
    """A connection to one listener."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self._asked = 0

    def ask(self, api: Api, version: int, **fields: Any) -> dict[str, Any]:
        """Returns the response to a request. Fields that are missing have their defaults.

        Raises:
            OSError: the server closed the connection, or did not respond in time.
        """
        return self.ask_raw(api, version, api.request.write(fields, version))

    def ask_raw(self, api: Api, version: int, content: bytes) -> dict[str, Any]:
        """Returns the response to a request of these bytes after its header, as `ask` does."""
        self._asked += 1
        header = _HEADER.pack(api.key, version, self._asked) + struct.pack(">h", 5) + b"admin"
        content = header + (NO_TAGS if api.request.is_flexible(version) else b"") + content
        self._connection.sendall(struct.pack(">i", len(content)) + content)
        (length,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(length)
        assert answer[:4] == struct.pack(">i", self._asked)
        return api.response.read(answer[5 if api.response.is_flexible(version) else 4 :], version)

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            piece = self._connection.recv(count - len(received))
            if not piece:
                raise ConnectionResetError("closed by the server")
            received += piece
        return bytes(received)

    def close(self) -> None:
        self._connection.close()
