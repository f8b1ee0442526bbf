"""Files that killed test runs leave in memory."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support import killed_runs


def test_only_files_of_runs_that_have_ended_are_removed(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    runs = tmp_path / "pytest-of-someone"
    for run, lock in {"ended": ended.stdout.decode(), "living": str(os.getpid()), "starting": ""}.items():
        (runs / f"pytest-{run}" / "data").mkdir(parents=True)
        (runs / f"pytest-{run}" / ".lock").write_text(lock)

    killed_runs.remove_files(tmp_path)

    assert {run.name for run in runs.iterdir()} == {"pytest-living", "pytest-starting"}


def test_available_is_no_more_than_the_memory_of_the_machine() -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    assert 0 < killed_runs.available_bytes(Path("/dev/shm")) < memory
