"""A ZooKeeper controller's lines in controller.log: its election, brokers, topics, elections and reassignments."""

from functools import partial
from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_controller: Final = partial(line, role=Role.CONTROLLER)
_BROKERS: Final = r"(?:\w+\()?{%s:ids}\)?"
_REPLICAS: Final = r"(?:\w+\(|\[)?{replicas:ids}[\])]?"

FORMATS: Final[tuple[Format, ...]] = (
    # -- controllerships -----------------------------------------------------------------------------------------------
    _controller(
        "C1a",
        EventType.CONTROLLER_ELECTED,
        r"{controller:int} successfully elected as the controller",
        since=(0, 11),
        until=(2, 0),
    ),
    _controller(
        "C1b",
        EventType.CONTROLLER_ELECTED,
        r"{controller:int} successfully elected as the controller\. Epoch incremented to {controller_epoch:int} "
        r"and epoch zk version is now \d+",
        since=(2, 1),
    ),
    _controller(
        "C1c", EventType.CONTROLLER_EPOCH, r"Epoch incremented to {controller_epoch:int}", since=(1, 1), until=(2, 0)
    ),
    _controller("C1d", EventType.CONTROLLER_EPOCH, r"Incremented epoch to {controller_epoch:int}", until=(1, 0)),
    _controller(
        "C1e",
        EventType.CONTROLLER_EPOCH,
        r"Controller {controller:int} incremented epoch to {controller_epoch:int}",
        since=(0, 8),
        until=(0, 11),
    ),
    _controller(
        "C2a", EventType.CONTROLLER_READY, r"Ready to serve as the new controller with epoch {controller_epoch:int}"
    ),
    _controller("C2b", EventType.CONTROLLER_STARTED, r"Starting the controller scheduler"),
    _controller("C2c", EventType.CONTROLLER_RESIGNED, r"Resigned"),
    _controller(
        "C2d",
        EventType.CONTROLLER_MOVED,
        r"Controller moved to another broker when processing {reason:rest}",
        since=(2, 1),
    ),
    # -- brokers -------------------------------------------------------------------------------------------------------
    _controller(
        "C3",
        EventType.BROKERS_CHANGED,
        r"Newly added brokers: {brokers_added:ids}, deleted brokers: {brokers_removed:ids}, "
        r"(?:bounced brokers: {brokers_bounced:ids}, )?all live brokers: {brokers:ids}",
        since=(0, 11),
    ),
    # Written by a new controller when it takes over.
    _controller(
        "C3b", EventType.BROKERS_CHANGED, r"Currently active brokers in the cluster: \w+\({brokers:ids}\)", since=(0, 8)
    ),
    _controller(
        "C4a", EventType.BROKER_FAILED, r"Broker failure callback for " + _BROKERS % "brokers_removed", since=(0, 8)
    ),
    _controller(
        "C4b", EventType.BROKER_STARTED, r"New broker startup callback for " + _BROKERS % "brokers_added", since=(0, 8)
    ),
    _controller(
        "C4c",
        EventType.BROKER_STOPPED_COUNTING,
        r"Removed (?:\w+\()?{broker:int}\)? from list of shutting down brokers\.",
        since=(0, 8),
    ),
    _controller("C4d", EventType.BROKER_STOPPING, r"Shutting down broker {broker:int}", since=(0, 8)),
    # -- elections -----------------------------------------------------------------------------------------------------
    _controller(
        "C5a",
        EventType.ELECTION_ASKED,
        r"Starting preferred replica leader election for partitions ?{text:rest}",
        since=(0, 8),
        until=(2, 3),
        strategy="preferred",
    ),
    _controller(
        "C5b",
        EventType.ELECTION_ASKED,
        r"Starting replica leader election \((?P<strategy>PREFERRED|UNCLEAN)\) for partitions {text:rest} "
        r"triggered by {trigger:word}",
        since=(2, 4),
    ),
    _controller("C6a", EventType.BALANCE_CHECKED, r"Processing automatic preferred replica leader election"),
    _controller(
        "C6b",
        EventType.IMBALANCE,
        r"Leader imbalance ratio for broker {broker:int} is (?P<ratio>[\d.]+(?:E-?\d+)?|NaN)",
    ),
    _controller(
        "C6c",
        EventType.UNCLEAN_ENABLED,
        r"Unclean leader election has been enabled (?:by default|for topic {topic:name})",
    ),
    # From 1.1 on, no line marks an unclean election.
    _controller(
        "C7",
        EventType.ELECTED,
        r"No broker in ISR is alive for (?:{TP}|\[{topic__2:name},{partition__2:int}\])\. Elect leader {leader:int} "
        r"from live brokers {brokers:ids}\. There's potential data loss\.",
        since=(0, 8),
        until=(1, 0),
        strategy="offline",
        unclean=True,
    ),
    # From 2.7 on, leaders send ISR changes to the controller, which writes them.
    _controller(
        "C11",
        EventType.ISR_UPDATED,
        r"ISR for partition {TP} updated to LeaderAndIsr\(leader={leader:int}, leaderEpoch={leader_epoch:int}, "
        r"(?:isr=\w+\({isr:ids}\)|isrWithBrokerEpoch=\w+\((?P<isr__2>(?:BrokerState\([^)]*\)(?:, )?)*)\))"
        r"(?:, leaderRecoveryState={recovery:word})?, (?:zkVersion|partitionEpoch)={partition_epoch:int}\)\.?",
        since=(2, 7),
    ),
    # -- topics --------------------------------------------------------------------------------------------------------
    _controller(
        "C8a",
        EventType.TOPICS_CHANGED,
        r"New topics: (?P<text>.* deleted topics: .* new partition replica assignment .*)",
        since=(0, 8),
    ),
    _controller("C8b", EventType.PARTITIONS_CREATED, r"New partition creation callback for ?{text:rest}", since=(0, 8)),
    _controller("C9a", EventType.DELETION_ASKED, r"Starting topic deletion for topics {topic:rest}", since=(0, 8)),
    _controller("C9b", EventType.DELETION_HANDLED, r"Handling deletion for topics {topic:rest}", since=(0, 8)),
    _controller("C9c", EventType.DELETION_STARTED, r"Deletion of topic {topic:name} \(re\)started", since=(0, 8)),
    _controller("C9d", EventType.DELETION_DONE, r"Deletion of topic {topic:name} successfully completed", since=(0, 8)),
    _controller(
        "C9e",
        EventType.DELETION_HALTED,
        r"Halted deletion of topics (?P<topic>[\w.,-]+)(?: due to {reason:rest})?",
        since=(0, 8),
    ),
    _controller(
        "C9f", EventType.DELETION_DEAD, r"Dead Replicas \({text:rest}\) found for topic {topic:name}", since=(0, 8)
    ),
    # -- reassignments -------------------------------------------------------------------------------------------------
    _controller(
        "C10a",
        EventType.REASSIGNMENT_STARTED,
        r"Handling reassignment of partition {TP} to new replicas " + _REPLICAS,
    ),
    _controller(
        "C10b",
        EventType.REASSIGNMENT_WAITS,
        r"{count:int}/{count_also:int} replicas have caught up with the leader for partition {TP} being reassigned"
        r"{reason:rest}",
    ),
    _controller(
        "C10c",
        EventType.REASSIGNMENT_CAUGHT_UP,
        r"Target replicas " + _REPLICAS + r" have all caught up with the leader for reassigning partition {TP}",
        since=(2, 4),
    ),
    _controller("C10d", EventType.EPOCH_RAISED, r"Updated leader epoch for partition {TP} to {leader_epoch:int}"),
)
