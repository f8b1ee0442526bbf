"""Writer of events: a folder for each kind and day, and no files of failed attempts."""

import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from kactl.forensics import parquet_writer as parts
from kactl.forensics.events import SCHEMA
from kactl.forensics.parquet_writer import NO_DAY, EventWriter, remove_unlisted
from kactl.forensics.storage import Location
from kactl.forensics.text import columns

DAY = datetime.date(2024, 5, 1)


def events(*days: datetime.date | None, kind: str = "server") -> pa.RecordBatch:
    given = {"kind": columns.constant("kind", kind, len(days)), "day": pa.array(days, pa.date32())}
    return columns.batch(given | {"offset": pa.array(range(len(days)), pa.int64())}, len(days))


def offsets(folder: Path, part: str) -> list[int]:
    table = parquet.ParquetFile(folder / part).read()
    assert table.schema.equals(SCHEMA)
    values: list[int] = table.column("offset").to_pylist()
    return values


def names(writer: EventWriter) -> set[str]:
    """Returns the names of the written files."""
    return set(writer.close().column("part").to_pylist())


def test_each_kind_and_day_has_its_folder(tmp_path: Path) -> None:
    writer = EventWriter(Location(str(tmp_path)))
    writer.add(events(DAY, DAY + datetime.timedelta(1), DAY, None))
    writer.add(events(DAY, kind="controller"))
    writer.add(events(DAY))

    offsets_by_folder = {name.rpartition("/")[0]: offsets(tmp_path, name) for name in names(writer)}

    assert offsets_by_folder == {
        "kind=server/day=2024-05-01": [0, 2, 0],
        "kind=server/day=2024-05-02": [1],
        f"kind=server/day={NO_DAY}": [3],
        "kind=controller/day=2024-05-01": [0],
    }


def test_no_more_files_are_open_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "OPEN_LIMIT", 2)
    writer = EventWriter(Location(str(tmp_path)))
    for number in [0, 1, 2, 0, 1, 2]:
        writer.add(events(DAY + datetime.timedelta(number)))
        assert len(writer._open) <= 2

    written = names(writer)

    assert sum(len(offsets(tmp_path, name)) for name in written) == 6
    assert len(written) == len(list(tmp_path.rglob("*.parquet"))) > 3


def test_large_output_is_written_in_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROWS_AT_ONCE", 10)
    writer = EventWriter(Location(str(tmp_path)))
    for _ in range(7):
        writer.add(events(*[DAY] * 4))

    (written,) = names(writer)

    assert offsets(tmp_path, written) == [0, 1, 2, 3] * 7
    assert parquet.ParquetFile(tmp_path / written).metadata.num_row_groups == 3


def test_files_of_a_failed_attempt_are_removed(tmp_path: Path) -> None:
    first, second = EventWriter(Location(str(tmp_path))), EventWriter(Location(str(tmp_path)))
    first.add(events(DAY))
    second.add(events(DAY))
    written, left = names(first), names(second)

    remove_unlisted(Location(str(tmp_path)), written)

    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")} == written
    assert len(written) == len(left) == 1
