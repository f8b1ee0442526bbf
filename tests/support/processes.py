"""Child processes that cannot outlive the tests, and free ports for them.

A child ends with us in one of three ways: a fixture closes it; the interpreter ends and `atexit` kills what is left;
or we are killed ourselves and the kernel kills it. Signals go to the child's own process group, by id; only the
kernel's reaches the child alone, and not what it has started in turn.

The kernel ties a child to the *thread* that started it, not to the process. A child started from a worker thread would
be killed when that thread goes idle. So one thread, which outlives even the `atexit` handlers, starts all of them.
"""

import atexit
import os
import queue
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final, Self

# Often enough not to be felt in a start-up of seconds, seldom enough not to be seen in `top`.
POLL_S: Final = 0.02
# SIGKILL takes effect at once; only a process stuck in the kernel takes longer, and that must be seen.
KILL_S: Final = 10.0
# A fork takes milliseconds; longer means that the thread which does it is gone, as in a forked copy of ourselves.
SPAWN_S: Final = 30.0
# What a failure quotes of the child's output.
TAIL_LINES: Final = 30
# Below the range from which the kernel takes the local ports of outgoing connections, so that no client can
# sit on a server's port while the server is down.
PORTS: Final = range(12_000, 32_000)
PORT_TRIES: Final = 1_000

# Runs in the child before the command: asks to be killed with its parent, then becomes the command. A program
# started in between is the safe form of `preexec_fn`, which may deadlock in a process with threads.
# Signals that a parent ignores stay ignored in its children: a shell without job control starts what runs in the
# background with SIGINT ignored, and Python ignores SIGPIPE. The child gets the dispositions that a terminal gives it.
_LAUNCHER: Final = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        os._exit(1)
for number in (signal.SIGINT, signal.SIGPIPE):
    signal.signal(number, signal.SIG_DFL)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"cannot run {sys.argv[2]}: {error.strerror}")
"""


_Start = Callable[[], subprocess.Popen[bytes]]


class HarnessError(Exception):
    """The test bench could not do its part; the message quotes what the child process said last."""


class Process:
    """One child process, running from construction on, that writes into a file of its own."""

    def __init__(
        self, command: Sequence[str], *, output: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        """Start `command`.

        Args:
            output: stdout and stderr are appended here; what stands there from earlier runs stays.
            env: added to our own environment.
        """
        self.name = Path(command[0]).name
        self.paused = False
        self.output = output
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("ab") as sink:
            self._begin = sink.tell()

            def start() -> subprocess.Popen[bytes]:
                return subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **(env or {})},
                    cwd=cwd,
                    process_group=0,
                )

            done: Future[subprocess.Popen[bytes]] = Future()
            _orders.put((start, done))
            self._child = done.result(SPAWN_S)
        _running.add(self)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs; a paused process does."""
        return self._child.poll() is None

    @property
    def text(self) -> str:
        """What this run has written so far."""
        with self.output.open("rb") as source:
            source.seek(self._begin)
            return source.read().decode(errors="replace")

    def wait_for_line(self, pattern: str, timeout: float) -> re.Match[str]:
        """The first line of this run in which the regular expression is found, written already or yet to come.

        Raises:
            HarnessError: the process ended, or `timeout` seconds passed, without such a line. A process that
                is still there goes on running.
        """
        deadline = time.monotonic() + timeout
        wanted = re.compile(pattern)
        unread = b""
        with self.output.open("rb") as source:
            source.seek(self._begin)
            while True:
                ended = not self.alive  # looked at before the last read, so that no last words are missed
                unread += source.read()
                *lines, unread = unread.split(b"\n")
                if ended:
                    lines.append(unread)
                for line in lines:
                    if found := wanted.search(line.decode(errors="replace")):
                        return found
                if ended:
                    raise self.error(f"ended with {self._child.returncode} before it wrote {pattern!r}")
                if time.monotonic() > deadline:
                    raise self.error(f"did not write {pattern!r} within {timeout:g} s")
                time.sleep(POLL_S)

    def wait(self, timeout: float) -> int:
        """The exit code, negative for a signal.

        Raises:
            HarnessError: it still runs after `timeout` seconds, and goes on running.
        """
        try:
            code = self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self.error(f"still runs after {timeout:g} s") from None
        _running.discard(self)
        return code

    def signal(self, number: int) -> None:
        """Send a signal to the process and its children; nothing when it has ended."""
        if self.alive:  # not reaped before this line, so its id cannot have passed to somebody else
            os.killpg(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM; a paused process is woken to hear it."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def stop(self, timeout: float) -> int:
        """SIGTERM, and the exit code.

        Raises:
            HarnessError: it did not end within `timeout` seconds, and was killed.
        """
        self.terminate()
        try:
            return self.wait(timeout)
        except HarnessError:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL; it is gone when this returns. Harmless when it has ended."""
        self.signal(signal.SIGKILL)
        self.wait(KILL_S)

    def pause(self) -> None:
        """SIGSTOP: its connections stay open and nobody answers on them."""
        self.paused = True
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)
        self.paused = False

    def error(self, what: str) -> HarnessError:
        """An error that names the process and quotes its last lines."""
        tail = "\n".join(self.text.splitlines()[-TAIL_LINES:])
        return HarnessError(f"{self.name} (pid {self.pid}) {what}; the end of {self.output}:\n{tail}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def free_port() -> int:
    """A loopback port that nobody listens on and that no other caller on this host is given until we exit.

    A server may be stopped and started again on it. The claim is a name in the kernel that goes away with us.
    """
    for _ in range(PORT_TRIES):
        port = random.choice(PORTS)
        if _claim(port) and _is_free(port):
            return port
    raise HarnessError(f"no free port among {PORT_TRIES} tried in {PORTS}")


def _claim(port: int) -> bool:
    if sys.platform != "linux":
        return True  # no abstract names there; the odds of a clash are small
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0kactl-tests-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _spawn() -> None:
    while True:
        start, done = _orders.get()
        try:
            done.set_result(start())
        except Exception as error:
            done.set_exception(error)


def _kill_the_rest() -> None:
    for process in list(_running):
        process.kill()


_orders: Final[queue.SimpleQueue[tuple[_Start, Future[subprocess.Popen[bytes]]]]] = queue.SimpleQueue()
_running: Final[set[Process]] = set()
_claims: Final[list[socket.socket]] = []
atexit.register(_kill_the_rest)
threading.Thread(target=_spawn, name="spawner", daemon=True).start()
