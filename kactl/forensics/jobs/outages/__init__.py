"""Job `outages`: times at which a partition had no leader that clients could use.

                 the leader's last sign        the controller's lines                     the new leader's lines
    ────────led──────────┤·············├──────┬──────────────┬──────────────┬─────────────┬──────────led─────────▶
                       begin       detected  begun        elected        received        led = end
                         └──detection──┴─queue┴───election───┴─────send─────┴────apply────┘
                                              └───waiting────┘ instead, while no replica could be elected

`intervals` splits the life of a partition at its elections, `causes` selects the intervals that contain an outage, and
`times` computes begin, end, their bounds and the parts. `totals` aggregates outages.

An outage is reported only where a line proves it: a line of the partition that it was offline or that an election
failed, an election out of OfflinePartition, a leader that was absent when the next one took over, or a fenced leader
whose other replicas were fenced before and stay so. The following prove nothing: ISR changes, epochs that rise under
the same leader, repeated requests, logs that are given twice, and the lines of a topic that is being deleted, whose
partitions go offline on the way.
"""

from typing import Final

from pyspark.sql import DataFrame

from kactl.forensics.columns import KEY_COLUMNS, columns, names_of
from kactl.forensics.jobs.job import Job

from .causes import causes
from .intervals import intervals
from .times import times

COLUMNS: Final = KEY_COLUMNS + columns(
    """
    begin             time  begin of the unavailability: best estimate; the latest possible time if little is known
    begin_low         time  earliest possible begin; null if it may precede the logs
    begin_high        time  latest possible begin
    begin_kind        text  observed (a line states that the leader stepped down, or that there never was a leader),
                            inferred (from other lines: failed brokers, sessions, followers without a response) or
                            bounded (only the lines before and after it are known)
    end               time  when a leader was usable again: best estimate; null if not within the logs
    end_low           time  earliest possible end; the end of the logs if it is open
    end_high          time  latest possible end; null if it is open, or if no line shows the new leader active
    end_kind          text  observed, inferred, bounded, or open
    duration_ms       ms    `end` - `begin`, or to the end of the controllers' logs if it is open
    duration_min_ms   ms    shortest possible duration: `end_low` - `begin_high`, at least 0
    duration_max_ms   ms    longest possible duration: `end_high` - `begin_low`; null if either is null
    planned           bool  true if a live leader was moved on request (preferred election, reassignment, controlled
                            shutdown); false if the leader was lost; null if a live leader was moved and no line gives
                            the reason
    cause             text  broker-failure, controlled-shutdown, preferred, reassign, replica-failure (a directory),
                            no-live-replica (an election failed because no in-sync replica was alive), controller-change
                            (the controller was lost with it) or unknown
    broker            id    [leader lost] the leader that was lost; null if there was none before, or it is unknown
    new_leader        id    [leader then] the leader afterwards; null if there was none
    leader_epoch      id    the leader epoch that ended it
    unclean           bool  whether the leader that ended it was not in sync; null if unknown
    controller        id    the controller that ended it, or tried last
    controller_epoch
    attempts_failed   int   elections that failed during the outage (P4)
    reason            text  why the last of them failed, as the controller logged it
    last_sign_at      time  the lost leader's own last line
    detected_at       time  when the controller detected the cause
    begun_at          time  when the controller began to process it
    elected_at        time  when the controller had elected a leader and stored it
    received_at       time  when the new leader's broker began to process the request
    led_at            time  when the new leader took its role
    detection_ms      ms    from `begin` until detected; this and the next five are parts of the duration
    queue_ms          ms    from detected until begun
    waiting_ms        ms    from begun until elected, where no replica that may lead was alive; null elsewhere
    election_ms       ms    from begun until elected and stored, where a replica could be elected at once
    send_ms           ms    from elected until received by the new leader
    apply_ms          ms    from received until led
    """
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
    "outages",
    "Times at which a partition had no usable leader, the cause, and the parts of each time.",
    COLUMNS,
    outages,
)
