"""Lines of versions 0.8 to 0.11 in state-change.log: the writer is named in the sentence, partitions in brackets."""

from functools import partial
from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_controller: Final = partial(line, role=Role.CONTROLLER, since=(0, 8), until=(0, 11))
_broker: Final = partial(line, role=Role.BROKER, since=(0, 8), until=(0, 11))
_C: Final = r"Controller {controller:int} epoch {controller_epoch:int} "
_B: Final = r"Broker {speaker:int} "
_REQUEST: Final = r" correlationId {correlation_id:int} from controller {controller:int} epoch {controller_epoch:int} "
_LEADER: Final = "LEADER_AND_ISR"
_METADATA: Final = "UPDATE_METADATA"
_STATE: Final = (
    r"(?:.*?Leader:{leader:int},ISR:{isr:ids},LeaderEpoch:{leader_epoch:int},ControllerEpoch:-?\d+.*?|[^\[]*?)"
)

FORMATS: Final[tuple[Format, ...]] = (
    _controller(
        "P0a",
        EventType.PARTITION,
        _C + r"changed partition {OLD_TP} from {from_state:word} to {to_state:word} with leader {leader:int}",
    ),
    _controller(
        "P0b",
        EventType.PARTITION,
        _C + r"changed partition {OLD_TP} state from {from_state:word} to {to_state:word}"
        r"(?: with assigned replicas {replicas:ids})?",
    ),
    _controller(
        "P0c", EventType.ELECTED, _C + r"elected leader {leader:int} for Offline partition {OLD_TP}", strategy="offline"
    ),
    _controller("P0d", EventType.ELECTING, _C + r"started leader election for partition {OLD_TP}"),
    _controller(
        "P0e",
        EventType.PARTITION_FAILED,
        _C + r"initiated state change for partition {OLD_TP} from {from_state:word} to {to_state:word} failed",
    ),
    _controller(
        "P0f",
        EventType.PARTITION_FAILED,
        _C + r"encountered error while electing leader for partition {OLD_TP} due to: {reason:rest}",
    ),
    _controller(
        "R0a",
        EventType.REPLICA,
        _C + r"changed state of replica {broker:int} for partition {OLD_TP} "
        r"from {from_state:word} to {to_state:word}",
    ),
    _controller(
        "R0b",
        EventType.REPLICA_FAILED,
        _C + r"initiated state change of replica {broker:int} for partition {OLD_TP} "
        r"from {from_state:word} to {to_state:word} failed",
    ),
    _controller(
        "S0a",
        EventType.SENT_PARTITION,
        _C
        + r"sending become-(?P<to_state>leader|follower) LeaderAndIsr request "
        + _STATE
        + r" to broker {broker:int} for partition {OLD_TP}",
        request=_LEADER,
    ),
    _controller(
        "S0b",
        EventType.SENT_PARTITION,
        _C
        + r"sending UpdateMetadata request "
        + _STATE
        + r" (?:with correlationId {correlation_id:int} )?to brokers? (?:\w+\()?{brokers:ids}\)? "
        r"for partition {OLD_TP}",
        request=_METADATA,
    ),
    _controller(
        "S0c",
        EventType.ANSWERED,
        _C + r"received response (?:.*?error_?[cC]ode={error:int}[,)} ])?.* for a request sent to broker "
        r"(?:\S+ \(id: {broker:int} rack: .*\)|id:{broker__2:int},.*)",
    ),
    _broker(
        "B0a",
        EventType.RECEIVED_PARTITION,
        _B
        + r"received LeaderAndIsr request "
        + _STATE
        + r" correlation id {correlation_id:int} from controller {controller:int} epoch {controller_epoch:int} "
        r"for partition {OLD_TP}",
        request=_LEADER,
    ),
    _broker(
        "B0b",
        EventType.TRANSITION_BEGUN,
        _B
        + r"handling LeaderAndIsr request"
        + _REQUEST
        + r"starting the become-(?P<to_state>leader|follower) transition for partition {OLD_TP}",
        request=_LEADER,
    ),
    _broker(
        "B0c",
        EventType.TRANSITION_DONE,
        _B
        + r"completed LeaderAndIsr request"
        + _REQUEST
        + r"for the become-(?P<to_state>leader|follower) transition for partition {OLD_TP}",
        request=_LEADER,
    ),
    _broker(
        "B0d",
        EventType.METADATA_PARTITION,
        _B
        + r"cached leader info "
        + _STATE
        + r" for partition {OLD_TP} in response to UpdateMetadata request sent by controller {controller:int} "
        r"epoch {controller_epoch:int} with correlation id {correlation_id:int}",
        request=_METADATA,
    ),
    _broker(
        "B0e",
        EventType.IGNORED,
        _B + r"ignoring (?P<request>LeaderAndIsr|StopReplica) request from controller {controller:int} "
        r"with correlation id {correlation_id:int} epoch {controller_epoch:int}(?: for partition {OLD_TP})? "
        r"(?P<reason>since .*)",
    ),
)
