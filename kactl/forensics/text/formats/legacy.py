"""Lines of versions 0.8 to 0.11.

In state-change.log, the writer is named in the sentence. Partitions are in brackets; since 0.10, some are not.
"""

from typing import Final

from kactl.forensics.text.format import read_formats

FORMATS: Final = read_formats(
    r"""
{CONTROLLER}
    Controller {controller:int} epoch {controller_epoch:int}
{BROKER}
    Broker {speaker:int}
{REQUEST}
    correlationId {correlation_id:int} from controller {controller:int} epoch {controller_epoch:int}
{BY_METADATA}
    UpdateMetadata request sent by controller {controller:int} epoch {controller_epoch:int} with correlation id
    {correlation_id:int}
{OLD_STATE}
    (?:.*?Leader:{leader:int},ISR:{isr:ids},LeaderEpoch:{leader_epoch:int},ControllerEpoch:-?\d+.*?|\
    (?!\w*PartitionState\()[^\[]*?)
{PARTITION}
    (?:{OLD_TP}|{topic__2:name}-{partition__2:int})
# Up to 0.8.2, in 0.9, and from 0.10 on.
{BROKER_NODE}
    (?:id:{broker:int},host:\S*|Node\({broker__2:int}, .*?\)|\S+ \(id: {broker__3:int} rack: .*?\))

[controller since=0.8 until=0.11]
P0a partition
    {CONTROLLER} changed partition {OLD_TP} from {from_state:word} to {to_state:word} with leader {leader:int}
P0b partition
    {CONTROLLER} changed partition {OLD_TP} state from {from_state:word} to
    {to_state:word}(?: with assigned replicas {replicas:ids})?
P0c elected strategy=offline
    {CONTROLLER} elected leader {leader:int} for Offline partition {OLD_TP}
P0d electing
    {CONTROLLER} started leader election for partition {OLD_TP}
P0e partition-failed
    {CONTROLLER} initiated state change for partition {OLD_TP} from {from_state:word} to {to_state:word} failed
P0f partition-failed
    {CONTROLLER} encountered error while electing leader for partition {OLD_TP} due to: {reason:rest}
# 0.8.0 does not name the state before.
R0a replica
    {CONTROLLER} changed state of replica {broker:int} for partition {OLD_TP}(?: from {from_state:word})? to
    {to_state:word}
R0b replica-failed
    {CONTROLLER} initiated state change of replica {broker:int} for partition {OLD_TP}(?: from {from_state:word})? to
    {to_state:word} failed
S0a sent-partition request=LEADER_AND_ISR
    {CONTROLLER} sending become-(?P<to_state>leader|follower) LeaderAndIsr request {OLD_STATE}\
    (?: with correlationId {correlation_id:int})? to broker {broker:int} for partition {OLD_TP}
S0b sent-partition request=UPDATE_METADATA
    {CONTROLLER} sending UpdateMetadata request {OLD_STATE} (?:with correlationId {correlation_id:int} )?to brokers?
    (?:\w+\()?{brokers:ids}\)? for partition {PARTITION}
S0c answered
    {CONTROLLER} received response (?:correlationId {correlation_id:int}|{CODES}.*)
    for a request sent to broker {BROKER_NODE}
S0d reassignment-sent request=LEADER_AND_ISR
    {CONTROLLER} sent LeaderAndIsr request {text:rest} for partition being reassigned {OLD_TP}
S0e answer-failed request=LEADER_AND_ISR
    {CONTROLLER} (?P<reason>failed to send LeaderAndIsr request with new assigned replica list .*) to leader for
    partition being reassigned {OLD_TP}
S7d-0.8 answer-failed until=0.9
    {CONTROLLER} fails to send request {text:rest} to broker
    (?:id:{broker:int},host:\S*|Node\({broker__2:int}, .*?\))\. Reconnecting to broker\.
# -- controller.log
C1a-0.8 controller-elected
    Broker {controller:int} starting become controller state transition
C2a-0.8 controller-ready
    Broker {controller:int} is ready to serve as the new controller with epoch {controller_epoch:int}
C2c-0.8 controller-resigned
    Broker {controller:int} resigned as the controller
C2e-0.8 controller-resigned "reason=ZK expired"
    ZK expired; shut down all controller components and try to re-elect
C6b-0.8 imbalance
    leader imbalance ratio for broker {broker:int} is (?P<ratio>[\d.]+|NaN)
# The writers of these are selectors of leaders, which do not name the controller.
C7a-0.8 electing strategy=offline unclean=true
    No broker in ISR is alive for {OLD_TP}\. Pick the leader from the alive assigned replicas: (?P<brokers>\d[\d,]*)
C7b-0.8 elected strategy=offline
    Selected new leader and ISR \{"leader":{leader:int},"leader_epoch":{leader_epoch:int},"isr":\[{isr:ids}\]\} for
    offline partition {OLD_TP}
C7c-0.8 electing strategy=preferred
    Current leader {prev_leader:int} for partition {OLD_TP} is not the preferred replica\. (?:Trigerring|Triggering)
    preferred replica leader election
C7d-0.8 elected strategy=controlled-shutdown
    Partition {OLD_TP} : current leader = {prev_leader:int}, new leader = {leader:int}

[broker since=0.8 until=0.11]
B0a received-partition request=LEADER_AND_ISR
    {BROKER} received LeaderAndIsr request {OLD_STATE} correlation id {correlation_id:int} from controller
    {controller:int} epoch {controller_epoch:int} for partition {OLD_TP}
B0a-0.9 received-partition since=0.9 request=LEADER_AND_ISR
    {BROKER} received LeaderAndIsr request {STATE} correlation id {correlation_id:int} from controller {controller:int}
    epoch {controller_epoch:int} for partition {OLD_TP}
B0b transition-begun request=LEADER_AND_ISR
    {BROKER} handling LeaderAndIsr request {REQUEST} starting the become-(?P<to_state>leader|follower) transition for
    partition {PARTITION}
B0c transition-done request=LEADER_AND_ISR
    {BROKER} completed LeaderAndIsr request {REQUEST} for the become-(?P<to_state>leader|follower) transition for
    partition {PARTITION}
B0d metadata-partition request=UPDATE_METADATA
    {BROKER} cached leader info {OLD_STATE} for partition {PARTITION} in response to {BY_METADATA}
B0e ignored
    {BROKER} ignoring (?P<request>LeaderAndIsr|StopReplica) request from controller {controller:int} with correlation id
    {correlation_id:int}(?: epoch {controller_epoch:int})?(?: for partition {OLD_TP})?
    (?P<reason>since its (?:associated leader epoch {leader_epoch:int} |controller epoch {controller_epoch__2:int} )is
    .*|as itself is not in assigned replica list .*)
B0f ignored request=LEADER_AND_ISR until=0.8
    {BROKER} received invalid LeaderAndIsr request with correlation id {correlation_id:int} from controller
    {controller:int} epoch {controller_epoch:int} with (?P<reason>an older leader epoch {leader_epoch:int} for partition
    {OLD_TP}, current leader epoch is -?\d+)
# The line has the two numbers in the places of each other.
B0g ignored request=LEADER_AND_ISR until=0.8
    {BROKER} received LeaderAndIsr request correlation id {controller_epoch:int} with
    (?P<reason>an old controller epoch {correlation_id:int}\. Latest known controller epoch is -?\d+)
B0h ignored request=STOP_REPLICA
    {BROKER} received stop replica request from
    (?P<reason>an old controller epoch {controller_epoch:int}\. Latest known controller epoch is .*)
B0i ignored request=UPDATE_METADATA
    {BROKER} received update metadata request with correlation id {correlation_id:int} from
    (?P<reason>an old controller {controller:int} with epoch {controller_epoch:int}\. Latest known controller epoch is
    -?\d+)
B0j ignored request=LEADER_AND_ISR
    {BROKER} received LeaderAndIsrRequest with correlation id {correlation_id:int} from controller {controller:int}
    epoch {controller_epoch:int} for partition {PARTITION} but
    (?P<reason>cannot become follower since the new leader {leader:int} is unavailable\.)
B0k role-failed request=LEADER_AND_ISR
    Error on broker {speaker:int} while processing LeaderAndIsr request (?:with )?correlationId {correlation_id:int}
    received from controller {controller:int} epoch {controller_epoch:int}(?: for partition {PARTITION})?
B0l metadata-partition request=UPDATE_METADATA leader=-2
    {BROKER} deleted partition {PARTITION} from metadata cache in response to {BY_METADATA}
B0m stopping request=STOP_REPLICA
    {BROKER} handling stop replica(?: \(delete={delete:bool}\))? for partition {PARTITION}
"""
)
