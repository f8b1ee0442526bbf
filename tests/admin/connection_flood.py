"""Flood of connections from a process of its own: `connection_flood PORT COUNT OPEN`.

It opens COUNT connections as fast as they are accepted, and keeps the last OPEN of them. Every second one sends half a
request. It prints "begun" once OPEN have been opened, and the total at the end.
"""

import collections
import contextlib
import os
import select
import socket
import struct
import sys

HALF_HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
# The end of a connection resets it: local ports are free again at once.
_RESET = struct.pack("ii", 1, 0)
_CONNECT_MS = 1000


def opened(port: int) -> socket.socket | None:
    """Returns a new connection; None if the server did not take it in time, as its queue is full."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", port))
    ready = select.poll()
    ready.register(connection, select.POLLOUT)
    if ready.poll(_CONNECT_MS) and not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        return connection
    connection.close()
    return None


def main(port: int, count: int, kept: int) -> None:
    connections: collections.deque[socket.socket] = collections.deque()
    total = 0
    while total < count:
        connection = opened(port)
        if connection is None:
            continue
        total += 1
        if total % 2:
            with contextlib.suppress(OSError):
                connection.send(HALF_HEAD)
        connections.append(connection)
        if len(connections) > kept:
            connections.popleft().close()
        if total == kept:
            print("begun", flush=True)
    print(f"opened {total}", flush=True)


if __name__ == "__main__":
    os.nice(10)  # a remote attacker has its own processors
    main(*map(int, sys.argv[1:]))
