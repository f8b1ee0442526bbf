"""Job `outages`: times at which a partition had no leader that clients could use.

                 the leader's last sign        the controller's lines                     the new leader's lines
    ────────led──────────┤·············├──────┬──────────────┬──────────────┬─────────────┬──────────led─────────▶
                       begin       detected  begun        elected        received        led = end
                         └──detection──┴─queue┴───election───┴─────send─────┴────apply────┘
                                              └───waiting────┘ instead, while no replica could be elected

`intervals` splits the life of a partition at its elections, `causes` selects the intervals that contain an outage, and
`times` computes begin, end, their bounds and the parts. `totals` aggregates outages.

An outage is reported only where a line proves it: a line of the partition that it was offline or that an election
failed, an election out of OfflinePartition, or a leader that was absent when the next one took over. The following
prove nothing: ISR changes, epochs that rise under the same leader, repeated requests, logs that are given twice, and
the lines of a topic that is being deleted, whose partitions go offline on the way.
"""

from typing import Final

from pyspark.sql import DataFrame

from kactl.forensics.columns import BOOL, CONTROLLER_EPOCH, ID, INT, KEY_COLUMNS, MS, TEXT, TIME, Column, names_of
from kactl.forensics.jobs.job import Job

from .causes import causes
from .intervals import intervals
from .times import times

COLUMNS: Final = (
    *KEY_COLUMNS,
    Column("begin", TIME, "begin of the unavailability: best estimate; the latest possible time if little is known"),
    Column("begin_low", TIME, "earliest possible begin; null if it may precede the logs"),
    Column("begin_high", TIME, "latest possible begin"),
    Column(
        "begin_kind",
        TEXT,
        "observed (a line states that the leader stepped down, or that there never was a leader), inferred (from other "
        "lines: failed brokers, sessions, followers without a response) or bounded (only the lines before and after it "
        "are known)",
    ),
    Column("end", TIME, "when a leader was usable again: best estimate; null if not within the logs"),
    Column("end_low", TIME, "earliest possible end; the end of the logs if it is open"),
    Column("end_high", TIME, "latest possible end; null if it is open, or if no line shows the new leader active"),
    Column("end_kind", TEXT, "observed, inferred, bounded, or open"),
    Column("duration_ms", MS, "`end` - `begin`, or to the end of the controllers' logs if it is open"),
    Column("duration_min_ms", MS, "shortest possible duration: `end_low` - `begin_high`, at least 0"),
    Column("duration_max_ms", MS, "longest possible duration: `end_high` - `begin_low`; null if either is null"),
    Column(
        "planned",
        BOOL,
        "true if a live leader was moved on request (preferred election, reassignment, controlled shutdown); false if "
        "the leader was lost; null if a live leader was moved and no line gives the reason",
    ),
    Column(
        "cause",
        TEXT,
        "broker-failure, controlled-shutdown, preferred, reassign, replica-failure (a directory), no-live-replica (an "
        "election failed because no in-sync replica was alive), controller-change (the controller was lost with it) "
        "or unknown",
    ),
    Column(
        "broker", ID, "the leader that was lost; null if there was none before, or it is unknown", title="leader lost"
    ),
    Column("new_leader", ID, "the leader afterwards; null if there was none", title="leader then"),
    Column("leader_epoch", ID, "the leader epoch that ended it"),
    Column("unclean", BOOL, "whether the leader that ended it was not in sync; null if unknown"),
    Column("controller", ID, "the controller that ended it, or tried last"),
    CONTROLLER_EPOCH,
    Column("attempts_failed", INT, "elections that failed during the outage (P4)"),
    Column("reason", TEXT, "why the last of them failed, as the controller logged it"),
    Column("last_sign_at", TIME, "the lost leader's own last line"),
    Column("detected_at", TIME, "when the controller detected the cause"),
    Column("begun_at", TIME, "when the controller began to process it"),
    Column("elected_at", TIME, "when the controller had elected a leader and stored it"),
    Column("received_at", TIME, "when the new leader's broker began to process the request"),
    Column("led_at", TIME, "when the new leader took its role"),
    Column("detection_ms", MS, "from `begin` until detected; this and the next five are parts of the duration"),
    Column("queue_ms", MS, "from detected until begun"),
    Column("waiting_ms", MS, "from begun until elected, where no replica could be elected at first; null elsewhere"),
    Column("election_ms", MS, "from begun until elected and stored, where a replica could be elected at once"),
    Column("send_ms", MS, "from elected until received by the new leader"),
    Column("apply_ms", MS, "from received until led"),
)


def outages(timed: DataFrame, leadership: DataFrame, absences: DataFrame) -> DataFrame:
    """Find the outages of all partitions, including the short ones of planned leader changes.

    Args:
        timed: lines about partitions between elections (offline, failed election, leader active or stepped down) and
            about controllers that took over, failed directories and deleted topics.
        leadership: elections, and when each elected leader took its role.
        absences: absent leaders, when each absence was detected, and the last sign of the broker.

    Returns:
        One row for each outage, with the columns of `COLUMNS`.
    """
    caused = causes(intervals(timed, leadership, absences), timed, absences)
    return times(caused, timed).select(*names_of(COLUMNS))


JOB: Final = Job(
    name="outages",
    description="Times at which a partition had no usable leader, the cause, and the parts of each time.",
    needs=("timed", "leadership", "absences"),
    columns=COLUMNS,
    run=outages,
)
