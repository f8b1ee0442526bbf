"""Watchdog: ends the process if a leader's code runs on after its lease, before another leader can begin.

It acts on what cancellation cannot end: a task that ignores it, a blocked event loop, a stopped process. The pacemaker
writes a time a little before the bound of the lease, or 0 while nothing is led.

    thread     a thread of this process, which ends it with the exit code EXIT_CODE. It cannot act while the process is
               stopped, or an extension holds the interpreter.
    process    a child process, which sends SIGKILL. Linux only, and not for process 1 of a PID namespace, for which the
               kernel drops signals from inside.
    /dev/...   a watchdog device, which resets the machine unless it is fed. It is fed at each renewal, from the first
               leadership to the last. Its own timeout has to be longer than the interval of the renewals, and shorter
               than the lease. Nothing is led if it cannot be opened.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

import anyio

from kactl.model.errors import BadRequest, NotReady
from kactl.runtime import forks
from kactl.runtime.logs import logger

from . import watchdog_child

log = logger(__name__)

# EX_SOFTWARE of sysexits.h.
EXIT_CODE: Final = 70
# Part of the margin that remains between the end of the process and the bound of the lease, and the part of it after
# which the watchdog looks at the time again.
_MARGIN_SHARE: Final = 4
_STOP_S: Final = 5.0
_STEP_S_MIN: Final = 0.001  # of the thread, for leases without a margin
# How long the watchdog process may take to start, on a busy machine.
_START_S: Final = 30.0
_START_POLL_S: Final = 0.005
# A watchdog process that did not look for this long is replaced.
_LOOK_NS_MAX: Final = 2_000_000_000
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

    def check(self) -> None:
        """Verify that this process can be watched, before anything else is done.

        Raises:
            BadRequest: it cannot, whatever the state of the system.
            NotReady: the system refuses it.
        """

    async def start(self, *, margin_ns: int) -> None:
        """Begin to watch. Raises NotReady if the system refuses it."""

    def stop(self) -> None:
        """Stop watching."""

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`: a child does not move the time that its parent is given, nor ends its watch."""


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

    async def start(self, *, margin_ns: int) -> None:
        if self._thread is None:
            self._stopped.clear()
            step_s = margin_ns / _MARGIN_SHARE / 1e9
            thread = threading.Thread(target=self._watch, args=(step_s,), name="kactl watchdog", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise NotReady(reason=f"the watchdog thread cannot be started: {error}") from error
            self._thread = thread

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopped.set()
            thread.join(_STOP_S)

    def _watch(self, step_s: float) -> None:
        while not self._stopped.is_set():
            until_ns = self._written_ns
            left_s = (until_ns - self._now_ns()) / 1e9 if until_ns else step_s
            if until_ns and left_s <= 0:
                self._exit(EXIT_CODE)
                return
            self._stopped.wait(max(min(left_s, step_s), _STEP_S_MIN))


class ProcessWatchdog(Watchdog):
    """A child process, which sends SIGKILL to this one. If it ends or stops, the next renewal starts another one.

    Attributes:
        child: None while nothing is watched.
    """

    def __init__(self) -> None:
        super().__init__()
        self.child: subprocess.Popen[bytes] | None = None
        self._child_fd = -1  # a pid may belong to another process, once the host program has waited for the child
        self._shared: memoryview | None = None
        self._margin_ns = 0
        self._looked = (0, 0)  # the number of the child's last look that was seen, and when

    def check(self) -> None:
        if os.getpid() == 1:
            raise BadRequest(
                "lease.watchdog",
                "process 1 cannot be killed from inside its PID namespace: start the program with an init (docker run "
                "--init, or shareProcessNamespace in a pod), or choose 'thread'",
            )
        try:
            own = os.pidfd_open(os.getpid())
            try:
                signal.pidfd_send_signal(own, 0)
            finally:
                os.close(own)
        except OSError as error:
            raise _refused(error) from error

    def begin(self) -> None:
        if self.child is not None:
            self._replace_child()
        super().begin()

    def extend(self, *, bound_ns: int, margin_ns: int) -> None:
        if self.child is not None:
            try:
                self._replace_child()
            except NotReady as error:
                log.error("leaders are not watched until the next renewal: %s", error)
        super().extend(bound_ns=bound_ns, margin_ns=margin_ns)

    def write(self, until_ns: int) -> None:
        if self._shared is not None:
            self._shared[watchdog_child.UNTIL] = until_ns

    async def start(self, *, margin_ns: int) -> None:
        if self.child is not None:
            return
        self._margin_ns = margin_ns
        self._start_child()
        give_up_s = time.monotonic() + _START_S
        # By the machine's clock: the child has no other.
        while self._state == 0 and not self._has_ended() and time.monotonic() < give_up_s:  # noqa: ASYNC110
            await anyio.sleep(_START_POLL_S)
        state = self._state
        if state != watchdog_child.WATCHING:
            code = self.child.returncode if self.child is not None and self._has_ended() else None
            self.stop()
            if state < 0:
                raise _refused(OSError(-state, os.strerror(-state)))
            if state == watchdog_child.OTHER_TIME:
                raise NotReady(reason="the watchdog process has a time namespace of its own: unshare before the start")
            end = f"has not started within {_START_S:g} s" if code is None else f"ended at its start with code {code}"
            raise NotReady(reason=f"the watchdog process ({sys.executable}) {end}; its stderr has the details")

    def _start_child(self) -> None:
        """Raises NotReady if no process can be started."""
        size, opened = watchdog_child.MAPPING_BYTES, list[int]()

        def inherited(descriptor: int) -> int:
            # In a program without stdin, stdout or stderr, the first free number would be theirs.
            try:
                opened.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3))
            finally:
                os.close(descriptor)
            return opened[-1]

        try:
            mapping, parent = inherited(os.memfd_create("kactl-watchdog")), inherited(os.pidfd_open(os.getpid()))
            os.truncate(mapping, size)
            self._shared = memoryview(mmap.mmap(mapping, size)).cast("q")
            self._shared[watchdog_child.STEP] = self._margin_ns // _MARGIN_SHARE
            program = [sys.executable, "-I", "-S", watchdog_child.__file__, str(mapping), str(parent)]
            # A session of its own: Ctrl-C in a terminal is for the parent.
            child = subprocess.Popen(
                [*program, str(os.getpid()), watchdog_child.time_namespace()],
                pass_fds=(mapping, parent),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                child_fd = os.pidfd_open(child.pid)
            except OSError:
                child.kill()
                child.wait()
                raise
            self._close_child_fd()
            self.child, self._child_fd = child, child_fd
            forks.share(self)
        except OSError as error:
            raise _refused(error) from error
        finally:
            for descriptor in opened:
                os.close(descriptor)
        self._looked = (0, time.monotonic_ns())
        self._update()

    @property
    def _state(self) -> int:
        return 0 if self._shared is None else self._shared[watchdog_child.STATE]

    def _has_ended(self, wait_ms: int = 0) -> bool:
        """Whether the child has ended, in which case its code is read, unless the host program has done so."""
        if self.child is None:
            return True
        poll = select.poll()
        poll.register(self._child_fd, select.POLLIN)
        if not poll.poll(wait_ms):
            return False
        self.child.poll()
        return True

    def _replace_child(self) -> None:
        """Start another child if the present one has ended, was stopped, or cannot watch. Raises NotReady."""
        assert self.child is not None
        if self._has_ended():
            problem = f"has ended with code {self.child.returncode}"
        elif not self._is_looking():
            problem = "does not look at the time"
        else:
            return
        log.error("the watchdog process %d %s: starting another one", self.child.pid, problem)
        self._end_child()
        self._start_child()

    def _is_looking(self) -> bool:
        """Whether the child has looked since the last call, or may still do so."""
        assert self._shared is not None
        looks, now_ns = self._shared[watchdog_child.LOOKS], time.monotonic_ns()
        before, seen_ns = self._looked
        if looks != before:
            self._looked = (looks, now_ns)
        limit_ns = max(_LOOK_NS_MAX, 4 * self._margin_ns) if looks else int(_START_S * 1e9)
        return looks != before or now_ns - seen_ns < limit_ns

    def stop(self) -> None:
        self._shared = None
        if self.child is not None:
            self._end_child()
            self.child = None
        self._close_child_fd()

    def _abandon(self) -> None:
        self.child = self._shared = None
        self._close_child_fd()

    def _end_child(self) -> None:
        assert self.child is not None
        try:
            signal.pidfd_send_signal(self._child_fd, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except OSError:  # refused since the start
            self.child.kill()
        self._has_ended(int(_STOP_S * 1000))

    def _close_child_fd(self) -> None:
        descriptor, self._child_fd = self._child_fd, -1
        if descriptor >= 0:
            os.close(descriptor)


def _refused(error: OSError) -> NotReady:
    if error.errno in (errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL):
        remedy = "allow memfd_create, pidfd_open and pidfd_send_signal (Linux 5.3, seccomp profile)"
    else:
        remedy = "check the limits of processes and open files"
    return NotReady(
        reason=f"the system refuses a watchdog of the kind 'process': {error.strerror}: {remedy}, or choose 'thread'"
    )


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
            forks.share(self)
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

    def _abandon(self) -> None:
        device, self._device = self._device, None
        if device is not None:
            os.close(device)  # an open one would keep the parent from closing it

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
