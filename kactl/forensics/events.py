"""The one table of events, whatever they were read from: Kafka with ZooKeeper, KRaft, or kactl's own log.

Null means that the line does not say. Brokers are named by their ids; leader -1 is nobody, -2 a partition that is
being deleted. An event stands for one line and what was joined to it, except `other`, which stands for many.
"""

import functools
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Rises whenever a column or its meaning changes; what another version has written is refused, not guessed at.
SCHEMA_VERSION: Final = 1


class Column(NamedTuple):
    """A column: its name, its type, and what it says, with the unit."""

    name: str
    type: pa.DataType
    description: str


_INT: Final = pa.int32()
_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_IDS: Final = pa.list_(pa.field("element", pa.int32()))

COLUMNS: Final = (
    # -- where it stands -----------------------------------------------------------------------------------------------
    Column("file_id", _INT, "the file, as numbered in the table of files"),
    Column("offset", _LONG, "bytes from the beginning of the (unpacked) file to the line's first one"),
    Column("lines", _INT, "how many lines of the file it stands for: 1 and those joined to it, or all of an `other`"),
    Column("ts_logged", pa.timestamp("us"), "the time as logged, microseconds, in whatever zone the writer had"),
    Column("ts", pa.timestamp("us", "UTC"), "the same in UTC, by the zone that ingest was given; not freed from skew"),
    Column("level", _TEXT, "TRACE, DEBUG, INFO, WARN, ERROR or FATAL"),
    Column("speaker", _INT, "the broker that wrote the line: by its prefix, or else by the rest of the file"),
    Column("role", _TEXT, "as what it spoke: controller or broker (event_types.Role)"),
    Column("format", _TEXT, "the line's format: P2b, B4, ...; see text/formats"),
    Column("type", _TEXT, "what happened (event_types.EventType)"),
    # -- what it is about ----------------------------------------------------------------------------------------------
    Column("controller", _INT, "the controller that acted, or whose request it was"),
    Column("controller_epoch", _INT, "its epoch"),
    Column("topic", _TEXT, "the topic"),
    Column("topic_id", _TEXT, "the topic's id, as printed: 22 characters of base64"),
    Column("partition", _INT, "the partition's number"),
    Column("broker", _INT, "the broker concerned: of the replica, or the one that is spoken to or of"),
    Column("broker_epoch", _LONG, "the epoch of its registration"),
    Column("brokers", _IDS, "the brokers concerned where there are many; all live ones in `brokers-changed`"),
    Column("brokers_added", _IDS, "brokers that came"),
    Column("brokers_removed", _IDS, "brokers that went"),
    Column("brokers_bounced", _IDS, "brokers that went and came back meanwhile"),
    Column("from_state", _TEXT, "the state before, in Kafka's words: OnlinePartition, OfflineReplica ..."),
    Column("to_state", _TEXT, "the state after; of a transition on a broker: leader or follower"),
    # -- who leads, and who is in sync ---------------------------------------------------------------------------------
    Column("leader", _INT, "who leads after it; -1 nobody, -2 being deleted"),
    Column("leader_epoch", _INT, "the epoch of that leadership"),
    Column("isr", _IDS, "who is in sync after it, in the order written"),
    Column("replicas", _IDS, "who is assigned, in the order written"),
    Column("adding", _IDS, "replicas that a reassignment adds"),
    Column("removing", _IDS, "replicas that a reassignment takes away"),
    Column("partition_epoch", _INT, "version of the stored state: zkVersion, or partitionEpoch from 3.3 on"),
    Column("recovery", _TEXT, "RECOVERED or RECOVERING, from 3.2 on"),
    Column("is_new", pa.bool_(), "whether the request says that the partition is new"),
    Column("prev_leader", _INT, "who led before"),
    Column("prev_leader_epoch", _INT, "the leader epoch before"),
    Column("prev_isr", _IDS, "who was in sync before"),
    Column("prev_partition_epoch", _INT, "the partition epoch before"),
    Column("log_end", _LONG, "offset behind the replica's last record, as it takes its role (records, not bytes)"),
    Column("high_watermark", _LONG, "offset below which records are committed, as this replica knows it"),
    # -- how and why ---------------------------------------------------------------------------------------------------
    Column("strategy", _TEXT, "how a leader was sought: offline, reassign, preferred, controlled-shutdown, unclean"),
    Column("unclean", pa.bool_(), "whether the line itself says that the election was, or might be, unclean"),
    Column("trigger", _TEXT, "who asked for an election, in Kafka's words: AutoTriggered, AdminClientTriggered ..."),
    Column("request", _TEXT, "LEADER_AND_ISR, UPDATE_METADATA or STOP_REPLICA"),
    Column("delete", pa.bool_(), "whether a replica is stopped to be deleted"),
    Column("correlation_id", _INT, "joins a request at the broker with its answer at the controller"),
    Column("took_ms", _LONG, "milliseconds, measured by the writer"),
    Column("count", _INT, "how many partitions or replicas; of a LEADER_AND_ISR: those to lead"),
    Column("count_also", _INT, "of a LEADER_AND_ISR: those to follow; of UPDATE_METADATA: those removed"),
    Column("ratio", pa.float64(), "share of preferred leaders that are elsewhere, 0 to 1"),
    Column("error", _TEXT, "Kafka's name of an error, or the class of an exception"),
    Column("reason", _TEXT, "why, in the writer's words; the first line of a stack trace where there is one"),
    Column("text", _TEXT, "the message, where columns do not hold all of it; always for `unparsed`"),
)
SCHEMA: Final = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])
# Behind the columns above when written: what the folders are called by.
PARTITIONED_BY: Final = ("kind", "day")


@functools.cache
def spark_schema() -> "StructType":
    """The same for Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(SCHEMA)
