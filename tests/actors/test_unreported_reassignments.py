"""Requests for reassignments in the store that the controller reads for others, before they are reported."""

from typing import Any

import pytest

from kactl.actors import watcher
from kactl.model import Assignment
from kactl.stores.base import Changed
from tests.support.controller_harness import world

from .reassignment_helpers import ongoing, reassign, requested_reassignment, stored_assignment, write_reassignment

pytestmark = pytest.mark.anyio

MOVING = Assignment((2, 1), adding=(2,), removing=(1,))


@pytest.fixture(autouse=True)
def silent_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report no request, as the ZooKeeper store whose watch fires during a read."""
    monkeypatch.delitem(watcher._EVENTS, Changed.REASSIGNMENT_REQUEST)


async def test_request_read_for_an_admin_request_is_carried_out() -> None:
    async with world(1, 2) as w:
        await w.create("a", [[1]])
        await w.create("b", [[1]])
        await write_reassignment(w, {"b-0": [2]})
        assert await ongoing(w) == {}

        await reassign(w, {"a-0": [2]})

        assert await ongoing(w) == {"a-0": MOVING, "b-0": MOVING}
        await w.write_isr("b-0", 1, 2)
        assert await stored_assignment(w, "b-0") == Assignment((2,))
        assert await requested_reassignment(w) is None
        await w.check()


async def test_request_read_at_the_end_of_a_reassignment_is_carried_out() -> None:
    async with world(1, 2) as w:
        await w.create("a", [[1]])
        await w.create("b", [[1]])
        await reassign(w, {"a-0": [2]})
        await write_reassignment(w, {"b-0": [2]})

        await w.write_isr("a-0", 1, 2)

        assert await ongoing(w) == {"b-0": MOVING}
        await w.check()


async def test_request_of_which_an_admin_request_replaces_a_part_is_carried_out() -> None:
    async with world(1, 2, 3) as w:
        await w.create("a", [[1]])
        await w.create("b", [[1]])
        await write_reassignment(w, {"a-0": [3], "b-0": [2]})

        await reassign(w, {"a-0": [2]})

        assert await ongoing(w) == {"a-0": MOVING, "b-0": MOVING}
        assert await requested_reassignment(w) == {"b-0": (2,)}
        await w.check()


async def test_same_request_as_an_earlier_one_is_carried_out() -> None:
    async with world(1, 2) as w:
        await w.create("a", [[1]])
        await w.create("b", [[1]])
        for _ in range(2):
            await write_reassignment(w, {"b-0": [2]})
            await reassign(w, {"a-0": [2]})
            assert await ongoing(w) == {"a-0": MOVING, "b-0": MOVING}
            await reassign(w, {"a-0": None, "b-0": None})
            assert await requested_reassignment(w) is None
        await w.check()


async def test_request_that_was_started_is_not_read_again() -> None:
    async with world(1, 2) as w:
        for topic in ("a", "b", "c"):
            await w.create(topic, [[1]])
        await write_reassignment(w, {"b-0": [2], "c-0": [2]})
        await reassign(w, {"a-0": [2]})
        reads: list[Any] = []
        real = w.controller.store.reassignment_request

        async def counted() -> Any:
            reads.append(await real())
            return reads[-1]

        w.controller.store.reassignment_request = counted  # type: ignore[method-assign]
        await w.write_isr("b-0", 1, 2)

        assert await requested_reassignment(w) == {"c-0": (2,)}
        assert len(reads) == 1
        await w.check()
