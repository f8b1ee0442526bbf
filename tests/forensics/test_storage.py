"""Storage on this machine and behind a URI: one contract."""

from pathlib import Path

import pytest

from kactl.forensics.storage import Location


@pytest.fixture(params=["path", "uri"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Returns a folder by its path, and by a URI as for another machine."""
    return Location(str(tmp_path) if request.param == "path" else tmp_path.as_uri())


def test_written_files_are_read(folder: Location) -> None:
    (folder / "a").make()
    (folder / "a" / "b").write(b"one")
    with (folder / "a" / "c").create() as file:
        file.write(b"two")

    with (folder / "a" / "b").open() as one, (folder / "a" / "c").open() as two:
        assert (one.read(), two.read()) == (b"one", b"two")
        one.seek(1)
        assert one.read() == b"ne"
    assert (folder / "a" / "b").size() == 3
    assert (folder / "a").names() == ["b", "c"]


def test_all_files_below_are_found(folder: Location) -> None:
    for name in ("b/2", "a/1", "c"):
        (folder / name.rpartition("/")[0]).make()
        (folder / name).write(b"")
    (folder / ".hidden").write(b"")

    paths = sorted(str(path) for path in folder.files())

    assert [name.removeprefix(str(folder)) for name in paths] == ["/a/1", "/b/2", "/c"]
    assert [str(path) for path in (folder / "c").files()] == [f"{folder}/c"]


def test_moved_and_removed_files_are_gone(folder: Location) -> None:
    (folder / "a").make()
    (folder / "a" / "1").write(b"one")

    (folder / "a").move_to(folder / "b")
    assert folder.names() == ["b"]
    (folder / "b" / "1").remove()
    assert (folder / "b").names() == []
    (folder / "b").remove()
    (folder / "b").remove()

    assert not (folder / "b").exists()
    assert (folder / "nowhere").names() == []


def test_missing_file_cannot_be_read(folder: Location) -> None:
    with pytest.raises(FileNotFoundError):
        (folder / "nowhere").open()
    with pytest.raises(FileNotFoundError):
        list((folder / "nowhere").files())


def test_spark_paths_of_local_files_have_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert Location("logs/").uri == f"file://{tmp_path}/logs"
    assert Location("hdfs://host/logs").uri == "hdfs://host/logs"
