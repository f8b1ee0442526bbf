"""When partitions had no leader that clients could use, why, and whose each part of that time was.

                 the leader's last sign        the controller's lines                     the new leader's lines
    ────────led──────────┤·············├──────┬──────────────┬──────────────┬─────────────┬──────────led─────────▶
                       begin       detected  begun        elected        received        led = end
                         └──detection──┴─queue┴───election───┴─────send─────┴────apply────┘
                                              └───waiting────┘ instead, as long as nobody could be elected

What is an outage is decided in `dark.py`, from one election of a partition to the next; when it began and ended, how
sure that is, and whose each part was, in `outage_times.py`; sums over outages are in `outage_sums.py`.

An outage is reported only where lines prove one: a line of the partition that it was offline or that nobody could be
elected, an election out of OfflinePartition, or a leader that was gone when the next one took over. ISRs that change,
epochs that rise under the same leader, requests that are sent again and logs that are given twice make none; nor do the
lines of a topic that is being deleted, whose partitions go offline on their way.
"""

from typing import TYPE_CHECKING, Final

from ..events import Column
from .job import BOOL, INT, LONG, TEXT, TIME, Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: Final = (
    Column("topic", TEXT, "the topic"),
    Column("partition", INT, "the partition's number"),
    Column("life", INT, "which topic of this name; see `timed`"),
    Column("begin", TIME, "when it became unavailable: the best guess, the later end where little is known"),
    Column("begin_low", TIME, "it was not before this; null if it may be from before the logs"),
    Column("begin_high", TIME, "it was not after this"),
    Column(
        "begin_kind",
        TEXT,
        "observed (a line says that it stepped down, or that there never was a leader), inferred (from other lines: of "
        "brokers that left, of sessions, of followers without an answer) or bounded (only the lines before and after "
        "it are known)",
    ),
    Column("end", TIME, "when a leader could be used again: the best guess; null if not within the logs"),
    Column("end_low", TIME, "it was not before this; where the logs end if it is open"),
    Column("end_high", TIME, "it was not after this; null if it is open, or if no line shows the new leader at work"),
    Column("end_kind", TEXT, "observed, inferred, bounded, or open"),
    Column("duration_ms", LONG, "`end` - `begin`, or to the end of the controllers' logs if it is open"),
    Column("duration_min_ms", LONG, "it took no less: `end_low` - `begin_high`, not below 0"),
    Column("duration_max_ms", LONG, "it took no more: `end_high` - `begin_low`; null if one of them is"),
    Column(
        "planned",
        BOOL,
        "true if a live leader was moved because somebody wanted it: preferred election, reassignment, controlled "
        "shutdown; false if the leader was lost; null if a live leader was moved and no line says why",
    ),
    Column(
        "cause",
        TEXT,
        "broker-failure, controlled-shutdown, preferred, reassign, replica-failure (a directory), no-live-replica (an "
        "election failed as nobody in sync lived), controller-change (the controller was lost with it) or unknown",
    ),
    Column("broker", INT, "the leader that was lost; null if there was none before, or it is unknown"),
    Column("new_leader", INT, "who led afterwards; null if nobody did"),
    Column("leader_epoch", INT, "the leader epoch that ended it"),
    Column("unclean", BOOL, "whether the leader that ended it was not in sync; null if that cannot be told"),
    Column("controller", INT, "the controller that ended it, or tried last"),
    Column("controller_epoch", INT, "its epoch"),
    Column("attempts_failed", INT, "elections that failed meanwhile (P4)"),
    Column("reason", TEXT, "why the last of them failed, in the controller's words"),
    Column("last_sign_at", TIME, "the lost leader's own last line"),
    Column("detected_at", TIME, "when the controller took note of the cause"),
    Column("begun_at", TIME, "when it began with what followed from it"),
    Column("elected_at", TIME, "when it had elected a leader and stored it: the controller's own end of it"),
    Column("received_at", TIME, "when the new leader's broker began with the request"),
    Column("led_at", TIME, "when the new leader took its role"),
    Column("detection_ms", LONG, "from `begin` until detected; this and the next five are parts of the duration"),
    Column("queue_ms", LONG, "from detected until begun"),
    Column("waiting_ms", LONG, "from begun until elected, where nobody could be elected at first; null elsewhere"),
    Column("election_ms", LONG, "from begun until elected and stored, where somebody could be elected at once"),
    Column("send_ms", LONG, "from elected until received by the new leader"),
    Column("apply_ms", LONG, "from received until led"),
)


def outages(timed: "DataFrame", leadership: "DataFrame", absences: "DataFrame") -> "DataFrame":
    """One row for each time in which a partition had no leader to use; short ones of planned moves among them.

    Args:
        timed: what happened to partitions between elections: that they went offline, that elections failed, that
            leaders were at work or stepped down; controllers that took over, directories that failed, topics deleted.
        leadership: who was elected when, and when the elected began to lead.
        absences: which leaders were away, since when that was known, and their last signs of life.
    """
    from .dark import stretches
    from .outage_causes import causes
    from .outage_times import times

    return times(causes(stretches(timed, leadership, absences), timed, absences), timed)


JOB: Final = Job(
    name="outages",
    says="When partitions had no leader that clients could use, why, and whose each part of that time was.",
    needs=("timed", "leadership", "absences"),
    columns=COLUMNS,
    run=outages,
)
