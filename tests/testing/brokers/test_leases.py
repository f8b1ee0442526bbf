"""Records of leases: whether a call of `lead` goes on too long."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kactl.model import TopicPartition
from kactl.testing import SimLoop, on, sim
from kactl.testing.brokers.handlers import HandlerApplication
from kactl.testing.brokers.leases import LeaseClocks, LeaseRecorder
from kactl.testing.history import History

NAME = TopicPartition("t", 0)


@pytest.mark.parametrize(("backlog_s", "found"), [(0.0, ["lease.late"]), (0.5, [])])
def test_nothing_is_known_of_a_call_behind_what_waited_while_its_process_was_slow(
    backlog_s: float, found: list[str]
) -> None:
    async def main() -> list[str]:
        loop = cast(SimLoop, asyncio.get_running_loop())
        node, history = loop.node("broker 1"), History(lambda: loop.now_s * 1000)
        application = HandlerApplication(1, history, random.Random(1))
        incarnation: Any = SimpleNamespace(
            lease_ended=lambda: None, leaderships=SimpleNamespace(end=None), run=None, _hosting=None, broker=1, epoch=3,
            _lease=SimpleNamespace(ends_ns=0), hosted=SimpleNamespace(view=lambda _: None, topic_id_of=lambda _: b""),
        )  # fmt: skip
        recorder = LeaseRecorder(history, LeaseClocks(), incarnation, application)
        recorder._margin_ms = 600.0
        with on(node):
            recorder.leads(NAME, 0)
            application.leading[NAME] = 1
            node.busy_until_s = loop.now_s + backlog_s
            incarnation.lease_ended()
        await asyncio.sleep(2)
        return [event.kind for event in history.events if event.kind == "lease.late"]

    assert sim.run(main) == found
