"""Files of the log of state changes, while something else removes them or changes the working directory."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kactl.telemetry.state_change_log.segments import NAME, open_segments


def removed(folder: Path) -> None:
    (folder / NAME).unlink()


def renamed(folder: Path) -> None:
    (folder / NAME).rename(folder / "elsewhere")


def with_its_folder(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize("lose", [removed, renamed, with_its_folder])
def test_file_that_is_removed_is_begun_again(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    folder = tmp_path / "log"
    segments = open_segments(folder, bytes_max=10_000, count_max=2)
    segments.write(b"one\n")

    lose(folder)
    segments.write(b"two\n")

    assert (folder / NAME).read_bytes() == b"two\n"
    segments.close()


def test_folder_does_not_follow_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    segments = open_segments(Path("log"), bytes_max=1, count_max=2)
    monkeypatch.chdir("/")

    segments.write(b"one\n")
    segments.rotate_if_full()

    assert sorted(entry.name for entry in (tmp_path / "log").iterdir()) == [NAME, f"{NAME}.1"]
    segments.close()
