"""What versions 0.8 to 0.11 write to state-change.log: who speaks stands in the sentence, partitions in brackets."""

from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, Version, line

_FIRST: Final[Version] = (0, 8)
_LAST: Final[Version] = (0, 11)
_C: Final = r"Controller {controller:int} epoch {controller_epoch:int} "
_B: Final = r"Broker {speaker:int} "
_REQUEST: Final = r" correlationId {correlation_id:int} from controller {controller:int} epoch {controller_epoch:int} "
_CONTROLLER: Final = Role.CONTROLLER
_BROKER: Final = Role.BROKER
_LEADER: Final = "LEADER_AND_ISR"
_METADATA: Final = "UPDATE_METADATA"
_STATE: Final = (
    r"(?:.*?Leader:{leader:int},ISR:{isr:ids},LeaderEpoch:{leader_epoch:int},ControllerEpoch:-?\d+.*?|[^\[]*?)"
)

_LINES: Final[tuple[tuple[str, EventType, Role, str, dict[str, str]], ...]] = (
    (
        "P0a",
        EventType.PARTITION,
        _CONTROLLER,
        _C + r"changed partition {OLD_TP} from {from_state:word} to {to_state:word} with leader {leader:int}",
        {},
    ),
    (
        "P0b",
        EventType.PARTITION,
        _CONTROLLER,
        _C + r"changed partition {OLD_TP} state from {from_state:word} to {to_state:word}"
        r"(?: with assigned replicas {replicas:ids})?",
        {},
    ),
    (
        "P0c",
        EventType.ELECTED,
        _CONTROLLER,
        _C + r"elected leader {leader:int} for Offline partition {OLD_TP}",
        {"strategy": "offline"},
    ),
    ("P0d", EventType.ELECTING, _CONTROLLER, _C + r"started leader election for partition {OLD_TP}", {}),
    (
        "P0e",
        EventType.PARTITION_FAILED,
        _CONTROLLER,
        _C + r"initiated state change for partition {OLD_TP} from {from_state:word} to {to_state:word} failed",
        {},
    ),
    (
        "P0f",
        EventType.PARTITION_FAILED,
        _CONTROLLER,
        _C + r"encountered error while electing leader for partition {OLD_TP} due to: {reason:rest}",
        {},
    ),
    (
        "R0a",
        EventType.REPLICA,
        _CONTROLLER,
        _C + r"changed state of replica {broker:int} for partition {OLD_TP} "
        r"from {from_state:word} to {to_state:word}",
        {},
    ),
    (
        "R0b",
        EventType.REPLICA_FAILED,
        _CONTROLLER,
        _C + r"initiated state change of replica {broker:int} for partition {OLD_TP} "
        r"from {from_state:word} to {to_state:word} failed",
        {},
    ),
    (
        "S0a",
        EventType.SENT_PARTITION,
        _CONTROLLER,
        _C
        + r"sending become-(?P<to_state>leader|follower) LeaderAndIsr request "
        + _STATE
        + r" to broker {broker:int} for partition {OLD_TP}",
        {"request": _LEADER},
    ),
    (
        "S0b",
        EventType.SENT_PARTITION,
        _CONTROLLER,
        _C
        + r"sending UpdateMetadata request "
        + _STATE
        + r" (?:with correlationId {correlation_id:int} )?to brokers? (?:\w+\()?{brokers:ids}\)? "
        r"for partition {OLD_TP}",
        {"request": _METADATA},
    ),
    (
        "S0c",
        EventType.ANSWERED,
        _CONTROLLER,
        _C + r"received response (?:.*?error_?[cC]ode={error:int}[,)} ])?.* for a request sent to broker "
        r"(?:\S+ \(id: {broker:int} rack: .*\)|id:{broker__2:int},.*)",
        {},
    ),
    (
        "B0a",
        EventType.RECEIVED_PARTITION,
        _BROKER,
        _B
        + r"received LeaderAndIsr request "
        + _STATE
        + r" correlation id {correlation_id:int} from controller {controller:int} epoch {controller_epoch:int} "
        r"for partition {OLD_TP}",
        {"request": _LEADER},
    ),
    (
        "B0b",
        EventType.TRANSITION_BEGUN,
        _BROKER,
        _B
        + r"handling LeaderAndIsr request"
        + _REQUEST
        + r"starting the become-(?P<to_state>leader|follower) transition for partition {OLD_TP}",
        {"request": _LEADER},
    ),
    (
        "B0c",
        EventType.TRANSITION_DONE,
        _BROKER,
        _B
        + r"completed LeaderAndIsr request"
        + _REQUEST
        + r"for the become-(?P<to_state>leader|follower) transition for partition {OLD_TP}",
        {"request": _LEADER},
    ),
    (
        "B0d",
        EventType.METADATA_PARTITION,
        _BROKER,
        _B
        + r"cached leader info "
        + _STATE
        + r" for partition {OLD_TP} in response to UpdateMetadata request sent by controller {controller:int} "
        r"epoch {controller_epoch:int} with correlation id {correlation_id:int}",
        {"request": _METADATA},
    ),
    (
        "B0e",
        EventType.IGNORED,
        _BROKER,
        _B + r"ignoring (?P<request>LeaderAndIsr|StopReplica) request from controller {controller:int} "
        r"with correlation id {correlation_id:int} epoch {controller_epoch:int}(?: for partition {OLD_TP})? "
        r"(?P<reason>since .*)",
        {},
    ),
)

FORMATS: Final[tuple[Format, ...]] = tuple(
    line(id, type, role, pattern, since=_FIRST, until=_LAST, request=says.get("request"), strategy=says.get("strategy"))
    for id, type, role, pattern, says in _LINES
)
