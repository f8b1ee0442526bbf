"""Complete servers in this process."""

import gc
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio
import pytest

from kactl.cli import setup
from kactl.cli.serving import embedded
from kactl.config.file import load
from kactl.participant import Life
from tests.support.clocks import SteppedClock, settle

from .server import START_S

pytestmark = pytest.mark.anyio


async def test_automatic_garbage_collection_is_off_while_a_server_runs(tmp_path: Path) -> None:
    config = load(
        None,
        {},
        {
            "node-id": 0,
            "participants.count": 1,
            "api.listen": "127.0.0.1:0",
            "store.path": str(tmp_path / "kactl.db"),
            "store.session-timeout": "4s",
        },
    )

    async with embedded(config, note=lambda text: None):
        await settle()
        assert not gc.isenabled()

    assert gc.isenabled()


KILLED: Final = """
import sys, anyio
from kactl.cli import setup
from kactl.cli.serving import embedded
from kactl.config.file import load
from pathlib import Path
from tests.support.clocks import SteppedClock

async def main(holder) -> None:
    config = load(None, {}, dict(pair.split("=") for pair in sys.argv[2:]))
    async with embedded(config, print, holder=holder, clock=SteppedClock(int(sys.argv[1]))):
        print("up", flush=True)
        await anyio.sleep_forever()

with setup.held(Path(sys.argv[2].split("=")[1]).parent, url="") as holder:
    anyio.run(main, holder)
"""
HOUR_MS: Final = 3_600_000


@pytest.mark.slow
@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
async def test_restart_after_kill_and_clock_step_does_not_wait(tmp_path: Path, step_ms: int) -> None:
    keys = {
        "store.path": str(tmp_path / "kactl.db"),
        "store.session-timeout": "1h",
        "node-id": "0",
        "participants.count": "2",
        "api.listen": "127.0.0.1:0",
    }
    run_and_kill(step_ms, keys)

    notes: list[str] = []
    with setup.held(tmp_path, url="") as holder, anyio.fail_after(START_S):
        async with embedded(load(None, {}, keys), notes.append, holder=holder, clock=SteppedClock(0)) as server:
            assert server.participants is not None
            assert {participant.life for participant in server.participants} == {Life.RUNNING}
            assert server.controller.snapshot().epoch == 2
    assert notes == []


def run_and_kill(step_ms: int, keys: Mapping[str, str]) -> None:
    """Start a server with another wall clock, and kill it as soon as it is up."""
    command = [sys.executable, "-c", KILLED, str(step_ms), *(f"{key}={value}" for key, value in keys.items())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.kill()
