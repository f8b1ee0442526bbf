"""Connections to a host that may have several addresses.

    look-up ──▶ address 1 ──connected──▶ completed (TLS, greeting) ──▶ the connection
                    │ 250 ms, or failed         │ failed, or its share of the time has passed
                    ▼                           ▼
                address 2 ...               the next one that connects

An address without a host behind it does not delay the others by more than the stagger: all that have been begun stay
open until one is completed. Only one at a time is completed, so that a server does not see two connections of one
client. The order is drawn anew each time, with the families in turn. Source: RFC 8305.
"""

import asyncio
import errno
import os
import random
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from .addresses import host_and_port
from .resolver import Resolved, resolve

T = TypeVar("T")

# Between the beginnings of two attempts: the value that the RFC recommends.
STAGGER_S: Final = 0.25
# Addresses of one host that are tried at a time: a random choice, so that the next attempt has others.
ADDRESSES_MAX: Final = 8
# At least, to complete a connection at one of several addresses: for TLS on a busy host.
_COMPLETE_S_MIN: Final = 1.0

_rng: Final = random.SystemRandom()


class NotCompleted(TimeoutError):
    """An address accepted a connection, and its program did not answer."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"it accepted the connection, and did not answer within {limit_s:g} s")
        self.limit_s = limit_s


class NoAddressAnswers(OSError):
    """All addresses of a host have failed.

    Attributes:
        errors: why, by address.
    """

    def __init__(self, errors: Mapping[str, Exception]) -> None:
        self.errors = errors
        super().__init__(self.explained(str))

    def explained(self, reason: Callable[[Exception], str]) -> str:
        """Returns each address with its reason."""
        return "; ".join(f"{address}: {reason(error)}" for address, error in self.errors.items())


async def connect(
    host: str,
    port: int,
    complete: Callable[[socket.socket], Awaitable[T]],
    *,
    limit_s: float,
    complete_s: float | None = None,
    failures: tuple[type[Exception], ...] = (OSError,),
    choose: Callable[[list[Resolved]], list[Resolved]] | None = None,
) -> T:
    """Connect to one of the addresses of a host.

    Args:
        complete: makes a connection of a connected socket, which it owns: it closes it if it fails or is cancelled.
        limit_s: for the look-up of the name, and again for each address.
        complete_s: for `complete` at all addresses, of which each has an equal part of what is left; `limit_s` if None.
        failures: exceptions of `complete` after which the next address is tried. OSError is one.
        choose: returns which of all addresses to try, at least one, or raises its own error.

    Raises:
        OSError: the name cannot be resolved, or its only address failed; one of `failures` in the latter case, too.
        NoAddressAnswers: all of its addresses failed.
    """
    hosts = await resolve(host, port, limit_s=limit_s)
    if choose is not None:
        hosts = choose(hosts)
    attempts = _Attempts(_in_turn(hosts), limit_s)
    left_s = limit_s if complete_s is None else complete_s
    clock = asyncio.get_running_loop().time
    try:
        while (found := await attempts.connected()) is not None:
            address, connection = found
            count, began_s = attempts.count + 1, clock()
            share_s = left_s if count == 1 else max(left_s / count, _COMPLETE_S_MIN)
            timeout = asyncio.timeout(share_s)
            try:
                async with timeout:
                    return await complete(connection)
            except failures as error:
                attempts.errors[address] = NotCompleted(share_s) if timeout.expired() else error
            left_s = max(left_s - (clock() - began_s), _COMPLETE_S_MIN)
    finally:
        attempts.close()
    errors = attempts.errors
    if len(errors) == 1:
        raise next(iter(errors.values()))
    raise NoAddressAnswers(errors)


def _in_turn(hosts: list[Resolved]) -> list[Resolved]:
    """Returns some addresses in random order, except that the families take turns, the resolver's first one first."""
    families: dict[int, list[Resolved]] = {}
    for each in hosts:
        families.setdefault(each.family, []).append(each)
    for family in families.values():
        _rng.shuffle(family)
    ordered: list[Resolved] = []
    for index in range(len(hosts)):
        ordered += [family[index] for family in families.values() if index < len(family)]
    return ordered[:ADDRESSES_MAX]


class _Attempts:
    """Attempts to connect to the addresses of one host.

    The sockets are driven by callbacks of the loop, and not by its `sock_connect`, which looks up the zone of a
    link-local address in the default executor, and in uvloop drops it.

    Attributes:
        errors: of the addresses that have failed.
    """

    def __init__(self, addresses: list[Resolved], limit_s: float) -> None:
        self.errors: dict[str, Exception] = {}
        self._loop = asyncio.get_running_loop()
        self._limit_s = limit_s
        self._stagger_s = min(STAGGER_S, limit_s / max(1, len(addresses)))
        self._waiting = deque(addresses)
        self._pending: dict[socket.socket, str] = {}
        self._connected: deque[tuple[str, socket.socket]] = deque()
        self._began_s = self._next_s = 0.0
        self._progress = asyncio.Event()

    @property
    def count(self) -> int:
        """The addresses that may still be connected."""
        return len(self._waiting) + len(self._pending) + len(self._connected)

    async def connected(self) -> tuple[str, socket.socket] | None:
        """Returns the next address that is connected, with its socket; None after the last one."""
        while not self._connected:
            now_s = self._loop.time()
            if self._waiting and (not self._pending or now_s >= self._next_s):
                self._begin(self._waiting.popleft(), now_s)
            elif self._pending:
                await self._wait(self._next_s if self._waiting else self._began_s + self._limit_s)
            else:
                return None
        return self._connected.popleft()

    def close(self) -> None:
        """Close all sockets that were not returned."""
        for pending in self._pending:
            self._loop.remove_writer(pending)
            pending.close()
        for _, connected in self._connected:
            connected.close()
        self._pending.clear()
        self._connected.clear()

    def _begin(self, address: Resolved, now_s: float) -> None:
        name = host_and_port(address.host, address.sockaddr[1])
        self._began_s, self._next_s = now_s, now_s + self._stagger_s
        try:
            made = socket.socket(address.family, socket.SOCK_STREAM)
        except OSError as error:  # this host does not have the family, or no descriptor
            self._failed(name, error)
            return
        made.setblocking(False)
        code = made.connect_ex(address.sockaddr)
        if code in (0, errno.EINPROGRESS):
            self._pending[made] = name
            self._loop.add_writer(made, self._on_writable, made)
        else:
            made.close()
            self._failed(name, OSError(code, os.strerror(code)))

    def _on_writable(self, made: socket.socket) -> None:
        self._loop.remove_writer(made)
        name = self._pending.pop(made)
        code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            made.close()
            self._failed(name, OSError(code, os.strerror(code)))
        else:
            # As the event loops do for connections that they open themselves.
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connected.append((name, made))
            self._progress.set()

    def _failed(self, name: str, error: OSError) -> None:
        self.errors[name] = error
        self._next_s = 0.0
        self._progress.set()

    async def _wait(self, until_s: float) -> None:
        self._progress.clear()
        try:
            async with asyncio.timeout_at(until_s):
                await self._progress.wait()
        except TimeoutError:
            if not self._waiting and not self._connected:
                for name in self._pending.values():
                    self.errors[name] = TimeoutError(errno.ETIMEDOUT, f"no connection within {self._limit_s:g} s")
                self.close()
