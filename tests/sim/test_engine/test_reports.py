"""Reports of violations: everything that is needed to understand and repeat one, on one screen."""

from typing import NamedTuple

from kactl.testing.history import Event
from kactl.testing.violations import Violation
from tests.sim.engine.reports import Origin, report
from tests.sim.engine.script import Action, ScheduleSpec, Script


class Failed(NamedTuple):
    signature: str
    violation: Violation | None
    error: str = ""
    steps: int = 48_213
    virtual_ms: float = 31_884.0


SENT = Event(1, 30_000.0, "broker 4", "node.start", {"incarnation": 2})
ACCEPTED = Event(9, 31_884.0, "broker 4", "req.accept", {"message": 3, "what": "LeaderAndIsr", "controller_epoch": 7})
VIOLATION = Violation("INV-49", "LeaderAndIsr accepted before any UpdateMetadata", event=ACCEPTED, contradicts=SENT)
SCRIPT = Script(
    name="INV-49-112",
    schedule=ScheduleSpec("shuffle", seed=8842),
    actions=[
        Action("create", args={"topic": "t1", "replicas": [[1, 2], [2, 4]]}),
        Action("kill", at_ms=30_000.0, args={"node": "broker 4"}),
        Action("elect", at_point="BrokerChange.first_send", hit=2),
    ],
)
ORIGIN = Origin(112, "1f0c2ab", "python -m tests.sim replay .sim/INV-49-112.json", "shrunk 57 -> 3 actions in 38 CPU-s")


def test_report_has_everything_on_one_screen() -> None:
    lines = report(SCRIPT, Failed(VIOLATION.signature, VIOLATION), ORIGIN, invariant="full state comes first")

    assert lines == [
        "INV-49  full state comes first",
        "  LeaderAndIsr accepted before any UpdateMetadata",
        "  event:       31.884 s  broker 4  accepts LeaderAndIsr #3 epoch 7",
        "  contradicts: 30.000 s  broker 4  starts again, process 2",
        "  seed 112  commit 1f0c2ab  format 1  memory/model-3.9, 4 brokers, 2 controllers",
        "  shuffle schedule 8842  step 48,213  t=31.884 s",
        "  shrunk 57 -> 3 actions in 38 CPU-s",
        "   1  t=0.00                      create topic t1; replicas [[1, 2], [2, 4]]",
        "   2  t=30.00                     kill node broker 4",
        "   3  BrokerChange.first_send #2  elect",
        "  replay: python -m tests.sim replay .sim/INV-49-112.json",
    ]


def test_long_scripts_and_errors_are_cut_to_a_screen() -> None:
    script = Script(actions=[Action("kill", at_ms=index, args={"x": "y" * 500}) for index in range(99)])
    waiting = "\n".join(f"task {index} waits" for index in range(99))

    lines = report(script, Failed("deadlock", None, waiting), ORIGIN._replace(seed=None, shrunk=""))

    assert len(lines) < 45
    assert max(map(len, lines)) <= 120
    assert "      and 74 more actions" in lines
    assert lines[0] == "deadlock"
    assert not [line for line in lines if "seed 112" in line]
