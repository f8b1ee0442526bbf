"""Proxy to a server on loopback that can be cut: it then holds data back, and notifies neither side.

When a whole server is paused and resumed, it first processes either received messages or expired timers, at random.
Behind a cut proxy it keeps running, and detects the silence of its clients in time.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final, Self

from .processes import free_port

# Messages to ZooKeeper are rarely longer. A connection buffers at most this much while it is cut.
PIECE: Final = 65_536
CONNECT_S: Final = 60.0
JOIN_S: Final = 60.0


class Link:
    """Passes connections to `port` on to `target`, both on loopback."""

    def __init__(self, target: int) -> None:
        """Prepare the proxy. It listens from `start` on."""
        self.target = target
        self.port = free_port()
        self._whole = threading.Event()
        self._whole.set()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    def start(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self._run(self._accept, self._listener)

    def cut(self) -> None:
        """Hold back all data in both directions; new connections get no response."""
        self._whole.clear()

    def mend(self) -> None:
        """Deliver the held data, and pass on everything again."""
        self._whole.set()

    def close(self) -> None:
        """Close all connections. No effect before `start`."""
        self._ended.set()
        self._whole.set()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(JOIN_S)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._run(self._connect, client)

    def _connect(self, client: socket.socket) -> None:
        self._whole.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self.target), CONNECT_S)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with self._lock:
            self._sockets |= {client, server}
            ended = self._ended.is_set()
        if not ended:
            back = self._run(self._pump, server, client)
            self._pump(client, server)
            back.join()
        with self._lock:
            self._sockets -= {client, server}
        client.close()
        server.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        """Pass on data until either side closes, then close both sides."""
        with contextlib.suppress(OSError):
            sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while piece := source.recv(PIECE):
                self._whole.wait()
                sink.sendall(piece)
        self._whole.wait()
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _run(self, work: Callable[..., None], *arguments: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, name=f"link-{self.port}", daemon=True)
        with self._lock:
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()
        return thread

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
