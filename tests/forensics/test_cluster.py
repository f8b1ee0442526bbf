"""Ingest on a standalone Spark cluster: a master and a worker in processes of their own, on loopback."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home

from .test_ingest import collect

WAIT_S = 120.0


@contextlib.contextmanager
def daemon(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a daemon of Spark; it is killed at the end."""
    command = [f"{_find_spark_home()}/bin/spark-class", *words]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment(), cwd=log.parent)
    try:
        yield process
    finally:
        process.kill()
        process.wait(WAIT_S)


def environment() -> dict[str, str]:
    return os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


def wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WAIT_S
    while text not in log.read_text(errors="replace"):
        assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.1)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"spark://127.0.0.1:{free.getsockname()[1]}"
    at, deploy = ["--host", "127.0.0.1", "--webui-port", "0"], "org.apache.spark.deploy"
    first, second = tmp_path / "master.out", tmp_path / "worker.out"
    with daemon(first, f"{deploy}.master.Master", *at, "--port", url.rpartition(":")[2]) as process:
        wait_for(first, "New state: ALIVE", process)
        limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
        with daemon(second, f"{deploy}.worker.Worker", *at, *limits, url) as worker:
            wait_for(second, "Successfully registered with master", worker)
            yield url


@pytest.mark.java
@pytest.mark.slow
def test_relative_paths_work_on_a_standalone_cluster(master: str, tmp_path: Path) -> None:
    collect(tmp_path / "logs")
    command = [sys.executable, "-m", "kactl.cli", "forensics", "ingest", "logs", "--out", "out", "--master", master]

    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )

    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out" / "ingest.json").read_text())
    assert (manifest["files"], manifest["lines"]) == (7, 55)
