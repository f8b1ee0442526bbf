"""A controller about what it sends to brokers and what they answer, in state-change.log."""

from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_C: Final = Role.CONTROLLER
_LEADER: Final = "LEADER_AND_ISR"
_METADATA: Final = "UPDATE_METADATA"
_STOP: Final = "STOP_REPLICA"
_ANSWERER: Final = r"\S+ \(id: {broker:int} rack: .*\)"
_ANSWER: Final = r"Received response (?:.*?error_?[cC]ode={error:int}[,)} ])?.* for "

FORMATS: Final[tuple[Format, ...]] = (
    line(
        "S1",
        EventType.SENT_PARTITION,
        _C,
        r"Sending become-(?P<to_state>leader|follower) LeaderAndIsr request {STATE} to broker {broker:int} "
        r"for partition {TP}",
        request=_LEADER,
    ),
    line(
        "S2",
        EventType.SENT,
        _C,
        r"Sending LeaderAndIsr request to broker {broker:int} with {count:int} become-leader "
        r"and {count_also:int} become-follower partitions",
        since=(2, 6),
        request=_LEADER,
    ),
    line(
        "S3",
        EventType.SENT_PARTITION,
        _C,
        r"Sending UpdateMetadata request {STATE} to brokers \w+\({brokers:ids}\) for partition {TP}",
        until=(2, 5),
        request=_METADATA,
    ),
    line(
        "S4",
        EventType.SENT,
        _C,
        r"Sending UpdateMetadata request to brokers \w+\({brokers:ids}\) for {count:int} partitions",
        since=(2, 6),
        request=_METADATA,
    ),
    line(
        "S5a",
        EventType.SENT_PARTITION,
        _C,
        r"Sending StopReplica request \w+\(partitionIndex=\d+, leaderEpoch={leader_epoch:int}, "
        r"deletePartition={delete:bool}\) to broker {broker:int} for partition {TP}",
        since=(2, 6),
        request=_STOP,
    ),
    line(
        "S5b",
        EventType.SENT,
        _C,
        r"Sending StopReplica request (?:\(delete = {delete:bool}\) )?for {count:int} replicas to broker {broker:int}",
        since=(2, 6),
        request=_STOP,
    ),
    line(
        "S5c",
        EventType.SENT,
        _C,
        r"The stop replica request \(delete = {delete:bool}\) sent to broker {broker:int} is {text:rest}",
        until=(2, 5),
        request=_STOP,
    ),
    line(
        "S6",
        EventType.ANSWERED,
        _C,
        _ANSWER + r"request {request:word} with correlation id {correlation_id:int} sent to broker " + _ANSWERER,
        since=(1, 1),
    ),
    line("S6-1.0", EventType.ANSWERED, _C, _ANSWER + r"a request sent to broker " + _ANSWERER, until=(1, 0)),
    line("S7a", EventType.REPLICAS_OFFLINE, _C, r"Mark replicas {text:rest} on broker {broker:int} as offline"),
    line(
        "S7b",
        EventType.ANSWER_FAILED,
        _C,
        r"Received error (?P<reason>(?P<error>[\w.]+).*) in LeaderAndIsr response {text:rest} from broker {broker:int}",
        request=_LEADER,
    ),
    line(
        "S7d",
        EventType.ANSWER_FAILED,
        _C,
        r"Controller {controller:int} epoch {controller_epoch:int} fails to send request {text:rest} to broker "
        + _ANSWERER
        + r"\. Reconnecting to broker\.",
    ),
    line(
        "S7c",
        EventType.REASSIGNMENT_SENT,
        _C,
        r"Sent LeaderAndIsr request {text:rest} for partition being reassigned {TP}",
        request=_LEADER,
    ),
)
