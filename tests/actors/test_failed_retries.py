"""Retries of writes that the store did not commit, with an unexpected error in their handling."""

import pytest

from kactl.actors.controller import RETRY_LATER_MS
from kactl.actors.handlers.brokers import BrokerEvents
from kactl.actors.handlers.deletion import Deletion
from kactl.actors.handlers.offline import Offline
from kactl.actors.handlers.reassignments import Reassignments
from kactl.actors.machines.commit import TopicEntries
from kactl.model import Assignment
from kactl.model.errors import StoreUnavailable
from tests.support.clocks import settle
from tests.support.controller_harness import World, world
from tests.support.scripted_store import fails, fails_after

from .failing_steps import fail_once
from .reassignment_helpers import ongoing, reassign, stored_assignment

pytestmark = pytest.mark.anyio

AWAY = StoreUnavailable("the store is away")

each_step = pytest.mark.parametrize(
    ("owner", "step"),
    [
        (BrokerEvents, "_learn"),
        (Offline, "replicas_offline"),
        (Reassignments, "resume"),
        (Deletion, "resume"),
    ],
    ids=["learn", "offline", "reassignments", "deletion"],
)


async def retry_twice(w: World) -> None:
    """Wait for the retry that an error ends, and for the next one."""
    await w.wait(2 * RETRY_LATER_MS)


@each_step
async def test_leadership_of_a_lost_response_is_sent_later(
    monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.script("commit", fails_after(AWAY))
        w.script("leaderships", fails(AWAY))
        await w.controller.drain(2)
        await settle()
        assert w.known("t-0").isr == (1, 2)
        left = fail_once(monkeypatch, owner, step)

        await retry_twice(w)

        assert not left
        assert w.known("t-0").isr == (1,)
        assert w.brokers.told(1)["t-0"][:3] == (1, 1, (1,))
        await w.check()


@each_step
async def test_dead_replica_leaves_the_isr_later(monkeypatch: pytest.MonkeyPatch, owner: type, step: str) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        w.script("commit", fails(AWAY))
        await w.stop(2)
        assert (await w.stored("t-0"))[2] == (1, 2)
        left = fail_once(monkeypatch, owner, step)

        await retry_twice(w)

        assert not left
        assert await w.stored("t-0") == (1, 1, (1,))
        await w.check()


@each_step
async def test_reassignment_is_completed_later(monkeypatch: pytest.MonkeyPatch, owner: type, step: str) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        await reassign(w, {"t-0": [2]})
        w.script("write_assignment", fails(AWAY))
        await w.write_isr("t-0", 1, 2)
        assert (await stored_assignment(w, "t-0")).is_being_reassigned
        left = fail_once(monkeypatch, owner, step)

        await retry_twice(w)

        assert not left
        assert await stored_assignment(w, "t-0") == Assignment((2,))
        assert await ongoing(w) == {}
        await w.check()


async def test_assignment_with_a_lost_response_is_reverted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1]])
        w.script("write_assignment", fails_after(AWAY))
        await reassign(w, {"t-0": [2]})
        assert (await stored_assignment(w, "t-0")).is_being_reassigned
        left = fail_once(monkeypatch, TopicEntries, "write")

        await retry_twice(w)

        assert not left
        assert await stored_assignment(w, "t-0") == Assignment((1,))
        assert await ongoing(w) == {}
        await w.check()
