"""Lines of KRaft's metadata log, as printed by Kafka's dump tool, and their events."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kactl.forensics.events import COLUMNS
from tests.forensics.test_json_logs import events_of

from .tables import moment, table

# The topic of all these records, and the id of the file that contains them.
TOPIC: Final = "kraft"
TOPIC_ID: Final = "AbC-dEf_GhIjKlMnOpQrSt"
_FILE: Final = 50


def record(at: float, kind: str, **data: Any) -> str:
    """Returns the line of one record of any type."""
    payload = json.dumps({"type": f"{kind}_RECORD", "version": 0, "data": data})
    ms = round(moment(at).timestamp() * 1000)
    around = f"| offset: 7 CreateTime: {ms} keySize: -1 valueSize: {len(payload)} sequence: -1 headerKeys: []"
    return f"{around} payload: {payload}\n"


def topic(at: float) -> str:
    return record(at, "TOPIC", name=TOPIC, topicId=TOPIC_ID)


def partition(at: float, number: int, replicas: Sequence[int]) -> str:
    """Returns the record that creates a partition. The first replica leads."""
    given = {"partitionId": number, "topicId": TOPIC_ID, "leader": replicas[0], "leaderEpoch": 0, "partitionEpoch": 0}
    return record(at, "PARTITION", **given, replicas=replicas, isr=replicas, leaderRecoveryState=0)


def change(at: float, number: int, **data: Any) -> str:
    return record(at, "PARTITION_CHANGE", partitionId=number, topicId=TOPIC_ID, **data)


def broker(at: float, number: int, **changed: int) -> str:
    """Returns a change of a broker's registration. `fenced` is 1 or -1, `inControlledShutdown` is 1."""
    return record(at, "BROKER_REGISTRATION_CHANGE", brokerId=number, brokerEpoch=9, **changed)


def events(spark: SparkSession, lines: Iterable[str]) -> DataFrame:
    """Returns the events of a dump, with the topic names that ingest resolves from topic ids."""
    names = {TOPIC_ID: TOPIC}
    read = [
        row | {"file_id": _FILE, "topic": row["topic"] or names.get(row["topic_id"])}
        for row in events_of("".join(lines), "dump")
    ]
    columns = [each.name for each in COLUMNS]
    made = table(spark, COLUMNS, [{name: row[name] for name in columns} for row in read])
    return made.withColumns({"kind": f.lit("dump"), "day": f.to_date("ts")})
