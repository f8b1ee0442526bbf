"""A controller's lines in state-change.log: partitions, replicas, and requests to brokers."""

from typing import Final

from kactl.forensics.text.format import read_formats

FORMATS: Final = read_formats(
    r"""
{ONLINE}
    Changed partition {TP} from {from_state:word} to {to_state:word} with state LeaderAndIsr\(leader={leader:int},
    leaderEpoch={leader_epoch:int}(?:, (?:isUncleanLeader={unclean:bool}|linkedLeaderEpoch=[^,]*))*,
{PLAIN_ISR}
    isr=\w+\({isr:ids}\)
# Only the broker ids of this list are stored; see `columns._ids`.
{EPOCH_ISR}
    isrWithBrokerEpoch=\w+\((?P<isr>(?:BrokerState\([^)]*\)(?:, )?)*)\)
{RECOVERY}
    , leaderRecoveryState={recovery:word}
{BROKER_NODE}
    \S+ \(id: {broker:int} rack: .*\)
{RESPONSE}
    Received response {CODES}.* for
# From 2.4 on, states have the name of their partition.
{NAMELESS_STATE}
    (?!\w+\(topicName=){STATE}
{NAMED_STATE}
    (?=\w+\(topicName=){STATE}

[controller]
P1 partition raised=2.6
    Changed partition {TP} state from {from_state:word} to {to_state:word} with assigned replicas {replicas:ids}
P2a partition until=1.0
    Changed partition {TP} from {from_state:word} to {to_state:word} with leader {leader:int}
P2b partition since=1.1 until=3.1 raised=2.6
    {ONLINE} {PLAIN_ISR}, zkVersion={partition_epoch:int}\)
P2b-3.2 partition since=3.2 until=3.2
    {ONLINE} {PLAIN_ISR}{RECOVERY}, zkVersion={partition_epoch:int}\)
P2b-3.3 partition since=3.3 until=3.4
    {ONLINE} {PLAIN_ISR}{RECOVERY}, partitionEpoch={partition_epoch:int}\)
P2b-3.5 partition since=3.5
    {ONLINE} {EPOCH_ISR}{RECOVERY}, partitionEpoch={partition_epoch:int}\)
P3 partition
    Changed partition {TP} state from {from_state:word} to {to_state:word}
# The reason of a failed election is in the first line of the stack trace; see `parser._add_joined`.
P4a partition-failed until=1.0
    Initiated state change for partition {TP} from {from_state:word} to {to_state:word} failed
P4b partition-failed since=1.1
    Controller {controller:int} epoch {controller_epoch:int} failed to change state for partition {TP} from
    {from_state:word} to {to_state:word}
P5a electing until=1.0
    Started leader election for partition {TP}
P5b elected until=1.0 strategy=offline
    Elected leader {leader:int} for Offline partition {TP}
R1 replica
    Changed state of replica {broker:int} for partition {TP} from {from_state:word} to {to_state:word}
R2 replica-failed since=1.1
    Controller {controller:int} epoch {controller_epoch:int} initiated state change of replica {broker:int} for
    partition {TP} from {from_state:word} to {to_state:word} failed
R2-1.0 replica-failed until=1.0
    Initiated state change of replica {broker:int} for partition {TP} from {from_state:word} to {to_state:word} failed
# The version is present in 2.7.2, 2.8.1 and from 3.1 on, but not in 2.8.0 and 3.0.
R3 isr-cut since=2.6
    Partition {TP} state changed to
    \(Leader:{leader:int},ISR:{isr:ids},(?:LeaderRecoveryState:{recovery:word},)?LeaderEpoch:{leader_epoch:int},\
    (?:(?:ZkVersion|PartitionEpoch):{partition_epoch:int},)?ControllerEpoch:{controller_epoch:int}\) after removing
    replica {broker:int} from the ISR as part of transition to {to_state:word}
S1 sent-partition until=2.3 request=LEADER_AND_ISR
    Sending become-(?P<to_state>leader|follower) LeaderAndIsr request {NAMELESS_STATE} to broker {broker:int} for
    partition {TP}
S1-2.4 sent-partition since=2.4 request=LEADER_AND_ISR
    Sending become-(?P<to_state>leader|follower) LeaderAndIsr request {NAMED_STATE} to broker {broker:int} for partition
    {TP}
S2 sent since=2.6 request=LEADER_AND_ISR
    Sending LeaderAndIsr request to broker {broker:int} with {count:int} become-leader and {count_also:int}
    become-follower partitions
S3 sent-partition until=2.3 request=UPDATE_METADATA
    Sending UpdateMetadata request {NAMELESS_STATE} to brokers \w+\({brokers:ids}\) for partition {TP}
S3-2.4 sent-partition since=2.4 until=2.5 request=UPDATE_METADATA
    Sending UpdateMetadata request {NAMED_STATE} to brokers \w+\({brokers:ids}\) for partition {TP}
S4 sent since=2.6 request=UPDATE_METADATA
    Sending UpdateMetadata request to brokers \w+\({brokers:ids}\) for {count:int} partitions
S5a sent-partition since=2.6 request=STOP_REPLICA
    Sending StopReplica request \w+\(partitionIndex=\d+, leaderEpoch={leader_epoch:int}, deletePartition={delete:bool}\)
    to broker {broker:int} for partition {TP}
S5b sent since=2.6 request=STOP_REPLICA
    Sending StopReplica request (?:\(delete = {delete:bool}\) )?for {count:int} replicas to broker {broker:int}
S5c sent until=2.5 request=STOP_REPLICA
    The stop replica request \(delete = {delete:bool}\) sent to broker {broker:int} is {text:rest}
S6 answered since=1.1
    {RESPONSE} request {request:word} with correlation id {correlation_id:int} sent to broker {BROKER_NODE}
S6-1.0 answered until=1.0
    {RESPONSE} a request sent to broker {BROKER_NODE}
S7a replicas-offline
    Mark replicas {text:rest} on broker {broker:int} as offline
S7b answer-failed request=LEADER_AND_ISR
    Received error (?P<reason>(?P<error>[\w.]+).*) in LeaderAndIsr response {text:rest} from broker {broker:int}
S7d answer-failed since=0.10
    Controller {controller:int} epoch {controller_epoch:int} fails to send request {text:rest} to broker {BROKER_NODE}\.
    Reconnecting to broker\.
S7e answer-failed since=0.8
    Not sending request (?P<text>(?:\(type=|Name: ?)?(?P<request>LeaderAndIs|StopReplica|UpdateMetadata)?.*) to broker
    {broker:int}, since (?P<reason>it is offline)\.
S7c reassignment-sent request=LEADER_AND_ISR
    Sent LeaderAndIsr request {text:rest} for partition being reassigned {TP}
"""
)
