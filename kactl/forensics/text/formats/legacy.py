"""Lines of versions 0.8 to 0.11 in state-change.log: the writer is named in the sentence, partitions in brackets."""

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
{OLD_STATE}
    (?:.*?Leader:{leader:int},ISR:{isr:ids},LeaderEpoch:{leader_epoch:int},ControllerEpoch:-?\d+.*?|[^\[]*?)

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
R0a replica
    {CONTROLLER} changed state of replica {broker:int} for partition {OLD_TP} from {from_state:word} to {to_state:word}
R0b replica-failed
    {CONTROLLER} initiated state change of replica {broker:int} for partition {OLD_TP} from {from_state:word} to
    {to_state:word} failed
S0a sent-partition request=LEADER_AND_ISR
    {CONTROLLER} sending become-(?P<to_state>leader|follower) LeaderAndIsr request {OLD_STATE} to broker {broker:int}
    for partition {OLD_TP}
S0b sent-partition request=UPDATE_METADATA
    {CONTROLLER} sending UpdateMetadata request {OLD_STATE} (?:with correlationId {correlation_id:int} )?to brokers?
    (?:\w+\()?{brokers:ids}\)? for partition {OLD_TP}
S0c answered
    {CONTROLLER} received response (?:.*?error_?[cC]ode={error:int}[,)} ])?.* for a request sent to broker
    (?:\S+ \(id: {broker:int} rack: .*\)|id:{broker__2:int},.*)

[broker since=0.8 until=0.11]
B0a received-partition request=LEADER_AND_ISR
    {BROKER} received LeaderAndIsr request {OLD_STATE} correlation id {correlation_id:int} from controller
    {controller:int} epoch {controller_epoch:int} for partition {OLD_TP}
B0b transition-begun request=LEADER_AND_ISR
    {BROKER} handling LeaderAndIsr request {REQUEST} starting the become-(?P<to_state>leader|follower) transition for
    partition {OLD_TP}
B0c transition-done request=LEADER_AND_ISR
    {BROKER} completed LeaderAndIsr request {REQUEST} for the become-(?P<to_state>leader|follower) transition for
    partition {OLD_TP}
B0d metadata-partition request=UPDATE_METADATA
    {BROKER} cached leader info {OLD_STATE} for partition {OLD_TP} in response to UpdateMetadata request sent by
    controller {controller:int} epoch {controller_epoch:int} with correlation id {correlation_id:int}
B0e ignored
    {BROKER} ignoring (?P<request>LeaderAndIsr|StopReplica) request from controller {controller:int} with correlation id
    {correlation_id:int} epoch {controller_epoch:int}(?: for partition {OLD_TP})? (?P<reason>since .*)
"""
)
