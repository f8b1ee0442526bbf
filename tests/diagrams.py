"""docs/state-machines.md, drawn from the tables of moves, so that it cannot lie.

`python -m tests.diagrams` writes it; a test fails while it says anything else than the tables.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from kactl.machines import partition, replica
from kactl.model import PartitionState, ReplicaState
from tests.tree import ROOT

PAGE: Final = ROOT / "docs" / "state-machines.md"

_PARTITION_STATES: Final = {
    PartitionState.ABSENT: "never created, or deleted",
    PartitionState.NEW: "replicas are assigned, it never had a leader",
    PartitionState.ONLINE: "a leader was elected",
    PartitionState.OFFLINE: "the leader is gone, or deletion has begun",
}
_REPLICA_STATES: Final = {
    ReplicaState.ABSENT: "no such replica",
    ReplicaState.NEW: "just created; it can only be told to follow",
    ReplicaState.ONLINE: "the normal state; it does not say that the broker is up",
    ReplicaState.OFFLINE: "its broker or directory failed, or it is being taken out",
    ReplicaState.DELETION_STARTED: "its broker was asked to delete it",
    ReplicaState.DELETION_SUCCESSFUL: "its broker has confirmed that",
    ReplicaState.DELETION_INELIGIBLE: "deleting it failed, or cannot be tried now",
}


def page() -> str:
    """The whole page."""
    partitions = [(before, after, needs.value) for (before, after), needs in partition.TRANSITIONS.items()]
    replicas = [(before, after, "") for after, befores in replica.TRANSITIONS.items() for before in sorted(befores)]
    return f"""# The lives of partitions and replicas

Drawn from the tables in `kactl/machines/`. A move that is not drawn is refused, logged, and leaves no trace.

## A partition

{_meanings(_PARTITION_STATES.items())}

{_diagram(partitions)}

"An election" writes a leader under the next leader epoch, even if it is the same leader; "a first leader" begins at
epoch 0 with everybody in sync who is online. How a leader is chosen stands in `kactl/machines/election.py`.

## A replica

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
    PAGE.write_text(page())
