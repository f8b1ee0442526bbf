"""Job `unclean`: elections of leaders that were not in sync, and the state of the in-sync replicas then.

    epochs with a leader, and the state before each ─┬─▶ evidence ─▶ elections ─▶ absent ISR members, and since when
    lines that state unclean elections ──────────────┘

From 1.1 on no line of a controller with ZooKeeper states it; `evidence` derives it from the states.
"""

from typing import Final

import pyarrow as pa
from pyspark.sql import Column as Value
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kactl.forensics.columns import KEY, KEY_COLUMNS, Type, Unit, columns, names_of, schema
from kactl.forensics.jobs.expressions import Order, is_true, null, rows_of, stacked
from kactl.forensics.jobs.job import Job
from kactl.forensics.tables import kept_if_small

from .evidence import ASKED, judged, matched, said_clean

_DOWN: Final = columns(
    """
    broker   id    the member
    away     bool  whether it was absent
    down_at  time  since when
    down_ms  ms    for how long
    """
)
_DOWN_LIST: Final = Type(pa.list_(pa.field("element", pa.struct(schema(_DOWN)))), Unit.LIST)
COLUMNS: Final = KEY_COLUMNS + columns(
    """
    at                time   [when] when it was decided
    leader_epoch      id     the epoch of the new leader; null if no line states it
    leader            id     [new leader] the new leader
    prev_leader       id     the previous leader
    prev_isr          ids    [last in sync] the last ISR before it that was not empty
    evidence          texts  reasons to count the election as unclean: not-in-isr, recovering, warned (a log line of
                             kind C7), said (KRaft's log states it), asked (an UNCLEAN election was requested)
    certain           bool   false if the only evidence is a request, or an ISR of which later changes may be missing
    asked_by          text   origin of the request, as Kafka logs it; null if a topic's setting allowed it
    controller        id     the controller
    controller_epoch
    out_at            time   when the new leader left the ISR; null if before the logs
    out_ms            ms     [out of sync for] for how long
    isr_down          downs  [state of those] members of the last ISR: whether each was absent, since when (null: before
                             the logs), and for how long
    """,
    downs=_DOWN_LIST,
)


def unclean(timed: DataFrame, states: DataFrame, leadership: DataFrame, absences: DataFrame) -> DataFrame:
    """Return one row for each election that was, or may have been, unclean.

    Args:
        timed: lines that state unclean elections.
        states: the states before each election, in the order of epochs, which is independent of clocks.
        leadership: every epoch with a leader is an election.
        absences: absences of the members of the last ISR.
    """
    elections = kept_if_small(_elections(states, leadership))
    lines = kept_if_small(matched(timed, elections))
    assessed = judged(elections, lines, said_clean(timed))
    alone = lines.where("election_at is null").select(
        *KEY,
        "at",
        "leader",
        f.array("evidence").alias("evidence"),
        f.lit(True).alias("certain"),
        "controller",
        "controller_epoch",
    )
    # A line of an election that is otherwise unknown is the only evidence, unless it only requests one.
    elections_found = kept_if_small(stacked(assessed, alone.where(~f.array_contains("evidence", ASKED))))
    explained = _with_isr_down(_with_out_at(elections_found, states), absences)
    out_ms = f.floor((f.unix_micros("at") - f.unix_micros("out_at")) / 1000)
    return explained.withColumn("out_ms", f.greatest(out_ms, f.lit(0)).cast("long")).select(*names_of(COLUMNS))


# -- states before elections-------------------------------------------------------------------------------------------


def _elections(states: DataFrame, leadership: DataFrame) -> DataFrame:
    """Epochs with a leader, with the states before each.

    Returns:
        the columns of `leadership` that matter, and:
        prior: the last earlier state with a known ISR.
        known_isr: the last ISR that was not empty. last_told: the leader of the last state, -1 none. last_leader: the
            last leader other than none.
        prior_recovery: the last known recovery state, and its epoch.
    """
    common = (*KEY, "leader_epoch", "partition_epoch", "leader", "isr", "recovery")
    facts = states.where("leader is null or leader <> -2").select(*common, "at", f.lit(True).alias("is_fact"))
    epochs = leadership.where("leader >= 0").select(
        *common,
        f.col("begin").alias("at"),
        f.lit(False).alias("is_fact"),
        "begin_error_us",
        "how",
        "from_state",
        "prev_leader",
        "prev_isr",
        "controller",
        "controller_epoch",
    )
    both = epochs.unionByName(facts, allowMissingColumns=True)
    # Up to 1.0 there may be no line with an epoch: such rows are ordered by time.
    by_time = rows_of(*KEY).in_order("at")
    epoch = f.coalesce("leader_epoch", by_time.latest("leader_epoch", with_equals=True), f.lit(-1))

    def last(value: Value, where: Value) -> Value:
        return _in_order().latest_before(f.when(f.col("is_fact") & where, value))

    recovery = f.struct("leader_epoch", f.col("recovery").alias("state"))
    return (
        both.withColumn("epoch", epoch)
        .withColumns(
            {
                "prior": last(f.struct("leader_epoch", "partition_epoch", "leader", "isr"), f.col("isr").isNotNull()),
                "known_isr": last(f.col("isr"), f.size("isr") > 0),
                "last_told": last(f.col("leader"), f.col("leader").isNotNull()),
                "last_leader": last(f.col("leader"), f.col("leader") >= 0),
                "prior_recovery": last(recovery, f.col("recovery").isNotNull()),
            }
        )
        .where("not is_fact")
        .drop("is_fact", "epoch")
    )


def _in_order() -> Order:
    """Sort key of the states of a partition; an election comes before the state that it made."""
    nameless = f.col("leader_epoch").isNull()
    return rows_of(*KEY).in_order(
        "epoch",
        nameless,
        f.when(nameless, f.col("at")),
        "is_fact",
        f.col("partition_epoch").asc_nulls_first(),
        "at",
    )


# -- state of the last ISR --------------------------------------------------------------------------------------------


def _with_out_at(elections: DataFrame, states: DataFrame) -> DataFrame:
    """Add `out_at`: when each new leader left the ISR."""
    known = states.where("isr is not null and leader_epoch is not null").select(
        *KEY, f.struct("leader_epoch", f.coalesce("partition_epoch", f.lit(-1)), "at", "isr").alias("state")
    )
    leaders = elections.select(*KEY, "leader_epoch", "leader").where("leader_epoch is not null").distinct()
    was_in = f.array_contains("state.isr", f.col("leader")).alias("was_in")
    before = leaders.join(known, [*KEY], "inner").where("state.leader_epoch < leader_epoch")
    history = before.groupBy(*KEY, "leader_epoch", "leader").agg(
        f.sort_array(f.collect_list(f.struct("state", was_in))).alias("history")
    )
    since = f.aggregate(
        "history",
        null("timestamp"),
        lambda out_at, each: f.when(~each["was_in"], f.coalesce(out_at, each["state"]["at"])),
    )
    was_once_in = f.exists("history", lambda each: each["was_in"])
    times = history.select(*KEY, "leader_epoch", "leader", f.when(was_once_in, since).alias("out_at"))
    return elections.join(times, [*KEY, "leader_epoch", "leader"], "left")


def _with_isr_down(elections: DataFrame, absences: DataFrame) -> DataFrame:
    """Add `isr_down`: absences of the members of the last ISR."""
    away = absences.select(
        f.col("broker").alias("member"), "detected_at", "back_at", "last_sign_at", f.lit(True).alias("away")
    )
    members = elections.select(f.struct("*").alias("one"), f.posexplode_outer("prev_isr").alias("place", "member"))
    is_during = (f.col("detected_at").isNull() | (f.col("detected_at") <= f.col("one.at"))) & (
        f.col("back_at").isNull() | (f.col("back_at") > f.col("one.at"))
    )
    joined = members.join(f.broadcast(away), (members["member"] == away["member"]) & is_during, "left").drop(
        away["member"]
    )
    latest = f.max_by(f.col("detected_at"), f.coalesce(f.unix_micros("detected_at"), f.lit(0)))
    placed = joined.groupBy("one", "place", "member").agg(is_true(f.max("away")).alias("away"), latest.alias("down_at"))
    down_ms = f.floor((f.unix_micros("one.at") - f.unix_micros("down_at")) / 1000).cast("long")
    down = f.struct("place", f.col("member").alias("broker"), "away", "down_at", down_ms.alias("down_ms"))
    gathered = placed.groupBy("one").agg(
        f.sort_array(f.collect_list(f.when(f.col("member").isNotNull(), down))).alias("down")
    )
    listed = f.transform("down", lambda member: member.dropFields("place"))
    return gathered.select("one.*", f.when(f.col("one.prev_isr").isNotNull(), listed).alias("isr_down"))


JOB: Final = Job(
    "unclean",
    "Elections of leaders that were not in sync, and the state of the in-sync replicas then.",
    COLUMNS,
    unclean,
)
