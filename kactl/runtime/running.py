"""Run an asynchronous program until it ends, or a signal ends it in order.

    first SIGINT or SIGTERM     `main` is cancelled: its blocks hand over leaderships and close sessions. What delays
                                the end is written to stderr every 5 s, with its line
    second one                  the process exits at once, with 128 and the number of the signal

The signals are those of a terminal and of service managers (systemd, Docker, Kubernetes). As process 1 of a container a
program without handlers would ignore them.
"""

import asyncio
import contextlib
import contextvars
import functools
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Final, TypeVar, TypeVarTuple

import anyio

from kactl.model.errors import IllegalState, KactlError

from . import delays, forks
from .escaping import escaped
from .logs import logger

log = logger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# Added to the number of a signal, as a shell does.
EXIT_CODE: Final = 128
REPORT_S: Final = 5
# An event loop that does not run anything for this long is blocked.
BLOCKED_S: Final = 1.0


def run(main: Callable[[*Ts], Awaitable[T]], *args: *Ts, uvloop: bool = False) -> T | None:
    """Run `main(*args)` in a new event loop, and end it in order on SIGINT and SIGTERM.

        kactl.run(main, *sys.argv[1:])

    A signal cancels `main`, and is reported in one line. The program then ends as if `main` had returned: with exit
    code 0 and without a traceback, which systemd and Kubernetes take for a success. A second signal ends the process at
    once. What delays the end is reported every 5 s: the handler and the line at which it waits.

    A signal that is ignored when this is called stays ignored, as under `nohup`. Handlers are restored at the end. In a
    thread other than the main one no signal is handled.

    If a controller, participant or worker cannot start, and nothing catches its error, the program ends with its
    message on stderr, and exit code 1; if debug messages of kactl are logged, with the traceback.

    Args:
        uvloop: use uvloop, which has to be installed.

    Returns:
        The result of `main`; None if a signal has ended it.

    Raises:
        IllegalState: an event loop runs in this thread already, as in a cell of a notebook.
        TypeError: `main` is no function.
    """
    if not callable(main):
        if asyncio.iscoroutine(main):
            main.close()  # nothing will await it
        raise TypeError(f"kactl.run takes a worker or an async function that it calls, and not {main!r}")
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        raise IllegalState(
            "an event loop runs already, as in a notebook: use `await worker.start()`, or `await main()`"
        )
    stop = _Stop()
    with stop.handling():
        try:
            return anyio.run(stop.run, functools.partial(main, *args), backend_options={"use_uvloop": uvloop})
        except KactlError as error:
            _print_alone(error)
            raise


class _Stop:
    """The signals of one program."""

    def __init__(self) -> None:
        self._received = False
        self._cancel: Callable[[], object] = lambda: None
        self._before: dict[signal.Signals, Any] = {}
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[Any] | None = None
        self._context: contextvars.Context | None = None  # of the event loop, by which anyio knows it

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
        # Not started by a signal, which may have interrupted the start of another thread.
        threading.Thread(target=self._watch, args=(threading.get_ident(),), name="kactl signals", daemon=True).start()
        try:
            yield
        finally:
            self._ended.set()
            self._begun.set()
            self._restore()

    async def run(self, main: Callable[[], Awaitable[T]]) -> T | None:
        self._loop = loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        self._context = contextvars.copy_context()
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
        name = signal.Signals(number).name
        _write(f"{name}: the program ends in order; a second signal ends it at once")
        self._begun.set()
        self._cancel()

    def _watch(self, looped: int) -> None:
        """Report what delays the end, in a thread of its own, as the event loop may be blocked.

        Args:
            looped: the thread of the event loop.
        """
        self._begun.wait()
        waited_s = 0
        while not self._ended.wait(REPORT_S):
            waited_s += REPORT_S
            _write(f"the program has not ended after {waited_s} s: {'; '.join(self._delays(looped))}")

    def _delays(self, looped: int) -> list[str]:
        answer: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        loop, main = self._loop, self._main
        if loop is not None and main is not None:
            with contextlib.suppress(RuntimeError, queue.Empty):  # it is closed, or blocked
                loop.call_soon_threadsafe(lambda: answer.put(delays.listed(main)), context=self._context)
                return answer.get(timeout=BLOCKED_S)
        return [f"the event loop is blocked, {delays.blocked(looped)}"]

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`: `multiprocessing` ends its processes by SIGTERM."""
        self._restore()


def _print_alone(error: KactlError) -> None:
    """Let an error that ends a start, and then the program, be printed without a traceback."""
    if not error.ends_start or log.isEnabledFor(logging.DEBUG) or sys.excepthook is not sys.__excepthook__:
        return

    def hook(kind: type[BaseException], raised: BaseException, trace: TracebackType | None) -> None:
        if raised is error:
            _write("; ".join([str(error), *getattr(error, "__notes__", ())]))
        else:
            sys.__excepthook__(kind, raised, trace)

    sys.excepthook = hook


def _write(text: str) -> None:
    """Write a line to stderr. The file of Python may be in use where a signal arrives."""
    with contextlib.suppress(OSError):
        os.write(2, f"kactl: {escaped(text)}\n".encode(errors="replace"))
