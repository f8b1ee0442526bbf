"""The shell blocks of README and of the pages that it was split into, executed in order in a fresh tree.

Each block runs in a terminal. A block whose command runs until Ctrl-C gets its own terminal and is ended by Ctrl-C;
every other block has to end without an error. Only ports differ from the pages: KACTL_API__LISTEN and KACTL_SERVER
name a free one, and so does the copy of kactl.toml.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support import tree
from tests.support.processes import free_port
from tests.support.zookeeper_fixtures import jars
from tests.support.zookeeper_server import ZooKeeperServer

__all__ = ["jars"]

pytestmark = pytest.mark.slow

README: Final = (tree.ROOT / "README.md").read_text(encoding="utf-8")
WALK: Final = (tree.ROOT / "docs" / "walk-through.md").read_text(encoding="utf-8")
_, _, _KAFKA = (tree.ROOT / "docs" / "operating.md").read_text(encoding="utf-8").partition("## Over real Kafka brokers")
KAFKA: Final = _KAFKA.partition("\n## ")[0]
BLOCK: Final = re.compile(r"```sh\n(.*?)```", re.DOTALL)

# Commands that run until Ctrl-C, and an output line that shows that they work.
UNTIL_CTRL_C: Final = {
    "make run": "every replica is in sync again",
    "KACTL_CONTROLLER__AUTO_LEADER_REBALANCE=false kactl up": "Ctrl-C stops it",
    "kactl watch": "",  # prints nothing before the first event
    "kactl controller --config kactl.toml": "serves its API at",
}
# The first contains this test. `tests/worker/test_worker_processes.py` runs the second.
NOT_EXECUTED: Final = {"make test", "pip install .\npython worker.py"}

# An installation downloads some 30 MB; two busy cores need a minute to unpack them.
INSTALL_S: Final = 600.0
# From the start of a server to its output line; a demo waits twice for three seconds and once for a session.
READY_S: Final = 180.0
BLOCK_S: Final = 300.0
STOP_S: Final = 60.0
POLL_S: Final = 0.05

RUN_PACKAGES_MAX: Final = 30
NOT_FOR_RUNNING: Final = {"pyspark", "pandas", "pyarrow", "mypy", "ruff", "pytest", "hypothesis", "kio", "kazoo"}


class Checkout(NamedTuple):
    """A copy of the tree, as in a clone, with an activated environment."""

    folder: Path
    env: dict[str, str]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    folder = tmp_path_factory.mktemp("checkout") / "kactl"
    for file in tree.tracked_files():
        copy = folder / file.relative_to(tree.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy, follow_symlinks=False)
    venv = folder.parent / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=INSTALL_S)
    port = free_port()
    # The variables of the test run are not inherited; PIP_ settings and the user's cache are.
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KACTL_", "PYTHON", "VIRTUAL_ENV"))}
    ours = str(Path(sys.executable).parent)
    path = [part for part in kept["PATH"].split(os.pathsep) if part != ours]
    return Checkout(
        folder,
        kept
        | {
            "PATH": os.pathsep.join([str(venv / "bin"), *path]),
            "VIRTUAL_ENV": str(venv),
            "PYTHON": sys.executable,
            "PIP_COMPILE": "0",  # modules are compiled when they are imported; most never are
            "KACTL_API__LISTEN": f"127.0.0.1:{port}",
            "KACTL_SERVER": f"http://127.0.0.1:{port}",
        },
    )


def _heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A command that runs until Ctrl-C."""

    def __init__(self, checkout: Checkout, command: str, log: Path) -> None:
        self.command = command
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec env {command}"],
                cwd=checkout.folder,
                env=checkout.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # The tests may run in the background of a script, which ignores the signal for all that it starts.
                preexec_fn=_heed_ctrl_c,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.output:
            assert self._process.poll() is None, f"{self.command} ended: {self.output}"
            assert time.monotonic() < deadline, f"{self.command} did not print {text!r}: {self.output}"
            time.sleep(POLL_S)

    def ctrl_c(self) -> int:
        """Send the terminal's signal to the whole foreground group. Returns the exit code."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            raise


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Terminals opened by a test; those still open are ended after it."""
    opened: list[Terminal] = []
    yield opened
    for each in reversed(opened):
        each.ctrl_c()


def blocks(text: str) -> list[str]:
    """Returns the executed shell blocks, in order."""
    found = [block.strip() for block in BLOCK.findall(text)]
    return [block for block in found if block not in NOT_EXECUTED]


def bash(checkout: Checkout, block: str, *, timeout_s: float = BLOCK_S) -> str:
    """Run a block in a shell that stops at the first error. Returns its output."""
    done = subprocess.run(
        ["bash", "-xeuo", "pipefail", "-c", block],
        cwd=checkout.folder,
        env=checkout.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def execute(checkout: Checkout, block: str, terminals: list[Terminal]) -> str:
    """Run one block. Returns the output of one that ended."""
    if block not in UNTIL_CTRL_C:
        return bash(checkout, block, timeout_s=INSTALL_S if block.startswith("pip ") else BLOCK_S)
    terminal = Terminal(checkout, block, checkout.folder.parent / f"terminal-{len(terminals)}.log")
    terminals.append(terminal)
    terminal.wait_for(UNTIL_CTRL_C[block], INSTALL_S if block == "make run" else READY_S)
    if block == "make run":  # the only server that the next command does not use
        terminals.remove(terminal)
        assert terminal.ctrl_c() in (0, -signal.SIGINT), terminal.output  # make terminates by the same signal
        assert "Stopped. The cluster is stored" in terminal.output
    return ""


def test_walkthrough_ends_without_an_error(checkout: Checkout, terminals: list[Terminal]) -> None:
    *starts, walk = [*blocks(README), *blocks(WALK)]
    for block in starts:
        execute(checkout, block, terminals)

    output = execute(checkout, walk, terminals)

    # Each step has a visible result: no empty plan or blocked deletion.
    assert "would move" in output.partition("kactl topic add-partitions")[0]
    plan = json.loads((checkout.folder / "plan.json").read_text())
    assert plan["partitions"], "the plan of the walkthrough is empty"
    assert "halted" not in output
    assert "Broker 2" in output
    up, watch = terminals
    watch.wait_for("payments-0", READY_S)
    assert [watch.ctrl_c(), up.ctrl_c()] == [0, 0], watch.output + up.output


def test_make_run_installs_only_what_it_needs(checkout: Checkout, terminals: list[Terminal]) -> None:
    if not (checkout.folder / ".venv-run").exists():
        execute(checkout, "make run", terminals)

    listed = bash(checkout, ".venv-run/bin/python -m pip list --format json --disable-pip-version-check")

    names = {each["name"].lower() for each in json.loads(listed[listed.index("[{") :].partition("\n")[0])}
    assert len(names) <= RUN_PACKAGES_MAX
    assert not names & NOT_FOR_RUNNING
    assert not (checkout.folder / ".venv").exists()


def test_controller_without_its_extra_prints_one_line(checkout: Checkout) -> None:
    if not (checkout.folder.parent / "venv" / "bin" / "kactl").exists():
        bash(checkout, next(block for block in blocks(WALK) if block.startswith("pip ")), timeout_s=INSTALL_S)
    _configure(checkout, connect="127.0.0.1:1/kafka")

    done = subprocess.run(
        ["bash", "-c", "kactl controller --config kactl.toml"],
        cwd=checkout.folder,
        env=checkout.env,
        capture_output=True,
        text=True,
        timeout=READY_S,
        check=False,
    )

    assert done.returncode == 126
    assert done.stdout == ""
    assert done.stderr == (
        "kactl: this needs the package 'kazoo' of kactl's extra 'zookeeper', which is not installed: "
        f"pip install '{checkout.folder}[server,zookeeper]'\n"
    )


@pytest.mark.interop
@pytest.mark.usefixtures("jars")
def test_controller_over_zookeeper_starts(checkout: Checkout, terminals: list[Terminal], tmp_path: Path) -> None:
    install, run = blocks(KAFKA)
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    try:
        _configure(checkout, connect=server.connect("/kafka"))

        execute(checkout, install, terminals)
        execute(checkout, run, terminals)

        assert "900001" in bash(checkout, "kactl get controller")
        (controller,) = terminals
        assert controller.ctrl_c() == 0, controller.output
    finally:
        server.stop()


def _configure(checkout: Checkout, *, connect: str) -> None:
    """Write the kactl.toml of the page, with another ZooKeeper and free ports."""
    (text,) = re.findall(r"```toml\n(.*?)```", KAFKA, re.DOTALL)
    text = text.replace("127.0.0.1:2181/kafka", connect)
    text = re.sub(r":919[01]\b", lambda _: f":{free_port()}", text)
    (checkout.folder / "kactl.toml").write_text(text)
