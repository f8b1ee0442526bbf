"""Forks of the host program: a child has copies of all objects, and shares sockets, files and locks with its parent.

A child must use nothing of its parent's: a renewal, a closing message or a lock released there would be the parent's.
Objects that hold such things are named to `share`. Before anything else runs in a child,

* `_abandon` of each is called: leases end, tasks are cancelled, methods raise `ProcessForked`,
* dead descriptors replace theirs (`bury`), so that no code can send anything or keep a connection open,
* the copy of the event loop stops, and is separated from the parent's, whose wake-ups it would take, and whose selector
  it would change at its end. That of uvloop cannot be separated: end such a child by `os._exit`, as `multiprocessing`
  does. A new loop can be run at once.

Programs that are started (`subprocess`, the start methods spawn and forkserver) are not concerned; but uvloop runs all
this in the child that becomes a program of `asyncio.create_subprocess_exec`, too.
"""

import asyncio
import contextlib
import os
import select
import selectors
import signal
import socket
import threading
import weakref
from typing import Any, Final, NoReturn, Protocol

from kactl.model.errors import ProcessForked


class Shared(Protocol):
    """An object that a child must not use."""

    def _abandon(self) -> None:
        """Called in a child, before anything else runs there. Must not wait, send or raise."""


class Home:
    """The process that objects belong to."""

    __slots__ = ("_left", "pid")

    def __init__(self) -> None:
        self._left = False
        self.pid = os.getpid()

    @property
    def left(self) -> bool:
        """Whether this is a process that was forked from it, also by code that is not Python's."""
        return self._left or os.getpid() != self.pid

    def leave(self) -> None:
        """This is a child, whose id may be the same in a PID namespace of its own."""
        self._left = True

    def check(self, owner: str) -> None:
        """Raises ProcessForked if this process was forked from the one of the owner."""
        if self.left:
            raise ProcessForked(owner, self.pid)


class OfOneProcess:
    """An object that is neither copied nor sent to another process: both would have the same identity."""

    def __reduce__(self) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(f"a {kind} cannot be copied or sent to another process: make another {kind} there")


class Gone:
    """In a child, in place of a part of an object: every use raises ProcessForked."""

    def __init__(self, owner: str, home: Home) -> None:
        self._owner, self._pid = owner, home.pid

    def __getattr__(self, name: str) -> NoReturn:
        raise ProcessForked(self._owner, self._pid)


class _Process:
    """What is known about this process."""

    def __init__(self) -> None:
        self.home: Home | None = None
        self.is_registered = False
        self.shared: weakref.WeakSet[Any] = weakref.WeakSet()
        self.loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


_process: Final = _Process()
_kept: Final[list[object]] = []


def home() -> Home:
    """Returns this process. The first call prepares for forks."""
    if not _process.is_registered:
        os.register_at_fork(after_in_child=_begin_child)
        _process.is_registered = True
    if _process.home is None or _process.home.left:
        _process.home = Home()
    return _process.home


def share(owner: Shared) -> Home:
    """Have `owner._abandon` called in processes that are forked while the owner exists. Returns this process."""
    _process.shared.add(owner)
    with contextlib.suppress(RuntimeError):  # outside of an event loop
        _process.loops.add(asyncio.get_running_loop())
    return home()


def bury(owner: Any) -> None:
    """Give this process a dead socket in place of a socket or transport, which its parent goes on to use.

    The number stays in use: whatever still closes it closes no file of the host program.
    """
    if isinstance(owner, socket.socket):
        descriptor = owner.fileno()
    elif owner is None or owner.is_closing() or (connected := owner.get_extra_info("socket")) is None:
        return
    else:
        descriptor = connected.fileno()
    if descriptor >= 0:
        bury_descriptor(descriptor)


def bury_descriptor(descriptor: int) -> None:
    """See `bury`."""
    dead, other = socket.socketpair()
    other.close()
    _replace(descriptor, dead)


def keep(owner: object) -> None:
    """Keep an object for ever, because its destructor would act on what belongs to the parent."""
    _kept.append(owner)
    with contextlib.suppress(ImportError):
        import ctypes

        # The list is emptied when the interpreter ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


def _begin_child() -> None:
    left, _process.home = _process.home, None
    shared, loops = list(_process.shared), list(_process.loops)
    _process.shared.clear()
    _process.loops.clear()
    if left is not None:
        left.leave()
    for loop in loops:
        _keep_selector(loop)
    for owner in shared:
        try:
            owner._abandon()
        except Exception as error:  # the others are not to suffer from it
            os.write(2, f"kactl: {owner!r} could not be given up in a forked process: {error!r}\n".encode())
    for loop in loops:
        _separate(loop)


def _keep_selector(loop: asyncio.AbstractEventLoop) -> None:
    """Give the copy of an event loop of uvloop a selector of its own, before tasks are cancelled.

    A cancelled `sock_accept` leaves the selector at once: that of the parent would not notice connections any more. The
    method is one of uvloop's own tests.
    """
    backend = getattr(loop, "_get_backend_id", None)
    if backend is not None and hasattr(select, "epoll") and not loop.is_closed():
        _replace(backend(), select.epoll())


def _separate(loop: asyncio.AbstractEventLoop) -> None:
    """Stop the copy of an event loop, and give it a selector and a wake-up of its own, for the tasks that end then.

    The attributes are those of asyncio since Python 3.4.
    """
    own: Any = loop
    selector = getattr(own, "_selector", None)
    if loop.is_closed():
        return
    loop.stop()
    if not isinstance(selector, selectors.EpollSelector):
        return
    _replace(selector.fileno(), select.epoll())
    for wake_up, end in zip((own._ssock, own._csock), socket.socketpair(), strict=True):
        end.setblocking(False)
        _replace(wake_up.fileno(), end)
    key = selector.get_key(own._ssock)
    for other in list(selector.get_map().values()):
        selector.unregister(other.fileobj)
    selector.register(own._ssock, key.events, key.data)
    if threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)  # that of the parent's loop


def _replace(descriptor: int, by: Any) -> None:
    os.dup2(by.fileno(), descriptor, inheritable=False)
    by.close()
