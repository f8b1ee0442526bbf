"""A controller about elections, topics, deletions and reassignments, in controller.log."""

from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_C: Final = Role.CONTROLLER
_LIST: Final = r"(?:\w+\(|\[)?{%s:ids}[\])]?"

FORMATS: Final[tuple[Format, ...]] = (
    # -- elections -----------------------------------------------------------------------------------------------------
    line(
        "C5a",
        EventType.ELECTION_ASKED,
        _C,
        r"Starting preferred replica leader election for partitions ?{text:rest}",
        since=(0, 8),
        until=(2, 3),
        strategy="preferred",
    ),
    line(
        "C5b",
        EventType.ELECTION_ASKED,
        _C,
        r"Starting replica leader election \((?P<strategy>PREFERRED|UNCLEAN)\) for partitions {text:rest} "
        r"triggered by {trigger:word}",
        since=(2, 4),
    ),
    line("C6a", EventType.BALANCE_CHECKED, _C, r"Processing automatic preferred replica leader election"),
    line(
        "C6b",
        EventType.IMBALANCE,
        _C,
        r"Leader imbalance ratio for broker {broker:int} is (?P<ratio>[\d.]+(?:E-?\d+)?|NaN)",
    ),
    line(
        "C6c",
        EventType.UNCLEAN_ENABLED,
        _C,
        r"Unclean leader election has been enabled (?:by default|for topic {topic:name})",
    ),
    # From 1.1 on nothing marks an unclean election.
    line(
        "C7",
        EventType.ELECTED,
        _C,
        r"No broker in ISR is alive for (?:{TP}|\[{topic__2:name},{partition__2:int}\])\. Elect leader {leader:int} "
        r"from live brokers {brokers:ids}\. There's potential data loss\.",
        since=(0, 8),
        until=(1, 0),
        strategy="offline",
        unclean=True,
    ),
    # Leaders propose their ISRs to the controller, which writes them.
    line(
        "C11",
        EventType.ISR_UPDATED,
        _C,
        r"ISR for partition {TP} updated to LeaderAndIsr\(leader={leader:int}, leaderEpoch={leader_epoch:int}, "
        r"(?:isr=\w+\({isr:ids}\)|isrWithBrokerEpoch=\w+\((?P<isr__2>(?:BrokerState\([^)]*\)(?:, )?)*)\))"
        r"(?:, leaderRecoveryState={recovery:word})?, (?:zkVersion|partitionEpoch)={partition_epoch:int}\)\.?",
        since=(2, 7),
    ),
    # -- topics --------------------------------------------------------------------------------------------------------
    line(
        "C8a",
        EventType.TOPICS_CHANGED,
        _C,
        r"New topics: (?P<text>.* deleted topics: .* new partition replica assignment .*)",
        since=(0, 8),
    ),
    line("C8b", EventType.PARTITIONS_CREATED, _C, r"New partition creation callback for ?{text:rest}", since=(0, 8)),
    line("C9a", EventType.DELETION_ASKED, _C, r"Starting topic deletion for topics {topic:rest}", since=(0, 8)),
    line("C9b", EventType.DELETION_HANDLED, _C, r"Handling deletion for topics {topic:rest}", since=(0, 8)),
    line("C9c", EventType.DELETION_STARTED, _C, r"Deletion of topic {topic:name} \(re\)started", since=(0, 8)),
    line("C9d", EventType.DELETION_DONE, _C, r"Deletion of topic {topic:name} successfully completed", since=(0, 8)),
    line(
        "C9e",
        EventType.DELETION_HALTED,
        _C,
        r"Halted deletion of topics (?P<topic>[\w.,-]+)(?: due to {reason:rest})?",
        since=(0, 8),
    ),
    line(
        "C9f",
        EventType.DELETION_DEAD,
        _C,
        r"Dead Replicas \({text:rest}\) found for topic {topic:name}",
        since=(0, 8),
    ),
    # -- reassignments -------------------------------------------------------------------------------------------------
    line(
        "C10a",
        EventType.REASSIGNMENT_STARTED,
        _C,
        r"Handling reassignment of partition {TP} to new replicas " + _LIST % "replicas",
    ),
    line(
        "C10b",
        EventType.REASSIGNMENT_WAITS,
        _C,
        r"{count:int}/{count_also:int} replicas have caught up with the leader for partition {TP} being reassigned"
        r"{reason:rest}",
    ),
    line(
        "C10c",
        EventType.REASSIGNMENT_CAUGHT_UP,
        _C,
        r"Target replicas "
        + _LIST % "replicas"
        + r" have all caught up with the leader for reassigning partition {TP}",
        since=(2, 4),
    ),
    line(
        "C10d",
        EventType.EPOCH_RAISED,
        _C,
        r"Updated leader epoch for partition {TP} to {leader_epoch:int}",
    ),
)
