"""The programs in `examples/`, as processes on this host, each through one kill -9 of a leader."""

import asyncio
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.support.processes import Process, free_port
from tests.support.tree import ROOT

pytestmark = pytest.mark.slow

NODES: Final = (1, 2, 3)
# Registrations, elections, and after a failure the session timeout of 6 s, on a busy machine.
STEP_S: Final = 60.0


class Example:
    """Three processes of an example in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[Process] = []
        self.nodes: dict[int, Process] = {}

    def start(self, name: str, *arguments: str, ports: dict[int, int] | None = None) -> None:
        for node in NODES:
            env = {} if ports is None else {"NODE": str(node), "PORT": str(ports[node])}
            self.nodes[node] = self.run(name, [*arguments], env, suffix=str(node))

    def run(self, name: str, arguments: list[str], env: dict[str, str], suffix: str = "") -> Process:
        command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *arguments]
        process = Process(command, output=self.folder / f"{name}{suffix}.log", env=env, cwd=self.folder)
        self.processes.append(process)
        return process

    def wait(self, pattern: str, without: set[int] = frozenset()) -> tuple[int, re.Match[str]]:  # type: ignore[assignment]
        """Returns a node that has printed a line, and the line."""
        deadline = time.monotonic() + STEP_S
        while time.monotonic() < deadline:
            for node, process in self.nodes.items():
                if node not in without and (found := re.search(pattern, process.text)):
                    return node, found
                assert node in without or process.alive, process.text
            time.sleep(0.05)
        raise AssertionError({node: process.text for node, process in self.nodes.items()})


def test_examples_pass_strict_type_checks(tmp_path: Path) -> None:
    files = sorted(str(file) for file in (ROOT / "examples").glob("*.py"))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), *files]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)

    assert len(files) == 4
    assert done.returncode == 0, done.stdout


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Example]:
    started = Example(tmp_path)
    yield started
    for process in started.processes:
        process.kill()


def test_single_leader_is_replaced(example: Example) -> None:
    example.start("single_leader")
    first, before = example.wait(r"leads with token (\d+)\.(\d+)")

    example.nodes[first].kill()

    second, after = example.wait(r"leads with token (\d+)\.(\d+)", without={first})
    assert second != first
    assert int(after[2]) > int(before[2])
    example.nodes[second].signal(signal.SIGINT)
    assert example.nodes[second].wait(STEP_S) == 0
    assert "Traceback" not in example.nodes[second].text


def test_shards_of_a_killed_process_are_worked_on(example: Example) -> None:
    file = example.folder / "jobs.db"
    with closing(sqlite3.connect(file)) as jobs, jobs:
        jobs.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, shard INTEGER, done_by TEXT)")
        jobs.executemany("INSERT INTO jobs (shard) VALUES (?)", [(number % 8,) for number in range(400)])
    example.start("sharded_scheduler", str(file))
    for shard in range(8):
        example.wait(rf"owns shards-{shard} with")
    deadline = time.monotonic() + STEP_S
    with closing(sqlite3.connect(file, timeout=60)) as jobs:
        while not (done := jobs.execute("SELECT done_by FROM jobs WHERE shard = 0 AND done_by IS NOT NULL").fetchone()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    victim, _ = example.wait(rf"owns shards-0 with token {re.escape(done[0])}\n")

    example.nodes[victim].kill()

    example.wait(r"owns shards-0 with", without={victim})
    deadline = time.monotonic() + STEP_S
    with closing(sqlite3.connect(file, timeout=60)) as jobs:
        while jobs.execute("SELECT count(*) FROM jobs WHERE done_by IS NULL").fetchone()[0]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        tokens = {token for (token,) in jobs.execute("SELECT DISTINCT done_by FROM jobs WHERE shard = 0")}
    assert len(tokens) >= 2
    stopped = next(node for node in NODES if node != victim)
    assert example.nodes[stopped].stop(STEP_S) == 0


def test_rooms_of_a_killed_process_move(example: Example) -> None:
    ports = {node: free_port() for node in NODES}
    address = f"127.0.0.1:{free_port()}"
    controller = example.run("controller", [address, "cluster.db"], {})
    controller.wait_for_line("listens at", STEP_S)
    example.start("websocket_fanout", address, ports=ports)
    for node in NODES:
        example.nodes[node].wait_for_line("serves at", STEP_S)

    async def place(http: aiohttp.ClientSession, port: int) -> str:
        """Returns where a process sends a client of the room."""
        url = f"http://127.0.0.1:{port}/rooms/lobby"
        async with http.get(url, allow_redirects=False) as response:
            if response.status == 503:
                response.raise_for_status()
            return response.headers.get("Location", url)

    async def talk(without: int | None = None) -> str:
        """Send a message by one client and receive it by another one. Returns the room's place."""
        alive = [port for node, port in ports.items() if node != without]
        last: Exception | None = None
        async with aiohttp.ClientSession() as http:
            for _ in range(int(STEP_S)):
                try:
                    places = [await place(http, port) for port in alive[:2]]
                    async with http.ws_connect(places[0]) as one, http.ws_connect(places[1]) as two:
                        await one.send_str("hello")
                        assert (await two.receive(timeout=60)).data == "hello"
                        return places[0]
                except (aiohttp.ClientError, TimeoutError) as error:
                    last = error
                    await asyncio.sleep(1)
        raise AssertionError(f"the room did not answer: {last!r}")

    async def healthy() -> list[int]:
        """Returns the status of the health check that the program documents, of each process."""
        path = "/health/roles/rooms/3"
        async with aiohttp.ClientSession() as http:
            return [(await http.get(f"http://127.0.0.1:{port}{path}")).status for port in ports.values()]

    before = asyncio.run(talk())
    deadline = time.monotonic() + STEP_S
    while sorted(asyncio.run(healthy())) != [200, 503, 503]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    victim = next(node for node, port in ports.items() if f":{port}/" in before)
    example.nodes[victim].kill()

    assert asyncio.run(talk(without=victim)) != before
    controller.signal(signal.SIGINT)
    assert controller.wait(STEP_S) == 0
    assert "Traceback" not in controller.text
