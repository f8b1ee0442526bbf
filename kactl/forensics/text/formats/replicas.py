"""A controller about replicas, in state-change.log."""

from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_C: Final = Role.CONTROLLER

FORMATS: Final[tuple[Format, ...]] = (
    line(
        "R1",
        EventType.REPLICA,
        _C,
        r"Changed state of replica {broker:int} for partition {TP} from {from_state:word} to {to_state:word}",
    ),
    line(
        "R2",
        EventType.REPLICA_FAILED,
        _C,
        r"Controller {controller:int} epoch {controller_epoch:int} initiated state change of replica {broker:int} "
        r"for partition {TP} from {from_state:word} to {to_state:word} failed",
        since=(1, 1),
    ),
    line(
        "R2-1.0",
        EventType.REPLICA_FAILED,
        _C,
        r"Initiated state change of replica {broker:int} for partition {TP} "
        r"from {from_state:word} to {to_state:word} failed",
        until=(1, 0),
    ),
    # The version stands there in 2.7.2, 2.8.1 and from 3.1 on, but not in 2.8.0 and 3.0.
    line(
        "R3",
        EventType.ISR_CUT,
        _C,
        r"Partition {TP} state changed to \(Leader:{leader:int},ISR:{isr:ids},(?:LeaderRecoveryState:{recovery:word},)?"
        r"LeaderEpoch:{leader_epoch:int},(?:(?:ZkVersion|PartitionEpoch):{partition_epoch:int},)?"
        r"ControllerEpoch:{controller_epoch:int}\) after removing replica {broker:int} from the ISR "
        r"as part of transition to {to_state:word}",
        since=(2, 6),
    ),
)
