"""Lock of a folder: one writer at a time."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.ingest import ingest
from kactl.forensics.storage import InUse, Location, lock_folder
from tests.support import tree

from .test_bad_input import GOOD


def test_second_process_is_rejected_at_once(tmp_path: Path) -> None:
    place = Location(str(tmp_path))

    with (
        lock_folder(place),
        pytest.raises(InUse, match="another kactl writes into this folder: wait until"),
        lock_folder(place),
    ):
        pass

    with lock_folder(place):
        assert list(tmp_path.iterdir()) == []


def test_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom kactl.forensics.storage import lock_folder\n"
        "from kactl.forensics.storage import Location\n"
        "with lock_folder(Location(sys.argv[1])):\n    os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=tree.ROOT, check=False)

    with lock_folder(Location(str(tmp_path))):
        pass


def test_folder_without_lock_support_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(file: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", none)

    with lock_folder(Location(str(tmp_path))):
        pass


def test_concurrent_ingests_into_one_folder_exclude_each_other(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(GOOD)
    out = tmp_path / "out"
    (out / ".ingest-of-the-other").mkdir(parents=True)

    with lock_folder(Location(str(out))), pytest.raises(InUse):
        ingest(spark, [str(tmp_path)], str(out))

    assert [path.name for path in out.iterdir()] == [".ingest-of-the-other"]
