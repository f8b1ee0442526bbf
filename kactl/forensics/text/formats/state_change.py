"""A controller's lines in state-change.log: partitions, replicas, and requests to brokers."""

from functools import partial
from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_controller: Final = partial(line, role=Role.CONTROLLER)
_ONLINE: Final = (
    r"Changed partition {TP} from {from_state:word} to {to_state:word} with state LeaderAndIsr\(leader={leader:int}, "
    r"leaderEpoch={leader_epoch:int}, "
)
_PLAIN_ISR: Final = r"isr=\w+\({isr:ids}\)"
# Only the broker ids of this list are stored; see `columns._ids`.
_EPOCH_ISR: Final = r"isrWithBrokerEpoch=\w+\((?P<isr>(?:BrokerState\([^)]*\)(?:, )?)*)\)"
_RECOVERY: Final = r", leaderRecoveryState={recovery:word}"
# The reason of a failed election is in the first line of the stack trace; see `parser._add_joined`.
_LEADER: Final = "LEADER_AND_ISR"
_METADATA: Final = "UPDATE_METADATA"
_STOP: Final = "STOP_REPLICA"
_BROKER_NODE: Final = r"\S+ \(id: {broker:int} rack: .*\)"
_RESPONSE: Final = r"Received response (?:.*?error_?[cC]ode={error:int}[,)} ])?.* for "

FORMATS: Final[tuple[Format, ...]] = (
    _controller(
        "P1",
        EventType.PARTITION,
        r"Changed partition {TP} state from {from_state:word} to {to_state:word} with assigned replicas {replicas:ids}",
        raised=(2, 6),
    ),
    _controller(
        "P2a",
        EventType.PARTITION,
        r"Changed partition {TP} from {from_state:word} to {to_state:word} with leader {leader:int}",
        until=(1, 0),
    ),
    _controller(
        "P2b",
        EventType.PARTITION,
        _ONLINE + _PLAIN_ISR + r", zkVersion={partition_epoch:int}\)",
        since=(1, 1),
        until=(3, 1),
        raised=(2, 6),
    ),
    _controller(
        "P2b-3.2",
        EventType.PARTITION,
        _ONLINE + _PLAIN_ISR + _RECOVERY + r", zkVersion={partition_epoch:int}\)",
        since=(3, 2),
        until=(3, 2),
    ),
    _controller(
        "P2b-3.3",
        EventType.PARTITION,
        _ONLINE + _PLAIN_ISR + _RECOVERY + r", partitionEpoch={partition_epoch:int}\)",
        since=(3, 3),
        until=(3, 4),
    ),
    _controller(
        "P2b-3.5",
        EventType.PARTITION,
        _ONLINE + _EPOCH_ISR + _RECOVERY + r", partitionEpoch={partition_epoch:int}\)",
        since=(3, 5),
    ),
    _controller("P3", EventType.PARTITION, r"Changed partition {TP} state from {from_state:word} to {to_state:word}"),
    _controller(
        "P4a",
        EventType.PARTITION_FAILED,
        r"Initiated state change for partition {TP} from {from_state:word} to {to_state:word} failed",
        until=(1, 0),
    ),
    _controller(
        "P4b",
        EventType.PARTITION_FAILED,
        r"Controller {controller:int} epoch {controller_epoch:int} failed to change state for partition {TP} "
        r"from {from_state:word} to {to_state:word}",
        since=(1, 1),
    ),
    _controller("P5a", EventType.ELECTING, r"Started leader election for partition {TP}", until=(1, 0)),
    _controller(
        "P5b",
        EventType.ELECTED,
        r"Elected leader {leader:int} for Offline partition {TP}",
        until=(1, 0),
        strategy="offline",
    ),
    _controller(
        "R1",
        EventType.REPLICA,
        r"Changed state of replica {broker:int} for partition {TP} from {from_state:word} to {to_state:word}",
    ),
    _controller(
        "R2",
        EventType.REPLICA_FAILED,
        r"Controller {controller:int} epoch {controller_epoch:int} initiated state change of replica {broker:int} "
        r"for partition {TP} from {from_state:word} to {to_state:word} failed",
        since=(1, 1),
    ),
    _controller(
        "R2-1.0",
        EventType.REPLICA_FAILED,
        r"Initiated state change of replica {broker:int} for partition {TP} "
        r"from {from_state:word} to {to_state:word} failed",
        until=(1, 0),
    ),
    # The version is present in 2.7.2, 2.8.1 and from 3.1 on, but not in 2.8.0 and 3.0.
    _controller(
        "R3",
        EventType.ISR_CUT,
        r"Partition {TP} state changed to \(Leader:{leader:int},ISR:{isr:ids},(?:LeaderRecoveryState:{recovery:word},)?"
        r"LeaderEpoch:{leader_epoch:int},(?:(?:ZkVersion|PartitionEpoch):{partition_epoch:int},)?"
        r"ControllerEpoch:{controller_epoch:int}\) after removing replica {broker:int} from the ISR "
        r"as part of transition to {to_state:word}",
        since=(2, 6),
    ),
    _controller(
        "S1",
        EventType.SENT_PARTITION,
        r"Sending become-(?P<to_state>leader|follower) LeaderAndIsr request {STATE} to broker {broker:int} "
        r"for partition {TP}",
        request=_LEADER,
    ),
    _controller(
        "S2",
        EventType.SENT,
        r"Sending LeaderAndIsr request to broker {broker:int} with {count:int} become-leader "
        r"and {count_also:int} become-follower partitions",
        since=(2, 6),
        request=_LEADER,
    ),
    _controller(
        "S3",
        EventType.SENT_PARTITION,
        r"Sending UpdateMetadata request {STATE} to brokers \w+\({brokers:ids}\) for partition {TP}",
        until=(2, 5),
        request=_METADATA,
    ),
    _controller(
        "S4",
        EventType.SENT,
        r"Sending UpdateMetadata request to brokers \w+\({brokers:ids}\) for {count:int} partitions",
        since=(2, 6),
        request=_METADATA,
    ),
    _controller(
        "S5a",
        EventType.SENT_PARTITION,
        r"Sending StopReplica request \w+\(partitionIndex=\d+, leaderEpoch={leader_epoch:int}, "
        r"deletePartition={delete:bool}\) to broker {broker:int} for partition {TP}",
        since=(2, 6),
        request=_STOP,
    ),
    _controller(
        "S5b",
        EventType.SENT,
        r"Sending StopReplica request (?:\(delete = {delete:bool}\) )?for {count:int} replicas to broker {broker:int}",
        since=(2, 6),
        request=_STOP,
    ),
    _controller(
        "S5c",
        EventType.SENT,
        r"The stop replica request \(delete = {delete:bool}\) sent to broker {broker:int} is {text:rest}",
        until=(2, 5),
        request=_STOP,
    ),
    _controller(
        "S6",
        EventType.ANSWERED,
        _RESPONSE + r"request {request:word} with correlation id {correlation_id:int} sent to broker " + _BROKER_NODE,
        since=(1, 1),
    ),
    _controller("S6-1.0", EventType.ANSWERED, _RESPONSE + r"a request sent to broker " + _BROKER_NODE, until=(1, 0)),
    _controller("S7a", EventType.REPLICAS_OFFLINE, r"Mark replicas {text:rest} on broker {broker:int} as offline"),
    _controller(
        "S7b",
        EventType.ANSWER_FAILED,
        r"Received error (?P<reason>(?P<error>[\w.]+).*) in LeaderAndIsr response {text:rest} from broker {broker:int}",
        request=_LEADER,
    ),
    _controller(
        "S7d",
        EventType.ANSWER_FAILED,
        r"Controller {controller:int} epoch {controller_epoch:int} fails to send request {text:rest} to broker "
        + _BROKER_NODE
        + r"\. Reconnecting to broker\.",
    ),
    _controller(
        "S7c",
        EventType.REASSIGNMENT_SENT,
        r"Sent LeaderAndIsr request {text:rest} for partition being reassigned {TP}",
        request=_LEADER,
    ),
)
