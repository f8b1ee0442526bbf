"""Table of events, shared by all sources: Kafka with ZooKeeper, KRaft, and kactl's own log.

Null means that the line does not contain the value. Brokers are given by id; leader -1 means no leader, -2 a partition
that is being deleted. An event represents one line and the lines joined to it, except `other`, which represents many.
"""

import functools
from typing import TYPE_CHECKING, Final

from .columns import columns, schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Incremented when a column or its meaning changes. Tables of another version are rejected.
SCHEMA_VERSION: Final = 1

COLUMNS: Final = columns(
    """
    # -- position in the logs ------------------------------------------------------------------------------------------
    file_id               id          the file, as numbered in the table of files
    offset                long        bytes from the beginning of the (unpacked) file to the line's first one
    lines                 int         lines of the file that it represents: 1 and those joined to it, or all of an
                                      `other`
    ts_logged             local_time  the time as logged, microseconds, in the writer's time zone
    ts                    time        the same in UTC, by the zone given to ingest; not corrected for skew
    level                 text        TRACE, DEBUG, INFO, WARN, ERROR or FATAL
    speaker               id          the broker that wrote the line: from its prefix, or else from the rest of the file
    role                  text        role of the writer: controller or broker (event_types.Role)
    format                text        the line's format: P2b, B4, ...; see text/formats
    type                  text        the type of the event (event_types.EventType)
    # -- subject of the event ------------------------------------------------------------------------------------------
    controller            id          the controller that acted, or that sent the request
    controller_epoch      id          its epoch
    topic                 text        the topic
    topic_id              text        the topic's id, as printed: 22 characters of base64
    partition             id          the partition's number
    broker                id          the broker concerned: of the replica, the receiver, or the one that is named
    broker_epoch          long        the epoch of its registration
    brokers               ids         the brokers concerned if there are several; all live ones in `brokers-changed`
    brokers_added         ids         brokers that started
    brokers_removed       ids         brokers that failed or stopped
    brokers_bounced       ids         brokers that failed and registered again in between
    from_state            text        the state before, by Kafka's name: OnlinePartition, OfflineReplica ...
    to_state              text        the state after; of a transition on a broker: leader or follower
    # -- leader and ISR ------------------------------------------------------------------------------------------------
    leader                id          the leader after the event; -1 none, -2 being deleted
    leader_epoch          id          the epoch of that leadership
    isr                   ids         the ISR after the event, in the order written
    replicas              ids         the assigned replicas, in the order written
    adding                ids         replicas that a reassignment adds
    removing              ids         replicas that a reassignment removes
    partition_epoch       id          version of the stored state: zkVersion, or partitionEpoch since 3.3
    recovery              text        RECOVERED or RECOVERING, since 3.2
    is_new                bool        whether the request marks the partition as new
    prev_leader           id          the leader before
    prev_leader_epoch     id          the leader epoch before
    prev_isr              ids         the ISR before
    prev_partition_epoch  id          the partition epoch before
    log_end               long        offset after the replica's last record when it takes its role (records, not bytes)
    high_watermark        long        offset below which records are committed, as known to this replica
    # -- cause and details ---------------------------------------------------------------------------------------------
    strategy              text        the election: offline, reassign, preferred, controlled-shutdown, unclean
    unclean               bool        whether the line itself marks the election as unclean or possibly unclean
    trigger               text        the trigger of an election, by Kafka's name: AutoTriggered, AdminClientTriggered
                                      ...
    request               text        LEADER_AND_ISR, UPDATE_METADATA or STOP_REPLICA
    delete                bool        whether a replica is stopped in order to be deleted
    correlation_id        id          joins a request at the broker with its response at the controller
    took_ms               ms          milliseconds, measured by the writer
    count                 int         number of partitions or replicas; of a LEADER_AND_ISR: new leaders
    count_also            int         of a LEADER_AND_ISR: new followers; of UPDATE_METADATA: partitions removed
    ratio                 real        share of partitions not led by their preferred leader, 0 to 1
    error                 text        Kafka's name of an error, or the class of an exception
    reason                text        the reason as logged; the first line of a stack trace if there is one
    text                  text        the message, if columns do not hold all of it; always for `unparsed`
    """
)
SCHEMA: Final = schema(COLUMNS)
# Appended to the columns above when written: the names of the partition folders.
PARTITIONED_BY: Final = ("kind", "day")


@functools.cache
def spark_schema() -> "StructType":
    """Return the schema as a Spark type."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(SCHEMA)
