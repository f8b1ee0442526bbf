"""Elections of leaders that were not in sync, and where those were who had been.

From 1.1 on no line of a controller with ZooKeeper says that an election was unclean. What shows it is that the new
leader was not in the ISR before, and now is alone in it: a clean election takes somebody who was in it. How sure that
is depends on whether every ISR in between is known, and the stored versions tell: each write raises the version by one,
and each write of a controller the leader epoch as well, so that between two states of a partition leaders wrote as many
ISRs as the version rose by more than the epoch. Where they wrote none, or where nobody led, nobody was let back in.
"""

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..events import Column
from .job import BOOL, IDS, INT, LONG, TEXT, TEXTS, TIME, Job
from .lines import NEW
from .unclean_lines import ASKED, SAID, WARNED, matched, said_clean
from .unclean_why import with_isr_down, with_out

if TYPE_CHECKING:
    from pyspark.sql import Column as Value
    from pyspark.sql import DataFrame, WindowSpec

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
KEY: Final = ("topic", "partition", "life")
NOT_IN_ISR: Final = "not-in-isr"
RECOVERING: Final = "recovering"
_ORDER: Final = (NOT_IN_ISR, RECOVERING, WARNED, SAID, ASKED)


def unclean(timed: "DataFrame", states: "DataFrame", leadership: "DataFrame", absences: "DataFrame") -> "DataFrame":
    """One row for each election that was, or may have been, unclean.

    Of `leadership` every epoch with a leader is an election; what was known before it comes from `states`, in the order
    of epochs, which no clock disturbs. `timed` has the lines that speak of unclean elections themselves.
    """
    from pyspark.sql import functions as f

    elections = _elections(states, leadership)
    lines = matched(timed, elections)
    judged = _judged(elections, lines, said_clean(timed))
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
    found = judged.unionByName(alone.where(~f.array_contains("evidence", ASKED)))
    explained = with_isr_down(with_out(found, states), absences)
    out_ms = f.floor((f.unix_micros("at") - f.unix_micros("out_at")) / 1000)
    return explained.withColumn("out_ms", f.greatest(out_ms, f.lit(0)).cast("long")).select(
        *(each.name for each in COLUMNS)
    )


# -- what was known before ---------------------------------------------------------------------------------------------


def _elections(states: "DataFrame", leadership: "DataFrame") -> "DataFrame":
    """Epochs with a leader, each with what the states before it say.

    Returns:
        the columns of leadership that matter, and:
        prior: the last state before of which the ISR is known.
        known_isr: the last ISR that somebody was in. last_told: who led last, -1 nobody. last_leader: the last who did.
        prior_recovery: the last known recovery state, and of which epoch.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

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

    def last(value: "Value", where: "Value") -> "Value":
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


def _in_order() -> "WindowSpec":
    """States of a partition in the order in which they came to be; an election stands before the state that it made."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    nameless = f.col("leader_epoch").isNull()
    return Window.partitionBy(*KEY).orderBy(
        "epoch",
        nameless,
        f.when(nameless, f.col("at")),
        "is_fact",
        f.col("partition_epoch").asc_nulls_first(),
        "at",
    )


# -- judging -----------------------------------------------------------------------------------------------------------


def _judged(elections: "DataFrame", lines: "DataFrame", clean: "DataFrame") -> "DataFrame":
    """Elections with their evidence; those with none, or with more against it, are left out."""
    from pyspark.sql import functions as f

    told = (
        lines.where("election_at is not null")
        .groupBy(*KEY, f.col("election_epoch").alias("leader_epoch"), f.col("election_at").alias("at"))
        .agg(
            f.collect_set("evidence").alias("told"),
            f.max("asked_by").alias("asked_by"),
            f.max("told_prev_isr").alias("told_prev_isr"),
            f.max("told_prev_leader").alias("told_prev_leader"),
        )
    )
    names = (*KEY, "leader_epoch", "at")
    joined = _left(_left(elections, told, names), clean.withColumn("is_clean", f.lit(True)), (*KEY, "leader_epoch"))
    evidence = f.concat(
        f.array_compact(f.array(f.when(_was_out(), NOT_IN_ISR), f.when(_began_to_recover(), RECOVERING))),
        f.coalesce("told", f.array().cast("array<string>")),
    )
    heard = f.coalesce("told", f.array().cast("array<string>"))
    strong = (
        f.array_contains(heard, WARNED)
        | f.array_contains(heard, SAID)
        | (_was_out() & _nothing_between() & ~_kraft_says_clean())
        | (_began_to_recover() & _was_recovered_just_before())
    )
    weak = (f.size(evidence) > 0) & _may_be_unclean() & ~_was_in_for_sure()
    # An election of a new partition's first leader is none of this.
    first = f.coalesce(f.col("how") == "initial", f.lit(False)) | f.coalesce(f.col("from_state") == NEW, f.lit(False))
    prev_isr = f.coalesce("known_isr", f.when(f.size("prev_isr") > 0, f.col("prev_isr")), f.col("told_prev_isr"))
    prev_leader = f.coalesce(
        "last_leader", f.when(f.col("prev_leader") >= 0, f.col("prev_leader")), f.col("told_prev_leader")
    )
    return (
        joined.where(f.col("is_clean").isNull() & ~first & (strong | weak))
        .withColumn("evidence", f.filter(f.array(*map(f.lit, _ORDER)), lambda name: f.array_contains(evidence, name)))
        .withColumn("certain", strong)
        .select(
            *KEY,
            "at",
            "leader_epoch",
            "leader",
            prev_leader.alias("prev_leader"),
            prev_isr.alias("prev_isr"),
            "evidence",
            "certain",
            "asked_by",
            "controller",
            "controller_epoch",
        )
    )


def _left(some: "DataFrame", others: "DataFrame", names: tuple[str, ...]) -> "DataFrame":
    """A left join in which null is a value like any other."""
    given = others.withColumnsRenamed({name: f"{name}_" for name in names})
    condition = [some[name].eqNullSafe(given[f"{name}_"]) for name in names]
    return some.join(given, condition, "left").drop(*(f"{name}_" for name in names))


def _sure(condition: "Value") -> "Value":
    """A condition of which null is no."""
    from pyspark.sql import functions as f

    return f.coalesce(condition, f.lit(False))


def _may_be_unclean() -> "Value":
    """Whether the state itself allows it: who is elected uncleanly is alone in the ISR, and from 3.2 on recovers."""
    from pyspark.sql import functions as f

    alone = f.col("isr").isNull() | ((f.size("isr") == 1) & f.array_contains("isr", f.col("leader")))
    return _sure(alone) & ~_sure(f.col("recovery") == "RECOVERED")


def _was_out() -> "Value":
    """Whether the leader was not in the last ISR that is known.

    An empty ISR says nothing: KRaft may then elect somebody of whom it knows that he has everything.
    """
    from pyspark.sql import functions as f

    out = (f.size("prior.isr") > 0) & ~f.array_contains("prior.isr", f.col("leader"))
    another = f.col("last_told").isNull() | (f.col("last_told") != f.col("leader"))
    alone = f.col("isr").isNull() | (f.size("isr") == 1)
    return _sure(out & another & alone)


def _nothing_between() -> "Value":
    """Whether nobody can have been let into the ISR between the last one that is known and the election."""
    from pyspark.sql import functions as f

    led_by_nobody = (f.col("prior.leader") == -1) & (f.col("prior.leader_epoch") == f.col("leader_epoch") - 1)
    written = f.col("partition_epoch") - f.col("prior.partition_epoch")
    by_controllers = f.col("leader_epoch") - f.col("prior.leader_epoch")
    return _sure(led_by_nobody) | _sure(written == by_controllers)


def _was_in_for_sure() -> "Value":
    from pyspark.sql import functions as f

    return _sure(f.array_contains("prior.isr", f.col("leader"))) & _nothing_between()


def _kraft_says_clean() -> "Value":
    """KRaft says of every leader whether it has to recover; with ZooKeeper that depends on a setting as well."""
    from pyspark.sql import functions as f

    return _sure(f.col("recovery") == "RECOVERED") & f.col("from_state").isNull()


def _began_to_recover() -> "Value":
    """A leader that recovers was elected uncleanly: now, unless it was recovering before."""
    from pyspark.sql import functions as f

    was = f.coalesce(f.col("prior_recovery.state") == "RECOVERING", f.lit(False))
    return _sure(f.col("recovery") == "RECOVERING") & ~was


def _was_recovered_just_before() -> "Value":
    from pyspark.sql import functions as f

    recent = f.col("prior_recovery.leader_epoch") >= f.col("leader_epoch") - 1
    return _sure((f.col("prior_recovery.state") == "RECOVERED") & recent)


JOB: Final = Job(
    name="unclean",
    says="Elections of leaders that were not in sync, and where those were who had been.",
    needs=("timed", "states", "leadership", "absences"),
    columns=COLUMNS,
    run=unclean,
)
