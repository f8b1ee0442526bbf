"""Records of leases: when they ended, and whether a call of `lead` goes on too long."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kactl.model import TopicPartition
from kactl.testing import SimLoop, on, sim
from kactl.testing.clock import LoopClock
from kactl.testing.history import History
from tests.sim.engine.brokers.application import Application
from tests.sim.engine.brokers.handlers import HandlerApplication
from tests.sim.engine.brokers.leases import NS_PER_MS, LeaseClocks, LeaseRecorder

NAME = TopicPartition("t", 0)


def an_incarnation(*, ends_ns: int) -> Any:
    """One of broker 1 whose lease ends at a time of its clock."""
    return SimpleNamespace(
        lease_ended=lambda: None, leaderships=SimpleNamespace(end=lambda _: None), run=None, _hosting=None, broker=1,
        epoch=3, _lease=SimpleNamespace(ends_ns=ends_ns),
        hosted=SimpleNamespace(view=lambda _: None, topic_id_of=lambda _: b""),
    )  # fmt: skip


@pytest.mark.parametrize(("lease_ms", "late_ms"), [(200.0, 300.0), (900.0, 0.0)], ids=["the lease first", "an order"])
def test_end_of_a_leadership_says_how_long_ago_its_lease_ended(lease_ms: float, late_ms: float) -> None:
    async def main() -> list[float]:
        loop = cast(SimLoop, asyncio.get_running_loop())
        node, history = loop.node("broker 1"), History(lambda: loop.now_s * 1000)
        with on(node):
            ends_ns = LoopClock().lease_ns() + int(lease_ms * NS_PER_MS)
        incarnation = an_incarnation(ends_ns=ends_ns)
        recorder = LeaseRecorder(history, LeaseClocks(), incarnation, Application(1))
        with on(node):
            recorder.leads(NAME, 0, 0)
        await asyncio.sleep(0.5)
        with on(node):
            incarnation.leaderships.end([NAME])
        return [event.fields["late_ms"] for event in history.events if event.kind == "lease.end"]

    assert sim.run(main) == [pytest.approx(late_ms)]


@pytest.mark.parametrize(("backlog_s", "found"), [(0.0, ["lease.late"]), (0.5, [])])
def test_nothing_is_known_of_a_call_behind_what_waited_while_its_process_was_slow(
    backlog_s: float, found: list[str]
) -> None:
    async def main() -> list[str]:
        loop = cast(SimLoop, asyncio.get_running_loop())
        node, history = loop.node("broker 1"), History(lambda: loop.now_s * 1000)
        application = HandlerApplication(1, history, random.Random(1))
        incarnation = an_incarnation(ends_ns=0)
        recorder = LeaseRecorder(history, LeaseClocks(), incarnation, application)
        recorder._margin_ms = 600.0
        with on(node):
            recorder.leads(NAME, 0, 0)
            application.leading[NAME] = 1
            node.busy_until_s = loop.now_s + backlog_s
            incarnation.lease_ended()
        await asyncio.sleep(2)
        return [event.kind for event in history.events if event.kind == "lease.late"]

    assert sim.run(main) == found
