"""Ingest of a folder of logs into tables, on Spark: each line once, and a report on anything missing."""

import contextlib
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from kactl.cli import forensics
from kactl.cli.root import kactl
from kactl.forensics import ingest as ingesting
from kactl.forensics import overview, progress, reading
from kactl.forensics.event_types import Kind
from kactl.forensics.events import SCHEMA, spark_schema
from kactl.forensics.ingest import IncompleteTables, Ingested, NothingToIngest, NotOurs, ingest
from kactl.forensics.storage import Location
from kactl.forensics.tables import FILE_COLUMNS, LEVEL_COLUMNS, NotIngested, Tables, open_tables
from kactl.forensics.text import splits
from kactl.forensics.text.probe import Probe
from kactl.forensics.text.splits import Split

from .golden import GOLDEN
from .reading import events_of, log_line
from .test_json_logs import COMMON, TOPIC_ID, dumped

CONTROLLER = "".join(log_line(each) for each in GOLDEN if each.format.startswith(("P2b-3.5", "R3", "P4b", "S2")))
BROKER = "".join(log_line(each) for each in GOLDEN if each.format in ("B2", "B3", "B4-3.3", "B5-3.3"))
OTHER = "[2024-05-01 10:00:00,000] INFO Completed load of log (kafka.log.LogManager)\n"
UNKNOWN = "[2024-05-01 10:00:00,000] INFO [Broker id=2] Something new under the sun (state.change.logger)\n"
DUMP = (
    "Dumping 00000000000000000000.log\n"
    + dumped("TOPIC_RECORD", name="orders", topicId=TOPIC_ID)
    + dumped("PARTITION_CHANGE_RECORD", partitionId=3, topicId=TOPIC_ID, isr=[1], leader=1)
)
KACTL = json.dumps({"kind": "controller", **COMMON, "what": "elected", "controller_id": 7}, separators=(",", ":"))


# A valid folder name, not a pattern or the begin of a URI.
OUT = "out [a]{b}*?%41#ö:c"


def collect(folder: Path) -> Path:
    """Writes logs of three brokers, with other files beside them."""
    for name, content in {
        "broker-1/state-change.log": CONTROLLER.encode(),
        "broker-1/state-change.log.2024-05-01-10.gz": gzip.compress(CONTROLLER.encode()),
        "broker-2/state-change.log": (BROKER + UNKNOWN * 3).encode(),
        "broker-3/server.log": (OTHER * 20).encode(),
        "containers.txt": "".join(f"kafka-2  | {line}\n" for line in BROKER.splitlines()).encode(),
        "metadata.txt": DUMP.encode(),
        "kactl.jsonl": KACTL.encode() + b"\n",
        "broker-2/kafkaServer-gc.log": b"[0.007s][info][gc] Using G1\n",
        "broker-3/controller.log": b"",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Returns logs that a test may change."""
    return collect(tmp_path / "logs")


@pytest.fixture(scope="module")
def done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    """Returns the tables of unchanged logs."""
    folder = tmp_path_factory.mktemp("ingested")
    return ingest(spark, [str(collect(folder / "logs"))], str(folder / OUT), time_zone="Europe/Berlin")


@pytest.fixture
def tables(spark: SparkSession, done: Ingested) -> Tables:
    return open_tables(spark, done.manifest.sources[0].replace("/logs", f"/{OUT}"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def report_of(done: Ingested, name: str) -> overview.FileReport:
    (match,) = [report for report in done.files if report.path.endswith(name)]
    return match


def test_tables_contain_all_events_of_the_logs(tables: Tables, done: Ingested) -> None:
    events = tables.events.select(*SCHEMA.names)
    assert events.schema == spark_schema()
    lines = {row["path"]: row["lines"] for row in tables.files.collect()}
    for path, count in lines.items():
        content = Path(path).read_bytes()
        content = gzip.decompress(content) if path.endswith(".gz") else content
        assert count == (0 if "gc" in path else content.count(b"\n")), path
    assert tables.manifest == done.manifest
    assert done.manifest.lines == sum(lines.values())
    assert done.manifest.time_zone == "Europe/Berlin"
    times = events.where("format = 'B2'").select(f.col("ts_logged").cast("string"), f.unix_micros("ts")).distinct()
    assert [tuple(row) for row in times.collect()] == [("2024-05-01 10:00:00.123", 1714550400123000)]


def test_events_do_not_depend_on_splits(spark: SparkSession, logs: Path, out: Path) -> None:
    ingest(spark, [str(logs / "broker-1" / "state-change.log")], str(out), split_bytes=300)

    events = open_tables(spark, str(out)).events
    (first,) = events.where("file_id = 0").limit(1).select("kind").collect()
    rows = [row.asDict() for row in events.where("file_id = 0").orderBy("offset").collect()]
    expected = events_of(CONTROLLER)
    assert first["kind"] == "state-change"
    assert [_without_place(row) for row in rows] == [_without_place(row) for row in expected]


def test_small_logs_are_read_without_spark(spark: SparkSession, logs: Path, out: Path) -> None:
    group = "small logs"
    spark.sparkContext.setJobGroup(group, group)

    small = ingest(spark, [str(logs / "broker-1")], str(out / "small"))

    assert not list(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
    split = ingest(spark, [str(logs / "broker-1")], str(out / "split"), split_bytes=300)
    assert small.files == split.files
    for name in ("files", "levels"):
        rows = [
            sorted(map(str, getattr(open_tables(spark, str(out / folder)), name).collect()))
            for folder in ("small", "split")
        ]
        assert rows[0] == rows[1] != []


def test_file_reports_have_kind_version_and_coverage(done: Ingested) -> None:
    controller = report_of(done, "broker-1/state-change.log")
    assert (controller.kind, controller.version, controller.broker) == ("state-change", "3.5-3.9", 1)
    assert (controller.levels, controller.coverage, controller.controllers) == (("INFO", "ERROR"), 1.0, (1,))
    assert any("INFO only" in warning for warning in controller.warnings)
    broker = report_of(done, "broker-2/state-change.log")
    assert (broker.broker, broker.unparsed, broker.version) == (2, 3, "3.3-3.9")
    assert broker.samples == ("[Broker id=2] Something new under the sun",)
    assert any(warning.startswith("only") for warning in broker.warnings)
    server = report_of(done, "server.log")
    assert (server.kind, server.other, server.events, server.coverage, server.broker) == ("server", 20, 0, None, 3)
    assert report_of(done, "containers.txt").layout == "container/standard"
    assert report_of(done, ".gz").compression == "gzip"
    assert report_of(done, "gc.log").kind == "foreign"
    assert report_of(done, "controller.log").kind == "empty"
    assert report_of(done, "kactl.jsonl").broker == 7


def test_log_that_docker_keeps_is_read_without_spark(tmp_path: Path) -> None:
    """A file of a container, which was copied while a line was written, and packed."""
    kept = "".join(
        json.dumps({"log": line, "stream": "stdout", "time": "2024-05-01T10:00:00Z"}, separators=(",", ":")) + "\n"
        for line in (OTHER + BROKER + UNKNOWN).splitlines(keepends=True)
    )
    (tmp_path / "0f1e-json.log.gz").write_bytes(gzip.compress(kept[:-30].encode()))

    def session() -> SparkSession:
        raise AssertionError("a single file needs no Spark")

    (report,) = ingest(session, [str(tmp_path / "0f1e-json.log.gz")], str(tmp_path / "out")).files

    assert (report.layout, report.kind, report.broker, report.compression) == (
        "standard",
        "state-change",
        2,
        "gzip",
    )
    # The last line is incomplete.
    assert (report.lines, report.other, report.unparsed) == (BROKER.count("\n") + 2, 1, 0)


def test_metadata_log_events_have_topic_names(tables: Tables) -> None:
    (row,) = tables.events.where("kind = 'dump' and type = 'leadership'").collect()

    assert (row["topic"], row["partition"], row["leader"], row["isr"]) == ("orders", 3, 1, [1])


def test_levels_are_counted_per_broker_and_hour(tables: Tables) -> None:
    levels = tables.levels
    assert set(levels.columns) == {column.name for column in LEVEL_COLUMNS}
    counted = {
        (row["speaker"], row["kind"], row["hour"].hour, row["level"]): row["lines"]
        for row in levels.where("kind = 'server'").collect()
    }
    assert counted[3, "server", 8, "INFO"] == 20


def test_table_of_files_has_the_declared_columns(tables: Tables) -> None:
    assert tables.files.columns == [column.name for column in FILE_COLUMNS]
    assert overview.FileReport.__struct_fields__ == tuple(column.name for column in FILE_COLUMNS)


# -- all or nothing ----------------------------------------------------------------------------------------------------


def test_tables_are_replaced_together(spark: SparkSession, logs: Path, out: Path) -> None:
    ingest(spark, [str(logs / "broker-1")], str(out))
    (out / ".ingest-of-one-who-was-killed").mkdir()

    done = ingest(spark, [str(logs / "broker-2")], str(out))

    assert sorted(path.name for path in out.iterdir()) == ["events", "files", "ingest.json", "levels"]
    assert open_tables(spark, str(out)).manifest == done.manifest
    assert open_tables(spark, str(out)).files.count() == 2


def test_progress_is_reported(spark: SparkSession, logs: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_EVERY_S", 0.001)
    calls: list[tuple[str, int, int]] = []

    ingest(spark, [str(logs / "broker-1")], str(out), on_progress=lambda *step: calls.append(step))

    assert list(dict.fromkeys(step for step, _, _ in calls)) == ["look for files", "read", "sum up"]
    assert any(total > 0 for step, _, total in calls if step == "read")
    assert all(done <= total for _, done, total in calls)


def test_failed_ingest_keeps_the_previous_tables(
    spark: SparkSession, logs: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = ingest(spark, [str(logs / "broker-2")], str(out))

    def fail(*_: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(overview, "reports", fail)
    with pytest.raises(RuntimeError, match="disk"):
        ingest(spark, [str(logs / "broker-1")], str(out))

    assert open_tables(spark, str(out)).manifest == former.manifest
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("spoil", ["manifest", "version", "text"])
def test_incomplete_tables_are_not_opened(spark: SparkSession, logs: Path, out: Path, spoil: str) -> None:
    ingest(spark, [str(logs / "broker-2")], str(out))
    manifest = out / "ingest.json"
    if spoil == "manifest":
        manifest.unlink()
    elif spoil == "version":
        manifest.write_text(manifest.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    else:
        manifest.write_text("{")

    with pytest.raises(NotIngested, match="ingest"):
        open_tables(spark, str(out))


def test_folder_with_other_files_is_not_overwritten(spark: SparkSession, logs: Path) -> None:
    before = sorted(logs.rglob("*"))

    with pytest.raises(NotOurs, match=r"--out: .* contains broker-1, which kactl did not write"):
        ingest(spark, [str(logs)], str(logs))

    assert sorted(logs.rglob("*")) == before


def test_error_without_logs_has_the_reasons(spark: SparkSession, tmp_path: Path, out: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign.txt").write_text("hello\n")

    with pytest.raises(NothingToIngest, match="there are no files"):
        ingest(spark, [str(tmp_path / "empty")], str(out))
    with pytest.raises(NothingToIngest, match=r"foreign.txt is no log whose layout is known"):
        ingest(spark, [str(tmp_path / "foreign.txt")], str(out))
    with pytest.raises(NothingToIngest, match=r"nowhere cannot be read: No such file"):
        ingest(spark, [str(tmp_path / "nowhere")], str(out))

    assert not out.exists()


def test_truncated_file_is_read_up_to_its_end(spark: SparkSession, logs: Path, out: Path) -> None:
    packed = gzip.compress((BROKER * 500).encode(), compresslevel=0)
    (logs / "broker-1" / "cut.gz").write_bytes(packed[: len(packed) // 2])

    done = ingest(spark, [str(logs / "broker-1")], str(out))

    cut = report_of(done, "cut.gz")
    assert cut.error is not None
    assert "ends in the middle" in cut.error
    assert 0.4 < cut.lines / (BROKER.count("\n") * 500) < 0.6
    assert report_of(done, "broker-1/state-change.log").error is None


def test_many_files_are_probed_on_all_cores(
    spark: SparkSession, logs: Path, out: Path, done: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "_LOOK_HERE", 0)

    many = ingest(spark, [str(logs)], str(out), time_zone="Europe/Berlin")

    assert [report.kind for report in many.files] == [report.kind for report in done.files]
    assert [report.lines for report in many.files] == [report.lines for report in done.files]


def test_files_are_found_once_and_in_order(logs: Path) -> None:
    (logs / ".hidden").write_text(CONTROLLER)

    paths = list(ingesting.find([str(logs / "broker-2"), str(logs), str(logs / "metadata.txt"), "/nowhere"]))

    shown = {str(path) for path in logs.rglob("*") if path.is_file() and path.name != ".hidden"}
    assert paths == sorted({*shown, "/nowhere"})


def test_small_files_share_tasks_and_largest_are_first() -> None:
    def piece(number: int, size: int) -> Split:
        return Split(file_id=number, file=Probe(path="x", kind=Kind.SERVER, layout="standard"), size=size)

    tasks = reading.pack([piece(at, size) for at, size in enumerate([10, 20, 100, 5, 1000, 1, 1])], 100)

    assert [[each.file_id for each in task] for task in tasks] == [[4], [2], [0, 1], [3], [5, 6]]


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a runner of commands that uses the running Spark session."""
    monkeypatch.setattr(forensics, "session", lambda master, memory, events=None: contextlib.nullcontext(spark))

    def invoke(*words: object) -> Result:
        return CliRunner().invoke(kactl, ["forensics", *map(str, words)])

    return invoke


def test_command_lists_files_and_warnings(run: Any, logs: Path, out: Path) -> None:
    done = run("ingest", logs, "--out", out)

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].split() == list(forensics._HEADER)
    assert any("state-change.log.2024" in line and "3.5-3.9" in line for line in done.stdout.splitlines())
    assert "INFO only" in done.stderr
    assert "Times are read as UTC" in done.stderr
    assert "not parsed, for example: [Broker id=2] Something new under the sun" in done.stderr
    assert f"Written to {out}: 7 files" in done.stderr
    assert "Not shown: 2 other files, empty or not a log of Kafka; -v lists all files." in done.stderr
    assert "gc.log" not in done.stdout
    assert (
        done.stderr.count("gc.log: is no log whose layout is known; its first line: [0.007s][info][gc] Using G1") == 1
    )


def test_command_prints_the_manifest_as_json(run: Any, logs: Path, out: Path) -> None:
    done = run("ingest", logs, "--out", out, "-q", "-o", "json")

    output = json.loads(done.stdout)
    assert done.stderr == ""
    assert output["manifest"]["files"] == 7
    assert len(output["files"]) == 9


@pytest.mark.parametrize("bad", ["cut", "foreign", "missing"])
def test_incomplete_input_sets_the_exit_code(run: Any, logs: Path, out: Path, bad: str) -> None:
    more: list[Path] = []
    if bad == "cut":
        packed = gzip.compress(BROKER.encode(), compresslevel=0)
        (logs / "broker-2" / "cut.gz").write_bytes(packed[: len(packed) // 2])
    elif bad == "foreign":
        more.append(logs / "broker-2" / "kafkaServer-gc.log")  # given by name, not only beside logs
    else:
        more.append(Path("/nowhere.log"))

    done = run("ingest", logs / "broker-2", *more, "--out", out)

    assert done.exit_code == 1
    assert "1 file could not be read completely; the others are ingested" in done.stderr
    assert (out / "ingest.json").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--tz", "Europe/Berln"], 2, "no time zone 'Europe/Berln'"),
        (["--out", "{logs}"], 2, "which kactl did not write"),
        (["-o", "kafka"], 2, "does not support the output format 'kafka'"),
    ],
)
def test_invalid_options_are_rejected_before_reading(
    run: Any, logs: Path, words: list[str], code: int, message: str
) -> None:
    done = run("ingest", logs, *(word.format(logs=logs) for word in words))

    assert done.exit_code == code
    assert message in done.stderr


def test_empty_folder_fails(run: Any, tmp_path: Path, out: Path) -> None:
    (tmp_path / "nothing").mkdir()

    done = run("ingest", tmp_path / "nothing", "--out", out)

    assert done.exit_code == 1
    assert "there are no files" in done.stderr


def _without_place(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("file_id", "ts")}


def test_logs_that_no_worker_can_read_replace_no_tables(
    spark: SparkSession, logs: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(spark, [str(logs)], str(out))
    before = _content(out)
    # As on a cluster whose workers do not have the files.
    monkeypatch.setattr(Location, "absolute", property(lambda self: self.name.replace(str(logs), "/elsewhere")))

    with pytest.raises(IncompleteTables, match="No such file or directory on a worker of Spark, but can be read here"):
        ingest(spark, [str(logs)], str(out))

    assert _content(out) == before


def test_events_that_workers_wrote_elsewhere_replace_no_tables(
    spark: SparkSession, logs: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(spark, [str(logs)], str(out))
    before = _content(out)
    read = reading.read

    def read_elsewhere(*given: Any) -> Any:
        counted = read(*given)
        (given[2] / "events").remove()
        return counted

    monkeypatch.setattr(ingesting, "read", read_elsewhere)

    with pytest.raises(IncompleteTables, match="workers of Spark have written events that are not in"):
        ingest(spark, [str(logs)], str(out))

    assert _content(out) == before


def test_logs_that_vanish_before_they_are_read_replace_no_tables(
    spark: SparkSession, logs: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs / "broker-1" / "state-change.log"
    ingest(spark, [str(log)], str(out))
    before = _content(out)
    cut = splits.cut

    def cut_and_remove(*given: Any) -> Any:
        pieces = list(cut(*given))
        log.unlink()
        return pieces

    monkeypatch.setattr(splits, "cut", cut_and_remove)

    with pytest.raises(NothingToIngest, match=r"state-change\.log can no longer be read: No such file"):
        ingest(spark, [str(log)], str(out))

    assert _content(out) == before


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", ["ingest", "report"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [("none", "No such file or directory"), ("empty", "there are no files"), ("kafka.jar", "packed by zip")],
)
def test_sources_without_a_log_are_rejected_before_spark_starts(
    command: str, name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forensics, "session", lambda master, memory, events=None: pytest.fail("Spark was started"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "kafka.jar").write_bytes(b"PK\x03\x04" + bytes(1000))
    option = "--out" if command == "ingest" else "--dir"

    done = CliRunner().invoke(kactl, ["forensics", command, str(tmp_path / name), option, str(tmp_path / "out")])

    assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1)
    assert reason in done.stderr
    assert not (tmp_path / "out").exists()


def test_few_logs_are_ingested_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forensics, "session", lambda master, memory, events=None: pytest.fail("Spark was started"))
    (tmp_path / "state-change.log").write_text(CONTROLLER)

    done = CliRunner().invoke(
        kactl, ["forensics", "ingest", str(tmp_path / "state-change.log"), "--out", str(tmp_path / "out")]
    )

    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out" / "ingest.json").exists()


def test_times_of_an_unset_clock_are_no_part_of_the_period(tmp_path: Path) -> None:
    unset = OTHER.replace("2024-05-01 10:00", "1970-01-01 00:00")
    (tmp_path / "server.log").write_text(unset * 2 + BROKER)
    (tmp_path / "unset.log").write_text(unset)

    done = ingest(lambda: pytest.fail("Spark was started"), [str(tmp_path)], str(tmp_path / "out"))

    report, none = done.files
    assert (none.begin, none.end) == (None, None)
    hours = ds.dataset(tmp_path / "out" / "levels").to_table()["hour"].to_pylist()
    assert {hour.year for hour in hours} == {2024}
    assert report.begin is not None
    assert report.begin // 1_000_000 == 1714557600
    assert any(
        warning.startswith("2 lines of it have times before 2011, as of a machine whose clock was not set")
        for warning in report.warnings
    )


def test_checks_before_spark_import_neither_spark_nor_pandas() -> None:
    code = "import kactl.forensics.ingest, sys; print({'pandas', 'pyspark'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "set()\n"
