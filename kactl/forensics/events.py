"""Table of events, shared by all sources: Kafka with ZooKeeper, KRaft, and kactl's own log.

Null means that the line does not contain the value. Brokers are given by id; leader -1 means no leader, -2 a partition
that is being deleted. An event represents one line and the lines joined to it, except `other`, which represents many.
"""

import functools
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Incremented when a column or its meaning changes. Tables of another version are rejected.
SCHEMA_VERSION: Final = 1


class Column(NamedTuple):
    """A column: name, type, and description with the unit."""

    name: str
    type: pa.DataType
    description: str


_INT: Final = pa.int32()
_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_IDS: Final = pa.list_(pa.field("element", pa.int32()))

COLUMNS: Final = (
    # -- position in the logs ------------------------------------------------------------------------------------------
    Column("file_id", _INT, "the file, as numbered in the table of files"),
    Column("offset", _LONG, "bytes from the beginning of the (unpacked) file to the line's first one"),
    Column("lines", _INT, "lines of the file that it represents: 1 and those joined to it, or all of an `other`"),
    Column("ts_logged", pa.timestamp("us"), "the time as logged, microseconds, in the writer's time zone"),
    Column("ts", pa.timestamp("us", "UTC"), "the same in UTC, by the zone given to ingest; not corrected for skew"),
    Column("level", _TEXT, "TRACE, DEBUG, INFO, WARN, ERROR or FATAL"),
    Column("speaker", _INT, "the broker that wrote the line: from its prefix, or else from the rest of the file"),
    Column("role", _TEXT, "role of the writer: controller or broker (event_types.Role)"),
    Column("format", _TEXT, "the line's format: P2b, B4, ...; see text/formats"),
    Column("type", _TEXT, "the type of the event (event_types.EventType)"),
    # -- subject of the event ------------------------------------------------------------------------------------------
    Column("controller", _INT, "the controller that acted, or that sent the request"),
    Column("controller_epoch", _INT, "its epoch"),
    Column("topic", _TEXT, "the topic"),
    Column("topic_id", _TEXT, "the topic's id, as printed: 22 characters of base64"),
    Column("partition", _INT, "the partition's number"),
    Column("broker", _INT, "the broker concerned: of the replica, the receiver, or the one that is named"),
    Column("broker_epoch", _LONG, "the epoch of its registration"),
    Column("brokers", _IDS, "the brokers concerned if there are several; all live ones in `brokers-changed`"),
    Column("brokers_added", _IDS, "brokers that started"),
    Column("brokers_removed", _IDS, "brokers that failed or stopped"),
    Column("brokers_bounced", _IDS, "brokers that failed and registered again in between"),
    Column("from_state", _TEXT, "the state before, by Kafka's name: OnlinePartition, OfflineReplica ..."),
    Column("to_state", _TEXT, "the state after; of a transition on a broker: leader or follower"),
    # -- leader and ISR ------------------------------------------------------------------------------------------------
    Column("leader", _INT, "the leader after the event; -1 none, -2 being deleted"),
    Column("leader_epoch", _INT, "the epoch of that leadership"),
    Column("isr", _IDS, "the ISR after the event, in the order written"),
    Column("replicas", _IDS, "the assigned replicas, in the order written"),
    Column("adding", _IDS, "replicas that a reassignment adds"),
    Column("removing", _IDS, "replicas that a reassignment removes"),
    Column("partition_epoch", _INT, "version of the stored state: zkVersion, or partitionEpoch since 3.3"),
    Column("recovery", _TEXT, "RECOVERED or RECOVERING, since 3.2"),
    Column("is_new", pa.bool_(), "whether the request marks the partition as new"),
    Column("prev_leader", _INT, "the leader before"),
    Column("prev_leader_epoch", _INT, "the leader epoch before"),
    Column("prev_isr", _IDS, "the ISR before"),
    Column("prev_partition_epoch", _INT, "the partition epoch before"),
    Column("log_end", _LONG, "offset after the replica's last record when it takes its role (records, not bytes)"),
    Column("high_watermark", _LONG, "offset below which records are committed, as known to this replica"),
    # -- cause and details ---------------------------------------------------------------------------------------------
    Column("strategy", _TEXT, "the election: offline, reassign, preferred, controlled-shutdown, unclean"),
    Column("unclean", pa.bool_(), "whether the line itself marks the election as unclean or possibly unclean"),
    Column("trigger", _TEXT, "the trigger of an election, by Kafka's name: AutoTriggered, AdminClientTriggered ..."),
    Column("request", _TEXT, "LEADER_AND_ISR, UPDATE_METADATA or STOP_REPLICA"),
    Column("delete", pa.bool_(), "whether a replica is stopped in order to be deleted"),
    Column("correlation_id", _INT, "joins a request at the broker with its response at the controller"),
    Column("took_ms", _LONG, "milliseconds, measured by the writer"),
    Column("count", _INT, "number of partitions or replicas; of a LEADER_AND_ISR: new leaders"),
    Column("count_also", _INT, "of a LEADER_AND_ISR: new followers; of UPDATE_METADATA: partitions removed"),
    Column("ratio", pa.float64(), "share of partitions not led by their preferred leader, 0 to 1"),
    Column("error", _TEXT, "Kafka's name of an error, or the class of an exception"),
    Column("reason", _TEXT, "the reason as logged; the first line of a stack trace if there is one"),
    Column("text", _TEXT, "the message, if columns do not hold all of it; always for `unparsed`"),
)
SCHEMA: Final = pa.schema([pa.field(column.name, column.type) for column in COLUMNS])
# Appended to the columns above when written: the names of the partition folders.
PARTITIONED_BY: Final = ("kind", "day")


@functools.cache
def spark_schema() -> "StructType":
    """Return the schema as a Spark type."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(SCHEMA)
