"""KRaft: controllers in controller.log, brokers and the quorum in server.log. Only the metadata log is complete.

A controller logs records again when it replays them after a restart, with the time of the replay. Lines about replayed
records are therefore events only if they contain an epoch or id that identifies the change; the others are known and
ignored. An epoch of a broker's registration does not identify its fencing: a broker may be fenced several times in one.

Many wordings changed between 2.8 and 3.6. Where the version of a change is not known exactly, `until` of the old
wording and `since` of the new one overlap.
"""

from typing import Final

from kactl.forensics.text.format import read_formats

FORMATS: Final = read_formats(
    r"""
{TOPIC_ID}
    with topic ID {topic_id:id}
{REGISTERED}
    RegisterBrokerRecord\(brokerId={broker:int},.*?\bbrokerEpoch={broker_epoch:int}, .*\)
{ELECTED}
    Setting new leader for topicId {topic_id:id}, partition {partition:int} to {leader:int} using
{BEFORE}
    \. Previous partition:
    PartitionRegistration\(replicas=\[{replicas:ids}\],.*?\bisr=\[{prev_isr:ids}\],.*?\bleader={prev_leader:int},
    .*?\bleaderEpoch={prev_leader_epoch:int}, partitionEpoch={prev_partition_epoch:int}\).*
{CHANGE}
    artition change for {TP} {TOPIC_ID}:\
    (?: replicas: \[[\d, ]*\] -> \[{replicas:ids}\],?)?\
    (?:.*?\bisr: \[{prev_isr:ids}\] -> \[{isr:ids}\])?\
    (?:.*?\bleader: {prev_leader:int} -> {leader:int})?\
    (?:.*?\bremovingReplicas: \[[\d, ]*\] -> \[{removing:ids}\])?\
    (?:.*?\baddingReplicas: \[[\d, ]*\] -> \[{adding:ids}\])?\
    (?:.*?\bleaderRecoveryState: \w+ -> {recovery:word})?\
    (?:.*?\bleaderEpoch: {prev_leader_epoch:int} -> {leader_epoch:int})?\
    (?:.*?\bpartitionEpoch: {prev_partition_epoch:int} -> {partition_epoch:int})?.*

[controller since=2.8]
K1 controller-elected since=3.0
    Becoming the active controller at epoch {controller_epoch:int},
    (?:(?:new )?next write|committed|new last committed) offset -?\d+.*
K1-2.8 controller-elected until=3.1
    Becoming active at controller epoch {controller_epoch:int}\.
K1b controller-elected since=3.3
    We were the leader in epoch -?\d+, and are still the leader in the new epoch {controller_epoch:int}\b.*
K2 quorum-leader since=3.3
    In the new epoch {controller_epoch:int}, the leader is (?:{controller:int}|\(none\)).*
K3 broker-fenced
    Fencing broker {broker:int}(?: at epoch {broker_epoch:int})? because {reason:rest}
K4 broker-unfenced
    The request from broker {broker:int} to unfence has been granted\
    (?:.* it'?s register broker record {broker_epoch:int}\.)?.*
K5 partition-created since=3.5
    Replayed PartitionRecord for new partition {TP} {TOPIC_ID} and
    PartitionRegistration\(replicas=\[{replicas:ids}\],.*?\bisr=\[{isr:ids}\],.*?\bleader={leader:int},
    (?:leaderRecoveryState={recovery:word}, )?leaderEpoch={leader_epoch:int}, partitionEpoch={partition_epoch:int}\).*
K5-3.0 partition-created since=3.0 until=3.5
    Created partition {TP} {TOPIC_ID} and
    PartitionRegistration\(replicas=\[{replicas:ids}\],.*?\bisr=\[{isr:ids}\],.*?\bleader={leader:int},
    (?:leaderRecoveryState={recovery:word}, )?leaderEpoch={leader_epoch:int}, partitionEpoch={partition_epoch:int}\).*
K5-2.8 partition-created until=3.3
    Created partition {topic_id:id}:{partition:int} with
    PartitionControlInfo\(replicas=\[{replicas:ids}\], isr=\[{isr:ids}\],.*?\bleader={leader:int},
    leaderEpoch={leader_epoch:int}, partitionEpoch={partition_epoch:int}\).*
K6a leadership unclean=true
    UNCLEAN p{CHANGE}
K6b leadership unclean=false
    p{CHANGE}
K7 elected until=4.0 unclean=true strategy=unclean
    {ELECTED} an unclean election
K7-4.1 elected since=4.1 unclean=true strategy=unclean
    {ELECTED} an unclean election{BEFORE}
K7b elected since=4.0 unclean=false strategy=elr
    {ELECTED} ELR(?:{BEFORE})?
K7c elected unclean=false
    {ELECTED} a clean election
K8 electing unclean=true strategy=unclean
    Triggering unclean leader election for offline partition {TP}\.
K8b partition-failed from_state=OfflinePartition to_state=OnlinePartition strategy=unclean
    Cannot trigger unclean leader election for offline partition {TP}:
    (?P<error>\w+)(?:\. \(isr: \[{isr:ids}\], replicaSet: \[{replicas:ids}\], partitionEpoch: {partition_epoch:int},
    leaderEpoch: {leader_epoch:int}\))?
K9 slow-event
    Exceptionally slow controller event {text:rest} took {took_ms:int} ms\.?
K10 controller-resigned since=3.3
    Renouncing the leadership (?!at oldEpoch )(?P<reason>.*?(?:We were the leader at epoch {controller_epoch:int}.*)?)
K10-2.8 controller-resigned until=3.4
    Renouncing the leadership at oldEpoch {controller_epoch:int} {reason:rest}
K10b controller-resigned since=3.5
    \S+: event failed with (?P<error>\w+)(?: \(treated as \w+\))? at epoch {controller_epoch:int} in -?\d+
    microseconds\. Renouncing leadership and reverting to the last (?:committed|stable) offset
    -?\d+\.(?: Exception message: {reason:rest})?.*
K10b-2.8 controller-resigned until=3.5
    \S+: failed with unknown server exception (?P<error>\w+) at epoch (?P<controller_epoch>\d+) in -?\d+ us\. +\
    (?:Renouncing leadership and reverting to the|Reverting to) last committed offset -?\d+\..*
K11 broker-stopping
    Unfenced broker {broker:int} has requested and been granted (?:a controlled|an immediate) shutdown\.
K12 broker-fenced reason='it asked for it'
    Unfenced broker {broker:int} has requested and been granted fencing
# -- brokers -----------------------------------------------------------------------------------------------------------
K13 partitions-changed
    (?P<reason>\w+)(?:\[{broker:int}(?::[^\]]*)?\])?: changing (?:{count:int} partition\(s\)|partition\(s\):
    {text:rest})
K14 broker-stopped
    The request from broker {broker:int} to shut down has been granted {reason:rest}
K15a broker-registered
    No previous registration found for broker {broker:int}\. .*?New broker epoch is {broker_epoch:int}\.
K15b broker-registered
    Registering a new incarnation of broker {broker:int}\. .*?Broker epoch will become {broker_epoch:int}\.
K15c broker-registered
    Amending registration of broker {broker:int}, incarnation ID \S+ Broker epoch remains {broker_epoch:int}\.
K15d broker-registered until=3.5
    Registered new broker: {REGISTERED}
K15e broker-registered until=3.5
    Re-registered broker (?:incarnation|id -?\d+): {REGISTERED}
K16 broker-unregistered since=3.5
    Replayed UnregisterBrokerRecord\(brokerId={broker:int}, brokerEpoch={broker_epoch:int}\)
K16-2.8 broker-unregistered until=3.5
    Unregistered broker: UnregisterBrokerRecord\(brokerId={broker:int}, brokerEpoch={broker_epoch:int}\)
K17 replicas-offline since=3.7
    Directories (?P<reason>\[[^\]]*\] in broker {broker:int} marked offline, .*)
# -- topics and assignments --------------------------------------------------------------------------------------------
K18a topic-created since=3.5
    Replayed TopicRecord for topic {topic:name} {TOPIC_ID}\.
K18a-2.8 topic-created until=3.5
    Created topic {topic:name} with (?:topic )?ID {topic_id:id}\.
K18c topic-removed since=3.5
    Replayed RemoveTopicRecord for topic {topic:name} with (?:topic )?ID {topic_id:id}\.
K18c-2.8 topic-removed until=3.5
    Removed topic {topic:name} with (?:topic )?ID {topic_id:id}\.
K18b assigned
    Replayed partition assignment change PartitionChangeRecord\(partitionId={partition:int}, topicId={topic_id:id},
    .*?\breplicas=\[{replicas:ids}\], removingReplicas=(?:\[{removing:ids}\]|null),
    addingReplicas=(?:\[{adding:ids}\]|null), .*?\)(?: for topic (?:{topic:name}|{topic__2:name}\. \(.*\)))?
K18d reassigned
    AlterPartition request from node \d+ for {TP} completed the ongoing partition reassignment{reason:rest}
K19 performance
    In the last \d+ ms period, {count:int} controller events were completed, which took an average of \S+ ms each\. The
    slowest event was {text:rest}, which took {took_ms:int}(?:\.\d+)? ms\.

# -- brokers and the quorum, in server.log -----------------------------------------------------------------------------
[broker since=2.8]
K20a quorum-leader
    Completed transition to FollowerState\(fetchTimeoutMs=\d+, epoch={controller_epoch:int},
    leader(?:Id)?={controller:int}, .*
K20b quorum-leader
    Completed transition to Leader(?:State)?\((?:localId=|.*?ReplicaKey\(id=){controller:int}\b.*?,
    epoch={controller_epoch:int}, .*
K20c quorum-state
    Completed transition to
    (?P<to_state>Unattached|Voted|Candidate|Resigned)(?:State)?\(.*?\bepoch={controller_epoch:int}, .*?\)\
    (?: from (?P<from_state>[A-Z][a-z]+|null)(?:State)?\b.*)?
K20d quorum-state since=4.0 to_state=Prospective
    Completed transition to Prospective(?:State)?\(.*?\bepoch={controller_epoch:int}, .*?\)\
    (?: from (?P<from_state>[A-Z][a-z]+|null)(?:State)?\b.*)?
K21a broker-state
    Incarnation \S+ of broker {broker:int} in cluster \S+ is now (?P<to_state>STARTING)\.
K21b broker-state to_state=REGISTERED
    Successfully registered broker {broker:int} with broker epoch {broker_epoch:int}
K21c broker-state
    The broker has (?:been unfenced|caught up)\. Transitioning from {from_state:word} to {to_state:word}\.
K21d broker-state to_state=PENDING_CONTROLLED_SHUTDOWN
    Beginning controlled shutdown\.
K21e broker-state
    Transitioning from {from_state:word} to {to_state:word}\.
K22a role-failed to_state=leader
    Unable to bring up new local leader {TP} with topic id {topic_id:id} because {reason:rest}
K22b role-failed to_state=follower
    Unable to start fetching {TP} with topic ID (?:Some\({topic_id:id}\)|None) from leader (?:Some\({leader:int}\)|None)
    because {reason:rest}
"""
)
