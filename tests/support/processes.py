"""Child processes that cannot outlive the tests, and free ports for them.

A child ends in one of three ways: a fixture closes it; the interpreter ends and `atexit` kills the rest; or the test
process is killed and the kernel kills the child. Signals go to the child's own process group, by id. Only the kernel's
signal reaches the child alone, without its own children.

The kernel ties a child to the *thread* that started it, not to the process. A child started from a worker thread would
be killed when that thread ends. So one thread, which outlives even the `atexit` handlers, starts all of them.
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
from typing import IO, Final, Protocol, Self

from .fork_server import Program
from .forked import fork

# Short enough not to delay a start-up of seconds, long enough not to cost measurable processor time.
POLL_S: Final = 0.02
# SIGKILL takes effect at once; only a process stuck in the kernel takes longer, and that must be seen.
KILL_S: Final = 60.0
# A fork takes milliseconds. A longer wait means that the forking thread is gone, as in a forked copy of this process.
SPAWN_S: Final = 30.0
# Lines of the child's output in an error message.
TAIL_LINES: Final = 30
# Below the range from which the kernel takes the local ports of outgoing connections, so that no client can
# sit on a server's port while the server is down.
PORTS: Final = range(12_000, 32_000)
PORT_TRIES: Final = 1_000

# Runs in the child before the command: requests to be killed with its parent, then becomes the command. A program
# started in between is the safe form of `preexec_fn`, which may deadlock in a process with threads. Signals that a
# parent ignores stay ignored in its children: a shell without job control starts background commands with SIGINT
# ignored, and Python ignores SIGPIPE. The child gets the dispositions that a terminal gives it.
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


class _Child(Protocol):
    """The part of `subprocess.Popen` that is used here."""

    returncode: int | None

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float) -> int: ...


_Start = Callable[[], _Child]


class HarnessError(Exception):
    """The test harness failed; the message quotes the last output of the child process."""


class Process:
    """One child process, started by the constructor, with its output in a file."""

    def __init__(
        self,
        command: Sequence[str] | Program,
        *,
        output: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Starts `command`; a `Program` is forked.

        Args:
            output: stdout and stderr are appended here; output of earlier runs is kept.
            env: added to the environment of this process.
        """
        self.name = command.module if isinstance(command, Program) else Path(command[0]).name
        self.paused = False
        self.output = output
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("ab") as sink:
            self._begin = sink.tell()
            environment = {**os.environ, **(env or {})}
            if isinstance(command, Program):
                self._child = _forked(command, sink, environment, cwd)
            else:
                self._child = _started(command, sink, environment, cwd)
        _running.add(self)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Returns whether it is running; a paused process is."""
        return self._child.poll() is None

    @property
    def text(self) -> str:
        """Returns the output of this run so far."""
        with self.output.open("rb") as source:
            source.seek(self._begin)
            return source.read().decode(errors="replace")

    def wait_for_line(self, pattern: str, timeout: float) -> re.Match[str]:
        """Returns the first output line of this run that matches the regular expression; waits for it.

        Raises:
            HarnessError: the process ended, or `timeout` seconds passed, without such a line. A process that
                is still running continues.
        """
        deadline = time.monotonic() + timeout
        wanted = re.compile(pattern)
        unread = b""
        with self.output.open("rb") as source:
            source.seek(self._begin)
            while True:
                ended = not self.alive  # checked before the last read, so that no output is missed
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
        """Returns the exit code, negative for a signal.

        Raises:
            HarnessError: it still runs after `timeout` seconds, and continues.
        """
        try:
            code = self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self.error(f"still runs after {timeout:g} s") from None
        _running.discard(self)
        return code

    def signal(self, number: int) -> None:
        """Send a signal to the process and its children; no effect after its end."""
        if self.alive:  # not reaped before this line, so that its id cannot belong to another process
            os.killpg(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM; a paused process is resumed to handle it."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def stop(self, timeout: float) -> int:
        """Send SIGTERM. Returns the exit code.

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
        """Send SIGKILL and wait for the end. No effect after its end."""
        self.signal(signal.SIGKILL)
        self.wait(KILL_S)

    def pause(self) -> None:
        """Send SIGSTOP: its connections stay open without responses."""
        self.paused = True
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)
        self.paused = False

    def error(self, what: str) -> HarnessError:
        """Returns an error with the name of the process and its last output lines."""
        tail = "\n".join(self.text.splitlines()[-TAIL_LINES:])
        return HarnessError(f"{self.name} (pid {self.pid}) {what}; the end of {self.output}:\n{tail}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _forked(program: Program, sink: IO[bytes], env: Mapping[str, str], cwd: Path | None) -> _Child:
    with open(os.devnull, "rb") as null:
        number = sink.fileno()
        return fork(program, stdin=null.fileno(), stdout=number, stderr=number, env=env, cwd=cwd or Path.cwd())


def _started(command: Sequence[str], sink: IO[bytes], env: Mapping[str, str], cwd: Path | None) -> _Child:
    def start() -> _Child:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            process_group=0,
        )

    done: Future[_Child] = Future()
    _orders.put((start, done))
    return done.result(SPAWN_S)


def free_port() -> int:
    """Returns a free loopback port that no other caller on this host gets until this process exits.

    A server may be stopped and started again on it. The claim is a name in the kernel that ends with this process.
    """
    for _ in range(PORT_TRIES):
        port = random.choice(PORTS)
        if _claim(port) and _is_free(port):
            return port
    raise HarnessError(f"no free port among {PORT_TRIES} tried in {PORTS}")


def _claim(port: int) -> bool:
    if sys.platform != "linux":
        return True  # without abstract names a clash is unlikely but possible
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


_orders: Final[queue.SimpleQueue[tuple[_Start, Future[_Child]]]] = queue.SimpleQueue()
_running: Final[set[Process]] = set()
_claims: Final[list[socket.socket]] = []
atexit.register(_kill_the_rest)
threading.Thread(target=_spawn, name="spawner", daemon=True).start()
