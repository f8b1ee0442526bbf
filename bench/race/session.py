"""Minimal ZooKeeper session of a broker: registration, pings, and end.

Source: ZooKeeper's jute records; KafkaZkClient.registerBroker, which creates the node and writes it in one
transaction.
"""

import asyncio
import contextlib
import struct
from typing import Final

import msgspec
from kazoo.exceptions import ZookeeperError
from kazoo.protocol.serialization import Close, Connect, Create, Ping, SetData, Transaction
from kazoo.security import OPEN_ACL_UNSAFE

_EPHEMERAL: Final = 1
_PING_XID: Final = -2
_HEADER: Final = struct.Struct(">iqi")
_ANSWER_S: Final = 30.0
# The largest response is that to the registration, some hundred bytes.
_ANSWER_SIZE_MAX: Final = 1 << 16


class SessionFailed(Exception):
    """Raised if ZooKeeper rejects a stub broker or does not respond."""


class BrokerSession:
    """Session created by `opened`. It ends with `close`, or after its timeout when the process ends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._xid = 0
        self._alive: asyncio.Task[None] | None = None

    @classmethod
    async def opened(cls, port: int, *, timeout_ms: int) -> "BrokerSession":
        """Connects on loopback.

        Raises:
            SessionFailed: there is no ZooKeeper, or it rejects the session.
        """
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            raise SessionFailed(f"no ZooKeeper at port {port}: {error}") from error
        session = cls(reader, writer)
        session._send(bytes(Connect(0, 0, timeout_ms, 0, b"\0" * 16, False).serialize()))
        connected, _ = Connect.deserialize(await session._frame(), 0)
        if connected.time_out <= 0:
            raise SessionFailed(f"the ZooKeeper at port {port} gives no session")
        session._alive = asyncio.create_task(session._keep_alive(connected.time_out / 3000))
        return session

    async def register(self, path: str, data: bytes) -> int:
        """Creates and writes the ephemeral node. Returns its creation zxid, which is the broker epoch.

        Raises:
            SessionFailed: the node exists, or there was no response.
        """
        self._xid += 1
        operations = Transaction([Create(path, None, OPEN_ACL_UNSAFE, _EPHEMERAL), SetData(path, data, 0)])
        self._send(struct.pack(">ii", self._xid, Transaction.type) + bytes(operations.serialize()))
        results = Transaction.deserialize(await self._answer(self._xid), _HEADER.size)
        for result in results:
            if isinstance(result, ZookeeperError):
                raise SessionFailed(f"{path} could not be registered: {type(result).__name__}")
        epoch: int = results[-1].czxid
        return epoch

    async def close(self) -> None:
        """Ends the session. The request is sent before the first await."""
        if self._alive is not None:
            self._alive.cancel()
        self._xid += 1
        self._send(struct.pack(">ii", self._xid, Close.type))
        with contextlib.suppress(SessionFailed):
            await self._answer(self._xid)
        self._writer.close()

    async def _keep_alive(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            self._send(struct.pack(">ii", _PING_XID, Ping.type))

    async def _answer(self, xid: int) -> bytes:
        """Returns the response to one request, and skips responses to pings."""
        while True:
            frame = await self._frame()
            answered, _, error = _HEADER.unpack_from(frame)
            if answered != xid:
                continue
            if error:
                raise SessionFailed(f"ZooKeeper answered with error {error}")
            return frame

    async def _frame(self) -> bytes:
        try:
            async with asyncio.timeout(_ANSWER_S):
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                if not 0 <= size <= _ANSWER_SIZE_MAX:
                    raise SessionFailed(f"ZooKeeper sent a frame of {size} bytes")
                return await self._reader.readexactly(size)
        except TimeoutError as error:
            raise SessionFailed(f"no answer from ZooKeeper within {_ANSWER_S:g} s") from error
        except (OSError, asyncio.IncompleteReadError) as error:
            raise SessionFailed("ZooKeeper closed the connection") from error

    def _send(self, content: bytes) -> None:
        self._writer.write(struct.pack(">i", len(content)) + content)


def registration(port: int, now_ms: int) -> bytes:
    """Returns the registration of a broker at protocol level 2.7 or above, with one listener on loopback."""
    return msgspec.json.encode(
        {
            "version": 5,
            "host": "127.0.0.1",
            "port": port,
            "jmx_port": -1,
            "timestamp": str(now_ms),
            "endpoints": [f"PLAINTEXT://127.0.0.1:{port}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "features": {},
        }
    )
