"""`kactl up` and the commands that speak to it, as processes of their own."""

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
# Two busy cores start a server within seconds; after a kill the sessions of the process before have to expire first.
START_S: Final = 30.0
STOP_S: Final = 20.0
POLL_S: Final = 0.05
# Brokers that are killed are found dead sooner than a person would have it, and leaders move when a test says so only.
QUICK: Final = {"KACTL_STORE__SESSION_TIMEOUT": "2s", "KACTL_CONTROLLER__AUTO_LEADER_REBALANCE": "false"}
# Whoever was killed is missed for longer than even a busy machine needs to start the next.
PATIENT: Final = {**QUICK, "KACTL_STORE__SESSION_TIMEOUT": "10s"}
_Kind = TypeVar("_Kind")


class Ran:
    """One command that has ended."""

    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def json(self, kind: type[_Kind]) -> _Kind:
        """The one document on stdout."""
        return msgspec.json.decode(self.out, type=kind)

    def jsonl(self, kind: type[_Kind]) -> list[_Kind]:
        """The documents on stdout, one to a line."""
        return [msgspec.json.decode(line, type=kind) for line in self.out.splitlines()]


def kactl(*arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Ran:
    """Run a command to its end; nobody sits at its terminal."""
    return Ran(
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
    """A cluster of `kactl up`, which may be ended and started again on its folder and port."""

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
        """Start it, and wait until it is the controller."""
        self.process = Process(
            [*self.command, *self.options, *more],
            output=self.folder / "up.log",
            env=self.env,
        )
        self.process.wait_for_line("kactl is up", START_S)
        with urllib.request.urlopen(f"{self.url}/readyz", timeout=10) as answer:
            assert answer.status == 200
        return self.process

    def __call__(self, *arguments: str | Path) -> Ran:
        """Run a command against it."""
        return kactl("--server", self.url, *arguments)

    def partitions(self, *options: str) -> list[PartitionInfo]:
        return self("get", "partitions", "-o", "jsonl", *options).jsonl(PartitionInfo)

    def epoch(self) -> int:
        """Of the controller."""
        return self("get", "controller", "-o", "json").json(ControllerInfo).epoch

    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Look again and again at a process that goes at its own pace."""
        deadline = time.monotonic() + START_S
        while not reached():
            if time.monotonic() > deadline:
                raise self.process.error(f"did not come to: {what}")
            time.sleep(POLL_S)

    def close(self) -> None:
        try:
            self.process.stop(STOP_S)
        except HarnessError:
            self.process.kill()
            raise
