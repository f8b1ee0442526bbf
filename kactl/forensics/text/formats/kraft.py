"""KRaft: controllers in controller.log, brokers and the quorum in server.log. Only the metadata log is complete.

A controller logs records again when it replays them after a restart, with the time of the replay. Lines about replayed
records are therefore events only if they contain an epoch or id that identifies the change; the others are known and
ignored.
"""

from functools import partial
from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_controller: Final = partial(line, role=Role.CONTROLLER, since=(2, 8))
_broker: Final = partial(line, role=Role.BROKER, since=(2, 8))
_IDS: Final = r"\[{%s:ids}\]"
_ELR: Final = (4, 0)
_TOPIC_ID: Final = r" with topic ID {topic_id:id}"
_ELECTED: Final = r"Setting new leader for topicId {topic_id:id}, partition {partition:int} to {leader:int} using "
_BEFORE: Final = (
    r"\. Previous partition: PartitionRegistration\(replicas=\[{replicas:ids}\],.*?\bisr=\[{prev_isr:ids}\],"
    r".*?\bleader={prev_leader:int}, .*?\bleaderEpoch={prev_leader_epoch:int}, "
    r"partitionEpoch={prev_partition_epoch:int}\).*"
)
_CHANGE: Final = (
    r"artition change for {TP}"
    + _TOPIC_ID
    + r":(?: replicas: \[[\d, ]*\] -> \[{replicas:ids}\],?)?(?:.*?\bisr: "
    + _IDS % "prev_isr"
    + " -> "
    + _IDS % "isr"
    + r")?(?:.*?\bleader: {prev_leader:int} -> {leader:int})?"
    r"(?:.*?\bremovingReplicas: \[[\d, ]*\] -> \[{removing:ids}\])?"
    r"(?:.*?\baddingReplicas: \[[\d, ]*\] -> \[{adding:ids}\])?"
    r"(?:.*?\bleaderRecoveryState: \w+ -> {recovery:word})?"
    r"(?:.*?\bleaderEpoch: {prev_leader_epoch:int} -> {leader_epoch:int})?"
    r"(?:.*?\bpartitionEpoch: {prev_partition_epoch:int} -> {partition_epoch:int})?.*"
)

FORMATS: Final[tuple[Format, ...]] = (
    _controller(
        "K1",
        EventType.CONTROLLER_ELECTED,
        r"Becoming the active controller at epoch {controller_epoch:int}, "
        r"(?:next write|committed|new last committed) offset -?\d+.*",
    ),
    _controller(
        "K2",
        EventType.QUORUM_LEADER,
        r"In the new epoch {controller_epoch:int}, the leader is (?:{controller:int}|\(none\)).*",
    ),
    _controller(
        "K3",
        EventType.BROKER_FENCED,
        r"Fencing broker {broker:int}(?: at epoch {broker_epoch:int})? because {reason:rest}",
    ),
    _controller(
        "K4",
        EventType.BROKER_UNFENCED,
        r"The request from broker {broker:int} to unfence has been granted"
        r"(?:.* it'?s register broker record {broker_epoch:int}\.)?.*",
    ),
    _controller(
        "K5",
        EventType.PARTITION_CREATED,
        r"Replayed PartitionRecord for new partition {TP}"
        + _TOPIC_ID
        + r" and PartitionRegistration\(replicas=\[{replicas:ids}\],.*?\bisr=\[{isr:ids}\],.*?\bleader={leader:int}, "
        r"(?:leaderRecoveryState={recovery:word}, )?leaderEpoch={leader_epoch:int}, "
        r"partitionEpoch={partition_epoch:int}\).*",
    ),
    _controller("K6a", EventType.LEADERSHIP, r"UNCLEAN p" + _CHANGE, unclean=True),
    _controller("K6b", EventType.LEADERSHIP, r"p" + _CHANGE, unclean=False),
    _controller(
        "K7", EventType.ELECTED, _ELECTED + r"an unclean election", until=(4, 0), unclean=True, strategy="unclean"
    ),
    _controller(
        "K7-4.1",
        EventType.ELECTED,
        _ELECTED + r"an unclean election" + _BEFORE,
        since=(4, 1),
        unclean=True,
        strategy="unclean",
    ),
    _controller(
        "K7b", EventType.ELECTED, _ELECTED + r"ELR(?:" + _BEFORE + ")?", since=_ELR, unclean=False, strategy="elr"
    ),
    _controller("K7c", EventType.ELECTED, _ELECTED + r"a clean election", unclean=False),
    _controller(
        "K8",
        EventType.ELECTING,
        r"Triggering unclean leader election for offline partition {TP}\.",
        unclean=True,
        strategy="unclean",
    ),
    _controller(
        "K8b",
        EventType.PARTITION_FAILED,
        r"Cannot trigger unclean leader election for offline partition {TP}: (?P<error>\w+)"
        r"(?:\. \(isr: \[{isr:ids}\], replicaSet: \[{replicas:ids}\], partitionEpoch: {partition_epoch:int}, "
        r"leaderEpoch: {leader_epoch:int}\))?",
        from_state="OfflinePartition",
        to_state="OnlinePartition",
        strategy="unclean",
    ),
    _controller(
        "K9", EventType.SLOW_EVENT, r"Exceptionally slow controller event {text:rest} took {took_ms:int} ms\.?"
    ),
    _controller(
        "K10",
        EventType.CONTROLLER_RESIGNED,
        r"Renouncing the leadership (?P<reason>.*?(?:We were the leader at epoch {controller_epoch:int}.*)?)",
    ),
    _controller(
        "K10b",
        EventType.CONTROLLER_RESIGNED,
        r"\w+: event failed with \w+(?: \(treated as \w+\))? at epoch {controller_epoch:int} in -?\d+ microseconds\. "
        r"Renouncing leadership and reverting to the last (?:committed|stable) offset -?\d+\."
        r"(?: Exception message: {reason:rest})?.*",
    ),
    _controller(
        "K11",
        EventType.BROKER_STOPPING,
        r"Unfenced broker {broker:int} has requested and been granted (?:a controlled|an immediate) shutdown\.",
    ),
    _controller(
        "K12",
        EventType.BROKER_FENCED,
        r"Unfenced broker {broker:int} has requested and been granted fencing",
        reason="it asked for it",
    ),
    # -- brokers -------------------------------------------------------------------------------------------------------
    _controller(
        "K13",
        EventType.PARTITIONS_CHANGED,
        r"(?P<reason>\w+)(?:\[{broker:int}(?::[^\]]*)?\])?: "
        r"changing (?:{count:int} partition\(s\)|partition\(s\): {text:rest})",
    ),
    _controller(
        "K14",
        EventType.BROKER_STOPPED,
        r"The request from broker {broker:int} to shut down has been granted {reason:rest}",
    ),
    _controller(
        "K15a",
        EventType.BROKER_REGISTERED,
        r"No previous registration found for broker {broker:int}\. .*?New broker epoch is {broker_epoch:int}\.",
    ),
    _controller(
        "K15b",
        EventType.BROKER_REGISTERED,
        r"Registering a new incarnation of broker {broker:int}\. .*?Broker epoch will become {broker_epoch:int}\.",
    ),
    _controller(
        "K15c",
        EventType.BROKER_REGISTERED,
        r"Amending registration of broker {broker:int}, incarnation ID \S+ Broker epoch remains {broker_epoch:int}\.",
    ),
    _controller(
        "K16",
        EventType.BROKER_UNREGISTERED,
        r"Replayed UnregisterBrokerRecord\(brokerId={broker:int}, brokerEpoch={broker_epoch:int}\)",
    ),
    _controller(
        "K17",
        EventType.REPLICAS_OFFLINE,
        r"Directories (?P<reason>\[[^\]]*\] in broker {broker:int} marked offline, .*)",
        since=(3, 7),
    ),
    # -- topics and assignments ----------------------------------------------------------------------------------------
    _controller("K18a", EventType.TOPIC_CREATED, r"Replayed TopicRecord for topic {topic:name}" + _TOPIC_ID + r"\."),
    _controller(
        "K18c",
        EventType.TOPIC_REMOVED,
        r"Replayed RemoveTopicRecord for topic {topic:name} with (?:topic )?ID {topic_id:id}\.",
    ),
    _controller(
        "K18b",
        EventType.ASSIGNED,
        r"Replayed partition assignment change PartitionChangeRecord\(partitionId={partition:int}, "
        r"topicId={topic_id:id}, "
        r".*?\breplicas=\[{replicas:ids}\], removingReplicas=(?:\[{removing:ids}\]|null), "
        r"addingReplicas=(?:\[{adding:ids}\]|null), .*?\)"
        r"(?: for topic (?:{topic:name}|{topic__2:name}\. \(.*\)))?",
    ),
    _controller(
        "K18d",
        EventType.REASSIGNED,
        r"AlterPartition request from node \d+ for {TP} completed the ongoing partition reassignment{reason:rest}",
    ),
    _controller(
        "K19",
        EventType.PERFORMANCE,
        r"In the last \d+ ms period, {count:int} controller events were completed, "
        r"which took an average of \S+ ms each\. "
        r"The slowest event was {text:rest}, which took {took_ms:int}(?:\.\d+)? ms\.",
    ),
    # -- brokers and the quorum, in server.log -------------------------------------------------------------------------
    _broker(
        "K20a",
        EventType.QUORUM_LEADER,
        r"Completed transition to FollowerState\(fetchTimeoutMs=\d+, epoch={controller_epoch:int}, "
        r"leader(?:Id)?={controller:int}, .*",
    ),
    _broker(
        "K20b",
        EventType.QUORUM_LEADER,
        r"Completed transition to Leader(?:State)?\((?:localId=|.*?ReplicaKey\(id=){controller:int}\b.*?"
        r", epoch={controller_epoch:int}, .*",
    ),
    _broker(
        "K20c",
        EventType.QUORUM_STATE,
        r"Completed transition to (?P<to_state>Unattached|Voted|Prospective|Candidate|Resigned)\w*\(.*?"
        r"\bepoch={controller_epoch:int}, .* from (?P<from_state>\w+).*",
    ),
    _broker(
        "K21a",
        EventType.BROKER_STATE,
        r"Incarnation \S+ of broker {broker:int} in cluster \S+ is now (?P<to_state>STARTING)\.",
    ),
    _broker(
        "K21b",
        EventType.BROKER_STATE,
        r"Successfully registered broker {broker:int} with broker epoch {broker_epoch:int}",
        to_state="REGISTERED",
    ),
    _broker(
        "K21c",
        EventType.BROKER_STATE,
        r"The broker has (?:been unfenced|caught up)\. Transitioning from {from_state:word} to {to_state:word}\.",
    ),
    _broker("K21d", EventType.BROKER_STATE, r"Beginning controlled shutdown\.", to_state="PENDING_CONTROLLED_SHUTDOWN"),
    _broker("K21e", EventType.BROKER_STATE, r"Transitioning from {from_state:word} to {to_state:word}\."),
    _broker(
        "K22a",
        EventType.ROLE_FAILED,
        r"Unable to bring up new local leader {TP} with topic id {topic_id:id} because {reason:rest}",
        to_state="leader",
    ),
    _broker(
        "K22b",
        EventType.ROLE_FAILED,
        r"Unable to start fetching {TP} with topic ID (?:Some\({topic_id:id}\)|None) from leader "
        r"(?:Some\({leader:int}\)|None) because {reason:rest}",
        to_state="follower",
    ),
)
