"""Hostile connections to a Kafka listener, each of one kind, reopened when they are closed.

Run as `python -m tests.transports.kafka.listener.attack.attacker PORT CONNECTIONS SECONDS KINDS ADDRESSES`; kinds and
addresses are separated by commas and are used in turn. It prints "begun" after one attempt of every connection.
"""

import asyncio
import contextlib
import os
import struct
import sys
from collections.abc import Awaitable, Callable

_MIB = 1024 * 1024
_CREATE_TOPICS = 19
# Delay before a closed connection is reopened, so that the attacker does not occupy a whole processor.
_AGAIN_S = 0.2


def head(size: int, key: int, version: int) -> bytes:
    return struct.pack(">ihhi", size, key, version, 1)


def malformed_topics(size: int) -> bytes:
    """Return a whole frame with a CreateTopics whose topics lack their last byte."""
    count = (size - 14) // 16
    body = b"\0\0" + struct.pack(">i", count) + (b"\0\0" + struct.pack(">ihii", 1, 1, 0, 0)) * count
    return head(8 + len(body), _CREATE_TOPICS, 0) + body


async def idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send nothing."""
    await reader.read()


async def half_a_length(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\0\0")
    await reader.read()


async def bomb(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Announce the largest length."""
    writer.write(head(2**31 - 1, _CREATE_TOPICS, 0))
    await reader.read()


async def unfinished(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the largest accepted frame without its end."""
    writer.write(head(_MIB, _CREATE_TOPICS, 0))
    for _ in range(15):
        writer.write(bytes(64 * 1024))
        await writer.drain()
    await reader.read()


async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send one byte at a time, with pauses."""
    writer.write(head(_MIB, _CREATE_TOPICS, 0))
    while not reader.at_eof():
        writer.write(b"\0")
        await writer.drain()
        await asyncio.sleep(0.3)


async def half_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send half a frame, then close the sending direction."""
    writer.write(head(1000, _CREATE_TOPICS, 0) + bytes(100))
    writer.write_eof()
    await reader.read()


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send small requests continuously and read the responses."""
    requests = (head(10, 18, 0) + b"\0\0") * 100
    while True:
        writer.write(requests)
        await writer.drain()
        if not await reader.read(_MIB):
            return


async def unread(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send small requests continuously without reading the responses."""
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    request = head(10, 18, 0) + b"\0\0"
    while True:
        writer.write(request * 100)
        await writer.drain()
        await asyncio.sleep(0)


async def malformed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send one element more than is accepted."""
    frame = malformed_topics(_MIB - 1024)
    writer.write(frame)
    await writer.drain()
    await reader.read()


async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the largest accepted requests: DeleteTopics for 16,000 topics that do not exist."""
    body = b"\0\0" + struct.pack(">i", 16_000) + b"".join(b"\0\5t%04x" % number for number in range(16_000)) + bytes(4)
    while True:
        writer.write(head(8 + len(body), 20, 1) + body)
        await writer.drain()
        if not await reader.read(_MIB):
            return


KINDS: dict[str, Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]] = {
    each.__name__: each
    for each in (idle, half_a_length, bomb, unfinished, slow, half_open, flood, unread, malformed, large)
}


async def attack(port: int, kind: str, address: str, begun: asyncio.Semaphore) -> None:
    while True:
        with contextlib.suppress(OSError):
            # Limit of attempts that are not in the listener's accept queue.
            async with asyncio.timeout(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            begun.release()
            try:
                await KINDS[kind](reader, writer)
            finally:
                writer.transport.abort()
        begun.release()
        await asyncio.sleep(_AGAIN_S)


async def main(port: int, connections: int, seconds: float, kinds: list[str], addresses: list[str]) -> None:
    begun = asyncio.Semaphore(0)
    attacks = [
        asyncio.create_task(
            attack(port, kinds[index % len(kinds)], addresses[index // len(kinds) % len(addresses)], begun)
        )
        for index in range(connections)
    ]
    for _ in attacks:
        await begun.acquire()
    print("begun", flush=True)
    await asyncio.sleep(seconds)
    for run in attacks:
        run.cancel()


if __name__ == "__main__":
    # A remote attacker has its own processors; this one must not use those of the measured processes.
    os.nice(10)
    asyncio.run(
        main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4].split(","), sys.argv[5].split(","))
    )
