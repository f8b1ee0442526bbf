"""A controller about partitions, in state-change.log. Each line says `from` which state `to` which."""

from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_C: Final = Role.CONTROLLER
_ONLINE: Final = (
    r"Changed partition {TP} from {from_state:word} to {to_state:word} with state LeaderAndIsr\(leader={leader:int}, "
    r"leaderEpoch={leader_epoch:int}, "
)
_PLAIN_ISR: Final = r"isr=\w+\({isr:ids}\)"
# The id of each broker is all that is taken of these; see `columns.ids`.
_EPOCH_ISR: Final = r"isrWithBrokerEpoch=\w+\((?P<isr>(?:BrokerState\([^)]*\)(?:, )?)*)\)"
_RECOVERY: Final = r", leaderRecoveryState={recovery:word}"
# Why an election failed stands in the first line of the stack trace; see `joined`.

FORMATS: Final[tuple[Format, ...]] = (
    line(
        "P1",
        EventType.PARTITION,
        _C,
        r"Changed partition {TP} state from {from_state:word} to {to_state:word} with assigned replicas {replicas:ids}",
        raised=(2, 6),
    ),
    line(
        "P2a",
        EventType.PARTITION,
        _C,
        r"Changed partition {TP} from {from_state:word} to {to_state:word} with leader {leader:int}",
        until=(1, 0),
    ),
    line(
        "P2b",
        EventType.PARTITION,
        _C,
        _ONLINE + _PLAIN_ISR + r", zkVersion={partition_epoch:int}\)",
        since=(1, 1),
        until=(3, 1),
        raised=(2, 6),
    ),
    line(
        "P2b-3.2",
        EventType.PARTITION,
        _C,
        _ONLINE + _PLAIN_ISR + _RECOVERY + r", zkVersion={partition_epoch:int}\)",
        since=(3, 2),
        until=(3, 2),
    ),
    line(
        "P2b-3.3",
        EventType.PARTITION,
        _C,
        _ONLINE + _PLAIN_ISR + _RECOVERY + r", partitionEpoch={partition_epoch:int}\)",
        since=(3, 3),
        until=(3, 4),
    ),
    line(
        "P2b-3.5",
        EventType.PARTITION,
        _C,
        _ONLINE + _EPOCH_ISR + _RECOVERY + r", partitionEpoch={partition_epoch:int}\)",
        since=(3, 5),
    ),
    line("P3", EventType.PARTITION, _C, r"Changed partition {TP} state from {from_state:word} to {to_state:word}"),
    line(
        "P4a",
        EventType.PARTITION_FAILED,
        _C,
        r"Initiated state change for partition {TP} from {from_state:word} to {to_state:word} failed",
        until=(1, 0),
    ),
    line(
        "P4b",
        EventType.PARTITION_FAILED,
        _C,
        r"Controller {controller:int} epoch {controller_epoch:int} failed to change state for partition {TP} "
        r"from {from_state:word} to {to_state:word}",
        since=(1, 1),
    ),
    line("P5a", EventType.ELECTING, _C, r"Started leader election for partition {TP}", until=(1, 0)),
    line(
        "P5b",
        EventType.ELECTED,
        _C,
        r"Elected leader {leader:int} for Offline partition {TP}",
        until=(1, 0),
        strategy="offline",
    ),
)
