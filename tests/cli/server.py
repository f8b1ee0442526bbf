"""Harness that runs `kactl up` as a process, and other commands as processes or in this process."""

import contextlib
import io
import os
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final, TextIO, TypeVar

import msgspec
import pytest

from kactl.admin.schema import ControllerInfo, PartitionInfo
from kactl.cli.main import main
from tests.support import api_access, tree
from tests.support.fork_server import Program
from tests.support.forked import fork
from tests.support.processes import HarnessError, Process, free_port

KACTL: Final = (sys.executable, "-W", "error", "-m", "kactl.cli")
# Imports of servers and of commands that follow them, which take longer than anything else that they do.
IMPORTS: Final = (
    "uvloop",
    "kactl.cli.root",
    "kactl.cli.up",
    "kactl.cli.demo",
    "kactl.cli.setup",
    "kactl.cli.serving",
    "kactl.telemetry.state_change_log.keeper",
    "kactl.telemetry.state_change_log.past",
)
# A server starts within seconds on two busy cores; after a kill the sessions of the previous process must expire first.
START_S: Final = 90.0
STOP_S: Final = 60.0
POLL_S: Final = 0.05
# A short session timeout detects killed brokers quickly, and is not over on a busy machine. Leaders move only when a
# test requests it.
# Tests make more changes in a second than a user is expected to.
QUICK: Final = {
    "KACTL_STORE__SESSION_TIMEOUT": "5s",
    "KACTL_CONTROLLER__AUTO_LEADER_REBALANCE": "false",
    "KACTL_API__CHANGES_PER_SECOND": "1000",
}
# The sessions of a killed process last longer than the start of the next one, even on a busy machine.
PATIENT: Final = {**QUICK, "KACTL_STORE__SESSION_TIMEOUT": "10s"}
# Where servers list themselves, and commands find them.
STATE: Final = api_access.state_environment()
_Kind = TypeVar("_Kind")


class CommandResult:
    """Result of one command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def json(self, kind: type[_Kind]) -> _Kind:
        """Returns the document on stdout."""
        return msgspec.json.decode(self.out, type=kind)

    def jsonl(self, kind: type[_Kind]) -> list[_Kind]:
        """Returns the documents on stdout, one per line."""
        return [msgspec.json.decode(line, type=kind) for line in self.out.splitlines()]


def kactl(
    *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None, stdin: int | None = None
) -> CommandResult:
    """Run a command in this process until it ends, with streams and an environment like those of a new process.

    An interpreter takes longer to start than most commands take to run. Servers that start, and tests of what only a
    process has, use `kactl_process`.

    Args:
        stdin: file descriptor to read from; the null device if there is none.
    """
    out, err = _Captured(), _Captured()
    with pytest.MonkeyPatch.context() as patch, _stdin_from(stdin) as source:
        patch.setattr(sys, "argv", ["kactl", *map(str, arguments)])
        patch.setattr(sys, "stdin", source)
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(os, "environ", _environment(env))
        if cwd is not None:
            patch.chdir(cwd)
        code = _exit_code()
    return CommandResult(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


@contextlib.contextmanager
def pipe_of(content: str) -> Iterator[int]:
    """Yield the end of a pipe from which this content can be read once."""
    end, begin = os.pipe()
    with open(begin, "w", encoding="utf-8") as sink:
        sink.write(content)
    try:
        yield end
    finally:
        os.close(end)


@contextlib.contextmanager
def _stdin_from(descriptor: int | None) -> Iterator[TextIO]:
    """Let descriptor 0 be another file; yields it as a stream."""
    before = os.dup(0)
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno() if descriptor is None else descriptor, 0)
    try:
        with open(0, encoding="utf-8", closefd=False) as source:
            yield source
    finally:
        os.dup2(before, 0)
        os.close(before)


class _Captured(io.TextIOWrapper):
    """Standard stream in memory."""

    buffer: io.BytesIO

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)


def _exit_code() -> int:
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception:
        traceback.print_exc()  # as the interpreter does
        return 1
    return 0


def kactl_process(
    *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> CommandResult:
    """Run a command without a terminal in a process of its own until it ends."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull, "rb") as null:
        child = fork(
            program(*arguments),
            stdin=null.fileno(),
            stdout=out.fileno(),
            stderr=err.fileno(),
            env=_environment(env),
            cwd=cwd or Path.cwd(),
        )
        code = child.wait(60)
        for stream in (out, err):
            stream.seek(0)
        return CommandResult(code, out.read().decode(), err.read().decode())


def program(*arguments: str | Path) -> Program:
    """Returns a command to run in a forked process."""
    return Program("kactl.cli", [*map(str, arguments)], IMPORTS)


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tree.ROOT), **STATE, **(env or {})}


class Up:
    """A cluster of `kactl up`, which can be stopped and restarted with its folder and port."""

    def __init__(self, folder: Path, *options: str, env: Mapping[str, str] = QUICK) -> None:
        self.folder = folder
        self.env = env
        self.data_dir = folder / "data"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.options = options
        self.process = self.start()

    def command(self, *more: str) -> Program:
        return program("up", "--data-dir", self.data_dir, "--listen", f"127.0.0.1:{self.port}", *self.options, *more)

    def start(self, *more: str) -> Process:
        """Start the process, and wait until it is the controller."""
        self.launch(*more)
        # On a busy machine the short sessions may end meanwhile; the next election follows at once.
        self.until(self.is_ready, "the controller to be ready")
        return self.process

    def launch(self, *more: str) -> None:
        """Start the process, and wait until it prints that the cluster is up."""
        self.process = Process(
            self.command(*more),
            output=self.folder / "up.log",
            env=self.env,
        )
        self.process.wait_for_line("kactl is up", START_S)

    def is_ready(self) -> bool:
        """Returns whether the server is an active controller at present."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=60):
                return True
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return False

    def __call__(self, *arguments: str | Path) -> CommandResult:
        """Run a command that uses this server."""
        return kactl("--server", self.url, *arguments)

    def partitions(self, *options: str) -> list[PartitionInfo]:
        return self("get", "partitions", "-o", "jsonl", *options).jsonl(PartitionInfo)

    def epoch(self) -> int:
        """Returns the controller epoch."""
        return self("get", "controller", "-o", "json").json(ControllerInfo).epoch

    def until(self, reached: Callable[[], bool], condition: str) -> None:
        """Poll until a condition holds; `condition` describes it in the error."""
        deadline = time.monotonic() + START_S
        while not reached():
            if time.monotonic() > deadline:
                raise self.process.error(f"timed out waiting until: {condition}")
            time.sleep(POLL_S)

    def close(self) -> None:
        try:
            self.process.stop(STOP_S)
        except HarnessError:
            self.process.kill()
            raise
