"""Bad input: files that are not logs, damaged logs, and unusual folders. Each is reported, and the rest is read."""

import contextlib
import gzip
import io
import os
import random
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from kactl.cli import forensics
from kactl.cli.root import kactl
from kactl.forensics.event_types import EventType, Kind
from kactl.forensics.ingest import Ingested, NotOurs, NotWritable, check_target, find, ingest
from kactl.forensics.overview import FileReport
from kactl.forensics.storage import Location
from kactl.forensics.tables import Tables, open_tables
from kactl.forensics.text import source, splits
from kactl.forensics.text.probe import probe, shown
from kactl.forensics.text.source import LINE_LIMIT
from kactl.forensics.text.zone import zone_of
from tests.support.marks import fast_and_slow, kept_and_long

from .reading import events_of

NOBODY = 65534
# The maximum length of a topic name, with all allowed characters.
LONG_NAME = ("a.b_c-0-" * 32)[:249]


def line(text: str, time: str = "2024-05-01 10:00:00,123", level: str = "INFO") -> str:
    return f"[{time}] {level} [Broker id=2] {text} (state.change.logger)\n"


def handled(number: int, time: str = "2024-05-01 10:00:00,123") -> str:
    return line(f"Handling StopReplica request correlationId {number} from controller 1 for 3 partitions", time)


GOOD = "".join(handled(number) for number in range(10))
TRACE = "\tat a.line.of(AStackTrace.scala:1)\n"


# -- finding files -----------------------------------------------------------------------------------------------------


def test_links_are_followed_without_loops(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep" / "server.log").write_text(GOOD)
    logs.mkdir()
    (logs / "a.log").write_text(GOOD)
    (logs / "b.log").symlink_to("a.log")
    (logs / "linked").symlink_to(tmp_path / "elsewhere")
    (logs / "linked-again").symlink_to(tmp_path / "elsewhere")
    (logs / "loop").symlink_to(logs)
    (tmp_path / "elsewhere" / "deep" / "up").symlink_to(tmp_path)
    (logs / "gone.log").symlink_to("nowhere")
    (logs / "ring.log").symlink_to("ring.log")

    paths = list(find([str(logs), f"{logs}/../logs/a.log"]))

    names = [path.removeprefix(f"{logs}/") for path in paths]
    assert names == ["a.log", "gone.log", "linked/deep/server.log", "ring.log"]
    assert [probe(path).error for path in paths] == [
        "",
        "cannot be read: No such file or directory",
        "",
        "cannot be read: Too many levels of symbolic links",
    ]


@pytest.fixture
def unprivileged() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Drops the privileges of root within a block."""

    @contextlib.contextmanager
    def drop() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(0)

    return drop


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Returns a folder that every user may read, unlike those of pytest."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


def test_unreadable_files_do_not_hide_others(
    open_folder: Path, unprivileged: Callable[[], contextlib.AbstractContextManager[None]]
) -> None:
    for name in ("a/1.log", "b/2.log", "c/3.log", "d/4.log"):
        (open_folder / name).parent.mkdir()
        (open_folder / name).write_text(GOOD)
    (open_folder / "a" / "1.log").chmod(0)
    (open_folder / "b").chmod(0)
    (open_folder / "c").chmod(0o444)  # only its names may be read

    with unprivileged():
        paths = list(find([str(open_folder)]))
        reports = {path.removeprefix(f"{open_folder}/"): probe(path).error for path in paths}

    denied = "cannot be read: Permission denied"
    assert reports == {"a/1.log": denied, "b": denied, "c/3.log": denied, "d/4.log": ""}
    for folder in ("b", "c"):
        (open_folder / folder).chmod(0o755)


def test_unwritable_target_is_reported_before_reading(
    open_folder: Path, unprivileged: Callable[[], contextlib.AbstractContextManager[None]]
) -> None:
    (open_folder / "shut").mkdir(mode=0o555)
    (open_folder / "file").write_text("")

    with unprivileged():
        with pytest.raises(NotWritable, match=r"shut/new/out cannot be written: choose another folder"):
            check_target(Location(f"{open_folder}/shut/new/out"))
        with pytest.raises(NotOurs, match=r"file is a file: name a folder"):
            check_target(Location(f"{open_folder}/file"))
        with pytest.raises(NotWritable, match=r"file/out cannot be written"):
            check_target(Location(f"{open_folder}/file/out"))
        check_target(Location(f"{open_folder}/new/out"))


def test_hard_links_to_one_file_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(GOOD)
    (tmp_path / "same.log").hardlink_to(tmp_path / "server.log")

    assert list(find([str(tmp_path)])) == [f"{tmp_path}/same.log"]


def test_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert probe(str(tmp_path / "pipe")).error.startswith("cannot be read: it is a pipe, socket or device")
    assert probe("/dev/null").error.startswith("cannot be read: it is a pipe, socket or device")
    assert list(find([str(tmp_path)])) == []


def test_undecodable_file_name_is_printed_escaped(tmp_path: Path) -> None:
    name = os.path.join(os.fsencode(tmp_path), b"caf\xe9.log")
    with open(name, "wb") as file:
        file.write(GOOD.encode())

    (path,) = find([str(tmp_path)])
    report = probe(path)

    assert report.path == f"{tmp_path}/caf\\xe9.log"
    assert report.error == "cannot be read: its name is not in UTF-8; rename it"
    assert shown(path) == report.path


def test_killed_ingest_does_not_block_the_next_one(tmp_path: Path) -> None:
    for name in ("ingest.json.new", "jobs.json.new", ".ingest-1", ".jobs-1"):
        (tmp_path / name).write_text("")

    check_target(Location(str(tmp_path)))


def test_tables_in_a_folder_of_logs_are_not_logs(tmp_path: Path) -> None:
    (tmp_path / "forensics").mkdir()
    (tmp_path / "forensics" / "ingest.json").write_text("{}")
    (tmp_path / "server.log").write_text(GOOD)

    assert list(find([str(tmp_path)], but=Location(f"{tmp_path}/forensics"))) == [f"{tmp_path}/server.log"]


# -- other compression and encoding ------------------------------------------------------------------------------------


def tarred(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("broker-1/state-change.log")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("state-change.log", content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("program", "content"),
    [
        ("tar", tarred(GOOD.encode())),
        ("tar", gzip.compress(tarred(GOOD.encode()))),
        ("gzip twice", gzip.compress(gzip.compress(GOOD.encode()))),
        ("zip", zipped(GOOD.encode())),
        ("lz4", b"\x04\x22\x4d\x18\0\0"),
    ],
)
def test_other_compressions_are_listed_as_unreadable(tmp_path: Path, program: str, content: bytes) -> None:
    (tmp_path / "logs.packed").write_bytes(content)

    report = probe(str(tmp_path / "logs.packed"))

    assert (report.kind, report.layout) == (Kind.UNREADABLE, "")
    assert report.error == f"cannot be read: it is packed by {program}; unpack it first"


# -- files that change while they are read -----------------------------------------------------------------------------


def read(path: Path, change: Callable[[], object], *, split_bytes: int = 1 << 20) -> tuple[int, list[str]]:
    """Returns the number of lines read from a file that changes after it was probed, and its errors."""
    pieces = list(splits.cut([(0, probe(str(path)))], split_bytes))
    change()
    rows = [row for piece in pieces for batch in splits.events(piece, zone_of("UTC")) for row in batch.to_pylist()]
    return sum(row["lines"] for row in rows), [row["reason"] for row in rows if row["type"] == EventType.BROKEN]


@pytest.mark.parametrize("split_bytes", [300, 1 << 20])
def test_lines_appended_meanwhile_are_read(tmp_path: Path, split_bytes: int) -> None:
    log = tmp_path / "server.log"
    log.write_text(GOOD)

    def grow() -> None:
        with log.open("a") as file:
            file.write(GOOD + handled(99)[:-20])

    assert read(log, grow, split_bytes=split_bytes) == (21, [])


@pytest.mark.parametrize("split_bytes", [300, 1 << 20])
def test_shorter_file_counts_as_replaced(tmp_path: Path, split_bytes: int) -> None:
    log = tmp_path / "server.log"
    log.write_text(GOOD)

    lines, error = read(log, lambda: log.write_text(handled(1)), split_bytes=split_bytes)

    assert lines == 1
    assert error == [
        f"had {len(GOOD):,} bytes at first and then {len(handled(1)):,}: read it again when nothing writes to it"
    ]


def test_removed_file_is_reported_once_per_split(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(GOOD)

    assert read(log, log.unlink) == (0, ["can no longer be read: No such file or directory"])


# -- invalid contents --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"[Broker id={10**12}] Handling StopReplica request correlationId 1 from controller 1 for 3 partitions",
        f"[Broker id={'9' * 5000}] Handling StopReplica request correlationId 1 from controller 1 for 3 partitions",
        f"[Broker id=2] Handling StopReplica request correlationId {'9' * 5000} from controller 1 for 3 partitions",
        f"[Controller id=1 epoch=2] Changed partition t-{'9' * 5000} from OfflinePartition to OnlinePartition with "
        "state LeaderAndIsr(leader=1, leaderEpoch=5, isr=List(1), zkVersion=7)",
        "[Controller id=1 epoch=2] Changed partition t-1 from OfflinePartition to OnlinePartition with state "
        f"LeaderAndIsr(leader=1, leaderEpoch=5, isr=List(-{'9' * 5000}, {'9' * 20}), zkVersion=7)",
        f"[Partition {LONG_NAME}-{'9' * 30} broker=2] ISR updated to 1,2 and version updated to [{'7' * 40}]",
    ],
    ids=range(6),
)
def test_invalid_numbers_lose_no_other_line(text: str) -> None:
    rows = events_of(f"[2024-05-01 10:00:00,123] INFO {text} (state.change.logger)\n" + GOOD)

    assert len(rows) == 11
    assert [row["type"] for row in rows[1:]] == ["received"] * 10


@pytest.mark.parametrize(
    "text",
    [
        '{"kind":"partition","seq":1,"time_ms":' + "9" * 30 + ',"topic":"t","partition":1}',
        '{"kind":"partition","seq":1,"time_ms":' + "9" * 16 + ',"topic":"t","partition":1}',
        '{"kind":"partition","seq":1,"time_ms":-5,"topic":"t","partition":1}',
        '{"kind":"partition","seq":1,"time_ms":5,"topic":"t","partition":' + "9" * 15 + "}",
        '{"kind":"partition","seq":1,"time_ms":5,"topic":"\\ud800","partition":1}',
        '{"kind":"partition","seq":1,"x":' + "[" * 100_000 + "]" * 100_000 + "}",
        "| offset: 7 CreateTime: " + "9" * 5000 + ' keySize: -1 payload: {"type":"TOPIC_RECORD","data":{}}',
        "| offset: 7 CreateTime: " + "9" * 16 + ' keySize: -1 payload: {"type":"TOPIC_RECORD","data":{"name":"a"}}',
        '| offset: 7 CreateTime: 5 keySize: -1 payload: {"type":"TOPIC_RECORD","data":{"name":["a"],"topicId":{}}}',
        '| offset: 7 CreateTime: 5 keySize: -1 payload: {"type":"PARTITION_RECORD","data":{"isr":"all","replicas":7}}',
    ],
    ids=range(10),
)
def test_invalid_json_loses_no_line(tmp_path: Path, text: str) -> None:
    good = text if text.startswith("|") else ""
    usual = (
        '| offset: 8 CreateTime: 5 keySize: -1 payload: {"type":"TOPIC_RECORD","data":{"name":"b","topicId":"x"}}\n'
        if good
        else '{"kind":"controller","seq":1,"time_ms":5,"controller_epoch":5,"what":"elected","controller_id":7}\n'
    )
    log = tmp_path / "log"
    log.write_bytes(usual.encode() * 3 + text.encode() + b"\xff\xfe\n" + text.encode() + b"\n" + usual.encode())

    lines, error = read(log, lambda: None)

    assert (lines, error) == (6, [])


@pytest.mark.parametrize("seed", fast_and_slow(range(20), fast=4))
def test_corrupt_bytes_lose_no_line(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    content = bytearray((GOOD + TRACE + handled(3)).encode() * 20)
    for _ in range(chance.choice([1, 20, 400])):
        content[chance.randrange(len(content))] = chance.choice(b"\0\r\n\xff\xfe[](){},.:-0")
    log = tmp_path / "server.log"
    log.write_bytes(bytes(content))

    lines, error = read(log, lambda: None, split_bytes=chance.choice([100, 1000, 1 << 20]))

    assert (lines, error) == (content.count(b"\n") + (not content.endswith(b"\n")), [])


# -- all kinds of damage at once ---------------------------------------------------------------------------------------


def spoil(folder: Path) -> Path:
    """Returns a folder with damaged files of all kinds."""
    packed = gzip.compress((GOOD * 2000).encode(), compresslevel=0)
    for name, content in {
        "good.log": GOOD.encode(),
        "traces-only.log": TRACE.encode() * 50,
        "carriage-returns.log": GOOD.replace("\n", "\r\n").encode(),
        "zeros.log": bytes(5000) + GOOD.encode() + bytes(5000),
        "latin-1.log": (GOOD + line("Grüße")).encode("latin-1"),
        "utf-16.log": GOOD.encode("utf-16"),
        "utf-16-without-mark.log": GOOD.encode("utf-16-le"),
        "long-line.log": (handled(1) + line("x" * 10_000_000) + handled(2)).encode(),
        "long-name.log": line(
            f"Leader {LONG_NAME}-7 with topic id Some(AbC-dEf_GhIjKlMnOpQrSt) starts at leader epoch 3 from offset 9 "
            "with partition epoch 4, high watermark 8, ISR [2], adding replicas [] and removing replicas [] . "
            "Previous leader Some(1) and previous leader epoch was 2."
        ).encode(),
        "jumps.log": "".join(
            handled(1, clock)
            for clock in ("2024-05-01 10:00:00,000", "1970-01-01 00:00:07,000", "2024-05-01 10:00:01,000",
                       "2038-01-20 00:00:00,000", "2024-05-01 10:00:02,000", "9999-99-99 99:99:99,999",
                       "2024-05-01 10:00:03,000")
        ).encode(),
        "night.log": "".join(
            handled(1, f"2024-10-27 {clock}")
            for clock in ("01:59:00,000", "02:30:00,000", "02:10:00,000", "03:00:00,000")
        ).encode(),
        "escapes.log": (GOOD + line("Something \x1b[31mred\x07 that nobody knows")).encode(),
        "cut.log.gz": packed[: len(packed) // 2],
        "spoilt.log.gz": packed[:100] + b"\xff" * 50 + packed[150:],
        "archive.tgz": gzip.compress(tarred(GOOD.encode())),
        "random.bin": random.Random(1).randbytes(100_000),
        "gc.log": b"[0.007s][info][gc] Using G1\n" * 20,
        "web.log": b"[2024-05-01 10:00:00,123] INFO GET / (com.example.Web)\n" * 20,
        "times-only.log": b"10:00:00,123 INFO [Broker id=2] Hello (state.change.logger)\n" * 20,
        "nothing.log": b"",
        "blank.log": b"\n" * 100,
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "empty").mkdir()
    (folder / "gone.log").symlink_to("nowhere")
    (folder / "loop").symlink_to(folder)
    return folder


@pytest.fixture(scope="module")
def spoilt(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ingested, Tables]:
    folder = tmp_path_factory.mktemp("bad")
    done = ingest(spark, [str(spoil(folder / "logs"))], str(folder / "out"), time_zone="Europe/Berlin")
    return done, open_tables(spark, str(folder / "out"))


@pytest.fixture
def reports(spoilt: tuple[Ingested, Tables]) -> dict[str, FileReport]:
    return {report.path.rpartition("/")[2]: report for report in spoilt[0].files}


def test_each_bad_file_has_its_error(reports: dict[str, FileReport]) -> None:
    no_layout = "is no log whose layout is known; its first line: "
    assert {name: each.error for name, each in reports.items() if each.error} == {
        "traces-only.log": reports["traces-only.log"].error,
        "cut.log.gz": reports["cut.log.gz"].error,
        "spoilt.log.gz": reports["spoilt.log.gz"].error,
        "random.bin": "is no text",
        "gc.log": f"{no_layout}[0.007s][info][gc] Using G1",
        "web.log": "is a log, but none of Kafka's brokers and controllers",
        "times-only.log": "its lines have a time, but no day: they cannot be ordered",
        "gone.log": "cannot be read: No such file or directory",
    }
    assert (reports["traces-only.log"].error or "").startswith(no_layout)
    assert "ends in the middle" in (reports["cut.log.gz"].error or "")
    assert "cannot be unpacked further" in (reports["spoilt.log.gz"].error or "")


def test_readable_parts_of_bad_files_are_read(reports: dict[str, FileReport]) -> None:
    whole = {name: (each.lines, each.events) for name, each in reports.items() if each.is_log and not each.error}
    assert whole == {
        "good.log": (10, 10),
        "state-change.log": (10, 10),
        "carriage-returns.log": (10, 10),
        "zeros.log": (11, 11),  # the text after the last newline is a line, joined to the previous one
        "latin-1.log": (11, 10),
        "utf-16.log": (10, 10),
        "utf-16-without-mark.log": (11, 11),  # ASCII text without its zeros; one more is after the last newline
        "long-line.log": (3, 2),
        "long-name.log": (1, 1),
        "jumps.log": (7, 6),
        "night.log": (4, 4),
        "escapes.log": (11, 10),
    }
    assert 5_000 < reports["cut.log.gz"].events < 15_000


def test_line_of_ten_megabytes_is_truncated(spoilt: tuple[Ingested, Tables]) -> None:
    rows = spoilt[1].events.where("type = 'unparsed' and text like '%xxxx%'").select("text", "lines").collect()

    assert [(row["text"][:20], len(row["text"]), row["lines"]) for row in rows] == [("[Broker id=2] xxxxxx", 4096, 1)]
    assert LINE_LIMIT < 10_000_000


def test_long_topic_name_is_complete(spoilt: tuple[Ingested, Tables]) -> None:
    (row,) = spoilt[1].events.where("type = 'leads'").collect()

    assert (row["topic"], row["partition"], row["log_end"]) == (LONG_NAME, 7, 9)


def test_clock_jumps_are_warnings(reports: dict[str, FileReport]) -> None:
    assert any(each.startswith("the clock went back 2 times") for each in reports["jumps.log"].warnings)
    assert any("were set back during its period" in each for each in reports["night.log"].warnings)
    assert reports["jumps.log"].unparsed == 1


def test_command_reports_bad_files_and_their_number(
    spark: SparkSession, spoilt: tuple[Ingested, Tables], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forensics, "session", lambda master, memory, events=None: contextlib.nullcontext(spark))
    logs = spoilt[0].manifest.sources[0]
    command = ["forensics", "ingest", logs, f"{logs}/gc.log", "--out", str(tmp_path / "out"), "--tz", "Europe/Berlin"]

    done = CliRunner().invoke(kactl, command)

    assert done.exit_code == 1
    assert "5 files could not be read completely; the others are ingested" in done.stderr
    assert "gc.log: is no log whose layout is known" in done.stderr  # given by name, so it counts as unreadable
    assert "Traceback" not in done.output
    assert "\x1b" not in done.output
    assert "not parsed, for example: [Broker id=2] Something �[31mred� that nobody knows" in done.stderr


@pytest.mark.parametrize("count", kept_and_long([2000, 5000], {2000}))
def test_thousands_of_small_files_are_read(spark: SparkSession, tmp_path: Path, count: int) -> None:
    for number in range(count):
        folder = tmp_path / "logs" / f"broker-{number % 50}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"state-change.log.{number}").write_text(handled(number))

    done = ingest(spark, [str(tmp_path / "logs")], str(tmp_path / "out"))

    assert (done.manifest.files, done.manifest.lines, done.manifest.events) == (count, count, count)
    events = open_tables(spark, str(tmp_path / "out")).events
    assert events.select("file_id").distinct().count() == events.select("correlation_id").distinct().count() == count


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
from kactl.forensics.storage import Location
from kactl.forensics.parquet_writer import EventWriter
from kactl.forensics.text import splits
from kactl.forensics.text.probe import probe, shown
from kactl.forensics.text.zone import zone_of
parts = EventWriter(Location(sys.argv[2]))
try:
    for piece in splits.cut([(0, probe(sys.argv[1]))]):
        for batch in splits.events(piece, zone_of("UTC")):
            parts.add(batch)
    parts.close()
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.slow
def test_full_disk_is_not_an_error_of_the_log(tmp_path: Path) -> None:
    chance = random.Random(1)
    log = tmp_path / "server.log"
    log.write_text("".join(line(f"{chance.random()}", level="WARN") for _ in range(20_000)))

    command = [sys.executable, "-c", FULL, str(log), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.stdout == "File too large\n", done.stderr


def test_gzip_file_that_grows_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "RATIO_FREE_BYTES", 100_000)
    bomb = source.Unpacked(io.BytesIO(gzip.compress(bytes(3_000_000))))
    lines = source.Unpacked(io.BytesIO(gzip.compress((GOOD * 2000).encode(), compresslevel=1)))
    assert _readable(bomb) < 1_000_000
    assert _readable(lines) == len(GOOD) * 2000


def _readable(file: source.Unpacked) -> int:
    """Returns the number of bytes before the end, or before an error."""
    size = 0
    with contextlib.suppress(source.Broken):
        while piece := file.read(10_000):
            size += len(piece)
    return size
