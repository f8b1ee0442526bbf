"""KRaft: controllers in controller.log, brokers and the quorum in server.log; only the metadata log has all (`dump`).

What a controller replays it prints again after each restart, at that time. So lines about replayed records are only
events where they have an epoch or an id that tells which change is meant; the others are known and silent.
"""

from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_C: Final = Role.CONTROLLER
_IDS: Final = r"\[{%s:ids}\]"
_B: Final = Role.BROKER
_SINCE: Final = (2, 8)
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
    line(
        "K1",
        EventType.CONTROLLER_ELECTED,
        _C,
        r"Becoming the active controller at epoch {controller_epoch:int}, "
        r"(?:next write|committed|new last committed) offset -?\d+.*",
        since=_SINCE,
    ),
    line(
        "K2",
        EventType.QUORUM_LEADER,
        _C,
        r"In the new epoch {controller_epoch:int}, the leader is (?:{controller:int}|\(none\)).*",
        since=_SINCE,
    ),
    line(
        "K3",
        EventType.BROKER_FENCED,
        _C,
        r"Fencing broker {broker:int}(?: at epoch {broker_epoch:int})? because {reason:rest}",
        since=_SINCE,
    ),
    line(
        "K4",
        EventType.BROKER_UNFENCED,
        _C,
        r"The request from broker {broker:int} to unfence has been granted"
        r"(?:.* it'?s register broker record {broker_epoch:int}\.)?.*",
        since=_SINCE,
    ),
    line(
        "K5",
        EventType.PARTITION_CREATED,
        _C,
        r"Replayed PartitionRecord for new partition {TP}"
        + _TOPIC_ID
        + r" and PartitionRegistration\(replicas=\[{replicas:ids}\],.*?\bisr=\[{isr:ids}\],.*?\bleader={leader:int}, "
        r"(?:leaderRecoveryState={recovery:word}, )?leaderEpoch={leader_epoch:int}, "
        r"partitionEpoch={partition_epoch:int}\).*",
        since=_SINCE,
    ),
    line("K6a", EventType.LEADERSHIP, _C, r"UNCLEAN p" + _CHANGE, since=_SINCE, unclean=True),
    line("K6b", EventType.LEADERSHIP, _C, r"p" + _CHANGE, since=_SINCE, unclean=False),
    line(
        "K7",
        EventType.ELECTED,
        _C,
        _ELECTED + r"an unclean election",
        since=_SINCE,
        until=(4, 0),
        unclean=True,
        strategy="unclean",
    ),
    line(
        "K7-4.1",
        EventType.ELECTED,
        _C,
        _ELECTED + r"an unclean election" + _BEFORE,
        since=(4, 1),
        unclean=True,
        strategy="unclean",
    ),
    line(
        "K7b", EventType.ELECTED, _C, _ELECTED + r"ELR(?:" + _BEFORE + ")?", since=_ELR, unclean=False, strategy="elr"
    ),
    line("K7c", EventType.ELECTED, _C, _ELECTED + r"a clean election", since=_SINCE, unclean=False),
    line(
        "K8",
        EventType.ELECTING,
        _C,
        r"Triggering unclean leader election for offline partition {TP}\.",
        since=_SINCE,
        unclean=True,
        strategy="unclean",
    ),
    line(
        "K8b",
        EventType.PARTITION_FAILED,
        _C,
        r"Cannot trigger unclean leader election for offline partition {TP}: (?P<error>\w+)"
        r"(?:\. \(isr: \[{isr:ids}\], replicaSet: \[{replicas:ids}\], partitionEpoch: {partition_epoch:int}, "
        r"leaderEpoch: {leader_epoch:int}\))?",
        since=_SINCE,
        from_state="OfflinePartition",
        to_state="OnlinePartition",
        strategy="unclean",
    ),
    line(
        "K9",
        EventType.SLOW_EVENT,
        _C,
        r"Exceptionally slow controller event {text:rest} took {took_ms:int} ms\.?",
        since=_SINCE,
    ),
    line(
        "K10",
        EventType.CONTROLLER_RESIGNED,
        _C,
        r"Renouncing the leadership (?P<reason>.*?(?:We were the leader at epoch {controller_epoch:int}.*)?)",
        since=_SINCE,
    ),
    line(
        "K10b",
        EventType.CONTROLLER_RESIGNED,
        _C,
        r"\w+: event failed with \w+(?: \(treated as \w+\))? at epoch {controller_epoch:int} in -?\d+ microseconds\. "
        r"Renouncing leadership and reverting to the last (?:committed|stable) offset -?\d+\."
        r"(?: Exception message: {reason:rest})?.*",
        since=_SINCE,
    ),
    line(
        "K11",
        EventType.BROKER_STOPPING,
        _C,
        r"Unfenced broker {broker:int} has requested and been granted (?:a controlled|an immediate) shutdown\.",
        since=_SINCE,
    ),
    line(
        "K12",
        EventType.BROKER_FENCED,
        _C,
        r"Unfenced broker {broker:int} has requested and been granted fencing",
        since=_SINCE,
        reason="it asked for it",
    ),
    # -- what befalls brokers ------------------------------------------------------------------------------------------
    line(
        "K13",
        EventType.PARTITIONS_CHANGED,
        _C,
        r"(?P<reason>\w+)(?:\[{broker:int}(?::[^\]]*)?\])?: "
        r"changing (?:{count:int} partition\(s\)|partition\(s\): {text:rest})",
        since=_SINCE,
    ),
    line(
        "K14",
        EventType.BROKER_STOPPED,
        _C,
        r"The request from broker {broker:int} to shut down has been granted {reason:rest}",
        since=_SINCE,
    ),
    line(
        "K15a",
        EventType.BROKER_REGISTERED,
        _C,
        r"No previous registration found for broker {broker:int}\. .*?New broker epoch is {broker_epoch:int}\.",
        since=_SINCE,
    ),
    line(
        "K15b",
        EventType.BROKER_REGISTERED,
        _C,
        r"Registering a new incarnation of broker {broker:int}\. .*?Broker epoch will become {broker_epoch:int}\.",
        since=_SINCE,
    ),
    line(
        "K15c",
        EventType.BROKER_REGISTERED,
        _C,
        r"Amending registration of broker {broker:int}, incarnation ID \S+ Broker epoch remains {broker_epoch:int}\.",
        since=_SINCE,
    ),
    line(
        "K16",
        EventType.BROKER_UNREGISTERED,
        _C,
        r"Replayed UnregisterBrokerRecord\(brokerId={broker:int}, brokerEpoch={broker_epoch:int}\)",
        since=_SINCE,
    ),
    line(
        "K17",
        EventType.REPLICAS_OFFLINE,
        _C,
        r"Directories (?P<reason>\[[^\]]*\] in broker {broker:int} marked offline, .*)",
        since=(3, 7),
    ),
    # -- topics and assignments ----------------------------------------------------------------------------------------
    line(
        "K18a",
        EventType.TOPIC_CREATED,
        _C,
        r"Replayed TopicRecord for topic {topic:name}" + _TOPIC_ID + r"\.",
        since=_SINCE,
    ),
    line(
        "K18c",
        EventType.TOPIC_REMOVED,
        _C,
        r"Replayed RemoveTopicRecord for topic {topic:name} with (?:topic )?ID {topic_id:id}\.",
        since=_SINCE,
    ),
    line(
        "K18b",
        EventType.ASSIGNED,
        _C,
        r"Replayed partition assignment change PartitionChangeRecord\(partitionId={partition:int}, "
        r"topicId={topic_id:id}, "
        r".*?\breplicas=\[{replicas:ids}\], removingReplicas=(?:\[{removing:ids}\]|null), "
        r"addingReplicas=(?:\[{adding:ids}\]|null), .*?\)"
        r"(?: for topic (?:{topic:name}|{topic__2:name}\. \(.*\)))?",
        since=_SINCE,
    ),
    line(
        "K18d",
        EventType.REASSIGNED,
        _C,
        r"AlterPartition request from node \d+ for {TP} completed the ongoing partition reassignment{reason:rest}",
        since=_SINCE,
    ),
    line(
        "K19",
        EventType.PERFORMANCE,
        _C,
        r"In the last \d+ ms period, {count:int} controller events were completed, "
        r"which took an average of \S+ ms each\. "
        r"The slowest event was {text:rest}, which took {took_ms:int}(?:\.\d+)? ms\.",
        since=_SINCE,
    ),
    # -- brokers and the quorum, in server.log -------------------------------------------------------------------------
    line(
        "K20a",
        EventType.QUORUM_LEADER,
        _B,
        r"Completed transition to FollowerState\(fetchTimeoutMs=\d+, epoch={controller_epoch:int}, "
        r"leader(?:Id)?={controller:int}, .*",
        since=_SINCE,
    ),
    line(
        "K20b",
        EventType.QUORUM_LEADER,
        _B,
        r"Completed transition to Leader(?:State)?\((?:localId=|.*?ReplicaKey\(id=){controller:int}\b.*?"
        r", epoch={controller_epoch:int}, .*",
        since=_SINCE,
    ),
    line(
        "K20c",
        EventType.QUORUM_STATE,
        _B,
        r"Completed transition to (?P<to_state>Unattached|Voted|Prospective|Candidate|Resigned)\w*\(.*?"
        r"\bepoch={controller_epoch:int}, .* from (?P<from_state>\w+).*",
        since=_SINCE,
    ),
    line(
        "K21a",
        EventType.BROKER_STATE,
        _B,
        r"Incarnation \S+ of broker {broker:int} in cluster \S+ is now (?P<to_state>STARTING)\.",
        since=_SINCE,
    ),
    line(
        "K21b",
        EventType.BROKER_STATE,
        _B,
        r"Successfully registered broker {broker:int} with broker epoch {broker_epoch:int}",
        since=_SINCE,
        to_state="REGISTERED",
    ),
    line(
        "K21c",
        EventType.BROKER_STATE,
        _B,
        r"The broker has (?:been unfenced|caught up)\. Transitioning from {from_state:word} to {to_state:word}\.",
        since=_SINCE,
    ),
    line(
        "K21d",
        EventType.BROKER_STATE,
        _B,
        r"Beginning controlled shutdown\.",
        since=_SINCE,
        to_state="PENDING_CONTROLLED_SHUTDOWN",
    ),
    line(
        "K21e",
        EventType.BROKER_STATE,
        _B,
        r"Transitioning from {from_state:word} to {to_state:word}\.",
        since=_SINCE,
    ),
    line(
        "K22a",
        EventType.ROLE_FAILED,
        _B,
        r"Unable to bring up new local leader {TP} with topic id {topic_id:id} because {reason:rest}",
        since=_SINCE,
        to_state="leader",
    ),
    line(
        "K22b",
        EventType.ROLE_FAILED,
        _B,
        r"Unable to start fetching {TP} with topic ID (?:Some\({topic_id:id}\)|None) from leader "
        r"(?:Some\({leader:int}\)|None) because {reason:rest}",
        since=_SINCE,
        to_state="follower",
    ),
)
