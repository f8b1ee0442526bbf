"""Both state machines as values: the states with their meanings, and the transitions. Generated from the tables.

The documentation and the dashboard draw them.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kactl.model import PartitionState, ReplicaState

from . import partition, replica

State = PartitionState | ReplicaState


class Transition(NamedTuple):
    """A transition. `needs`: its precondition; empty if it has none."""

    before: State
    after: State
    needs: str = ""


class Diagram(NamedTuple):
    """A state machine. `meanings`: of every state."""

    meanings: Mapping[State, str]
    transitions: tuple[Transition, ...]


PARTITION: Final = Diagram(
    {
        PartitionState.ABSENT: "never created, or deleted",
        PartitionState.NEW: "replicas are assigned, and it never had a leader",
        PartitionState.ONLINE: "a leader is elected",
        PartitionState.OFFLINE: "the leader has failed, or deletion has begun",
    },
    tuple(
        Transition(before, after, "" if needs is partition.Needs.NOTHING else needs.value)
        for (before, after), needs in partition.TRANSITIONS.items()
    ),
)
REPLICA: Final = Diagram(
    {
        ReplicaState.ABSENT: "no such replica",
        ReplicaState.NEW: "just created; it can only become a follower",
        ReplicaState.ONLINE: "the normal state; it does not imply that the broker is running",
        ReplicaState.OFFLINE: "its broker or directory failed, or it is being removed",
        ReplicaState.DELETION_STARTED: "its broker was sent the request to delete it",
        ReplicaState.DELETION_SUCCESSFUL: "its broker confirmed the deletion",
        ReplicaState.DELETION_INELIGIBLE: "its deletion failed, or cannot be attempted now",
    },
    tuple(Transition(before, after) for after, befores in replica.TRANSITIONS.items() for before in sorted(befores)),
)
