"""A flood of TLS handshakes at a fixed rate, none of which is completed.

Run as `python -m tests.transports.kafka.listener.attack.handshakes PORT AUTHORITY RATE ATTEMPTS ADDRESSES`. Each
attempt sends the same ClientHello and closes the connection after the first bytes of the response, for which a server
has to sign: that costs the attacker much less than the server. It prints "begun" after the first attempts. When all
attempts have ended, it prints their number by result.
"""

import asyncio
import contextlib
import json
import os
import ssl
import sys
from collections import Counter
from typing import Final

# Attempts before the flood counts as begun.
_BEGUN: Final = 100
# Time limit of an attempt. A listener that has no room closes the connection, or leaves it in its queue.
_ATTEMPT_S: Final = 10.0


def client_hello(authority: str) -> bytes:
    """Returns the first message of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def attempt(port: int, address: str, hello: bytes) -> str:
    """Returns "SIGNED" if the server sent its certificate, otherwise "CLOSED"."""
    try:
        async with asyncio.timeout(_ATTEMPT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            try:
                writer.write(hello)
                return "SIGNED" if len(await reader.read(4096)) > 0 else "CLOSED"
            finally:
                writer.transport.abort()
    except OSError:
        return "CLOSED"


async def main(port: int, authority: str, rate: float, attempts: int, addresses: list[str]) -> None:
    hello, results = client_hello(authority), Counter[str]()
    loop = asyncio.get_running_loop()
    running = set[asyncio.Task[None]]()
    begun_s, parent = loop.time(), os.getppid()

    async def one(number: int) -> None:
        results[await attempt(port, addresses[number % len(addresses)], hello)] += 1
        if results.total() == _BEGUN:
            print("begun", flush=True)

    for number in range(attempts):
        if os.getppid() != parent:
            return  # the test was killed
        # Late attempts are made at once, so that the rate holds on a busy machine.
        await asyncio.sleep(max(0.0, begun_s + number / rate - loop.time()))
        task = loop.create_task(one(number))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    print(json.dumps(results), flush=True)


if __name__ == "__main__":
    # A remote attacker has its own processors; this one must not use those of the measured processes.
    os.nice(10)
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5].split(",")))
