"""Interpreter that imports modules once, and forks a process for each program that uses them.

A server of kactl needs most of a second of processor time for its imports, and a few milliseconds for a fork. The
process that runs is like `python -W error -m MODULE` in all that the programs under test can notice: arguments,
environment, working folder, standard streams, signals, process group and exit code. Tests of the start itself, of
missing packages or of what is imported start an interpreter instead.

The fork server has no thread but its first: a fork is safe, and Python warns of any other, which ends the server here.
"""

import contextlib
import ctypes
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

# Descriptors of a request: stdin, stdout, stderr, and the pipe that receives the exit code.
DESCRIPTORS: Final = 4
# Arguments and environment of one program.
REQUEST_BYTES_MAX: Final = 150_000
_PR_SET_PDEATHSIG: Final = 1


class Program(NamedTuple):
    """A program to run in a forked process.

    Attributes:
        module: run like `python -m MODULE`.
        imports: modules to import before the fork, unless an earlier program has.
        descriptors_max: limit of open files; None leaves it.
    """

    module: str
    arguments: Sequence[str] = ()
    imports: Sequence[str] = ()
    descriptors_max: int | None = None


class Place(NamedTuple):
    """Environment variables and working folder of a program."""

    env: Mapping[str, str]
    cwd: str


def request_bytes(program: Program, place: Place) -> bytes:
    return json.dumps([program, place]).encode()


class _Server:
    """Forks processes on request, and reports their exit codes."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._reports: dict[int, int] = {}
        self._woken, self._wake = os.pipe()
        for descriptor in (self._woken, self._wake):
            os.set_blocking(descriptor, False)

    def serve(self) -> tuple[Program, Place] | None:
        """Serve requests. Returns None after the last one, and in each forked process what it has to run."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)
        while True:
            ready = select.select([self._control.fileno(), self._woken], [], [])[0]
            if self._woken in ready:
                os.read(self._woken, 1_000)
                self._report()
            if self._control.fileno() in ready:
                content, descriptors, _, _ = socket.recv_fds(self._control, REQUEST_BYTES_MAX, DESCRIPTORS)
                if not content:
                    return None
                program, place = json.loads(content)
                if self._forks(Program(*program), descriptors):
                    return Program(*program), Place(*place)

    def _forks(self, program: Program, descriptors: list[int]) -> bool:
        """Fork, and answer with the process id. Returns True in the new process."""
        for name in program.imports:
            importlib.import_module(name)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._leave(parent, descriptors)
            return True
        with contextlib.suppress(OSError):  # the child may have done it, or be gone
            os.setpgid(pid, pid)
        *streams, self._reports[pid] = descriptors
        for descriptor in streams:
            os.close(descriptor)
        self._control.send(str(pid).encode())
        return False

    def _leave(self, parent: int, descriptors: list[int]) -> None:
        """Close what belongs to the server, and end with it."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # As in an interpreter that a terminal starts; a shell without job control starts programs that ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._control.close()
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
        for descriptor in (self._woken, self._wake, *self._reports.values(), *descriptors):
            os.close(descriptor)

    def _report(self) -> None:
        """Write the exit code of each process that has ended to its pipe; negative for a signal."""
        for pid in list(self._reports):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                report = self._reports.pop(pid)
                with contextlib.suppress(BrokenPipeError):  # nothing waits for it any more
                    os.write(report, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(report)


def _run(program: Program, place: Place) -> None:
    """Run a program in this process, which ends as the program does."""
    if program.descriptors_max is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (program.descriptors_max, program.descriptors_max))
    os.chdir(place.cwd)
    os.environ.clear()
    os.environ.update(place.env)
    sys.path[:1] = [place.cwd, *filter(None, place.env.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv[1:] = program.arguments
    runpy.run_module(program.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    work = _Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if work is not None:
        _run(*work)
