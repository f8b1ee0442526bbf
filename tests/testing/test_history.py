"""Histories, checkers and the end of a run at a violation."""

import asyncio
import re
from typing import Any

import pytest

from kactl.testing import on, sim
from kactl.testing.history import Event, History
from kactl.testing.violations import Checker, Violation, check
from tests.sim.engine.watching import Cost, watch
from tests.support import tree

from .running import this_loop


class Rising(Checker):
    """Epochs rise."""

    kinds = ("elected",)
    invariants = ("INV-02",)

    def __init__(self) -> None:
        self.last: Event | None = None

    def check(self, event: Event) -> Violation | None:
        last, self.last = self.last, event
        if last is not None and event.fields["epoch"] <= last.fields["epoch"]:
            return Violation("INV-02", "the epoch fell", event=event, contradicts=last)
        return None


def test_a_violation_ends_the_run_at_the_step_that_made_it() -> None:
    ran: list[str] = []

    async def main() -> None:
        loop = this_loop()
        history = History(lambda: loop.now_s * 1000)
        watch(history, [Rising()], loop.halt)

        async def node() -> None:
            try:
                history.record("elected", epoch=2)
                await asyncio.sleep(1)
                history.record("elected", epoch=1)
                ran.append("the rest of the step")
                await asyncio.sleep(0)
                ran.append("the next step")
            finally:
                ran.append("finally")

        loop.start(loop.node("controller 100"), node())
        await asyncio.sleep(10)

    with pytest.raises(Violation, match="INV-02: the epoch fell") as caught:
        sim.run(main)
    assert ran[0] == "the rest of the step"
    assert "the next step" not in ran
    assert caught.value.signature == "INV-02 elected elected"
    assert caught.value.event is not None
    assert (caught.value.event.node, caught.value.event.time_ms) == ("controller 100", 1000.0)


def test_equal_histories_have_equal_digests() -> None:
    def history_of(*epochs: int) -> str:
        history = History(lambda: 5.0)
        for epoch in epochs:
            history.record("elected", node="a", epoch=epoch, voters=[1, 2])
        return history.digest()

    assert history_of(1, 2) == history_of(1, 2)
    assert len({history_of(1, 2), history_of(2, 1), history_of(1), history_of()}) == 4


def test_an_event_knows_its_node() -> None:
    async def main() -> list[str]:
        loop = this_loop()
        history = History(lambda: loop.now_s * 1000)
        history.record("outside")
        with on(loop.node("broker 1")):
            history.record("inside")
            history.record("inside", node="broker 2")
        return [event.node for event in history.events]

    assert sim.run(main) == ["", "broker 1", "broker 2"]


def recorded(*epochs: int) -> History:
    history = History(lambda: 0.0)
    for epoch in epochs:
        history.record("elected", epoch=epoch)
        history.record("other")
    return history


def test_recorded_history_is_checked_afterwards() -> None:
    check(recorded(1, 2, 3).events, [Rising()])

    with pytest.raises(Violation, match="INV-02: the epoch fell") as raised:
        check(recorded(1, 3, 2).events, [Rising()])

    assert raised.value.event is not None
    assert raised.value.event.fields == {"epoch": 2}


def test_check_of_a_history_asks_at_its_end() -> None:
    class Never(Checker):
        def at_end(self) -> Violation | None:
            return Violation("INV-50", "not answered")

    with pytest.raises(Violation, match="INV-50"):
        check([], [Never()])


def test_cost_of_a_checker_counts_its_events() -> None:
    history, costs = History(lambda: 0.0), dict[str, Cost]()
    watch(history, [Rising()], lambda violation: None, costs=costs)

    for kind in ("elected", "other", "elected"):
        history.record(kind, epoch=len(history.events))

    assert costs["Rising"].events == 2
    assert costs["Rising"].cpu_s >= 0.0


def test_example_of_the_documentation_finds_a_job_on_two_nodes() -> None:
    page = (tree.ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(from kactl\.testing import Checker.*?)# at the end", page, re.DOTALL)
    defined: dict[str, Any] = {}
    exec(example, defined)
    history = History(lambda: 0.0)

    history.record("job.ran", node="node 1", job="jobs-0")
    history.record("job.ran", node="node 1", job="jobs-0")
    check(history.events, [defined["OneLeader"]()])
    history.record("job.ran", node="node 2", job="jobs-0")

    with pytest.raises(Violation, match="one leader: jobs-0 ran on node 1 and node 2"):
        check(history.events, [defined["OneLeader"]()])
