"""Generator of docs/state-machines.md from the transition tables.

`python -m tests.support.diagrams` writes the page; a test fails while the page differs from the tables.
"""

from collections.abc import Iterable
from typing import Final

from kactl.decide.machines.diagrams import PARTITION, REPLICA, Diagram, Transition

from .tree import ROOT

PAGE: Final = ROOT / "docs" / "state-machines.md"


def state_machine_page() -> str:
    """Returns the text of the page."""
    return f"""# Partition and replica states

`python -m tests.support.diagrams` generates this page from the tables in `kactl/decide/machines/`. A transition that is
not drawn is rejected and logged, and has no effect.

## Partition

{_meanings(PARTITION)}

{_diagram(PARTITION.transitions)}

"An election" writes a leader with the next leader epoch, even if the leader stays the same. "A first leader" is written
with leader epoch 0 and with all live replicas in the ISR. `kactl/decide/machines/election.py`
has the choice of a leader.

## Replica

{_meanings(REPLICA)}

{_diagram(REPLICA.transitions)}
"""


def _meanings(diagram: Diagram) -> str:
    lines = [f"| {state.name} | {int(state)} | {meaning} |" for state, meaning in diagram.meanings.items()]
    return "\n".join(["| state | code | meaning |", "| --- | --- | --- |", *lines])


def _diagram(transitions: Iterable[Transition]) -> str:
    lines = [
        f"    {each.before.name} --> {each.after.name}" + (f": {each.needs}" if each.needs else "")
        for each in transitions
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


if __name__ == "__main__":
    PAGE.write_text(state_machine_page())
