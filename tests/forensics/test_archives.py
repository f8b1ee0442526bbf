"""Packed files and archives of logs, whole, damaged, nested, and hostile."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from kactl.cli.root import kactl
from kactl.forensics.event_types import Kind
from kactl.forensics.ingest import Ingested, NothingToIngest, ingest
from kactl.forensics.text import archive, source
from kactl.forensics.text.probe import probe

LINE = "[2024-05-01 10:00:0{},000] INFO [Controller id=3] Resigned (kafka.controller.KafkaController)\n"
LOG = "".join(map(LINE.format, range(5))).encode()
FILES = {"bundle/broker-1/server.log": LOG, "bundle/broker-2/server.log.gz": gzip.compress(LOG), "bundle/notes": b"x\n"}


def zstd(content: bytes) -> bytes:
    packed: bytes = pa.compress(content, "zstd", asbytes=True)
    return packed


def tar(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archived:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archived.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("bundle/link.log")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archived.addfile(link)
    return written.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archived:
        for name, content in files.items():
            archived.writestr(name, content)
    return written.getvalue()


def read(content: bytes, folder: Path, name: str = "bundle.bin") -> Ingested:
    """Ingest a file, in this process."""
    (folder / name).write_bytes(content)
    return ingest(lambda: pytest.fail("Spark was started"), [str(folder / name)], str(folder / "out"))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_packed_file_is_read(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    (report,) = read(pack(LOG), tmp_path).files

    assert (report.kind, report.lines, report.error) == (Kind.CONTROLLER, 5, None)
    assert report.compression in source.MAGIC


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_packed_file_is_read_up_to_its_damage(pack: Callable[[bytes], bytes]) -> None:
    text = b"".join(b"line %d\n" % number for number in range(200_000))
    packed = pack(text)
    file = io.BytesIO(packed[: len(packed) // 2])
    unpacked, found = source.Unpacked(file, source.packing(file)), bytearray()

    def read_all() -> None:
        while piece := unpacked.read(10_000):
            found.extend(piece)

    with pytest.raises(source.Broken, match="ends in the middle"):
        read_all()

    assert len(found) > len(text) // 10
    assert text.startswith(found)


ARCHIVES: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "tar": tar,
    "tar.gz": lambda files: gzip.compress(tar(files)),
    "tar.bz2": lambda files: bz2.compress(tar(files)),
    "tar.xz": lambda files: lzma.compress(tar(files)),
    "tar.zst": lambda files: zstd(tar(files)),
    "zip": zipped,
    "tar in zip": lambda files: zipped({"node.tgz": gzip.compress(tar(files))}),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_files_of_an_archive_are_read(kind: str, tmp_path: Path) -> None:
    done = read(ARCHIVES[kind](FILES), tmp_path)

    shown = {
        report.path.removeprefix(f"{tmp_path}/bundle.bin!").removeprefix("node.tgz!"): report for report in done.files
    }
    assert {name: (report.lines, report.broker) for name, report in shown.items() if report.is_log} == {
        "bundle/broker-1/server.log": (5, 3),
        "bundle/broker-2/server.log.gz": (5, 3),
    }
    assert [name for name, report in shown.items() if not report.is_log] == ["bundle/notes"]
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"events", "files", "levels", "ingest.json"}
    assert not list((tmp_path / "out").glob(".ingest-*"))


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.xz"])
def test_archive_that_ends_in_the_middle_is_read_up_to_there(kind: str, tmp_path: Path) -> None:
    whole = ARCHIVES[kind]({**FILES, "bundle/broker-3/server.log": bytes(range(256)) * 40 + LOG * 2000})

    done = read(whole[: int(len(whole) * 0.6)], tmp_path)

    assert any(report.is_log and report.lines == 5 and report.error is None for report in done.files)
    (broken,) = (report for report in done.files if report.error and "cannot be unpacked further" in report.error)
    assert f"{tmp_path}/bundle.bin cannot be unpacked further" in str(broken.error)
    assert broken.kind not in (Kind.FOREIGN, Kind.EMPTY)


@pytest.mark.parametrize("above", ["../" * 30, "a/" + "../" * 30, ""])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_archive_writes_nothing_outside_of_its_folder(kind: str, above: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    outside = tmp_path / "outside.log"

    read(ARCHIVES[kind]({f"{above}{outside}": LOG}), tmp_path / "in")

    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("kind", ["tar.gz", "tar.xz", "zip"])
def test_bomb_is_not_unpacked_to_its_end(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "RATIO_FREE_BYTES", 100_000)
    monkeypatch.setattr(archive, "RATIO_FREE_BYTES", 100_000)

    done = read(ARCHIVES[kind]({"a.log": LOG, "bomb.log": LOG + bytes(5_000_000)}), tmp_path)

    assert any(report.error and f"more than {source.RATIO_MAX} times longer" in report.error for report in done.files)
    assert sum(report.lines for report in done.files if report.error is None) in (0, 5)


def test_archive_of_too_many_files_is_read_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MEMBERS_MAX", 3)

    done = read(tar({f"{number}.log": LOG for number in range(9)}), tmp_path)

    assert sum(report.is_log for report in done.files) in (3, 4)
    assert any(report.error and "has more than 3 files" in report.error for report in done.files)


def test_archive_without_a_log_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(NothingToIngest, match=r"bundle\.bin!notes"):
        read(tar({"notes": b"nothing\n"}), tmp_path)


def test_archive_is_looked_into_before_its_layout_counts(tmp_path: Path) -> None:
    (tmp_path / "bundle.tgz").write_bytes(ARCHIVES["tar.gz"](FILES))
    command = ["forensics", "ingest", str(tmp_path / "bundle.tgz"), "--out", str(tmp_path / "out")]

    bad = CliRunner().invoke(kactl, [*command, "--layout", "%d %q"])
    assert (bad.exit_code, (tmp_path / "out").exists()) == (2, False)
    done = CliRunner().invoke(kactl, command)

    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out" / "ingest.json").exists()


def test_program_is_no_archive_of_logs(tmp_path: Path) -> None:
    (tmp_path / "kafka.jar").write_bytes(zipped({"A.class": b"\xca\xfe"}))

    assert not archive.is_archive(str(tmp_path / "kafka.jar"))
    assert probe(str(tmp_path / "kafka.jar")).kind is Kind.UNREADABLE
