"""Harness that runs `kactl up` and other commands as processes."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from kactl.admin.schema import ControllerInfo, PartitionInfo
from tests.support.processes import HarnessError, Process, free_port

KACTL: Final = (sys.executable, "-W", "error", "-m", "kactl.cli")
# A server starts within seconds on two busy cores; after a kill the sessions of the previous process must expire first.
START_S: Final = 30.0
STOP_S: Final = 20.0
POLL_S: Final = 0.05
# A short session timeout detects killed brokers quickly; leaders move only when a test requests it.
QUICK: Final = {"KACTL_STORE__SESSION_TIMEOUT": "2s", "KACTL_CONTROLLER__AUTO_LEADER_REBALANCE": "false"}
# The sessions of a killed process last longer than the start of the next one, even on a busy machine.
PATIENT: Final = {**QUICK, "KACTL_STORE__SESSION_TIMEOUT": "10s"}
_Kind = TypeVar("_Kind")


class CommandResult:
    """Result of one command."""

    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def json(self, kind: type[_Kind]) -> _Kind:
        """Returns the document on stdout."""
        return msgspec.json.decode(self.out, type=kind)

    def jsonl(self, kind: type[_Kind]) -> list[_Kind]:
        """Returns the documents on stdout, one per line."""
        return [msgspec.json.decode(line, type=kind) for line in self.out.splitlines()]


def kactl(*arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> CommandResult:
    """Run a command without a terminal until it ends."""
    return CommandResult(
        subprocess.run(
            [*KACTL, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2]), **(env or {})},
            cwd=cwd,
        )
    )


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

    @property
    def command(self) -> list[str]:
        return [*KACTL, "up", "--data-dir", str(self.data_dir), "--listen", f"127.0.0.1:{self.port}"]

    def start(self, *more: str) -> Process:
        """Start the process, and wait until it is the controller."""
        self.process = Process(
            [*self.command, *self.options, *more],
            output=self.folder / "up.log",
            env=self.env,
        )
        self.process.wait_for_line("kactl is up", START_S)
        with urllib.request.urlopen(f"{self.url}/readyz", timeout=10) as response:
            assert response.status == 200
        return self.process

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
