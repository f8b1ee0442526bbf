"""Audit rules about ISRs, epochs and fencing.

* ISRs: the leader is a member, and every member is assigned.
* Epochs of partitions rise, and each has one leader.
* Fencing: a broker obeys no older request and no older controller after a newer one. The arrival of an old request is
  no violation, and brokers log that they reject it; only requests that a broker processed count.

Every rule returns its violations with `violation`. Rules that depend on the order of lines compare only lines of steady
clocks.
"""

from typing import Final

from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY
from kactl.forensics.event_types import EventType, Kind, Role
from kactl.forensics.jobs.expressions import LEADER_AND_ISR, NEW, OFFLINE, ONLINE, is_a, is_true, null, rows_of, stacked

# At the end of a reassignment the removed replicas leave the ISR one after the other. A state that lasts this long is
# no step of that.
STRAY_US: Final = 300_000_000
# Lines further apart than this may concern another topic of the same name whose creation is in no log. Two concurrent
# controllers write theirs within a session timeout.
TOGETHER_US: Final = 600_000_000
# Lines that a controller writes about itself, with its epoch.
_CONTROLLERS_OWN: Final = (
    EventType.CONTROLLER_ELECTED,
    EventType.CONTROLLER_EPOCH,
    EventType.CONTROLLER_READY,
    EventType.PARTITION,
    EventType.SENT,
    EventType.SENT_PARTITION,
)
# Lines about one partition of a request, and all lines with a leader.
_REQUESTS: Final = (EventType.SENT_PARTITION, EventType.RECEIVED_PARTITION, EventType.METADATA_PARTITION)
_LEADERSHIPS: Final = (
    EventType.PARTITION,
    EventType.ISR_CUT,
    EventType.LEADERSHIP,
    *_REQUESTS,
    EventType.LEADS,
)
# A role that a broker took.
_ROLE: Final = (*KEY, "speaker", "way", "at", "leader_epoch", "log_end", "is_new", "controller", "controller_epoch")
# Position and origin of a violation.
_PLACE: Final = ("broker", "at", "controller", "controller_epoch", "file_id", "offset")


def violation(rows: DataFrame, rule: str | Value, *, expected: Value, found: Value) -> DataFrame:
    """Returns rows with the columns of the audit table; columns that `rows` does not have are null."""
    types = {"topic": "string", "offset": "long", "file_id": "int", "at": "timestamp"}

    def given(name: str) -> Value:
        value = f.col(name) if name in rows.columns else f.lit(None)
        return value.cast(types.get(name, "int")).alias(name)

    return rows.select(
        (f.lit(rule) if isinstance(rule, str) else rule).alias("rule"),
        *map(given, KEY),
        *map(given, _PLACE),
        expected.cast("string").alias("expected"),
        found.cast("string").alias("found"),
    )


def describe(form: str, *values: str | Value) -> Value:
    """Returns a text with `%s` replaced by each value, or by a question mark for null."""
    columns = [f.col(value) if isinstance(value, str) else value for value in values]
    return f.format_string(form, *(f.coalesce(column.cast("string"), f.lit("?")) for column in columns))


def ids(name: str) -> Value:
    """Returns a list of brokers as Kafka writes it: 1,2,3."""
    return f.array_join(f.transform(name, lambda broker: broker.cast("string")), ",")


def about_partitions(timed: DataFrame, *types: EventType) -> DataFrame:
    """Lines of these types with a known partition and time."""
    named = "topic is not null and partition is not null and at is not null"
    return timed.where(is_a(*types)).where(named)


def first_lines(lines: DataFrame, *key: str) -> DataFrame:
    """Return the first line of each key: the key, the columns of `_PLACE`, and `last_at`, the time of the last one."""
    first = f.min(f.struct("at", "file_id", "offset", "speaker", "controller", "controller_epoch"))
    grouped = lines.groupBy(*key).agg(first.alias("told"), f.max("at").alias("last_at"))
    return grouped.select(*key, "last_at", "told.*", f.col("told.speaker").alias("broker"))


def with_steady_clocks(lines: DataFrame, timed: DataFrame) -> DataFrame:
    """Drop the lines of brokers whose clock was set back in these logs: their times do not show an order."""
    back = timed.where(is_a(EventType.CLOCK_BACK)).where("speaker is not null").select("speaker").distinct()
    return lines.join(f.broadcast(back), "speaker", "left_anti")


# -- ISRs --------------------------------------------------------------------------------------------------------------


def in_sync(timed: DataFrame) -> DataFrame:
    """States with a leader outside the ISR, each once, however many lines contain it."""
    lines = about_partitions(timed, *_LEADERSHIPS, EventType.PARTITION_CREATED, EventType.ISR_UPDATED)
    is_outside = f.col("isr").isNotNull() & ~f.array_contains("isr", f.col("leader"))
    led = lines.withColumn("leader", _leader()).where((f.col("leader") >= 0) & is_outside)
    return violation(
        first_lines(led, *KEY, "leader", "leader_epoch", "isr"),
        "leader-in-isr",
        expected=describe("leader %s in the ISR of leader epoch %s", "leader", "leader_epoch"),
        found=describe("ISR [%s]", ids("isr")),
    )


def assigned(timed: DataFrame) -> DataFrame:
    """States with ISR members that are not assigned, and that lasted."""
    lines = about_partitions(timed, *_REQUESTS).where("leader >= -1 and size(replicas) > 0")
    strays = lines.withColumn("strays", f.array_except("isr", "replicas")).where(f.size("strays") > 0)
    states = first_lines(strays, *KEY, "leader_epoch", "partition_epoch", "isr", "replicas", "strays")
    lasted_us = f.unix_micros("last_at") - f.unix_micros("at")
    rows = states.where(lasted_us > STRAY_US).withColumn("broker", f.get("strays", f.lit(0)))
    return violation(
        rows,
        "isr-assigned",
        expected=describe("ISR within [%s]", ids("replicas")),
        found=describe("ISR [%s]", ids("isr")),
    )


# -- epochs ------------------------------------------------------------------------------------------------------------


def epochs_rise(timed: DataFrame) -> DataFrame:
    """Compare the leader and partition epochs of each controller line with those of the line before.

    Both lines are of one controller, or of consecutive controllers whose takeover is in the logs: otherwise a topic may
    have been deleted and created again in between, starting from 0. A first leader is not compared for the same reason.
    """
    lines = with_steady_clocks(_decided(timed), timed)
    in_order = rows_of(*KEY).in_order("controller_epoch", "at", "leader_epoch", "partition_epoch")
    before = in_order.previous(f.struct("leader_epoch", "partition_epoch", "controller_epoch", "at"))
    compared = (
        lines.withColumn("before", before)
        .where(f.col("before").isNotNull() & ~is_true(f.col("from_state") == NEW))
        .join(f.broadcast(_taken_over(timed)), "controller_epoch", "left")
        .where(
            (f.col("before.controller_epoch") == f.col("controller_epoch"))
            | ((f.col("before.controller_epoch") == f.col("controller_epoch") - 1) & f.col("is_whole"))
        )
    )
    rose = f.col("leader_epoch") - f.col("before.leader_epoch")
    # A repeated epoch is no election; one out of OfflinePartition is.
    stayed = (rose == 0) & is_true(f.col("from_state") == OFFLINE)
    version = f.col("partition_epoch") - f.col("before.partition_epoch")
    leader = violation(
        compared.where((rose < 0) | stayed),
        "leader-epoch",
        expected=describe("above %s", "before.leader_epoch"),
        found=f.col("leader_epoch"),
    )
    partition = violation(
        compared.where(((rose > 0) & (version <= 0)) | ((rose == 0) & (version < 0))),
        "partition-epoch",
        expected=describe("above %s, with leader epoch %s", "before.partition_epoch", "leader_epoch"),
        found=f.col("partition_epoch"),
    )
    return leader.unionByName(partition)


def _decided(timed: DataFrame) -> DataFrame:
    """Leaders that controllers elected and ISRs that they shrank, each once."""
    lines = about_partitions(timed, EventType.PARTITION, EventType.ISR_CUT).where(
        "leader_epoch is not null and controller_epoch is not null"
    )
    changes = lines.where(is_a(EventType.ISR_CUT) | (f.col("to_state") == ONLINE))
    names = ("type", "speaker", "controller", "controller_epoch", "at", "leader_epoch", "partition_epoch", "from_state")
    once = changes.groupBy(*KEY, *names).agg(f.min(f.struct("file_id", "offset")).alias("place"))
    return once.select(*KEY, *names, "place.*", f.col("speaker").alias("broker"))


def _taken_over(timed: DataFrame) -> DataFrame:
    """controller_epoch, is_whole: epochs that begin in the logs."""
    begun = timed.where(
        is_a(EventType.CONTROLLER_ELECTED, EventType.CONTROLLER_EPOCH) & f.col("controller_epoch").isNotNull()
    )
    return begun.select("controller_epoch").distinct().withColumn("is_whole", f.lit(True))


def one_leader(timed: DataFrame) -> DataFrame:
    """Leader epochs of a partition with two leaders."""
    lines = about_partitions(timed, *_LEADERSHIPS, EventType.FOLLOWS).withColumn("leader", _leader())
    # A partition begins in epoch 0, and may begin again without a line of it.
    first = first_lines(lines.where("leader >= 0 and leader_epoch > 0"), *KEY, "leader_epoch", "leader")
    in_order = rows_of(*KEY, "leader_epoch").in_order(
        "at", "file_id", "offset", "speaker", "controller", "controller_epoch", "leader"
    )
    apart_us = f.unix_micros("at") - f.unix_micros("before.at")
    with_before = first.withColumn("before", in_order.previous(f.struct("leader", "at")))
    rows = with_before.where(f.col("before").isNotNull() & (apart_us <= TOGETHER_US))
    return violation(
        rows,
        "one-leader",
        expected=describe("leader %s with leader epoch %s", "before.leader", "leader_epoch"),
        found=describe("leader %s", "leader"),
    )


def _leader() -> Value:
    return f.when(is_a(EventType.LEADS), f.col("speaker")).otherwise(f.col("leader"))


# -- fencing -----------------------------------------------------------------------------------------------------------


def requests_in_order(timed: DataFrame) -> DataFrame:
    """Roles that a broker took in an older epoch than one of its earlier roles.

    Epoch 0 and roles with a shorter log than before are excluded: they may belong to another topic of the same name
    whose creation is in no log.
    """
    roles = with_steady_clocks(stacked(_roles(timed), _transitions(timed)), timed)
    once = roles.groupBy(*_ROLE).agg(f.min(f.struct("file_id", "offset")).alias("place"))
    in_order = rows_of(*KEY, "speaker", "way").in_order("at", "leader_epoch")
    before = in_order.previous(f.struct("leader_epoch", "log_end"))
    longer = f.col("log_end").isNull() | ((f.col("log_end") > 0) & (f.col("log_end") >= f.col("before.log_end")))
    went_back = (f.col("leader_epoch") < f.col("before.leader_epoch")) & (f.col("leader_epoch") > 0)
    # One violation may be visible in both.
    rows = (
        once.withColumn("before", before)
        .where(went_back & longer & ~is_true(f.col("is_new")))
        .groupBy(*KEY, "speaker", "leader_epoch", f.col("before.leader_epoch").alias("had"))
        .agg(f.min(f.struct("at", "place", "controller", "controller_epoch")).alias("told"))
        .select("*", "told.*", "told.place.*", f.col("speaker").alias("broker"))
    )
    return violation(
        rows,
        "request-order",
        expected=describe("leader epoch %s or above", "had"),
        found=describe("leader epoch %s", "leader_epoch"),
    )


def _roles(timed: DataFrame) -> DataFrame:
    """Roles in broker lines from 2.6 on."""
    lines = about_partitions(timed, EventType.LEADS, EventType.FOLLOWS)
    known = lines.where("speaker is not null and leader_epoch is not null and log_end is not null")
    return known.withColumns({"way": f.lit("role"), "is_new": f.lit(False)}).select(*_ROLE, "file_id", "offset")


def _transitions(timed: DataFrame) -> DataFrame:
    """Transitions that brokers began, at TRACE, with the epoch of the request that caused each.

    Correlation ids restart with each connection, so it is the last such request before the transition.
    """
    lines = about_partitions(timed, EventType.RECEIVED_PARTITION, EventType.TRANSITION_BEGUN)
    begun = is_a(EventType.TRANSITION_BEGUN)
    in_order = rows_of(*KEY, "speaker", "controller", "controller_epoch", "correlation_id").in_order(
        "at", begun, "offset"
    )
    request_epoch = f.when(
        is_a(EventType.RECEIVED_PARTITION) & f.col("leader_epoch").isNotNull(), f.struct("leader_epoch", "is_new")
    )
    return (
        lines.where(f.col("request") == LEADER_AND_ISR)
        .where("speaker is not null and correlation_id is not null")
        .withColumn("asked", in_order.latest_before(request_epoch))
        .where(begun & f.col("asked").isNotNull())
        .withColumns({"way": f.lit("transition"), "log_end": null("long")})
        .withColumns({"leader_epoch": f.col("asked.leader_epoch"), "is_new": f.col("asked.is_new")})
        .select(*_ROLE, "file_id", "offset")
    )


def controllers_at_brokers(timed: DataFrame) -> DataFrame:
    """Controllers that a broker obeyed after it had obeyed a later one."""
    obeyed = timed.where(
        is_a(EventType.METADATA, EventType.METADATA_PARTITION, EventType.TRANSITION_BEGUN)
        & (f.col("role") == Role.BROKER)
    ).where("speaker is not null and controller_epoch is not null and at is not null")
    place = f.struct("at", "file_id", "offset", "controller")
    epochs = (
        with_steady_clocks(obeyed, timed)
        .groupBy("speaker", "controller_epoch")
        .agg(f.min("at").alias("first_at"), f.max(place).alias("last"))
    )
    latest_first = rows_of("speaker").in_order(f.desc("controller_epoch"))
    next_first = latest_first.running_before(f.min(f.struct(f.col("first_at").alias("at"), "controller_epoch")))
    rows = (
        epochs.withColumn("next", next_first)
        .where("last.at > next.at")
        .select("controller_epoch", "next", "last.*", f.col("speaker").alias("broker"))
    )
    return violation(
        rows,
        "controller-epoch",
        expected=describe("controller epoch %s or above", "next.controller_epoch"),
        found=describe("controller epoch %s", "controller_epoch"),
    )


def one_controller(timed: DataFrame) -> DataFrame:
    """Controllers that were active with the epoch of another one."""
    own = timed.where(is_a(*_CONTROLLERS_OWN) & (f.col("role") == Role.CONTROLLER)).where(
        "controller is not null and controller_epoch is not null and at is not null"
    )
    # ZooKeeper and KRaft count epochs separately; a cluster may have migrated from one to the other.
    source = (
        f.when(f.col("kind") == Kind.KACTL, "kactl")
        .when(f.col("format").startswith("K"), "kraft")
        .otherwise("zookeeper")
    )
    first = own.groupBy(source.alias("of"), "controller_epoch", "controller").agg(
        f.min(f.struct("at", "file_id", "offset", "speaker")).alias("told")
    )
    in_order = rows_of("of", "controller_epoch").in_order("told", "controller")
    rows = (
        first.withColumn("before", in_order.previous("controller"))
        .where("before is not null")
        .select("controller_epoch", "controller", "before", "told.*", f.col("told.speaker").alias("broker"))
    )
    return violation(
        rows,
        "one-controller",
        expected=describe("controller %s with epoch %s", "before", "controller_epoch"),
        found=describe("controller %s", "controller"),
    )
