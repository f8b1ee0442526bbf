"""Host names of tests: names with any addresses, a resolver that hangs, and addresses that do not answer."""

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import pytest

# On loopback, so that no packet leaves this host.
DEAD: Final = "127.0.0.2"
ALIVE: Final = "127.0.0.3"
NAME: Final = "several.test"
_look_up: Final = socket.getaddrinfo


class Names:
    """Replaces the system's resolver, except for addresses and `localhost`.

    Attributes:
        addresses: of each name. Other names do not exist.
        asked: how many look-ups of each name have begun.
        answers: set it to let the names in `hanging` be answered.
    """

    def __init__(self) -> None:
        self.addresses: dict[str, Sequence[str]] = {}
        self.hanging: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.answers = threading.Event()
        self._began = threading.Condition()

    def __enter__(self) -> Self:
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(socket, "getaddrinfo", self._getaddrinfo)
        return self

    def __exit__(self, *_: object) -> None:
        self.answers.set()
        self._patch.undo()

    def wait_asked(self, host: str, limit_s: float = 60) -> None:
        """Wait until a name is being looked up."""
        with self._began:
            assert self._began.wait_for(lambda: self.asked[host] > 0, limit_s), f"{host} is not looked up"

    def _getaddrinfo(self, host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        if host == "localhost" or host[-1:].isdecimal() or ":" in host:
            return _look_up(host, port, *args, **kwargs)
        with self._began:
            self.asked[host] += 1
            self._began.notify_all()
        if host in self.hanging:
            self.answers.wait()
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [found for address in self.addresses[host] for found in _look_up(address, port, type=socket.SOCK_STREAM)]


@contextlib.contextmanager
def silent_address(host: str = DEAD, port: int = 0) -> Iterator[int]:
    """An address whose connections are not answered, as those of a host without power: its backlog is full.

    Yields the port.
    """
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind((host, port))
        full.listen(0)
        for _ in range(4):  # more than wait to be accepted
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield full.getsockname()[1]


def free_port(*hosts: str) -> int:
    """Returns a port that is free at all of some addresses."""
    while True:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind((hosts[0], 0))
            port = int(first.getsockname()[1])
            try:
                for host in hosts[1:]:
                    stack.enter_context(socket.socket()).bind((host, port))
            except OSError:
                continue
            return port
