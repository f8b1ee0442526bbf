"""README's first program: six processes of one command share twelve shards, without any configuration."""

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.processes import POLL_S, Process
from tests.support.tree import ROOT

pytestmark = pytest.mark.slow

PATIENCE_S: Final = 120
WORKERS: Final = 6
SHARDS: Final = frozenset(f"jobs-{number}" for number in range(12))
TAKEN: Final = re.compile(r"^(jobs-\d+) is mine under token (\d+)\.(\d+)$", re.MULTILINE)


class Workers:
    """Processes that run one program in one folder."""

    def __init__(self, folder: Path, program: str) -> None:
        (folder / "worker.py").write_text(program)
        self.folder = folder
        self.processes: list[Process] = []

    def start(self, *arguments: str) -> Process:
        process = Process(
            [sys.executable, "worker.py", *arguments],
            output=self.folder / f"{len(self.processes)}.txt",
            env={"PYTHONPATH": str(ROOT)},
            cwd=self.folder,
        )
        self.processes.append(process)
        return process

    @property
    def owners(self) -> dict[str, Process]:
        """The process that has the highest token of each shard."""
        tokens: dict[str, tuple[tuple[int, int], Process]] = {}
        for process in self.processes:
            for name, epoch, leader_epoch in TAKEN.findall(process.text):
                tokens[name] = max(tokens.get(name, ((-1, -1), process)), ((int(epoch), int(leader_epoch)), process),
                                   key=lambda taken: taken[0])  # fmt: skip
        return {name: process for name, (_, process) in tokens.items()}

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, [process.text for process in self.processes]
            time.sleep(POLL_S)

    def shared_by(self, processes: list[Process]) -> bool:
        """Whether these own all shards, each within one of the average."""
        owners = self.owners
        counts = [sum(owner is process for owner in owners.values()) for process in processes]
        return owners.keys() == SHARDS and sum(counts) == len(SHARDS) and max(counts) - min(counts) <= 1


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    started = Workers(tmp_path, program)
    yield started
    for process in started.processes:
        process.kill()


def test_six_processes_share_shards_and_replace_killed_ones(workers: Workers) -> None:
    for _ in range(WORKERS):
        workers.start()
    workers.wait(lambda: workers.shared_by(workers.processes))

    first, second, *others = workers.processes
    first.kill()
    workers.wait(lambda: workers.owners.keys() == SHARDS and first not in workers.owners.values())
    second.signal(signal.SIGINT)
    assert second.wait(PATIENCE_S) == 0
    # Not evenly for a minute, since the stop may be the first of a deploy.
    workers.wait(lambda: workers.owners.keys() == SHARDS and not {first, second} & {*workers.owners.values()})

    for process in others:
        process.signal(signal.SIGINT)
    for process in others:
        assert process.wait(PATIENCE_S) == 0
    for process in workers.processes:
        assert "Traceback" not in process.text
        assert "ERROR" not in process.text
