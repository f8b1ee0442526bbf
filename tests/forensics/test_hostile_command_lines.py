"""Invalid command lines, such as those of unset variables: rejected in one line, before Spark starts."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kactl.cli import forensics, output
from kactl.cli.exits import Exit, Failure
from kactl.cli.forensic_inputs import errors_translated, parsed_interval, parsed_time
from kactl.cli.report import _write
from kactl.cli.root import kactl
from kactl.forensics.ingest import find
from kactl.forensics.report.markdown import plain
from kactl.forensics.storage import Location
from kactl.forensics.wording import Moments
from tests.support import tree

# The real function, which fixtures below replace.
SESSION = forensics.session


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forensics, "session", lambda master, memory, events=None: pytest.fail("Spark was started"))


def run(*words: object) -> Result:
    return CliRunner().invoke(kactl, ["forensics", *map(str, words)])


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["ingest", ""],
        ["ingest", "logs", " "],
        ["ingest", "logs", "--out", ""],
        ["report", "--dir", ""],
        ["report", "--html", ""],
        ["whatif", "--snapshot", ""],
        ["whatif", "--racks", ""],
        ["whatif", "--topics", ""],
    ],
    ids=" ".join,
)
def test_unset_variable_in_a_path_is_rejected(words: list[str]) -> None:
    done = run(*words)

    assert done.exit_code == 2
    assert "the name is empty: write a name; if it is a variable, check that it is set" in done.stderr


def test_empty_path_is_not_the_root() -> None:
    assert str(Location("")) == ""
    assert str(Location("//")) == "/"
    assert list(find([""])) == [""]  # unchanged, and therefore missing


def test_output_folder_name_must_be_text() -> None:
    done = run("report", "--dir", "caf\udce9")

    assert done.exit_code == 2
    assert "the name is not valid UTF-8: choose another name" in done.stderr


def test_unreadable_tables_are_not_reported_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Location) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Location, "open", refused)
    done = run("report", "--dir", tmp_path)

    assert done.exit_code == 2
    assert "ingest.json cannot be read (Permission denied): change its permissions" in done.stderr


def test_empty_time_zone_is_rejected() -> None:
    done = run("ingest", "logs", "--tz", "")

    assert (done.exit_code, done.stderr.strip()[:32]) == (2, "error: --tz: there is no time zo")


def test_sweep_without_scenarios_is_rejected() -> None:
    for text in ("", ","):
        done = run("whatif", "--sweep", text)

        assert done.exit_code == 2
        assert "is empty: choose from brokers, pairs" in done.stderr


@pytest.mark.parametrize("size", ["", "nonsense", "2", "2x", "-1g", "0g", "1k", "400m", "1g -version"])
def test_invalid_memory_is_rejected(size: str) -> None:
    done = run("sql", "SELECT 1", "--memory", size)

    assert done.exit_code == 2
    assert "is not a size: write 512m, 2g or 1t" in done.stderr or "is less than Spark needs to start" in done.stderr


@pytest.mark.parametrize("master", ["", "nonsense", "local[0]", "local[x]", "spark://"])
def test_invalid_master_is_rejected(master: str) -> None:
    done = run("sql", "SELECT 1", "--master", master)

    assert done.exit_code == 2
    assert "is not a Spark master: write local[*]" in done.stderr


@pytest.mark.parametrize("words", [["--memory", "512M"], ["--memory", "2gb", "--master", "local[2,3]"]], ids=" ".join)
def test_valid_memory_and_master_are_accepted(words: list[str], tmp_path: Path) -> None:
    assert "contains no complete tables" in run("sql", "SELECT 1", "--dir", tmp_path, *words).stderr


# -- times -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31 23:59:59-12:00", "0001-01-01T00:00+12:00"])
def test_time_beyond_the_calendar_is_rejected(text: str) -> None:
    with pytest.raises(Failure, match=r"the year \d+ is out of range"):
        parsed_time(text, Moments("Europe/Berlin"), "--from")


def test_time_skipped_by_daylight_saving_is_rejected() -> None:
    with pytest.raises(Failure, match=r"--from: 2024-03-31 02:30 does not exist in Europe/Berlin: clocks were set"):
        parsed_time("2024-03-31 02:30", Moments("Europe/Berlin"), "--from")


def test_interval_in_a_repeated_hour_covers_both_hours() -> None:
    begin, end = parsed_interval("2024-10-27 02:00", "2024-10-27 02:30", Moments("Europe/Berlin"))

    assert begin is not None
    assert end is not None
    assert (f"{begin:%H:%M}", f"{end:%H:%M}") == ("00:00", "01:30")


# -- output of a report ------------------------------------------------------------------------------------------------


def test_invalid_page_path_is_rejected(tmp_path: Path) -> None:
    on_a_folder, both = run("report", "--html", tmp_path), run("report", "--html", "a", "--markdown", "a")

    assert (on_a_folder.exit_code, both.exit_code) == (2, 2)
    assert f"--html: {tmp_path} is a folder: choose a file" in on_a_folder.stderr
    assert "--html and --markdown: both are a" in both.stderr


def test_failed_write_keeps_the_previous_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "report.html"
    page.write_text("the one before")

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    failed = _write(str(page), lambda *_: "half", None, None)  # type: ignore[arg-type]

    assert failed is not None
    assert "report.html: cannot be written (No space left on device): choose another file" in failed.message
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert page.read_text() == "the one before"


def test_page_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "page")

    assert _write(str(tmp_path / "link"), lambda *_: "\udce9", None, None) is None  # type: ignore[arg-type]

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page").read_text() == "\N{REPLACEMENT CHARACTER}"


# -- ends --------------------------------------------------------------------------------------------------------------


def test_terminated_command_ends_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    @contextlib.contextmanager
    def pretended(**_: object) -> Iterator[None]:
        try:
            yield
        finally:
            ended.append("Spark")

    monkeypatch.setattr("kactl.forensics.session.spark_session", pretended)
    before = signal.getsignal(signal.SIGTERM)

    with pytest.raises(SystemExit) as left, SESSION("local[1]", "1g"):
        os.kill(os.getpid(), signal.SIGTERM)

    assert (left.value.code, ended) == (143, ["Spark"])
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("An error occurred while calling o1.x.\n: org.apache.spark.SparkException: Asked to\n\tat a.b(C.java)",
         "org.apache.spark.SparkException: Asked to"),
        ("x.PythonException: Traceback (most recent call last):\n  File \"a.py\", line 1\n    raise Error\n"
         "OSError: [Errno 28] No space left\n\n\tat a.b(C.java)", "OSError: [Errno 28] No space left"),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", "Java ended at start; its output is above: "
         "check that --memory is available, and run `kactl doctor`"),
        ("[DIVIDE_BY_ZERO] Division by zero.\n== SQL ==\nSELECT 1/0", "[DIVIDE_BY_ZERO] Division by zero."),
        ("", "there is no error message"),
    ],
    ids=range(5),
)  # fmt: skip
def test_spark_errors_are_reported_in_one_line(message: str, expected: str) -> None:
    assert forensics.reason(message) == expected


def test_unwritable_folder_is_named_in_the_error() -> None:
    with pytest.raises(Failure, match=r"out/\.jobs-1: Permission denied: check") as said, errors_translated():
        raise PermissionError(13, "Permission denied", "out/.jobs-1")
    with pytest.raises(BrokenPipeError), errors_translated():
        raise BrokenPipeError(32, "Broken pipe")

    assert said.value.code == Exit.FAILED


@pytest.mark.parametrize("columns", [0, 1, 10, 30, 40, 80])
def test_progress_stays_on_its_line(columns: int) -> None:
    names, share = "audit, churn, flapping, controllers\x1b[31m", f" {'█' * 20} 3/40"

    line = forensics.fitted(names, share, columns)

    assert len(line) <= max(0, columns - 1)
    assert "\x1b" not in line
    assert line.endswith("3/40") == (columns >= 30)


def test_progress_line_is_erased_before_output(capsys: pytest.CaptureFixture[str]) -> None:
    forensics._on_progress("query", 0, 0)
    forensics._on_progress("", 0, 0)

    assert capsys.readouterr().err.replace("\x1b[K", "") == "\rquery ...\r"


class Captured(PySparkException):  # like those of Spark, which query Java for their message
    def __str__(self) -> str:
        assert ALIVE, "Java has ended"
        return "[SOME_CLASS] It went wrong."


ALIVE: list[str] = []


def test_spark_error_is_read_while_its_java_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def pretended(**_: object) -> Iterator[None]:
        ALIVE.append("Java")
        try:
            yield
        finally:
            ALIVE.clear()

    monkeypatch.setattr("kactl.forensics.session.spark_session", pretended)

    with pytest.raises(Failure) as said, SESSION("local[1]", "1g"):
        raise Captured("x")

    assert said.value.message == "Spark: [SOME_CLASS] It went wrong."


def test_damaged_table_error_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kactl.forensics.session.spark_session", lambda **_: contextlib.nullcontext())

    with pytest.raises(Failure, match=r"PATH_NOT_FOUND.* ingest the logs again"), SESSION("local[1]", "1g"):
        raise Py4JError("[PATH_NOT_FOUND] Path does not exist: file:/out/jobs/outages.")


def test_killed_java_is_not_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kactl.forensics.session.spark_session", lambda **_: contextlib.nullcontext())

    with pytest.raises(Failure, match="Java ended without an error message"), SESSION("local[1]", "1g"):
        raise Captured("x")


# -- terminals ---------------------------------------------------------------------------------------------------------


def test_tables_and_errors_escape_control_sequences() -> None:
    header, row = output.table(["a\x1bb"], [["c\x1b]0;d\x07"]])
    result = run("report", "--dir", "e\x1b[31m")

    assert "a\N{REPLACEMENT CHARACTER}b" in header
    assert row == "c\N{REPLACEMENT CHARACTER}]0;d\N{REPLACEMENT CHARACTER}"
    assert "error: e\\u001b[31m: contains no complete tables" in result.stderr


def test_markdown_escapes_control_sequences() -> None:
    assert (
        plain("a\x1b]0;b\x07\u202e\nc") == "a\N{REPLACEMENT CHARACTER}\\]0;b" + 2 * "\N{REPLACEMENT CHARACTER}" + " c"
    )


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_unencodable_characters_are_printed_escaped(encoding: str) -> None:
    code = "from kactl.cli import main\nmain._print_anything()\nprint('\\u2013\\udce9')"
    env = {**os.environ, "PYTHONIOENCODING": encoding}

    done = subprocess.run([sys.executable, "-c", code], cwd=tree.ROOT, env=env, capture_output=True, check=False)

    sign = "\u2013".encode(encoding, "backslashreplace")
    assert (done.returncode, done.stdout.strip()) == (0, sign + b"\\udce9")
