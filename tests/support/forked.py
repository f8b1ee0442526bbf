"""Processes that a fork server starts: a fraction of the time of an interpreter with its imports.

One fork server runs for each process of the tests that needs one. It ends when this process closes its socket or is
gone, and the kernel ends its children with it.
"""

import atexit
import functools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from . import tree
from .fork_server import Place, Program, request_bytes

# A limit, not a measurement: imports on a busy machine.
ANSWER_S: Final = 60.0
# OpenBLAS would start threads, with which no process may be forked.
_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}


class ForkedChild:
    """Process that a fork server started; has the part of `subprocess.Popen` that `Process` uses."""

    def __init__(self, pid: int, report: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._report = report

    def poll(self) -> int | None:
        return self._ended_within(0)

    def wait(self, timeout: float) -> int:
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def _ended_within(self, timeout: float) -> int | None:
        if self.returncode is None:
            waits = select.poll()
            waits.register(self._report, select.POLLIN)
            if waits.poll(timeout * 1000):
                # Empty if the fork server has ended, and this process with it.
                self.returncode = int(os.read(self._report, 10) or -signal.SIGKILL)
                os.close(self._report)
        return self.returncode


def fork(program: Program, *, stdin: int, stdout: int, stderr: int, env: Mapping[str, str], cwd: Path) -> ForkedChild:
    """Start a program with these descriptors as its streams."""
    return _server().fork(program, (stdin, stdout, stderr), Place(dict(env), str(cwd)))


class _ForkServer:
    """The other end of `fork_server`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(ANSWER_S)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "tests.support.fork_server", str(other.fileno())],
                stdin=subprocess.DEVNULL,
                cwd=tree.ROOT,
                env={**os.environ, **_ENVIRONMENT},
                pass_fds=[other.fileno()],
                process_group=0,
            )
        atexit.register(self._close)

    def fork(self, program: Program, streams: tuple[int, int, int], place: Place) -> ForkedChild:
        report, its_end = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._socket, [request_bytes(program, place)], [*streams, its_end])
                answer = self._socket.recv(100)
        finally:
            os.close(its_end)
        if not answer:
            raise RuntimeError(f"the fork server has ended: can {program} be imported?")
        return ForkedChild(int(answer), report)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def _server() -> _ForkServer:
    return _ForkServer()
