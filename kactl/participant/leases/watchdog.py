"""Watchdog: ends the process if a leader's code runs on after its lease, before another leader can begin.

It acts on what cancellation cannot end: a task that ignores it, a blocked event loop, a stopped process. The pacemaker
writes a time a little before the bound of the lease, or 0 while nothing is led.

    thread     a thread of this process, which ends it with the exit code EXIT_CODE. It cannot act while the process is
               stopped, or an extension holds the interpreter.
    process    a child process, which sends SIGKILL. Linux only.
    /dev/...   a watchdog device, which resets the machine unless it is fed. It is fed at each renewal, from the first
               leadership to the last. Its own timeout has to be longer than the interval of the renewals, and shorter
               than the lease. Nothing is led if it cannot be opened.
"""

import contextlib
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from kactl.errors import BadRequest, NotReady
from kactl.runtime.logs import logger

from . import watchdog_child

log = logger(__name__)

# EX_SOFTWARE of sysexits.h.
EXIT_CODE: Final = 70
# Part of the margin that remains between the end of the process and the bound of the lease, and the part of it after
# which the watchdog looks at the time again.
_MARGIN_SHARE: Final = 4
_STOP_S: Final = 5.0
# What Linux takes as any sign of life, and as the announcement that closing the device is meant ("magic close").
_FEED: Final = b"\n"
_MAGIC_CLOSE: Final = b"V"


class Watchdog:
    """A watchdog that never acts: the base of the others.

    Attributes:
        leading: how many leaderships have code that runs.
    """

    def __init__(self) -> None:
        self.leading = 0
        self._until_ns = 0

    def begin(self) -> None:
        """A leadership begins to run code.

        Raises:
            NotReady: it cannot be watched.
        """
        self.leading += 1
        self._update()

    def end(self) -> None:
        """The code of a leadership has ended."""
        self.leading -= 1
        self._update()

    def extend(self, *, bound_ns: int, margin_ns: int) -> None:
        """The lease has been extended."""
        self._until_ns = bound_ns - margin_ns // _MARGIN_SHARE
        self._update()

    def _update(self) -> None:
        self.write(self._until_ns if self.leading else 0)

    def write(self, until_ns: int) -> None:
        """End the process at this time of CLOCK_BOOTTIME; 0 is never."""

    def start(self, *, margin_ns: int) -> None:
        """Begin to watch."""

    def stop(self) -> None:
        """Stop watching."""


class ThreadWatchdog(Watchdog):
    """A thread of this process, which ends it. `exit_process` is replaced in tests."""

    def __init__(self, now_ns: Callable[[], int], exit_process: Callable[[int], object] = os._exit) -> None:
        super().__init__()
        self._now_ns = now_ns
        self._exit = exit_process
        self._written_ns = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self, until_ns: int) -> None:
        self._written_ns = until_ns

    def start(self, *, margin_ns: int) -> None:
        if self._thread is None:
            self._stopped.clear()
            step_s = margin_ns / _MARGIN_SHARE / 1e9
            self._thread = threading.Thread(target=self._watch, args=(step_s,), name="kactl watchdog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopped.set()
            thread.join(_STOP_S)

    def _watch(self, step_s: float) -> None:
        while not self._stopped.is_set():
            until_ns = self._written_ns
            left_s = (until_ns - self._now_ns()) / 1e9 if until_ns else step_s
            if left_s <= 0:
                self._exit(EXIT_CODE)
                return
            self._stopped.wait(min(left_s, step_s))


class ProcessWatchdog(Watchdog):
    """A child process, which sends SIGKILL to this one. If it ends, the next renewal starts another one.

    Attributes:
        child: None while nothing is watched.
    """

    def __init__(self) -> None:
        super().__init__()
        self.child: subprocess.Popen[bytes] | None = None
        self._shared: memoryview | None = None
        self._margin_ns = 0

    def extend(self, *, bound_ns: int, margin_ns: int) -> None:
        child = self.child
        if child is not None and child.poll() is not None:
            log.error(
                "the watchdog process %d has ended with code %d: starting another one", child.pid, child.returncode
            )
            try:
                self._start_child()
            except OSError as error:
                log.error("leaders are not watched until the next renewal: no process can be started: %s", error)
        super().extend(bound_ns=bound_ns, margin_ns=margin_ns)

    def write(self, until_ns: int) -> None:
        if self._shared is not None:
            self._shared[0] = until_ns

    def start(self, *, margin_ns: int) -> None:
        if self.child is None:
            self._margin_ns = margin_ns
            self._start_child()

    def _start_child(self) -> None:
        size = watchdog_child.MAPPING_BYTES
        mapping, parent = os.memfd_create("kactl-watchdog"), os.pidfd_open(os.getpid())
        try:
            os.truncate(mapping, size)
            self._shared = memoryview(mmap.mmap(mapping, size)).cast("q")
            self._shared[1] = self._margin_ns // _MARGIN_SHARE
            # A session of its own: Ctrl-C in a terminal is for the parent.
            self.child = subprocess.Popen(
                [sys.executable, "-I", "-S", watchdog_child.__file__, str(mapping), str(parent)],
                pass_fds=(mapping, parent),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(mapping)
            os.close(parent)
        self._update()

    def stop(self) -> None:
        child, self.child, self._shared = self.child, None, None
        if child is not None:
            child.kill()
            child.wait()


class DeviceWatchdog(Watchdog):
    """A device, which resets the machine. Any program that has it open and writes to it prevents the reset."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._device: int | None = None

    def begin(self) -> None:
        if self._device is None:
            try:
                self._device = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            except OSError as error:
                raise NotReady(reason=f"the watchdog {self._path} cannot be opened: {error.strerror}") from error
            log.info("the watchdog %s is open: it resets this machine unless leases are renewed", self._path)
        super().begin()

    def extend(self, *, bound_ns: int, margin_ns: int) -> None:
        super().extend(bound_ns=bound_ns, margin_ns=margin_ns)
        if self._device is not None:
            self._write(_FEED)

    def write(self, until_ns: int) -> None:
        if not until_ns:
            self.stop()

    def stop(self) -> None:
        device = self._device
        if device is not None:
            self._write(_MAGIC_CLOSE)
            self._device = None
            with contextlib.suppress(OSError):
                os.close(device)

    def _write(self, text: bytes) -> None:
        assert self._device is not None
        try:
            os.write(self._device, text)
        except OSError as error:
            log.error("the watchdog %s takes nothing, and resets the machine: %s", self._path, error.strerror)


def make_watchdog(kind: str, now_ns: Callable[[], int]) -> Watchdog:
    """Returns a watchdog that has not started.

    Raises:
        BadRequest: there is no such kind, or not on this system.
    """
    match kind:
        case "off":
            return Watchdog()
        case "thread":
            return ThreadWatchdog(now_ns)
        case "process" if hasattr(os, "pidfd_open") and hasattr(time, "CLOCK_BOOTTIME"):
            return ProcessWatchdog()
        case "process":
            raise BadRequest("lease.watchdog", "'process' needs Linux: choose 'thread'")
        case str() if os.path.isabs(kind):
            return DeviceWatchdog(kind)
    raise BadRequest(
        "lease.watchdog", f"{kind!r} is not known: choose 'off', 'thread', 'process', or a device as '/dev/watchdog'"
    )
