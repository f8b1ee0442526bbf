"""Run an asynchronous program until it ends, or a signal ends it in order.

    first SIGINT or SIGTERM     `main` is cancelled: its blocks hand over leaderships and close sessions
    second one                  the process exits at once, with 128 and the number of the signal

The signals are those of a terminal and of service managers (systemd, Docker, Kubernetes). As process 1 of a container a
program without handlers would ignore them.
"""

import asyncio
import contextlib
import functools
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any, Final, TypeVar, TypeVarTuple

import anyio

from . import forks

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# Added to the number of a signal, as a shell does.
EXIT_CODE: Final = 128


def run(main: Callable[[*Ts], Awaitable[T]], *args: *Ts, uvloop: bool = False) -> T | None:
    """Run `main(*args)` in a new event loop, and end it in order on SIGINT and SIGTERM.

        kactl.run(main, *sys.argv[1:])

    A signal cancels `main`. The program then ends as if `main` had returned: with exit code 0 and without a traceback,
    which systemd and Kubernetes take for a success. A second signal ends the process at once, if `main` does not end.
    A signal that is ignored when this is called stays ignored, as under `nohup`. Handlers are restored at the end. In a
    thread other than the main one no signal is handled.

    Args:
        uvloop: use uvloop, which has to be installed.

    Returns:
        The result of `main`; None if a signal has ended it.
    """
    stop = _Stop()
    with stop.handling():
        return anyio.run(stop.run, functools.partial(main, *args), backend_options={"use_uvloop": uvloop})


class _Stop:
    """The signals of one program."""

    def __init__(self) -> None:
        self._received = False
        self._cancel: Callable[[], object] = lambda: None
        self._before: dict[signal.Signals, Any] = {}

    @contextlib.contextmanager
    def handling(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        for number in SIGNALS:
            # None is a handler that was not set by Python, and could not be restored.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._handle)
        forks.share(self)
        try:
            yield
        finally:
            self._restore()

    async def run(self, main: Callable[[], Awaitable[T]]) -> T | None:
        loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            self._cancel = functools.partial(loop.call_soon_threadsafe, scope.cancel)
            try:
                return None if self._received else await main()
            finally:
                self._cancel = lambda: None
        return None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # Not by the event loop: it may be blocked, and a second signal is meant for that.
        if self._received:
            os._exit(EXIT_CODE + number)
        self._received = True
        self._cancel()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`: `multiprocessing` ends its processes by SIGTERM."""
        self._restore()
