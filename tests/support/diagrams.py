"""Generator of docs/state-machines.md from the transition tables.

`python -m tests.support.diagrams` writes the page; a test fails while the page differs from the tables.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from kactl.machines import partition, replica
from kactl.model import PartitionState, ReplicaState

from .tree import ROOT

PAGE: Final = ROOT / "docs" / "state-machines.md"

_PARTITION_STATES: Final = {
    PartitionState.ABSENT: "never created, or deleted",
    PartitionState.NEW: "replicas are assigned, and it never had a leader",
    PartitionState.ONLINE: "a leader is elected",
    PartitionState.OFFLINE: "the leader has failed, or deletion has begun",
}
_REPLICA_STATES: Final = {
    ReplicaState.ABSENT: "no such replica",
    ReplicaState.NEW: "just created; it can only become a follower",
    ReplicaState.ONLINE: "the normal state; it does not imply that the broker is running",
    ReplicaState.OFFLINE: "its broker or directory failed, or it is being removed",
    ReplicaState.DELETION_STARTED: "its broker was sent the request to delete it",
    ReplicaState.DELETION_SUCCESSFUL: "its broker confirmed the deletion",
    ReplicaState.DELETION_INELIGIBLE: "its deletion failed, or cannot be attempted now",
}


def state_machine_page() -> str:
    """Returns the text of the page."""
    partitions = [(before, after, needs.value) for (before, after), needs in partition.TRANSITIONS.items()]
    replicas = [(before, after, "") for after, befores in replica.TRANSITIONS.items() for before in sorted(befores)]
    return f"""# Partition and replica states

`python -m tests.support.diagrams` generates this page from the tables in `kactl/machines/`. A transition that is not
drawn is rejected and logged, and has no effect.

## Partition

{_meanings(_PARTITION_STATES.items())}

{_diagram(partitions)}

"An election" writes a leader with the next leader epoch, even if the leader stays the same. "A first leader" is written
with leader epoch 0 and with all live replicas in the ISR. `kactl/machines/election.py` contains the choice of a leader.

## Replica

{_meanings(_REPLICA_STATES.items())}

{_diagram(replicas)}
"""


def _meanings(states: Iterable[tuple[IntEnum, str]]) -> str:
    lines = [f"| {state.name} | {int(state)} | {meaning} |" for state, meaning in states]
    return "\n".join(["| state | code | meaning |", "| --- | --- | --- |", *lines])


def _diagram(moves: Iterable[tuple[IntEnum, IntEnum, str]]) -> str:
    lines = [
        f"    {before.name} --> {after.name}" + (f": {needs}" if needs not in ("", "nothing") else "")
        for before, after, needs in moves
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


if __name__ == "__main__":
    PAGE.write_text(state_machine_page())
