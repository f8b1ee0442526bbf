"""Session timeouts from configuration dumps, and silences of brokers."""

from typing import Any

import pytest

from kactl.forensics.event_types import EventType, Kind
from kactl.forensics.text import settings, source

from .reading import events_of

# As printed by brokers: the first line of the dump has no logger, and its last line has only the logger.
DUMP = """\
[2024-05-01 10:00:00,000] INFO Cluster ID = abc (kafka.server.KafkaServer)
[2024-05-01 10:00:00,100] INFO KafkaConfig values:\x20
\tadvertised.listeners = PLAINTEXT://:9092
\tbroker.heartbeat.interval.ms = 2000
\tbroker.id = 3
\tbroker.session.timeout.ms = 9000
\tgroup.consumer.session.timeout.ms = 45000
\tlog.retention.ms = null
\tnode.id = 3
\tzookeeper.session.timeout.ms = 18000
 (kafka.server.KafkaConfig)
[2024-05-01 10:00:00,200] INFO [KafkaServer id=3] started (kafka.server.KafkaServer)
"""


def configured(text: str, **options: Any) -> list[dict[str, Any]]:
    return [row for row in events_of(text, kind=Kind.SERVER, **options) if row["type"] == EventType.CONFIGURED]


def test_settings_are_read_from_a_configuration_dump() -> None:
    (row,) = configured(DUMP)

    assert (row["speaker"], row["lines"]) == (3, 0)
    assert settings.value(row["text"], settings.ZOOKEEPER_SESSION) == 18_000
    assert settings.value(row["text"], settings.KRAFT_SESSION) == 9_000
    assert settings.value(row["text"], settings.HEARTBEAT_INTERVAL) == 2_000
    assert "group" not in row["text"]


@pytest.mark.parametrize("chunk", [source.CHUNK, 60])
@pytest.mark.parametrize(
    "begin", ["", "[2024-05-01 10:00:00,050] INFO [KafkaServer id=3] starting (kafka.server.KafkaServer)\n"]
)
def test_writer_is_unknown_once_another_broker_writes(monkeypatch: pytest.MonkeyPatch, chunk: int, begin: str) -> None:
    monkeypatch.setattr(source, "CHUNK", chunk)
    line = "[2024-05-01 10:00:{},000] INFO Awaiting socket connections (kafka.network.Acceptor)\n"
    negotiated = (
        "[2024-05-01 10:00:{},000] INFO Session establishment complete on server zk-1/10.0.0.9:2181, "
        "sessionid = 0x1000aa, negotiated timeout = 18000 (org.apache.zookeeper.ClientCnxn)\n"
    )
    text = negotiated.format("00") + line.format("09") + begin + DUMP.replace("00:00,", "00:10,") + line.format("19")

    rows = events_of(text + negotiated.format("20"), kind=Kind.SERVER, broker=2)

    assert [row["speaker"] for row in rows if row["type"] == EventType.SESSION_NEGOTIATED] == [2, None]
    assert [row["ts"].second for row in rows if row["type"] == EventType.SILENT] == [9]


def test_settings_are_read_behind_a_container_prefix() -> None:
    text = "".join(f"kafka-3  | {line}\n" for line in DUMP.splitlines())

    (row,) = configured(text, layout="container/standard")

    assert settings.value(row["text"], settings.ZOOKEEPER_SESSION) == 18_000


def test_every_line_of_a_dump_is_counted_once() -> None:
    rows = events_of(DUMP, kind=Kind.SERVER, broker=3)

    assert sum(row["lines"] for row in rows) == len(DUMP.splitlines())


@pytest.mark.parametrize("start", range(0, len(DUMP), 37))
def test_dump_is_read_once_at_any_split(start: int) -> None:
    first = configured(DUMP, end=start) if start else []

    assert len(first + configured(DUMP, start=start)) == 1


def test_two_dumps_in_one_record_are_bounded() -> None:
    (row,) = configured(DUMP.replace("\tbroker.id = 3\n", "\tbroker.id = 3\n" * 100))

    assert row["text"].count("broker.id") <= settings.COUNT_LIMIT


def test_line_after_a_silence_has_its_duration() -> None:
    text = (
        "[2024-05-01 10:00:00,000] INFO Loaded 3 logs (kafka.log.LogManager)\n"
        "[2024-05-01 10:00:02,000] INFO Loaded 4 logs (kafka.log.LogManager)\n"
        "[2024-05-01 10:00:14,500] INFO Loaded 5 logs (kafka.log.LogManager)\n"
    )

    rows = [row for row in events_of(text, kind=Kind.SERVER, broker=3) if row["type"] == EventType.SILENT]

    assert [(row["ts"].second, row["took_ms"], row["speaker"], row["lines"]) for row in rows] == [(14, 12_500, 3, 0)]


@pytest.mark.parametrize(("kind", "broker"), [(Kind.CONTROLLER, 3), (Kind.SERVER, None)])
def test_silence_is_measured_in_a_brokers_own_log_only(kind: Kind, broker: int | None) -> None:
    text = (
        "[2024-05-01 10:00:00,000] INFO Loaded 3 logs (kafka.log.LogManager)\n"
        "[2024-05-01 10:01:00,000] INFO Loaded 5 logs (kafka.log.LogManager)\n"
    )

    assert EventType.SILENT not in {row["type"] for row in events_of(text, kind=kind, broker=broker)}
