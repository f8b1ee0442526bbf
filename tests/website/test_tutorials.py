"""Tutorials and how-to guides, executed: their programs, their commands, and the output that they show."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from kactl.cli.root import kactl as root_command
from tests.cli.server import IMPORTS, STATE, CommandResult, kactl
from tests.support.fork_server import Program
from tests.support.processes import Process, free_port
from tests.support.tree import ROOT
from tests.support.tutorials import Command, Tutorial, shows

DOCS: Final = ROOT / "docs"
NAMES: Final = sorted(
    str(page.relative_to(DOCS).with_suffix(""))
    for folder in ("tutorials", "how-to")
    for page in (DOCS / folder).glob("*")
)
# Elections after a session of four seconds, on a busy machine.
STEP_S: Final = 60.0
PROGRAM_S: Final = 300.0
STOP_S: Final = 60.0
# The cluster of the guides. A killed broker is noticed sooner than with the default.
UP: Final = Command(
    "KACTL_STORE__SESSION_TIMEOUT=2s KACTL_CONTROLLER__AUTO_LEADER_REBALANCE=false kactl up",
    ("kactl is up: ...", "...", "Ctrl-C stops it; ..."),
)
DELETION: Final = Command("kactl topic delete payments --yes", ("Deleted topic payments.",))
POLL_S: Final = 0.05


@pytest.mark.parametrize(
    ("expected", "output", "shown"),
    [
        ((), "", True),
        ((), "a\n", False),
        (("a",), "", False),
        (("a", "b"), "a\nb\n", True),
        (("a",), "a\nb\n", False),
        (("took ... ms",), "took 1.5 ms   \n", True),
        (("took ... ms",), "took 1.5 s\n", False),
        (("a", "...", "c"), "a\nc\n", True),
        (("a", "...", "c"), "a\nb\nb\nc\n", True),
        (("a", "...", "c"), "a\nb\n", False),
        (("...",), "", True),
        (("a.c",), "abc\n", False),
    ],
)
def test_output_is_compared_with_gaps(expected: tuple[str, ...], output: str, shown: bool) -> None:
    assert shows(expected, output) is shown


def test_each_tutorial_of_a_user_exists() -> None:
    users = ("embed", "investigate", "measure", "operate")

    assert [name for name in NAMES if name.startswith("tutorials/")] == [f"tutorials/{user}" for user in users]


def kactl_commands() -> list[str]:
    lines = [command.line for name in NAMES for command in Tutorial(name).commands]
    return [line for line in lines if line.startswith("kactl ")]


@pytest.mark.parametrize("line", sorted(set(kactl_commands())))
def test_commands_are_valid(line: str) -> None:
    found: click.Command = root_command
    _, *words = shlex.split(line)
    while isinstance(found, click.Group) and words and words[0] in found.commands:
        found = found.commands[words.pop(0)]

    found.make_context(line, words).close()


def run_programs(tutorial: Tutorial, folder: Path) -> None:
    """Run each command of a tutorial in a shell, and compare its output. Files are written to `folder` first."""
    for name, content in tutorial.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    bin_folder = Path(sys.executable).parent
    env = os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for command in tutorial.commands:
        done = subprocess.run(
            ["bash", "-c", command.line],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert shows(command.output, done.stdout), f"$ {command.line}\n{done.stdout}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tutorials/embed", "tutorials/measure"])
def test_programs_of_a_tutorial_print_what_it_shows(name: str, tmp_path: Path) -> None:
    run_programs(Tutorial(name), tmp_path)


class Cluster:
    """A server that a tutorial has started, and the commands that use it."""

    def __init__(self, folder: Path, line: str) -> None:
        settings, words = _split(line)
        self.folder = folder
        self.url = f"127.0.0.1:{free_port()}"
        self.env = {**STATE, "KACTL_SERVER": f"http://{self.url}"}
        self.process = Process(
            Program("kactl.cli", words, IMPORTS),
            output=folder / "server.log",
            env={**STATE, **settings, "KACTL_API__LISTEN": self.url},
            cwd=folder,
        )

    def shows(self, output: tuple[str, ...]) -> bool:
        return shows(output, self.process.text)

    def run(self, command: Command) -> CommandResult:
        _, words = _split(command.line)
        return kactl(*words, env=self.env, cwd=self.folder)


def _split(line: str) -> tuple[dict[str, str], list[str]]:
    """Returns the variables before a command, and the words after the name of the program."""
    words = shlex.split(line)
    count = next(number for number, word in enumerate(words) if "=" not in word)
    assert words[count] == "kactl"
    return dict(word.split("=", 1) for word in words[:count]), words[count + 1 :]


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    started: list[Cluster] = []
    yield started
    for cluster in started:
        cluster.process.stop(STOP_S)


def expect(cluster: Cluster, command: Command) -> None:
    """Run a command until its output equals that of the page. Only commands that read are repeated."""
    deadline = time.monotonic() + STEP_S
    reads = re.match(r"kactl (get|explain|status|whatif|broker stoppable|reassign verify)|.*--dry-run", command.line)
    code = any("cannot stop" in line for line in command.output)
    while True:
        done = cluster.run(command)
        # In a terminal both are seen; which comes first depends on the command.
        if any(shows(command.output, text) for text in (done.out + done.err, done.err + done.out)):
            assert done.code == code, f"$ {command.line}\n{done.code}"
            return
        assert reads, f"$ {command.line}\n{done.out}{done.err}"
        assert time.monotonic() < deadline, f"$ {command.line}\n{done.out}{done.err}"
        time.sleep(POLL_S)


def started(clusters: list[Cluster], folder: Path, command: Command) -> Cluster:
    """Start a server, and wait until it prints the lines of the page."""
    cluster = Cluster(folder, command.line)
    clusters.append(cluster)
    deadline = time.monotonic() + STEP_S
    while not cluster.shows(command.output):
        assert cluster.process.alive, cluster.process.text
        assert time.monotonic() < deadline, cluster.process.text
        time.sleep(POLL_S)
    return cluster


@pytest.mark.slow
def test_operators_tutorial_shows_what_a_cluster_prints(clusters: list[Cluster], tmp_path: Path) -> None:
    first, *commands = Tutorial("tutorials/operate").commands
    cluster = started(clusters, tmp_path, first)

    for command in commands:
        expect(cluster, command)

    assert len(commands) > 10


@pytest.mark.slow
def test_guides_show_what_a_cluster_prints(clusters: list[Cluster], tmp_path: Path) -> None:
    guides = [Tutorial(name) for name in NAMES if name.startswith("how-to/")]
    cluster = started(clusters, tmp_path, UP)

    for guide in guides:
        assert guide.commands
        for command in guide.commands:
            expect(cluster, command)
        expect(cluster, DELETION)  # the next guide begins with the topic
