"""`kactl forensics report`, `timeline` and `sql`, from log lines to output."""

import contextlib
import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.dataset as pads
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from kactl.cli import forensics
from kactl.cli.exits import Failure
from kactl.cli.root import kactl
from kactl.cli.sql import reason
from kactl.forensics.jobs.catalog import Results
from kactl.forensics.tables import EVENTS, FILES, LEVELS


@pytest.fixture
def run(spark: SparkSession, folder: Path, results: Results, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a runner of commands that uses the running Spark session and existing results."""
    monkeypatch.setattr(forensics, "session", lambda master, memory, events=None: contextlib.nullcontext(spark))

    def invoke(command: str, *words: object, where: Path = folder) -> Result:
        return CliRunner().invoke(kactl, ["forensics", command, "--dir", str(where), *map(str, words)])

    return invoke


def test_report_prints_a_summary_and_writes_pages(run: Any, folder: Path, tmp_path: Path) -> None:
    page, text = tmp_path / "report.html", tmp_path / "report.md"

    done = run("report", "--html", page, "--markdown", text)

    assert done.exit_code == 0, done.output
    first, _, headline = done.stdout.splitlines()[:3]
    assert first == (
        "Coverage: logs of 2 of 2 brokers, 3 of 3 files read to the end, 100 % of the relevant lines parsed, "
        "2024-05-01 09:59:00 to 2024-05-01 10:00:11 (UTC); 1 partition known."
    )
    assert headline.startswith("1 partition of 1 topic had no leader for ")
    assert "What the logs cannot tell" in done.stdout
    assert page.read_text().startswith("<!doctype html>")
    assert "orders-0" in page.read_text()
    assert f'<header>\n<p class="coverage">{first}</p>' in page.read_text()
    assert text.read_text().splitlines()[0] == first
    assert text.read_text().splitlines()[2].startswith("# 1 partition of 1 topic had no leader")
    assert f"Written to {page}." in done.stderr
    assert (folder / "jobs.json").exists()


def test_report_of_logs_ingests_them_first(
    run: Any, logs: Path, folder: Path, results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs do not run again: equal tables have equal results. The tutorial runs all of it."""
    new = tmp_path / "new"
    monkeypatch.setattr("kactl.cli.report.job_results", lambda spark, path, on_progress: results)

    done = run("report", logs, "--tz", "UTC", "-o", "json", where=new)

    assert done.exit_code == 0, done.output
    assert f"Written to {new}: 3 files, 7 lines" in done.stderr
    assert ingested(new) == ingested(folder)
    assert ingested(new)[EVENTS]
    of_logs, of_tables = (
        re.sub(r'"seconds": *[0-9.e-]+', '"seconds": 0', text.replace(str(new), str(folder)))
        for text in (done.stdout, run("report", "-o", "json").stdout)
    )
    assert json.loads(of_logs) == json.loads(of_tables)


def ingested(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Returns the sorted rows of each table that an ingest writes."""
    return {
        name: sorted(pads.dataset(folder / name, partitioning="hive").to_table().to_pylist(), key=repr)
        for name in (EVENTS, FILES, LEVELS)
    }


def test_report_of_logs_starts_a_session_for_many_events(
    run: Any, logs: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    events_of_sessions: list[int | None] = []

    def session(master: str, memory: str, *, events: int | None = None) -> Any:
        events_of_sessions.append(events)
        return contextlib.nullcontext(spark)

    def no_jobs(*_: object) -> None:
        raise Failure("the jobs begin")

    monkeypatch.setattr(forensics, "session", session)
    monkeypatch.setattr("kactl.forensics.session.FEW_EVENTS", 5)
    monkeypatch.setattr("kactl.cli.report.job_results", no_jobs)

    done = run("report", logs, where=tmp_path / "new")

    assert events_of_sessions == [0, 7]
    assert "the jobs begin" in done.stderr


def test_report_of_logs_leaves_other_folders_unchanged(run: Any, logs: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    done = run("report", logs, where=tmp_path)

    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: --dir: {tmp_path} contains notes.txt, which kactl did not write")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_report_without_logs_in_a_folder_names_the_reason(run: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()

    done = run("report", tmp_path / "in", where=tmp_path / "out")

    assert done.exit_code == 1
    assert "there are no files: name the folder that holds state-change.log" in done.stderr
    assert not (tmp_path / "out").exists()


def test_report_is_printed_as_json(run: Any) -> None:
    done = run("report", "-o", "json", "--topic", "or.+|no-such")

    document = json.loads(done.stdout)
    assert next(iter(document)) == "coverage"
    assert document["coverage"]["brokers_share"] == document["coverage"]["share"] == 1
    assert document["facts"]["asked"] == {"begin": None, "end": None, "topic": "or.+|no-such"}
    assert document["facts"]["forced"]["outages"] == 1


def test_report_is_restricted_to_an_interval(run: Any) -> None:
    earlier = run("report", "-o", "json", "--to", "2024-05-01 09:59:30", "--tz", "UTC")

    assert json.loads(earlier.stdout)["facts"]["incidents_all"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "--from", "yesterday"], "--from: 'yesterday' is not a time: write it as 2024-05-01"),
        (["report", "--from", "2024-05-02", "--to", "2024-05-01"], "--to: 2024-05-01 is not after 2024-05-02"),
        (["report", "--topic", "("], "--topic: '(' is not a regular expression"),
        (["report", "--tz", "Mars"], "there is no time zone 'Mars'"),
        (["report", "--html", "/no/such/folder/a.html"], "there is no folder /no/such/folder"),
        (["sql", "SELECT nothing FROM events"], "nothing"),
        (["report", "--topic", "(?P<a>orders)"], "--topic: '(?P<a>orders)' is not a regular expression of Java"),
        (
            ["report", "--topic", "order"],
            "the full name of no topic in these logs matches 'order'; the nearest names: orders",
        ),
        (
            ["report", "--from", "2030-01-01"],
            "--from: 2030-01-01 00:00:00.000 is after the end of the logs: the logs cover",
        ),
        (["report", "--to", "2020-01-01"], "--to: 2020-01-01 00:00:00.000 is before the start of the logs"),
        (["sql", "SELEC 1"], "at 'SELEC 1'"),
        (["sql", "DROP TABLE events"], "sql: the tables are read-only"),
        (
            ["sql", "/* all */ INSERT OVERWRITE TABLE levels SELECT * FROM levels LIMIT 0"],
            "sql: the tables are read-only",
        ),
        (["sql", "WITH a AS (SELECT 1) INSERT INTO levels SELECT * FROM levels"], "sql: the tables are read-only"),
        (
            ["sql", "WITH a AS (SELECT 1) INSERT OVERWRITE DIRECTORY 'x' USING csv TABLE a"],
            "sql: the tables are read-only",
        ),
        (["sql", "FROM levels INSERT INTO files SELECT * INSERT INTO x SELECT *"], "sql: the tables are read-only"),
    ],
    ids=lambda marks: marks if isinstance(marks, str) else " ".join(marks)[:30],
)
def test_invalid_arguments_are_rejected_in_one_line(run: Any, words: list[str], message: str) -> None:
    done = run(*words)

    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("command", [["report"], ["timeline", "orders-0"], ["sql", "SELECT 1"]], ids=" ".join)
def test_missing_tables_are_reported_before_spark_starts(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forensics, "session", lambda master, memory, events=None: pytest.fail("Spark was started"))

    done = CliRunner().invoke(kactl, ["forensics", *command, "--dir", str(tmp_path / "none")])

    assert done.exit_code == 2
    assert "kactl forensics ingest LOGS" in done.stderr


def test_timeline_of_a_partition_is_printed(run: Any) -> None:
    done = run("timeline", "orders-0")

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].split() == ["TIME", "±", "WHO", "WHAT", "MARK", "SAID"]
    assert "offline -> online, leader 2, epoch 1, ISR 2" in done.stdout
    assert "no leader from here on" in done.stdout
    assert "Times are in UTC." in done.stderr


def test_timeline_is_printed_as_json_lines(run: Any) -> None:
    done = run("timeline", "orders-0", "-o", "jsonl", "--from", "2024-05-01T10:00:11Z", "-n", 5)

    entries = [json.loads(line) for line in done.stdout.splitlines()]
    assert entries
    assert all(line["at"] >= "2024-05-01T10:00:11" for line in entries)


def test_topic_lists_partitions_and_unknown_name_the_nearest(run: Any) -> None:
    topic, unknown = run("timeline", "orders"), run("timeline", "order-7")

    assert topic.stdout.splitlines()[1].split()[:4] == ["orders-0", "0", "2", "1"]
    assert unknown.exit_code == 1
    assert "nearest: orders" in unknown.stderr


def test_sql_prints_tables_csv_and_json_lines(run: Any) -> None:
    query = "SELECT type, count(*) AS n, max(ts) AS last FROM events WHERE topic = 'orders' GROUP BY type ORDER BY type"

    table, lines, sheet = (run("sql", query, "-o", form) for form in ("table", "jsonl", "csv"))

    assert table.stdout.splitlines()[0].split() == ["type", "n", "last"]
    assert json.loads(lines.stdout.splitlines()[0]) == {
        "type": "leads",
        "n": 2,
        "last": "2024-05-01T10:00:11.500000Z",
    }
    assert list(csv.reader(io.StringIO(sheet.stdout)))[1] == ["leads", "2", "2024-05-01T10:00:11.500000Z"]


def test_metadata_statements_are_accepted(run: Any) -> None:
    for query in (
        "SHOW TABLES",
        "/* which? */ DESCRIBE levels",
        "EXPLAIN SELECT 1",
        "TABLE levels",
        "VALUES (1)",
    ):
        assert run("sql", query).exit_code == 0, query


def test_json_has_all_columns_with_equal_names(run: Any) -> None:
    done = run("sql", "SELECT 1 AS a, 2 AS a, 3 AS a_2", "-o", "jsonl")

    assert json.loads(done.stdout) == {"a": 1, "a_2": 2, "a_2_2": 3}


def test_job_results_can_be_queried(run: Any) -> None:
    done = run("sql", "SELECT o.topic, l.topic FROM outages o JOIN leadership l USING (partition) LIMIT 1", "-o", "csv")

    assert done.stdout.splitlines() == ["topic,topic", "orders,orders"]  # two columns of one name


def test_rows_beyond_the_limit_are_announced(run: Any) -> None:
    done, all_ = (run("sql", "SELECT id FROM range(10)", "-o", "jsonl", "--limit", limit) for limit in (3, 0))

    assert len(done.stdout.splitlines()) == 3
    assert "more than 3 rows" in done.stderr
    assert len(all_.stdout.splitlines()) == 10


def test_sql_without_query_lists_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forensics, "session", lambda master, memory, events=None: pytest.fail("Spark was started"))

    done, listed = (CliRunner().invoke(kactl, ["forensics", "sql", "-o", form]) for form in ("table", "jsonl"))

    assert "outages: " in done.stdout
    assert {"events", "files", "levels", "timed", "outages"} <= {
        json.loads(line)["table"] for line in listed.stdout.splitlines()
    }


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'FROM'. SQLSTATE: 42601 (line 1, pos 10)\n\n== SQL "
            "==\nSELECT a, FROM x",
            "Syntax error at or near 'FROM': line 1, column 11, at 'FROM x' (PARSE_SYNTAX_ERROR)",
        ),
        ("[SOMETHING_ELSE.OF_ITS_OWN] It went wrong.\n\nat x.y.Z", "It went wrong (SOMETHING_ELSE.OF_ITS_OWN)"),
    ],
)
def test_spark_messages_are_shortened(message: str, sentence: str) -> None:
    assert reason(message, "SELECT a, FROM x") == sentence
