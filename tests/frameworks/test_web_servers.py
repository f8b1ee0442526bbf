"""A participant in the lifespan of FastAPI: under uvicorn, which reloads, and gunicorn, which preloads and forks."""

import contextlib
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import tree
from tests.support.processes import POLL_S, Process, free_port

pytestmark = pytest.mark.slow

PATIENCE_S = 120
CONTROLLER = """
import sys, anyio, kactl
async def main():
    network = kactl.TcpNetwork(listen=sys.argv[1])
    async with kactl.Controller(100, network=network) as controller:
        await controller.wait_active()
        print("active", flush=True)
        await anyio.sleep_forever()
kactl.run(main)
"""
# Made at import, so that a server which preloads it makes it before it forks.
APP = """
import contextlib, os
import anyio, fastapi, kactl

class Shard(kactl.PartitionHandler):
    async def lead(self, leader):
        await anyio.sleep_forever()

network = kactl.TcpNetwork(controllers=[os.environ["CONTROLLER"]])
node = kactl.Participant(1, network=network, handler=Shard, session_timeout_ms=3_000)

@contextlib.asynccontextmanager
async def lifespan(app):
    async with node:
        await node.ensure_topic("shards", partitions=2, replication_factor=1)
        yield
        print("lifespan ends", flush=True)

app = fastapi.FastAPI(lifespan=lifespan)

@app.get("/")
async def index():
    return {"pid": os.getpid(), "id": node.id, "version": 1}
"""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    with Process([sys.executable, "-c", CONTROLLER, address], output=tmp_path / "controller.txt") as program:
        program.wait_for_line("active", PATIENCE_S)
        yield address


@contextmanager
def served(folder: Path, address: str, *command: str) -> "Iterator[tuple[Process, str]]":
    (folder / "app.py").write_text(APP)
    port = free_port()
    arguments = [part.replace("PORT", str(port)) for part in command]
    with Process(
        [sys.executable, "-m", *arguments],
        output=folder / "server.txt",
        env={"CONTROLLER": address, "PYTHONPATH": f"{folder}{os.pathsep}{tree.ROOT}", "PYTHONUNBUFFERED": "1"},
        cwd=folder,
    ) as program:
        yield program, f"http://127.0.0.1:{port}/"


def get(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
        found: dict[str, Any] = json.load(response)
        return found


def get_until(url: str, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # the server starts
            if is_wanted(found := get(url)):
                return found
        time.sleep(POLL_S)
    raise AssertionError(f"no wanted answer of {url}")


def test_uvicorn_starts_and_ends_a_participant(tmp_path: Path, controller: str) -> None:
    with served(tmp_path, controller, "uvicorn", "app:app", "--port", "PORT") as (server, url):
        server.wait_for_line("startup complete", PATIENCE_S)
        found = get_until(url, lambda found: True)  # it listens after that line
        server.signal(signal.SIGTERM)
        server.wait_for_line("lifespan ends", PATIENCE_S)
        server.wait(PATIENCE_S)

    assert found["id"] == 1
    assert "Traceback" not in server.text


def test_uvicorn_reloads_a_participant_with_its_program(tmp_path: Path, controller: str) -> None:
    with served(tmp_path, controller, "uvicorn", "app:app", "--port", "PORT", "--reload") as (server, url):
        server.wait_for_line("startup complete", PATIENCE_S)
        first = get_until(url, lambda found: True)
        (tmp_path / "app.py").write_text(APP.replace('"version": 1', '"version": 2, "more": "text"'))
        server.wait_for_line("lifespan ends", PATIENCE_S)
        second = get_until(url, lambda found: found["version"] == 2)
        server.signal(signal.SIGTERM)
        server.wait(PATIENCE_S)

    assert (first["id"], first["version"], second["id"], second["version"]) == (1, 1, 1, 2)
    assert "Traceback" not in server.text


@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["plain", "preload"])
def test_gunicorn_forks_a_participant(tmp_path: Path, controller: str, preload: list[str]) -> None:
    worker = ["-k", "uvicorn_worker.UvicornWorker", "-w", "1", "-b", "127.0.0.1:PORT", "--no-control-socket"]
    with served(tmp_path, controller, "gunicorn", "app:app", *worker, *preload) as (server, url):
        server.wait_for_line("startup complete", PATIENCE_S)
        first = get_until(url, lambda found: True)
        os.kill(first["pid"], signal.SIGTERM)  # gunicorn forks another one
        second = get_until(url, lambda found: found["pid"] != first["pid"])
        server.signal(signal.SIGTERM)
        server.wait(PATIENCE_S)

    assert first["id"] == second["id"] == 1
    assert first["pid"] != second["pid"]
    assert "Traceback" not in server.text
