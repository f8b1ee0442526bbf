"""Programs that create a topic and use it at once, by three clients: Python over C, Java and Go.

A topic that a broker does not know yet is an error that clients retry in the background: their logs must not name one.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.jars import java_command, refuse
from tests.support.processes import Process
from tests.support.zookeeper_server import ZooKeeperServer

from .brokers import Cluster
from .kactl_process import KactlController

pytestmark = pytest.mark.slow

PROGRAMS: Final = Path(__file__).parent / "first_use"
KACTL: Final = 900_001
TOPICS: Final = 3
# Of a program, also on a busy machine.
RUN_S: Final = 120.0
# From an empty cache Go compiles its own library, too: half a minute of processor time.
BUILD_S: Final = 420.0
HEAP_MB: Final = 128
# What each client writes about a topic or partition that a broker does not know, or that has no leader there.
ABSORBED: Final = re.compile(
    r"UNKNOWN_TOPIC|UNKNOWN_PARTITION|LEADER_NOT_AVAILABLE|NOT_LEADER|"
    r"Unknown topic or part|Unknown partition|Leader not available|Not leader for",
    re.IGNORECASE,
)


class _Cluster(NamedTuple):
    bootstrap: str
    folder: Path


@pytest.fixture(scope="module", params=[None, "abc"], ids=["no racks", "racks"])
def cluster(jars: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Cluster]:
    """Three brokers under kactl, which their clients find among the brokers."""
    folder = tmp_path_factory.mktemp("first-use")
    with ZooKeeperServer(folder / "zookeeper", tick_ms=300) as zookeeper:
        connect = zookeeper.connect("/first-use")
        kactl = KactlController(
            KACTL, folder=folder / "kactl", zookeeper=connect, ibp="3.9", takeover=True,
            visible_on=("INTERNAL", "CLIENT"),
        )  # fmt: skip
        brokers = Cluster(folder, zookeeper=connect, ibp="3.9", racks=list(request.param or [None] * 3))
        try:
            kactl.start()
            with brokers:
                yield _Cluster(brokers.bootstrap, folder)
        finally:
            kactl.kill()


@pytest.fixture(scope="module")
def by_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in Go. Its modules come through Go's own proxy on first use."""
    if shutil.which("go") is None:
        refuse("a client in Go needs go 1.19 or later, and there is none on PATH")
    program = tmp_path_factory.mktemp("go") / "first_use"
    command = ["go", "build", "-buildvcs=false", "-o", str(program), "."]
    built = subprocess.run(command, cwd=PROGRAMS, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert built.returncode == 0, built.stderr
    return program


def check(cluster: _Cluster, name: str, *command: str) -> None:
    """Run a program, and check that it has used each topic without an error."""
    arguments = [cluster.bootstrap, name, str(TOPICS)]
    with Process([*command, *arguments], output=cluster.folder / f"{name}.log") as program:
        code = program.wait(RUN_S)
    lines = program.text.splitlines()

    assert code == 0, program.error(f"ended with {code}")
    assert [line for line in lines if line.startswith("used")] == [f"used {name}-{each}" for each in range(TOPICS)]
    assert [line for line in lines if ABSORBED.search(line)] == []


def test_topics_are_used_at_once_by_a_program_in_python(cluster: _Cluster) -> None:
    check(cluster, "python", sys.executable, str(PROGRAMS / "use.py"))


def test_topics_are_used_at_once_by_a_program_in_java(cluster: _Cluster) -> None:
    check(cluster, "java", *java_command(str(PROGRAMS / "FirstUse.java"), [], heap_mb=HEAP_MB))


def test_topics_are_used_at_once_by_a_program_in_go(cluster: _Cluster, by_go: Path) -> None:
    check(cluster, "go", str(by_go))
