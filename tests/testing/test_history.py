"""Histories, checkers and the end of a run at a violation."""

import asyncio

import pytest

from kactl.testing import on, sim
from kactl.testing.history import Event, History
from kactl.testing.violations import Checker, Violation, watch

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
