"""Client of the listener that is independent of its codec: requests and responses by kio, over real sockets."""

import asyncio
import contextlib
import io
import ssl
import struct
from collections.abc import AsyncIterator
from typing import Any, cast

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

CLIENT_ID = "test-client"


def encoded(entity: Any) -> bytes:
    """Return the bytes of an entity."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def request_class(key: int, version: int) -> Any:
    """Return the class of a request; its module contains the classes of its parts."""
    return load_request_schema(key, version)


def part(key: int, version: int, name: str, *, of_response: bool = False) -> Any:
    """Return the class of a part of a request or response."""
    import importlib

    load = load_response_schema if of_response else load_request_schema
    return getattr(importlib.import_module(load(key, version).__module__), name)


def frame(request: Any, correlation_id: int) -> bytes:
    """Return a whole frame, including its length."""
    header = {
        "request_api_key": request.__api_key__,
        "request_api_version": request.__version__,
        "correlation_id": i32(correlation_id),
    }
    if "client_id" in request.__header_schema__.__dataclass_fields__:
        header["client_id"] = CLIENT_ID
    content = encoded(request.__header_schema__(**header)) + encoded(request)
    return struct.pack(">i", len(content)) + content


class Client:
    """One connection to the listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    async def ask(self, request: Any) -> Any:
        """Send a request. Returns its response."""
        self._correlation_id += 1
        self.writer.write(frame(request, self._correlation_id))
        return self.read(request, await self.frame(), self._correlation_id)

    @staticmethod
    def read(request: Any, content: bytes, correlation_id: int) -> Any:
        """Read a response. It must have that correlation id and end with its frame."""
        kind = load_response_schema(request.__api_key__, request.__version__)
        header, used = entity_reader(kind.__header_schema__)(content, 0)
        assert cast(Any, header).correlation_id == correlation_id
        body, size = entity_reader(kind)(content, used)
        assert used + size == len(content)
        return body

    async def frame(self) -> bytes:
        """Return the next frame, without its length."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Wait for bytes or the end of the connection. Returns whether it ended."""
        try:
            return not await asyncio.wait_for(self.reader.read(1), 60)
        except ConnectionError:
            return True


@contextlib.asynccontextmanager
async def connected(port: int, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    """Open a connection to a port of loopback."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
