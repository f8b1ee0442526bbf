"""Probe of files: kind, layout, container, encoding and writer, and files that are not logs."""

import gzip
from pathlib import Path

import pytest

from kactl.forensics.event_types import Kind
from kactl.forensics.text.probe import Probe, probe

from .golden import GOLDEN, QUORUM
from .reading import events_of, log_line

TS = "2018-09-22 15:50:12,985"
MESSAGE = "[Broker id=2] Handling LeaderAndIsr request correlationId 77 from controller 1 for 12 partitions"
STANDARD = f"[{TS}] INFO {MESSAGE} (state.change.logger)"


def test_times_without_milliseconds_keep_the_order_of_the_file(tmp_path: Path) -> None:
    text = "".join(
        f"2025-07-03 13:05:{second} INFO  [kafka-3-event-handler] QuorumController:1024 - [QuorumController id=3] "
        f"In the new epoch {epoch}, the leader is 4.\n"
        for second, epoch in ((51, 7), (51, 9), (52, 8))
    )

    probed = _file(tmp_path, text)
    events = events_of(text, layout=probed.layout, kind=probed.kind)

    assert (probed.kind, probed.layout, probed.broker, probed.whole_seconds) == (
        Kind.CONTROLLER,
        "dashed-thread",
        3,
        True,
    )
    assert [(event["ts_logged"].second, event["controller_epoch"]) for event in events] == [(51, 7), (51, 9), (52, 8)]
    assert {event["ts_logged"].microsecond for event in events} == {0}


def test_message_with_a_colon_does_not_hide_its_layout(tmp_path: Path) -> None:
    line = f"{TS} INFO some.topic: {MESSAGE} (kafka.server.Server)\n"

    assert _file(tmp_path, line * 3).layout == "bare"


def test_continuation_lines_lose_the_container_prefix() -> None:
    failed = next(example for example in GOLDEN if example.format == "P4b")
    text = "".join(f"kafka-1 | {line}\n" for line in log_line(failed).splitlines())

    (event,) = events_of(text, layout="container/standard")

    assert event["error"] == "kafka.common.StateChangeFailedException"


def test_a_stack_trace_at_the_beginning_does_not_hide_the_layout(tmp_path: Path) -> None:
    text = "\tat some.line.of(ATrace.scala:1)\n" * 950 + f"{STANDARD}\n" * 50

    assert _file(tmp_path, text).layout == "standard"


# -- kinds -------------------------------------------------------------------------------------------------------------


def _file(folder: Path, content: str | bytes, name: str = "some.file") -> Probe:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return probe(str(path))


OTHER = f"[{TS}] INFO Completed load of log (kafka.log.LogManager)\n"
CONTROLLER = f"[{TS}] INFO [Controller id=1] Resigned (kafka.controller.KafkaController)\n"
DUMP = (
    "Dumping 00000000000000000000.log\nLog starting offset: 0\n"
    + "| offset: 7 CreateTime: 1714550400123 keySize: -1 valueSize: 9 sequence: -1 headerKeys: [] payload: "
    '{"type":"TOPIC_RECORD","version":0,"data":{"name":"a","topicId":"AbC-dEf_GhIjKlMnOpQrSt"}}\n' * 5
)
# Each batch has one record.
BATCHES = "".join(
    f"baseOffset: {offset} lastOffset: {offset} count: 1 position: 9 CreateTime: 1714550400123 size: 9 isvalid: true\n"
    f"{{}}payload: {{{{}}}}\n"
    for offset in range(5)
)
KACTL = (
    '{"kind":"controller","seq":1,"time_ms":1714550400123,"controller_epoch":5,"what":"elected","controller_id":7}\n'
)
# As a broker writes it for as long as no server of ZooKeeper responds, until 2.1 with ZkClient.
OUTAGE = "".join(
    f"[{TS}] INFO {text} ({logger})\n"
    for text, logger in (
        ("Opening socket connection to server zk1/10.0.0.7:2181.", "org.apache.zookeeper.ClientCnxn"),
        ("Socket error occurred: zk1/10.0.0.7:2181: Connection refused", "org.apache.zookeeper.ClientCnxn"),
        ("zookeeper state changed (Disconnected)", "org.I0Itec.zkclient.ZkClient"),
        ("Initiating client connection, connectString=zk1:2181", "org.apache.zookeeper.ZooKeeper"),
    )
)
KINDS = {
    "state-change": (f"{STANDARD}\n", Kind.STATE_CHANGE, "standard", 2),
    "controller": (CONTROLLER, Kind.CONTROLLER, "standard", 1),
    "KRaft": (f"[{TS}] INFO [QuorumController id=3000] Renouncing ({QUORUM})\n", Kind.CONTROLLER, "standard", 3000),
    "server": (OTHER * 9 + f"{STANDARD}\n", Kind.SERVER, "standard", 2),
    "dump": (DUMP, Kind.DUMP, "dump", None),
    "dump of small batches": (
        DUMP.partition("|")[0] + BATCHES.format(*["| offset: 7 CreateTime: 1714550400123 keySize: -1 "] * 5),
        Kind.DUMP,
        "dump",
        None,
    ),
    "dump without metadata": (DUMP.partition("|")[0] + BATCHES.format(*[" "] * 5), Kind.DUMP, "payloads", None),
    "kactl": (KACTL, Kind.KACTL, "kactl", 7),
    "short names, state changes": (f"[{TS}] INFO {MESSAGE} (logger)\n", Kind.STATE_CHANGE, "standard", 2),
    "short names, KRaft": (
        f"[{TS}] INFO [QuorumController id=3000] Becoming the active controller at epoch 1, next write offset 1. "
        f"(QuorumController)\n[{TS}] DEBUG [QuorumController id=3000] No stale brokers found. "
        "(ReplicationControlManager)\n",
        Kind.CONTROLLER,
        "standard",
        3000,
    ),
    "short names, ZooKeeper": (
        f"[{TS}] INFO [Controller id=1] Resigned (KafkaController)\n",
        Kind.CONTROLLER,
        "standard",
        1,
    ),
    "short names, server": (
        f"[{TS}] INFO Completed load of log (LogManager)\n" * 9
        + f"[{TS}] INFO [KafkaServer id=2] started (KafkaServer)\n",
        Kind.SERVER,
        "standard",
        2,
    ),
    "short names of another program": (f"[{TS}] INFO Resigning as chairman (logger)\n", Kind.FOREIGN, "", None),
    "a broker's client of ZooKeeper": (OUTAGE, Kind.SERVER, "standard", None),
    "a client of ZooKeeper in another program": (
        f"{OUTAGE}[{TS}] INFO Hello (org.apache.hadoop.hbase.X)\n",
        Kind.FOREIGN,
        "",
        None,
    ),
    "a server of ZooKeeper": (
        f"{OUTAGE}[{TS}] INFO Expiring session 0x15d, timeout of 6000ms exceeded "
        "(org.apache.zookeeper.server.ZooKeeperServer)\n",
        Kind.FOREIGN,
        "",
        None,
    ),
    "zookeeper": (f"[{TS}] INFO Hello (org.apache.zookeeper.Server)\n", Kind.FOREIGN, "", None),
    "gc": ("[0.007s][info][gc] Using G1\n", Kind.FOREIGN, "", None),
    "nothing": ("", Kind.EMPTY, "", None),
    "blank": ("\n\n \n", Kind.EMPTY, "", None),
    "zeros": (bytes(5000).decode(), Kind.EMPTY, "", None),
    "one byte": ("x", Kind.FOREIGN, "", None),
    "bytes": (bytes(range(256)).decode("latin-1") * 100, Kind.FOREIGN, "", None),
}


@pytest.mark.parametrize(("content", "kind", "layout", "broker"), KINDS.values(), ids=KINDS)
def test_kind_is_determined_by_the_content(
    tmp_path: Path, content: str, kind: Kind, layout: str, broker: int | None
) -> None:
    report = _file(tmp_path, content)

    assert (report.kind, report.layout, report.broker) == (kind, layout, broker)
    assert bool(report.error) == (kind is Kind.FOREIGN)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
def test_compression_and_encoding_are_recognised(tmp_path: Path, pack: bool, encoding: str) -> None:
    content = (f"[{TS}] INFO Grüße (kafka.log.LogManager)\n" * 5).encode(encoding)

    report = _file(tmp_path, gzip.compress(content) if pack else content)

    assert (report.kind, report.encoding, bool(report.packed)) == (Kind.SERVER, encoding, pack)
    assert report.can_be_split == (not pack and encoding != "utf-16")


@pytest.mark.parametrize(
    ("path", "broker"),
    [
        ("broker-3/server.log", 3),
        ("logs/kafka_12/server.log", 12),
        ("kafka-4.log", 4),
        ("node7/logs/server.log", 7),
        ("server.log.2024-05-01-10", None),
        ("broker-3/kafka-4/server.log", None),
    ],
)
def test_broker_is_taken_from_the_path_if_no_line_names_it(tmp_path: Path, path: str, broker: int | None) -> None:
    assert _file(tmp_path, OTHER * 5, path).broker == broker


def test_broker_is_taken_from_the_configuration_dump(tmp_path: Path) -> None:
    text = (
        OTHER + f"[{TS}] INFO KafkaConfig values:\n\tbroker.id = 5\n\tbroker.rack = null\n (kafka.server.KafkaConfig)\n"
    )

    assert _file(tmp_path, text, "kafka-4/server.log").broker == 5


@pytest.mark.parametrize(
    "line",
    [
        "[Kafka Server 1], started (kafka.server.KafkaServer)",
        "Partition [a-b-0,3] on broker 1: Shrinking ISR from 1,2 to 1 (kafka.cluster.Partition)",
    ],
)
def test_broker_is_taken_from_lines_before_1_0(tmp_path: Path, line: str) -> None:
    assert _file(tmp_path, OTHER + f"[{TS}] INFO {line}\n", "kafka-4/server.log").broker == 1


def test_file_of_several_brokers_has_no_broker(tmp_path: Path) -> None:
    assert _file(tmp_path, f"{STANDARD}\n" + STANDARD.replace("id=2", "id=3") + "\n").broker is None


def test_times_without_a_date_are_rejected(tmp_path: Path) -> None:
    report = _file(tmp_path, "15:50:12,985 INFO  [Controller id=1] Resigned (kafka.controller.KafkaController)\n" * 5)

    assert report.kind is Kind.NOT_UNDERSTOOD
    assert "no day" in report.error


@pytest.mark.parametrize("content", [b"\x1f\x8b", b"\x1f\x8b\x08\x00nonsense, and more of it"])
def test_invalid_gzip_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    report = _file(tmp_path, content)

    assert report.kind is Kind.UNREADABLE
    assert "gzip" in report.error


def test_missing_file_cannot_be_read(tmp_path: Path) -> None:
    report = probe(str(tmp_path / "nowhere.log"))

    assert report.kind is Kind.UNREADABLE
    assert report.error == "cannot be read: No such file or directory"


ELSEWHERE = f"22.09.2018 15.50 # {MESSAGE} # 15:50:12 # state.change.logger"


@pytest.mark.parametrize(
    "lines",
    [
        [ELSEWHERE],
        ['{"when": 1537631412985, "words": "[Controller id=3 epoch=12] Changed partition pay-0"}'],
        ["12:00:00 another program"] * 2000 + [ELSEWHERE],
        [f"{TS} INFO  o.e.Shop - order {number}" for number in range(3000)] + [ELSEWHERE],
    ],
    ids=["text", "json", "after others", "after a log"],
)
def test_lines_of_kafka_in_an_unknown_layout_are_not_foreign(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("\n".join(lines))

    found = probe(str(tmp_path / "app.log"))

    assert (found.kind, found.is_log) == (Kind.NOT_UNDERSTOOD, False)
    assert f"the first of them: {lines[-1]}" in found.error


def test_lines_of_kafka_are_found_late_in_utf_16(tmp_path: Path) -> None:
    others = ["12:00:00 another program"] * 20_000
    for name, line in (("known", STANDARD), ("unknown", ELSEWHERE)):
        (tmp_path / name).write_text("\n".join([*others, line, line]), encoding="utf-16")

    found = [probe(str(tmp_path / name)) for name in ("known", "unknown")]

    assert [(each.kind, each.encoding) for each in found] == [
        (Kind.STATE_CHANGE, "utf-16"),
        (Kind.NOT_UNDERSTOOD, "utf-16"),
    ]


@pytest.mark.parametrize("other", ["12:00:00 another program\n", "12:00:00 another Broker\n"])
def test_line_of_kafka_is_found_across_two_reads(other: str, tmp_path: Path) -> None:
    before = 2 * 256 * 1024 - 20
    others = (other * (before // len(other) + 1))[-before:]
    (tmp_path / "app.log").write_text(f"{others}{ELSEWHERE}\nend\n")

    assert f"the first of them: {ELSEWHERE}" in probe(str(tmp_path / "app.log")).error


def test_binary_file_with_a_line_of_kafka_is_foreign(tmp_path: Path) -> None:
    (tmp_path / "heap").write_bytes(b"\xff\x80\0" * 100 + f"\n{ELSEWHERE}\n".encode())

    assert probe(str(tmp_path / "heap")).kind is Kind.FOREIGN


def test_line_without_a_logger_is_of_kafka_by_its_writer(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text(f"{TS} INFO [GroupCoordinator 2]: Started\n{TS} INFO [Broker id=2] Stopped\n")

    found = probe(str(tmp_path / "app.log"), ("%d %p %m%n",))

    assert (found.kind, found.broker) == (Kind.SERVER, 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("log4j.logger.kafka.controller=TRACE\nlog4j.logger.state.change.logger=TRACE", "its first line: log4j."),
        (f"[{TS}] INFO Sent (org.apache.kafka.clients.NetworkClient)", "is a log of a client of Kafka"),
        (f"[{TS}] INFO Started (org.apache.kafka.connect.runtime.Worker)", "is a log of Kafka Connect"),
        (f"[{TS}] INFO Started (com.example.Shop)", "is a log, but none of Kafka's"),
    ],
    ids=["settings", "client", "connect", "other"],
)
def test_files_of_other_programs_are_foreign(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text(f"{text}\n")

    found = probe(str(tmp_path / "app.log"))

    assert found.kind is Kind.FOREIGN
    assert reason in found.error


@pytest.mark.parametrize(
    ("path", "broker"),
    [
        ("kafka_2.13-3.6.0/logs/server.log", None),
        ("kafka-3.6.0/server.log", None),
        ("server-2024-03-05.log", None),
        ("kafka-20240305.log", None),
        ("kafka-2/server.log", 2),
        ("kafka_3.log.1", 3),
        ("broker12/kafka_2.13-3.6.0/server.log", 12),
    ],
)
def test_versions_and_dates_in_paths_are_no_broker_ids(path: str, broker: int | None, tmp_path: Path) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"[{TS}] INFO Loaded (kafka.log.LogManager)\n")

    assert probe(str(file)).broker == broker
