"""Table of events, shared by all sources: Kafka with ZooKeeper, KRaft, and kactl's own log.

Null means that the line does not contain the value. Brokers are given by id; leader -1 means no leader, -2 a partition
that is being deleted. An event represents one line and the lines joined to it, except `other`, which represents many.
"""

import functools
from typing import TYPE_CHECKING, Final

from .columns import BOOL, ID, IDS, INT, LOCAL_TIME, LONG, MS, REAL, TEXT, TIME, Column, schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Incremented when a column or its meaning changes. Tables of another version are rejected.
SCHEMA_VERSION: Final = 1

COLUMNS: Final = (
    # -- position in the logs ------------------------------------------------------------------------------------------
    Column("file_id", ID, "the file, as numbered in the table of files"),
    Column("offset", LONG, "bytes from the beginning of the (unpacked) file to the line's first one"),
    Column("lines", INT, "lines of the file that it represents: 1 and those joined to it, or all of an `other`"),
    Column("ts_logged", LOCAL_TIME, "the time as logged, microseconds, in the writer's time zone"),
    Column("ts", TIME, "the same in UTC, by the zone given to ingest; not corrected for skew"),
    Column("level", TEXT, "TRACE, DEBUG, INFO, WARN, ERROR or FATAL"),
    Column("speaker", ID, "the broker that wrote the line: from its prefix, or else from the rest of the file"),
    Column("role", TEXT, "role of the writer: controller or broker (event_types.Role)"),
    Column("format", TEXT, "the line's format: P2b, B4, ...; see text/formats"),
    Column("type", TEXT, "the type of the event (event_types.EventType)"),
    # -- subject of the event ------------------------------------------------------------------------------------------
    Column("controller", ID, "the controller that acted, or that sent the request"),
    Column("controller_epoch", ID, "its epoch"),
    Column("topic", TEXT, "the topic"),
    Column("topic_id", TEXT, "the topic's id, as printed: 22 characters of base64"),
    Column("partition", ID, "the partition's number"),
    Column("broker", ID, "the broker concerned: of the replica, the receiver, or the one that is named"),
    Column("broker_epoch", LONG, "the epoch of its registration"),
    Column("brokers", IDS, "the brokers concerned if there are several; all live ones in `brokers-changed`"),
    Column("brokers_added", IDS, "brokers that started"),
    Column("brokers_removed", IDS, "brokers that failed or stopped"),
    Column("brokers_bounced", IDS, "brokers that failed and registered again in between"),
    Column("from_state", TEXT, "the state before, by Kafka's name: OnlinePartition, OfflineReplica ..."),
    Column("to_state", TEXT, "the state after; of a transition on a broker: leader or follower"),
    # -- leader and ISR ------------------------------------------------------------------------------------------------
    Column("leader", ID, "the leader after the event; -1 none, -2 being deleted"),
    Column("leader_epoch", ID, "the epoch of that leadership"),
    Column("isr", IDS, "the ISR after the event, in the order written"),
    Column("replicas", IDS, "the assigned replicas, in the order written"),
    Column("adding", IDS, "replicas that a reassignment adds"),
    Column("removing", IDS, "replicas that a reassignment removes"),
    Column("partition_epoch", ID, "version of the stored state: zkVersion, or partitionEpoch since 3.3"),
    Column("recovery", TEXT, "RECOVERED or RECOVERING, since 3.2"),
    Column("is_new", BOOL, "whether the request marks the partition as new"),
    Column("prev_leader", ID, "the leader before"),
    Column("prev_leader_epoch", ID, "the leader epoch before"),
    Column("prev_isr", IDS, "the ISR before"),
    Column("prev_partition_epoch", ID, "the partition epoch before"),
    Column("log_end", LONG, "offset after the replica's last record when it takes its role (records, not bytes)"),
    Column("high_watermark", LONG, "offset below which records are committed, as known to this replica"),
    # -- cause and details ---------------------------------------------------------------------------------------------
    Column("strategy", TEXT, "the election: offline, reassign, preferred, controlled-shutdown, unclean"),
    Column("unclean", BOOL, "whether the line itself marks the election as unclean or possibly unclean"),
    Column("trigger", TEXT, "the trigger of an election, by Kafka's name: AutoTriggered, AdminClientTriggered ..."),
    Column("request", TEXT, "LEADER_AND_ISR, UPDATE_METADATA or STOP_REPLICA"),
    Column("delete", BOOL, "whether a replica is stopped in order to be deleted"),
    Column("correlation_id", ID, "joins a request at the broker with its response at the controller"),
    Column("took_ms", MS, "milliseconds, measured by the writer"),
    Column("count", INT, "number of partitions or replicas; of a LEADER_AND_ISR: new leaders"),
    Column("count_also", INT, "of a LEADER_AND_ISR: new followers; of UPDATE_METADATA: partitions removed"),
    Column("ratio", REAL, "share of partitions not led by their preferred leader, 0 to 1"),
    Column("error", TEXT, "Kafka's name of an error, or the class of an exception"),
    Column("reason", TEXT, "the reason as logged; the first line of a stack trace if there is one"),
    Column("text", TEXT, "the message, if columns do not hold all of it; always for `unparsed`"),
)
SCHEMA: Final = schema(COLUMNS)
# Appended to the columns above when written: the names of the partition folders.
PARTITIONED_BY: Final = ("kind", "day")


@functools.cache
def spark_schema() -> "StructType":
    """Return the schema as a Spark type."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(SCHEMA)
