"""Command `kactl forensics whatif`: output, rejected arguments, and cases that need no Spark."""

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from kactl.cli import forensics
from kactl.cli.root import kactl
from kactl.forensics.ingest import ingest
from kactl.forensics.jobs.catalog import open_results
from kactl.forensics.whatif.snapshots import file
from tests.forensics.jobs.tables import controller_line, line

from .snapshots import P, table

DESCRIBED = (
    "Topic: orders\tTopicId: dGhlIHRvcGljJ3MgaWQuLg\tPartitionCount: 2\tReplicationFactor: 3\t"
    "Configs: min.insync.replicas=2\n"
    "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\n"
    "\tTopic: orders\tPartition: 1\tLeader: 2\tReplicas: 2,3,4\tIsr: 2,3\n"
    "Topic: audit\tTopicId: dGhlIHRvcGljJ3MgaWQuLg\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: \n"
    "\tTopic: audit\tPartition: 0\tLeader: 3\tReplicas: 3,4\tIsr: 3,4\n"
)


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "described.txt"
    path.write_text(DESCRIBED)
    return path


def whatif(*words: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(kactl, ["forensics", "whatif", *map(str, words)], input=stdin)


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(master: str, memory: str, *, events: int | None = None) -> Iterator[SparkSession]:
        raise AssertionError("Spark is started for nothing")

    monkeypatch.setattr(forensics, "session", started)


pytestmark = pytest.mark.usefixtures("no_spark")


def test_named_brokers_are_evaluated(snapshot: Path) -> None:
    done = whatif("--snapshot", snapshot, "--kill", "2,3")

    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "3 of 3 partitions known."
    assert lines[1] == f"{snapshot}: 3 partitions of 2 topics on 4 brokers."
    assert lines[2] == "Every partition has a leader and as many in-sync replicas as min.insync.replicas requires."
    header, row = lines[4:6]
    assert header.split("  ")[0] == "DIES"
    assert row.split() == ["2,3", "1", "1", "0", "2", "2", "1", "1:", "1", "(1", "now)", "orders", "(1)"]
    assert lines[6].startswith("If 2 and 3 fail, 1 partition of 1 topic has no leader: all in-sync replicas are down.")
    assert re.search(r"^1 scenario over 3 partitions in 3 classes: \d+\.\d s\.$", done.stderr, re.MULTILINE)


def test_default_sweeps(snapshot: Path) -> None:
    done = whatif("--snapshot", snapshot)

    assert done.exit_code == 0, done.output
    assert "Any one broker (4 cases): everything keeps a leader; 2 leave too few in sync for acks=all." in done.stdout
    assert "Any two brokers (6 cases): 2 take partitions offline." in done.stdout
    assert "rack" not in done.stdout
    assert "min.insync.replicas is assumed to be 1 for 1 partition of which it is not known" in done.stderr


def test_racks_and_rolling_restarts(snapshot: Path) -> None:
    done = whatif("--snapshot", snapshot, "--sweep", "racks,rack+broker,rolling", "--racks", "1=a,2=a,3=b,4=c")

    assert done.exit_code == 0, done.output
    assert "Any one rack (3 cases): everything keeps a leader; " in done.stdout
    assert "rack=a,3" in done.stdout
    assert "a whole rack at a time" in done.stdout
    assert "Restarting one broker at a time, by id takes nothing offline" in done.stdout


def test_named_rack_is_evaluated(snapshot: Path) -> None:
    done = whatif(
        "--snapshot", snapshot, "--kill", "rack=a,3", "--kill", "4", "--racks", "1=a,2=a", "-o", "jsonl", "-q"
    )

    coverage, first, second = map(json.loads, done.stdout.splitlines())
    assert done.stderr == ""
    assert coverage["coverage"]["stated"] == "3 of 3 partitions known"
    assert first["scenario"] == {"brokers": [1, 2, 3], "racks": ["a"], "alone": [3]}
    assert (first["offline"], first["topics"]) == (2, 1)
    assert (second["scenario"]["brokers"], second["offline"]) == ([4], 0)


def test_answer_as_json(snapshot: Path) -> None:
    done = whatif("--snapshot", snapshot, "--kill", "4", "--sweep", "pairs,rolling", "--top", "1", "-o", "json")

    said = json.loads(done.stdout)
    assert said["now"]["brokers"] == [1, 2, 3, 4]
    assert [len(each["worst"]) for each in said["sweeps"]] == [1]
    assert said["sweeps"][0]["scenarios"] == 6
    assert said["rolling"][0]["steps"] == 4
    assert said["cost"]["scenarios"] == 1 + 6 + 4
    assert said["notes"]


def test_snapshot_from_standard_input() -> None:
    done = whatif("--snapshot", "-", "--kill", "3", stdin=DESCRIBED)

    assert done.exit_code == 0, done.output
    assert "stdin: 3 partitions of 2 topics" in done.stdout.splitlines()[1]


def test_given_settings_supplement_the_snapshot(snapshot: Path, tmp_path: Path) -> None:
    topics = tmp_path / "topics.txt"
    topics.write_text("audit min.insync.replicas=2\n")

    done = whatif("--snapshot", snapshot, "--topics", topics, "--away", "4", "--unclean", "--kill", "3", "-o", "json")

    said = json.loads(done.stdout)
    assert said["now"]["away"] == [4]
    assert said["now"]["outcome"]["under_min"] == 1
    assert said["killed"][0]["offline"] == 1  # audit-0 has no live replica; orders-1 has 2


def test_failure_of_a_broker_that_is_away_has_no_effect(snapshot: Path) -> None:
    done = whatif("--snapshot", snapshot, "--away", "4", "--kill", "4")

    assert "--kill 4: all of these have failed already, so nothing changes." in done.stderr


def mostly_unknown(path: Path, known: int, partitions: int) -> Path:
    """Writes a snapshot in which the ISR of most partitions is missing, and returns its path."""
    import pyarrow.parquet as pq

    rows = [P(f"orders-{at}", (1, 2, 3), (1, 2, 3) if at < known else None, leader=1) for at in range(partitions)]
    pq.write_table(table(rows), path)
    return path


def test_first_line_states_the_coverage_and_a_low_one_fails(tmp_path: Path) -> None:
    snapshot = mostly_unknown(tmp_path / "cluster.parquet", 4, 44)

    done = whatif("--snapshot", snapshot)

    assert done.exit_code == 1
    first = done.stdout.splitlines()[0]
    assert first == "4 of 44 partitions known: the results do not cover the other 40 partitions."
    assert "error: 4 of 44 partitions known (9%), fewer than 95%" in done.stderr
    assert "accept the result with --partial" in done.stderr


def test_unknown_partitions_are_not_covered(tmp_path: Path) -> None:
    snapshot = mostly_unknown(tmp_path / "cluster.parquet", 4, 44)

    done = whatif("--snapshot", snapshot, "--sweep", "brokers,rolling", "--kill", "1")

    text = done.stdout.lower()
    assert "each of the 4 known partitions keeps a leader and stays writable" in text
    assert "every known partition keeps a leader" in text
    assert "takes no known partition offline and leaves the known ones writable" in text
    for claim in ("everything", "every partition", "nothing offline"):
        assert claim not in text


@pytest.mark.parametrize(("known", "code"), [(44, 0), (42, 0), (41, 1), (4, 1)])
def test_exit_code_is_1_below_95_percent(tmp_path: Path, known: int, code: int) -> None:
    snapshot = mostly_unknown(tmp_path / "cluster.parquet", known, 44)

    refused, accepted = whatif("--snapshot", snapshot), whatif("--snapshot", snapshot, "--partial")

    assert refused.exit_code == code
    assert accepted.exit_code == 0
    assert accepted.stdout.splitlines()[0].startswith(f"{known} of 44 partitions known")


def test_json_begins_with_the_coverage(tmp_path: Path) -> None:
    snapshot = mostly_unknown(tmp_path / "cluster.parquet", 4, 44)

    document, lines = (whatif("--snapshot", snapshot, "-o", form) for form in ("json", "jsonl"))

    said = json.loads(document.stdout)
    assert document.exit_code == lines.exit_code == 1
    assert next(iter(said)) == "coverage"
    assert said["coverage"] == {
        "known": 4,
        "partitions": 44,
        "share": 0.0909,
        "is_partial": True,
        "stated": "4 of 44 partitions known",
    }
    assert json.loads(lines.stdout.splitlines()[0]) == {"coverage": said["coverage"]}
    assert said["sweeps"][0]["worst"][0]["explained"].startswith("If 1 fails, every known partition keeps a leader.")


BAD = {
    "broker": (["--kill", "9"], 2, "--kill: there is no broker 9 in the snapshot; it has 1, 2, 3, 4"),
    "rack": (["--kill", "rack=z", "--racks", "1=a"], 2, "there is no rack 'z'; there are a"),
    "racks": (["--sweep", "racks"], 2, "--sweep racks: the racks of the brokers are unknown"),
    "sweep": (["--sweep", "triples"], 2, "--sweep: 'triples' is not one of brokers, pairs, racks"),
    "pairs": (["--racks", "1,a"], 2, "there is no file 1,a"),
    "topics": (["--topics", "/nowhere"], 2, "--topics: /nowhere cannot be read"),
    "away": (["--away", "9"], 2, "--away: there is no broker 9 in the snapshot"),
    "alive": (["--alive", "x"], 2, "--alive: 'x' is not a broker id"),
    "both": (["--alive", "1", "--away", "1"], 2, "broker 1 is in both"),
    "time": (["--at", "2024-05-01"], 2, "--at is for ingested logs (--dir)"),
    "form": (["-o", "csv"], 2, "does not support the output format 'csv'"),
}


@pytest.mark.parametrize(("words", "code", "said"), BAD.values(), ids=BAD)
def test_invalid_options_are_rejected(snapshot: Path, words: list[str], code: int, said: str) -> None:
    done = whatif("--snapshot", snapshot, *words)

    assert done.exit_code == code
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (DESCRIBED.replace("Leader: 2", "Leader: two"), "described.txt, line 3: "),
        ("", "it is not a snapshot"),
        (DESCRIBED.splitlines()[0], "it has no partition"),
    ],
    ids=["line", "empty", "header"],
)
def test_invalid_snapshots_are_rejected(snapshot: Path, content: str, said: str) -> None:
    snapshot.write_text(content)

    done = whatif("--snapshot", snapshot)

    assert done.exit_code == 2
    assert said in done.stderr


def test_missing_tables_are_reported(tmp_path: Path) -> None:
    done = whatif("--dir", tmp_path / "nothing")

    assert done.exit_code == 2
    assert "contains no complete tables: write them with `kactl forensics ingest" in done.stderr


def test_help_imports_no_large_module() -> None:
    done = whatif("--help")

    assert done.exit_code == 0
    for option in ("--kill", "--sweep", "--snapshot", "--racks", "--min-isr", "--at"):
        assert option in done.stdout


# -- with Spark --------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_spark(no_spark: None, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forensics, "session", lambda master, memory, events=None: contextlib.nullcontext(spark))


def born(partition: str, replicas: str) -> str:
    return (
        f"[Controller id=1 epoch=5] Changed partition {partition} state from NonExistentPartition to NewPartition with "
        f"assigned replicas {replicas}"
    )


def online(partition: str, before: str, state: str) -> str:
    return (
        f"[Controller id=1 epoch=5] Changed partition {partition} from {before}Partition to OnlinePartition with state "
        f"LeaderAndIsr({state})"
    )


@pytest.mark.usefixtures("with_spark")
def test_ingested_logs_at_their_end_and_earlier(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "state-change.log").write_text(
        "".join(
            [
                line(0, born("a-0", "2,3")),
                line(0.1, online("a-0", "New", "leader=2, leaderEpoch=0, isr=List(2, 3), zkVersion=0")),
                line(1, born("b-0", "2,1")),
                line(1.1, online("b-0", "New", "leader=2, leaderEpoch=0, isr=List(2, 1), zkVersion=0")),
                line(60, online("a-0", "Offline", "leader=3, leaderEpoch=1, isr=List(3), zkVersion=1")),
                line(60, online("b-0", "Offline", "leader=1, leaderEpoch=1, isr=List(1), zkVersion=1")),
            ]
        )
    )
    (logs / "controller.log").write_text(
        controller_line(59.9, 1, "Newly added brokers: , deleted brokers: 2, bounced brokers: , all live brokers: 1,3")
        + controller_line(60.5, 1, "Processing automatic preferred replica leader election")
    )
    ingest(spark, [str(logs)], str(out))

    at_the_end = whatif("--dir", out, "--kill", "3", "-o", "json")
    before = whatif("--dir", out, "--at", "2024-05-01 10:00:30", "--kill", "3", "-o", "json")

    assert at_the_end.exit_code == before.exit_code == 0, at_the_end.output + before.output
    end, then = json.loads(at_the_end.stdout), json.loads(before.stdout)
    assert (end["now"]["away"], end["killed"][0]["offline"]) == ([2], 1)
    assert (then["now"]["away"], then["killed"][0]["offline"]) == ([], 0)
    assert then["now"]["at_us"] == 1_714_557_630_000_000
    kept = open_results(spark, str(out))
    assert "states" in kept
    assert "outages" not in kept  # jobs that are not needed do not run


@pytest.mark.usefixtures("with_spark")
def test_partitions_known_only_by_name_count_as_unknown(spark: SparkSession, tmp_path: Path) -> None:
    out, logs = tmp_path / "tables", tmp_path / "logs"
    logs.mkdir()
    state = "leader=2, leaderEpoch=0, isr=List(2, 3), zkVersion=0"
    (logs / "state-change.log").write_text(
        line(0, born("a-0", "2,3"))
        + line(0.1, online("a-0", "New", state))
        + line(0.2, online("a-1", "New", state))  # no line contains its assignment
    )
    shrinking = "[Partition {} broker=2] Shrinking ISR from 2,3 to 2. (kafka.cluster.Partition)\n"
    (logs / "server.log").write_text(
        "".join(f"[2024-05-01 10:00:05,000] INFO {shrinking.format(each)}" for each in ("a-0", "b-0", "b-1"))
        + "[2024-05-01 10:00:05,000] INFO [UnifiedLog partition=__cluster_metadata-0, dir=/d] Truncating to offset 7 "
        "(kafka.log.UnifiedLog)\n"
    )
    ingest(spark, [str(logs)], str(out))

    done = whatif("--dir", out, "--kill", "3", "-o", "json")

    assert done.exit_code == 1
    assert json.loads(done.stdout)["coverage"]["stated"] == "1 of 4 partitions known"


def test_parquet_of_more_than_one_cluster_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    table, _ = file.read_stream(io.BytesIO(DESCRIBED.encode()), "described")
    pq.write_table(table, tmp_path / "large.parquet")
    monkeypatch.setattr(file, "PARTITIONS_MAX", len(table) - 1)

    done = whatif("--snapshot", tmp_path / "large.parquet", "--sweep", "pairs")

    assert done.exit_code == 2
    assert f"it has {len(table)} partitions, more than {len(table) - 1}" in done.stderr
