"""Snapshots in files: every supported format, and the errors for others."""

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kactl.cli.describe_lines import describe_lines
from kactl.decide.whatif.assumptions import TopicFacts
from kactl.forensics.whatif.snapshots import file, kafka_topics, racks
from kactl.forensics.whatif.snapshots.kafka_topics import BadTopics
from kactl.forensics.whatif.snapshots.racks import BadRacks
from kactl.forensics.whatif.tables import SCHEMA, BadSnapshot

from .snapshots import P, table

V39 = (
    "Topic: orders\tTopicId: dGhlIHRvcGljJ3MgaWQuLg\tPartitionCount: 2\tReplicationFactor: 3\t"
    "Configs: cleanup.policy=compact,min.insync.replicas=2\n"
    "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2\tElr: 3\tLastKnownElr: \n"
    "\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 2,3,1\tIsr: \tElr: N/A\tLastKnownElr: N/A\n"
)
V36 = (
    "Topic: a.b_c-d\tTopicId: dGhlIHRvcGljJ3MgaWQuLg\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: \n"
    "\tTopic: a.b_c-d\tPartition: 0\tLeader: 4\tReplicas: 4,5\tIsr: 5,4\tAdding Replicas: 5\tRemoving Replicas: \n"
)
V11 = (
    "Topic:old\tPartitionCount:1\tReplicationFactor:2\tConfigs:unclean.leader.election.enable=true "
    "MarkedForDeletion:true\n"
    "\tTopic: old\tPartition: 0\tLeader: -1\tReplicas: 1,2\tIsr: 2\n"
)


def read(tmp_path: Path, content: str | bytes, name: str = "snapshot") -> list[dict[str, Any]]:
    place = tmp_path / name
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    found, _ = file.read(str(place))
    assert found.schema == SCHEMA
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def refused(tmp_path: Path, content: str | bytes) -> str:
    with pytest.raises(BadSnapshot) as caught:
        read(tmp_path, content)
    return str(caught.value).replace(str(tmp_path), "")


# -- output of Kafka's tool --------------------------------------------------------------------------------------------


def test_the_lines_of_3_9(tmp_path: Path) -> None:
    assert read(tmp_path, V39) == [
        P("orders-0", (1, 2, 3), (1, 2), 1, elr=(3,), min_isr=2).row(),
        P("orders-1", (2, 3, 1), (), -1, elr=(), min_isr=2).row(),
    ]


def test_the_lines_of_3_6_during_a_reassignment(tmp_path: Path) -> None:
    assert read(tmp_path, V36) == [P("a.b_c-d-0", (4, 5), (5, 4), 4).row()]


def test_the_lines_of_1_1(tmp_path: Path) -> None:
    assert read(tmp_path, V11) == [P("old-0", (1, 2), (2,), -1, unclean=True).row()]


def test_other_lines_between_topics_are_ignored(tmp_path: Path) -> None:
    noise = "SLF4J: no such binding\n\nWARN the option --zookeeper is deprecated\n"

    assert len(read(tmp_path, noise + V39 + V36 + V11)) == 4


def test_spaces_for_tabs_and_windows_line_ends(tmp_path: Path) -> None:
    assert read(tmp_path, V39.replace("\t", "    ").replace("\n", "\r\n")) == read(tmp_path, V39)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks(tmp_path: Path, encoding: str) -> None:
    assert read(tmp_path, V39.encode(encoding)) == read(tmp_path, V39)


def test_gzip(tmp_path: Path) -> None:
    assert read(tmp_path, gzip.compress(V39.encode())) == read(tmp_path, V39)


def test_output_of_kactls_own_kafka_topics(tmp_path: Path) -> None:
    from kactl.admin.schema import PartitionInfo, TopicInfo

    partition = PartitionInfo(
        topic="t", partition=7, state="online", leader=2, leader_epoch=1, replicas=(1, 2), isr=(2,), adding=(),
        removing=(), partition_epoch=3, controller_epoch=1, recovering=False, offline=False, under_replicated=True,
        min_insync_replicas=2, under_min_isr=True, preferred_leader=1, replica_states={},
    )  # fmt: skip
    topic = TopicInfo(
        name="t", id=None, partitions=1, replication_factor=2, offline_partitions=0, under_replicated_partitions=1,
        deleting=False,
    )  # fmt: skip

    lines = "\n".join(describe_lines(topic, {"min.insync.replicas": "2"}, [partition]))

    assert read(tmp_path, lines) == [P("t-7", (1, 2), (2,), 2, elr=(), min_isr=2).row()]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (V39.replace("Leader: 1", "Leader: one"), "line 2: 'Topic: orders\\tPartition: 0\\tLeader: one"),
        (V39.replace("Isr: 1,2", "Isr 1,2"), "line 2: "),
        (V39.replace("1,2,3", "1,2,2"), "line 2: orders-0 has the same replica twice: 1,2,2"),
        (V39.replace("1,2,3", "1,2,99999999999"), "line 2: orders-0: a number is outside 0 to 2147483647"),
        (V39 + V39, "line 5: orders-0 is already in line 2"),
        (V39.splitlines()[0], "it has no partition; a line of one is `Topic: orders  Partition: 0"),
        ("", "it is not a snapshot, which is the output of `kafka-topics.sh --describe`"),
        ("hello\nworld", "it is not a snapshot"),
        (b"\x00\xff" * 100, "it is not a snapshot"),
    ],
    ids=["leader", "isr", "twice", "large", "again", "header", "empty", "text", "noise"],
)
def test_errors_name_the_line(tmp_path: Path, bad: str | bytes, said: str) -> None:
    assert said in refused(tmp_path, bad)


def test_missing_file_is_reported() -> None:
    with pytest.raises(
        BadSnapshot, match="it cannot be read \\(No such file or directory\\); a snapshot is the output of"
    ):
        file.read("/nowhere/at/all")


def test_truncated_gzip_is_reported(tmp_path: Path) -> None:
    assert "it cannot be read" in refused(tmp_path, gzip.compress(V39.encode())[:60])


# -- output of kactl ---------------------------------------------------------------------------------------------------

ITEM = {"topic": "t", "partition": 0, "leader": 1, "replicas": [1, 2], "isr": [1], "state": "online", "new": {"x": 1}}
ROW = P("t-0", (1, 2), (1,), 1).row()


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([ITEM]),
        json.dumps([ITEM], indent=2),
        json.dumps({"items": [ITEM], "matched": 1, "next_cursor": None}),
        json.dumps({"items": [ITEM]}, indent=2),
        json.dumps(ITEM),
    ],
    ids=["list", "indented", "page", "indented page", "single"],
)
def test_documents(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == [ROW]


def test_json_lines(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(ITEM | {"partition": number}) for number in range(3))

    assert [row["partition"] for row in read(tmp_path, lines)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "it has no partition"),
        ({"items": []}, "it has no partition"),
        ([{"topic": "t", "partition": 0, "replicas": [1]}], "missing required field `leader` - at `$[0]`"),
        ([ITEM | {"isr": "1"}], "Expected `array`, got `str` - at `$[0].isr`"),
        ([ITEM, ITEM], "partition 2: t-0 is already in partition 1"),
        ([ITEM | {"replicas": [-1]}], "partition 1: t-0: a number is outside 0"),
        ([ITEM | {"min_insync_replicas": 0}], "partition 1: t-0: min.insync.replicas is 0, outside 1"),
    ],
    ids=["nothing", "empty page", "no leader", "type", "twice", "negative", "min isr"],
)
def test_invalid_json_is_rejected(tmp_path: Path, document: object, said: str) -> None:
    assert said in refused(tmp_path, json.dumps(document))


def test_documents_state_min_insync_replicas_of_each_partition(tmp_path: Path) -> None:
    items = [ITEM | {"min_insync_replicas": 2}, ITEM | {"partition": 1, "min_insync_replicas": None}]

    assert [row["min_isr"] for row in read(tmp_path, json.dumps(items))] == [2, None]


def test_api_response_has_min_insync_replicas(tmp_path: Path) -> None:
    from kactl.admin.schema import PartitionInfo

    partition = PartitionInfo(
        topic="t", partition=0, state="online", leader=1, leader_epoch=1, replicas=(1, 2), isr=(1,), adding=(),
        removing=(), partition_epoch=3, controller_epoch=1, recovering=False, offline=False, under_replicated=True,
        min_insync_replicas=2, under_min_isr=True, preferred_leader=1, replica_states={},
    )  # fmt: skip

    assert read(tmp_path, msgspec.json.encode([partition]).decode()) == [P("t-0", (1, 2), (1,), 1, min_isr=2).row()]


def test_truncated_json_is_rejected(tmp_path: Path) -> None:
    assert "write it with `kactl get partitions" in refused(tmp_path, json.dumps([ITEM])[:-10])


def test_part_of_a_cluster_has_a_note(tmp_path: Path) -> None:
    page = {"items": [ITEM], "matched": 12, "next_cursor": "x"}
    usual = [ITEM | {"partition": number} for number in range(500)]

    _, of_page = file.read_stream(io.BytesIO(json.dumps(page).encode()), "stdin")
    _, of_usual = file.read_stream(io.BytesIO(json.dumps(usual).encode()), "stdin")

    assert of_page[0].startswith("The snapshot is one page of 12 partitions")
    assert "raise --limit" in of_usual[0] or "unless --limit is given" in of_usual[0]


# -- Parquet -----------------------------------------------------------------------------------------------------------


def test_parquet_as_a_file_and_as_a_folder(tmp_path: Path) -> None:
    partitions = [P("t-0", (1, 2), (1,), min_isr=2, unclean=True), P("t-1", (2, 1), (1, 2))]
    (tmp_path / "folder").mkdir()
    pq.write_table(table(partitions), tmp_path / "one.parquet")
    pq.write_table(table(partitions[:1]), tmp_path / "folder" / "part-0.parquet")
    pq.write_table(table(partitions[1:]), tmp_path / "folder" / "part-1.parquet")
    (tmp_path / "folder" / "_SUCCESS").touch()

    for name in ("one.parquet", "folder"):
        assert file.is_parquet(str(tmp_path / name))
        assert file.read(str(tmp_path / name))[0].to_pylist() == [each.row() for each in partitions]


def test_parquet_with_other_columns_and_types(tmp_path: Path) -> None:
    wide = pa.table(
        {
            "more": ["x"],
            "topic": ["t"],
            "partition": pa.array([0], pa.int64()),
            "leader": pa.array([1], pa.int16()),
            "replicas": pa.array([[1, 2]], pa.list_(pa.int64())),
            "isr": [[1]],
        }
    )
    pq.write_table(wide, tmp_path / "wide.parquet")

    assert file.read(str(tmp_path / "wide.parquet"))[0].to_pylist() == [ROW]


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (table([P("t-0", (1,), (1,))]).drop_columns(["isr", "leader"]), "it has no column leader, isr; it needs topic"),
        (table([]), "it has no partition"),
        (table([P("t-0", (1,), (1,))] * 2), "it has t-0 more than once"),
        (table([P("t-0", (1,), (1,))]).set_column(1, "partition", pa.nulls(1, pa.int32())), "1 rows have no partition"),
        (table([P("t-0", (1,), (1,))]).set_column(3, "replicas", pa.array(["1,2"])), "it cannot be read"),
    ],
    ids=["column", "empty", "twice", "null", "type"],
)
def test_invalid_parquet_is_rejected(tmp_path: Path, spoilt: pa.Table, said: str) -> None:
    pq.write_table(spoilt, tmp_path / "bad.parquet")

    with pytest.raises(BadSnapshot, match=said):
        file.read(str(tmp_path / "bad.parquet"))


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(BadSnapshot, match="the folder is empty"):
        file.read(str(tmp_path))


# -- racks -------------------------------------------------------------------------------------------------------------

KACTL = json.dumps(
    [
        {"id": 1, "rack": "a", "state": "live"},
        {"id": 2, "rack": None, "state": "live"},
        {"id": 3, "rack": "b", "state": "dead"},
    ]
)
VERSIONS = "broker-1:9092 (id: 1 rack: a) -> (\n\tProduce(0): 0 to 9\n)\nbroker-2:9092 (id: 2 rack: null) -> (\n"


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("1=a,2=b", {1: "a", 2: "b"}),
        ("1=a\n2=b  # in the cellar\n\n", {1: "a", 2: "b"}),
        ("1 a\n2,b\n3\teu-west-1c\n", {1: "a", 2: "b", 3: "eu-west-1c"}),
        ('{"1": "a", "2": "b"}', {1: "a", 2: "b"}),
        (KACTL, {1: "a", 3: "b"}),
        (json.dumps({"items": json.loads(KACTL)}), {1: "a", 3: "b"}),
        (VERSIONS, {1: "a"}),
    ],
    ids=["pairs", "lines", "blanks", "object", "kactl", "page", "tool"],
)
def test_racks(tmp_path: Path, text: str, of: dict[int, str]) -> None:
    (tmp_path / "racks").write_text(text)

    assert racks.read(str(tmp_path / "racks")).of == of


def test_racks_through_a_pipe() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"1=a\n2=b\n")
    os.close(writing)

    assert racks.read(f"/dev/fd/{reading}").of == {1: "a", 2: "b"}
    os.close(reading)


def test_racks_on_the_command_line() -> None:
    assert racks.read("1=a, 2=b,3=a").of == {1: "a", 2: "b", 3: "a"}


def test_states_of_brokers_are_read_with_their_racks() -> None:
    known = racks.of_text(KACTL, "x")

    assert (set(known.alive), set(known.away)) == ({1, 2}, {3})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("racks.txt", "there is no file racks.txt; write 1=a,2=a,3=b"),
        ("1=a,b=2", "'b=2' is not a pair"),
        ("1=a,1=b", "broker 1 is in rack 'a' and in 'b'"),
        (",=", "'=' is not a pair"),
    ],
)
def test_invalid_racks_are_rejected(text: str, said: str) -> None:
    with pytest.raises(BadRacks, match=said):
        racks.read(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1=a\nx\n", "line 2: 'x' is not a pair"),
        ("# nothing\n", "it names no rack"),
        ('{"a": "b"}', "write 1=a"),
        ("[1]", "write 1=a"),
    ],
)
def test_invalid_files_of_racks_are_rejected(text: str, said: str) -> None:
    with pytest.raises(BadRacks, match=said):
        racks.of_text(text, "file")


# -- topics ------------------------------------------------------------------------------------------------------------


def test_settings_of_topics(tmp_path: Path) -> None:
    lines = (
        "orders min.insync.replicas=2,weight=12.5\n"
        "audit: unclean.leader.election.enable=true,x=1 # no\n"
        "\n"
        "log weight=3\n"
    )
    (tmp_path / "topics").write_text(lines + V39.replace("orders", "payments"))

    assert kafka_topics.read_settings(str(tmp_path / "topics")) == {
        "orders": TopicFacts(min_isr=2, weight=12.5),
        "audit": TopicFacts(unclean=True),
        "log": TopicFacts(weight=3),
        "payments": TopicFacts(min_isr=2),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("orders\n", "line 1: 'orders' has no settings of a topic"),
        ("\norders weight=heavy\n", "line 2: 'heavy' is not a weight"),
        ("orders weight=-1\n", "'-1' is not a weight"),
        ("orders weight=inf\n", "'inf' is not a weight"),
        ("# nothing\n", "it has no settings of a topic"),
    ],
)
def test_invalid_settings_of_topics_are_rejected(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "topics").write_text(text)

    with pytest.raises(BadTopics, match=said):
        kafka_topics.read_settings(str(tmp_path / "topics"))
