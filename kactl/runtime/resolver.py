"""Host names, looked up in threads of kactl's own.

    resolve ──▶ joins the look-up of the same name, if one runs
                WAITING ──thread──▶ RUNNING ──▶ its callers; if all have gone, the next one within `UNCLAIMED_S`

`getaddrinfo` blocks for as long as the system's resolver takes: 10 s and more for a name whose servers do not answer.
In asyncio's default executor it competes with jobs of the host program, and uvloop has four threads for it. Here each
name has one thread at a time. Names that have not been answered promptly before share a part of all threads, so that
the others always find one. Nothing waits for the threads when the process ends.
"""

import asyncio
import contextlib
import ipaddress
import os
import socket
import threading
import time
from collections import OrderedDict
from typing import Any, Final, NamedTuple

from . import forks

# A hundred brokers whose names cannot be resolved leave room for those that have not been looked up before.
THREADS_MAX: Final = 160
# Of these, for names that are not known to be answered within `PROMPT_S`.
UNPROVEN_MAX: Final = 128
PROMPT_S: Final = 1.0
# A look-up that has taken so long may never end. It is not joined any more.
STUCK_S: Final = 30.0
# An answer that came after its callers' time limits, as if the first of two name servers is down.
UNCLAIMED_S: Final = 10.0
# Names that are remembered as prompt or slow, or with an unclaimed answer: more than a large cluster has hosts.
_NAMES_MAX: Final = 4_096
_PORT_MAX: Final = 65_535


class Resolved(NamedTuple):
    """One address of a host, as a socket takes it."""

    family: socket.AddressFamily
    sockaddr: tuple[Any, ...]

    @property
    def host(self) -> str:
        return str(self.sockaddr[0])


class NotResolved(socket.gaierror):
    """A name has no address, or the resolver did not answer in time."""


async def resolve(host: str, port: int, *, limit_s: float) -> list[Resolved]:
    """Returns all addresses of a host, in the resolver's order, each once. An address resolves to itself at once.

    Raises:
        OSError: the host has none, or its name was not answered within the limit.
    """
    if not 0 <= port <= _PORT_MAX:
        raise NotResolved(socket.EAI_SERVICE, f"{port} is no port")
    if is_numeric(host):
        return _numbered(addresses_of(host, port), port)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Resolved]] = loop.create_future()
    _look_ups.join(host, answer)
    try:
        async with asyncio.timeout(limit_s):
            return _numbered(await answer, port)
    except TimeoutError:
        raise NotResolved(socket.EAI_AGAIN, f"no answer within {limit_s:g} s") from None
    finally:
        _look_ups.leave(host, answer)


def is_numeric(host: str) -> bool:
    """Returns whether a host is an address, which needs no look-up."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def addresses_of(host: str, port: int) -> list[Resolved]:
    """Returns all addresses of a host, in the resolver's order, each once. Blocks, except for an address.

    Raises:
        OSError: the host has none.
    """
    flags = socket.AI_NUMERICHOST if is_numeric(host) else 0
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except ValueError:  # of the codec for names, or of a null character
        raise NotResolved(socket.EAI_NONAME, "it is no host name") from None
    return list(dict.fromkeys(Resolved(family, sockaddr) for family, _, _, _, sockaddr in found))


def _numbered(found: list[Resolved], port: int) -> list[Resolved]:
    """Returns addresses with a port. Callers that share a look-up may have different ones."""
    return [each._replace(sockaddr=(each.sockaddr[0], port, *each.sockaddr[2:])) for each in found]


class _LookUp:
    """One call of `getaddrinfo`, and the futures of its callers."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.began_s: float | None = None
        self.callers: list[asyncio.Future[list[Resolved]]] = []

    @property
    def is_stuck(self) -> bool:
        return self.began_s is not None and time.monotonic() - self.began_s > STUCK_S


class _LookUps:
    """All look-ups of a process, for any number of event loops."""

    def __init__(self) -> None:
        # Reentrant, because a thread that cannot be started ends its look-up at once.
        self._lock = threading.RLock()
        self._newest: dict[str, _LookUp] = {}
        self._waiting: list[_LookUp] = []
        self._running: set[_LookUp] = set()
        # Whether the last answer for a name was prompt, including that there is no such name.
        self._was_prompt: OrderedDict[str, bool] = OrderedDict()
        self._unclaimed: OrderedDict[str, tuple[float, list[Resolved]]] = OrderedDict()

    def join(self, host: str, answer: "asyncio.Future[list[Resolved]]") -> None:
        """Set a future to the addresses of a name."""
        with self._lock:
            since_s, found = self._unclaimed.pop(host, (0.0, []))
            if found and time.monotonic() - since_s <= UNCLAIMED_S:
                answer.set_result(found)
                return
            look_up = self._newest.get(host)
            if look_up is None or look_up.is_stuck:
                look_up = self._newest[host] = _LookUp(host)
                self._waiting.append(look_up)
            look_up.callers.append(answer)
            self._start()

    def leave(self, host: str, answer: "asyncio.Future[list[Resolved]]") -> None:
        """Forget a caller. A look-up that has not begun ends with its last one."""
        with self._lock:
            look_up = self._newest.get(host)
            if look_up is None or answer not in look_up.callers:
                return
            look_up.callers.remove(answer)
            if not look_up.callers and look_up.began_s is None:
                self._waiting.remove(look_up)
                del self._newest[host]

    def _start(self) -> None:
        """Start threads for look-ups that wait, as far as there may be more."""
        while len(self._running) < THREADS_MAX:
            look_up = min(self._waiting, key=self._rank, default=None)
            unproven = sum(self._rank(each) > 0 for each in self._running)
            if look_up is None or (self._rank(look_up) > 0 and unproven >= UNPROVEN_MAX):
                return
            self._waiting.remove(look_up)
            self._running.add(look_up)
            look_up.began_s = time.monotonic()
            thread = threading.Thread(target=self._run, args=(look_up,), name="kactl look-up", daemon=True)
            try:
                thread.start()
                forks.share(self)
            except RuntimeError:  # the process, its user or its container may have no more
                self._end(look_up, NotResolved(socket.EAI_MEMORY, "no thread can be started: raise the limit of tasks"))

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`: the threads, and the lock that one of them may hold, are the parent's."""
        self.__init__()  # type: ignore[misc]

    def _rank(self, look_up: _LookUp) -> int:
        """Returns the order in which names get threads: prompt ones, new ones, slow ones."""
        was_prompt = self._was_prompt.get(look_up.host)
        return 1 if was_prompt is None else 0 if was_prompt else 2

    def _run(self, look_up: _LookUp) -> None:
        try:
            self._end(look_up, addresses_of(look_up.host, 0))
        except OSError as error:
            self._end(look_up, error)

    def _end(self, look_up: _LookUp, found: list[Resolved] | OSError) -> None:
        """Hand the result of a look-up to its callers, or keep it for the next one."""
        host, now_s = look_up.host, time.monotonic()
        with self._lock:
            self._running.discard(look_up)
            if self._newest.get(host) is look_up:
                del self._newest[host]
            self._was_prompt.pop(host, None)
            self._was_prompt[host] = now_s - (look_up.began_s or 0.0) <= PROMPT_S
            callers, look_up.callers = look_up.callers, []
            if not callers and isinstance(found, list):
                self._unclaimed[host] = now_s, found
            for names in (self._was_prompt, self._unclaimed):
                while len(names) > _NAMES_MAX:
                    names.popitem(last=False)
            self._start()
        for answer in callers:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                answer.get_loop().call_soon_threadsafe(_answer, answer, found)


def _answer(answer: "asyncio.Future[list[Resolved]]", found: list[Resolved] | OSError) -> None:
    if answer.done():
        return
    if isinstance(found, list):
        answer.set_result(found)
    else:
        # Callers must not share an exception: each one adds its traceback.
        answer.set_exception(NotResolved(*found.args))


_look_ups: Final = _LookUps()
# The threads, and the callers of the lock, exist in the parent only.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_look_ups.__init__)  # type: ignore[misc]
