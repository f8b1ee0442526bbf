"""Elections of leaders that were not in sync, and where those were who had been.

    epochs with a leader, and what was known before each ─┬─▶ evidence ─▶ elections ─▶ who was away, and since when
    lines that speak of unclean elections ────────────────┘

From 1.1 on no line of a controller with ZooKeeper says it; see `unclean_evidence` for what shows it then.
"""

from typing import Final

import pyarrow as pa
from pyspark.sql import Column as Value
from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as f

from ..events import Column
from .job import BOOL, IDS, INT, LONG, TEXT, TEXTS, TIME, Job
from .moves import KEY
from .unclean_evidence import judged
from .unclean_lines import ASKED, matched, said_clean
from .unclean_why import with_isr_down, with_out

_DOWN: Final = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [pa.field("broker", INT), pa.field("away", BOOL), pa.field("down_at", TIME), pa.field("down_ms", LONG)]
        ),
    )
)
COLUMNS: Final = (
    Column("topic", TEXT, "the topic"),
    Column("partition", INT, "the partition's number"),
    Column("life", INT, "which topic of this name; see `timed`"),
    Column("at", TIME, "when it was decided"),
    Column("leader_epoch", INT, "the epoch of the new leader; null if no line says it"),
    Column("leader", INT, "the new leader"),
    Column("prev_leader", INT, "who led last"),
    Column("prev_isr", IDS, "the last ISR before it that somebody was in"),
    Column(
        "evidence",
        TEXTS,
        "not-in-isr, recovering, warned (C7), said (KRaft) or asked (an election of kind UNCLEAN)",
    ),
    Column(
        "certain",
        BOOL,
        "false if all that speaks for it is what was asked, or an ISR of which later changes may be missing",
    ),
    Column("asked_by", TEXT, "who asked for it, in Kafka's words; null if it was the controller, by a topic's setting"),
    Column("controller", INT, "the controller"),
    Column("controller_epoch", INT, "its epoch"),
    Column("out_at", TIME, "since when the new leader had been out of the ISR; null if from before the logs"),
    Column("out_ms", LONG, "for how long"),
    Column(
        "isr_down",
        _DOWN,
        "each of the last ISR: whether it was away, since when (null: from before the logs), and for how long",
    ),
)


def unclean(timed: DataFrame, states: DataFrame, leadership: DataFrame, absences: DataFrame) -> DataFrame:
    """One row for each election that was, or may have been, unclean.

    Of `leadership` every epoch with a leader is an election; what was known before it comes from `states`, in the order
    of epochs, which no clock disturbs. `timed` has the lines that speak of unclean elections themselves.
    """
    elections = _elections(states, leadership)
    lines = matched(timed, elections)
    told = judged(elections, lines, said_clean(timed))
    alone = lines.where("election_at is null").select(
        *KEY,
        "at",
        f.lit(None).cast("int").alias("leader_epoch"),
        "leader",
        f.lit(None).cast("int").alias("prev_leader"),
        f.lit(None).cast("array<int>").alias("prev_isr"),
        f.array("evidence").alias("evidence"),
        f.lit(True).alias("certain"),
        f.lit(None).cast("string").alias("asked_by"),
        "controller",
        "controller_epoch",
    )
    # A line of an election of which nothing else is known is all of its evidence, unless it only asks for one.
    found = told.unionByName(alone.where(~f.array_contains("evidence", ASKED)))
    explained = with_isr_down(with_out(found, states), absences)
    out_ms = f.floor((f.unix_micros("at") - f.unix_micros("out_at")) / 1000)
    return explained.withColumn("out_ms", f.greatest(out_ms, f.lit(0)).cast("long")).select(
        *(each.name for each in COLUMNS)
    )


# -- what was known before ---------------------------------------------------------------------------------------------


def _elections(states: DataFrame, leadership: DataFrame) -> DataFrame:
    """Epochs with a leader, each with what the states before it say.

    Returns:
        the columns of leadership that matter, and:
        prior: the last state before of which the ISR is known.
        known_isr: the last ISR that somebody was in. last_told: who led last, -1 nobody. last_leader: the last who did.
        prior_recovery: the last known recovery state, and of which epoch.
    """
    common = (*KEY, "leader_epoch", "partition_epoch", "leader", "isr", "recovery")
    facts = states.where("leader is null or leader <> -2").select(*common, "at", f.lit(True).alias("is_fact"))
    asked = leadership.where("leader >= 0").select(
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
    both = asked.unionByName(facts, allowMissingColumns=True)
    # Up to 1.0 there may be no line that has an epoch: such rows stand where their time puts them.
    by_time = Window.partitionBy(*KEY).orderBy("at").rangeBetween(Window.unboundedPreceding, Window.currentRow)
    epoch = f.coalesce("leader_epoch", f.last("leader_epoch", ignorenulls=True).over(by_time), f.lit(-1))
    before = _in_order().rowsBetween(Window.unboundedPreceding, -1)

    def last(value: Value, where: Value) -> Value:
        return f.last(f.when(f.col("is_fact") & where, value), ignorenulls=True).over(before)

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


def _in_order() -> WindowSpec:
    """States of a partition in the order in which they came to be; an election stands before the state that it made."""
    nameless = f.col("leader_epoch").isNull()
    return Window.partitionBy(*KEY).orderBy(
        "epoch",
        nameless,
        f.when(nameless, f.col("at")),
        "is_fact",
        f.col("partition_epoch").asc_nulls_first(),
        "at",
    )


JOB: Final = Job(
    name="unclean",
    says="Elections of leaders that were not in sync, and where those were who had been.",
    needs=("timed", "states", "leadership", "absences"),
    columns=COLUMNS,
    run=unclean,
)
