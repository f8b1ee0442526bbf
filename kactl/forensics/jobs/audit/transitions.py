"""Audit rules about state transitions of partitions and replicas: each is legal, and starts from the state in which the
previous one ended.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType, Kind, Role
from kactl.forensics.jobs.deletions import INELIGIBLE, STARTED, SUCCESSFUL
from kactl.forensics.jobs.expressions import ABSENT, NEW, OFFLINE, ONLINE, is_a, is_true, rows_of

from .rules import about_partitions, describe, violation, with_steady_clocks

_REPLICA_NEW: Final = "NewReplica"
_REPLICA_ONLINE: Final = "OnlineReplica"
_REPLICA_OFFLINE: Final = "OfflineReplica"
_REPLICA_ABSENT: Final = "NonExistentReplica"
_LIVING: Final = (_REPLICA_NEW, _REPLICA_ONLINE, _REPLICA_OFFLINE, INELIGIBLE)

# Allowed source states of each state, the same in all versions but for `_SINCE_2_3`.
PARTITIONS: Final = {
    NEW: (ABSENT,),
    ONLINE: (NEW, ONLINE, OFFLINE),
    OFFLINE: (NEW, ONLINE, OFFLINE),
    ABSENT: (OFFLINE,),
}
REPLICAS: Final = {
    _REPLICA_NEW: (_REPLICA_ABSENT,),
    _REPLICA_ONLINE: _LIVING,
    _REPLICA_OFFLINE: _LIVING,
    STARTED: (_REPLICA_OFFLINE,),
    SUCCESSFUL: (STARTED,),
    INELIGIBLE: (STARTED, _REPLICA_OFFLINE),
    _REPLICA_ABSENT: (SUCCESSFUL,),
}
# Transitions that older versions do not allow.
_SINCE_2_3: Final = ((_REPLICA_OFFLINE, INELIGIBLE),)
_VERSION_2_3: Final = 203


def legal(timed: DataFrame, files: DataFrame) -> DataFrame:
    """Transitions that are not in the table of their version; of unknown versions, not in any table."""
    moves = _moves(timed).join(f.broadcast(_latest(files)), "file_id", "left")
    too_old = is_true(f.col("latest") < _VERSION_2_3)
    newer = f.lit(False)
    for before, after in _SINCE_2_3:
        newer = newer | ((f.col("from_state") == before) & (f.col("to_state") == after))
    partition, replica = is_a(EventType.PARTITION), is_a(EventType.REPLICA)
    illegal = (partition & _is_none_of(PARTITIONS)) | (replica & (_is_none_of(REPLICAS) | (newer & too_old)))
    once = moves.where(illegal).groupBy(
        *KEY, "type", "broker", "at", "speaker", "controller", "controller_epoch", "from_state", "to_state"
    )
    rows = once.agg(f.min(f.struct("file_id", "offset", "latest")).alias("place")).select("*", "place.*")
    rows = rows.withColumn("broker", f.coalesce("broker", "speaker"))
    return violation(
        rows,
        f.when(partition, "partition-move").otherwise("replica-move"),
        expected=f.when(newer, describe("%s from %s, before 2.3", "to_state", f.lit(STARTED))).otherwise(
            describe("%s from %s", "to_state", _allowed({**PARTITIONS, **REPLICAS}))
        ),
        found=describe("%s from %s", "to_state", "from_state"),
    )


def _moves(timed: DataFrame) -> DataFrame:
    moves = about_partitions(timed, EventType.PARTITION, EventType.REPLICA)
    return moves.where("from_state is not null and to_state is not null")


def _is_none_of(table: dict[str, tuple[str, ...]]) -> Value:
    """True if both states are known and the table has no transition between them."""
    before, after = f.col("from_state"), f.col("to_state")
    allowed = f.coalesce(*(f.when(after == name, before.isin(*befores)) for name, befores in table.items()))
    return is_true(before.isin(*table) & ~allowed)


def _allowed(table: dict[str, tuple[str, ...]]) -> Value:
    return f.coalesce(
        *(f.when(f.col("to_state") == name, f.lit(" or ".join(befores))) for name, befores in table.items())
    )


def _latest(files: DataFrame) -> DataFrame:
    """file_id, latest: the last version that can have written the file, as 203 for 2.3; null if any may have.

    Other logs of the same broker and time count too, because the same program writes them.
    """
    last = f.regexp_extract("version", r"^(?:\d+\.\d+-)?(\d+)\.(\d+)$", 1)
    minor = f.regexp_extract("version", r"^(?:\d+\.\d+-)?(\d+)\.(\d+)$", 2)
    latest = last.try_cast("int") * 100 + minor.try_cast("int")
    periods = files.select("file_id", "broker", "begin", "end", latest.alias("own"))
    others = periods.where("own is not null").select(
        f.col("broker").alias("by"),
        f.col("begin").alias("since"),
        f.col("end").alias("until"),
        f.col("own").alias("its"),
    )
    together = (f.col("broker") == f.col("by")) & (f.col("since") <= f.col("end")) & (f.col("until") >= f.col("begin"))
    return (
        periods.join(others, together, "left")
        .groupBy("file_id")
        .agg(f.least(f.min("own"), f.min("its")).alias("latest"))
    )


# -- chains ------------------------------------------------------------------------------------------------------------


def chains(timed: DataFrame) -> DataFrame:
    """Transitions that do not start from the state in which the previous one ended.

    Only where no line can be missing in between: by one controller, within an hour in which it logged at TRACE both
    before the first and after the second. A transition from the non-existent state is always accepted.
    """
    moves = with_steady_clocks(_moves(timed).where("controller_epoch is not null"), timed)
    chain = (*KEY, "type", "broker", "speaker", "controller", "controller_epoch", "kind")
    # The same line may be in two files; the same transition may occur twice within a millisecond in one file.
    nth = rows_of(*chain, "at", "from_state", "to_state", "file_id").in_order("offset")
    once = (
        moves.repartition(*KEY)
        .withColumn("nth", nth.number())
        .groupBy(*chain, "at", "from_state", "to_state", "nth")
        .agg(f.min(f.struct("file_id", "offset")).alias("place"))
    )
    in_order = rows_of(*chain).in_order("at", "place")
    before = in_order.previous(f.struct("to_state", "at"))
    broken = (
        once.withColumn("before", before)
        .where("before.to_state <> from_state")
        .where(~f.col("from_state").isin(ABSENT, _REPLICA_ABSENT))
        .withColumn("hour", f.date_trunc("hour", "at"))
    )
    spans = _at_trace(timed).withColumnsRenamed({"speaker": "tracer", "hour": "of_hour"})
    is_traced = (f.col("tracer") == f.col("speaker")) & (f.col("of_hour") == f.col("hour"))
    whole = (f.col("before.at") >= f.col("first_at")) & (f.col("at") <= f.col("last_at"))
    rows = (
        broken.join(f.broadcast(spans), is_traced, "left")
        .where((f.col("kind") == Kind.KACTL) | is_true(whole))
        .withColumn("broker", f.coalesce("broker", "speaker"))
        .select("*", "place.*")
    )
    return violation(
        rows,
        f.when(is_a(EventType.PARTITION), "partition-chain").otherwise("replica-chain"),
        expected=describe("from %s", "before.to_state"),
        found=describe("from %s to %s", "from_state", "to_state"),
    )


def _at_trace(timed: DataFrame) -> DataFrame:
    """speaker, hour, first_at, last_at: when controllers logged partitions and replicas at TRACE, by hour."""
    traced = about_partitions(timed, EventType.PARTITION, EventType.REPLICA, EventType.SENT_PARTITION)
    return (
        traced.where((f.col("level") == "TRACE") & (f.col("role") == Role.CONTROLLER) & f.col("speaker").isNotNull())
        .groupBy("speaker", f.date_trunc("hour", "at").alias("hour"))
        .agg(f.min("at").alias("first_at"), f.max("at").alias("last_at"))
    )
