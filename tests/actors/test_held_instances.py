"""Instances that were held when they resigned: they leave the controllership to others, unless there is none."""

import pytest

from kactl.actors.handlers.controllership import VACANT_MS
from kactl.actors.system import Controller
from kactl.model import UNTIL_MS_MAX, Order
from kactl.model.errors import BadRequest, NotController, StaleEpoch, StoreUnavailable
from tests.support.clocks import settle
from tests.support.controller_harness import CONTROLLER, World, open_standby, world

pytestmark = pytest.mark.anyio

LIMIT_MS = 2_000


async def holds(w: World) -> dict[int, Order]:
    return (await w.store.membership()).maintenance.holds


async def resign_without_return(controller: Controller) -> None:
    """Let an instance that is not held resign, and not contest again."""
    controller.loop.controllership.stopping = True
    await controller.resign()
    await settle()


async def test_held_instance_leaves_the_controllership_to_others() -> None:
    async with world(1, 2) as w:
        second, _ = open_standby(w, 200)
        third, _ = open_standby(w, 300)
        async with second, third:
            await settle()

            await w.controller.resign(hold=True, by="ann", reason="a new kernel")
            await settle()
            (first_next,) = (one for one in (second, third) if one.is_active)
            await resign_without_return(first_next)

            assert {200, 300} - {first_next.node_id} == {w.controller.loop.active_id}
            assert await holds(w) == {CONTROLLER: Order(w.clock.now_ms(), None, "ann", "a new kernel")}


async def test_held_instance_contests_after_a_while_without_others() -> None:
    async with world(1, 2) as w:
        await w.controller.resign(hold=True)
        await settle()
        assert await w.store.controller() is None

        await w.clock.advance(VACANT_MS - 1)
        assert not w.controller.is_active
        await w.clock.advance(1)

        assert w.controller.is_active
        assert list(await holds(w)) == [CONTROLLER]


async def test_time_without_others_begins_again_with_each_of_them() -> None:
    async with world(1, 2) as w:
        await w.controller.resign(hold=True)
        await settle()
        await w.clock.advance(VACANT_MS - 1)
        second, _ = open_standby(w, 200)
        async with second:
            await settle()
            assert second.is_active
            await resign_without_return(second)

            await w.clock.advance(VACANT_MS - 1)
            assert not w.controller.is_active
            await w.clock.advance(1)

            assert w.controller.is_active


async def test_hold_outlives_the_process_of_the_instance() -> None:
    async with world(1, 2) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await w.controller.resign(hold=True, reason="a new kernel")
            await settle()
            assert second.is_active
            later, sent = open_standby(w, CONTROLLER)
            w.controller.loop.controllership.stopping = True
            third, _ = open_standby(w, 300)
            async with later, third:
                await settle()
                # The next process of the instance does not know that it is held when it wins.
                third.loop.controllership.stopping = True
                await resign_without_return(second)
                assert not later.is_active
                assert sent.sent == []
                third.loop.controllership.stopping = False

                await w.clock.advance(VACANT_MS)

                assert later.is_active
                causes = [term.cause for term in later.controllerships() if term.ours]
                assert causes[0].startswith("this instance is held since ")
                assert causes[0].endswith(": a new kernel")


async def test_released_instance_contests_at_once() -> None:
    async with world(1, 2) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await w.controller.resign(hold=True)
            await settle()
            with pytest.raises(NotController):
                await w.controller.release(CONTROLLER)

            assert await second.release(CONTROLLER) is True
            assert await second.release(CONTROLLER) is False
            await resign_without_return(second)

            assert w.controller.is_active
            assert await holds(w) == {}


async def test_hold_ends_at_its_time() -> None:
    async with world(1, 2) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await w.controller.resign(hold=True, until_ms=w.clock.now_ms() + LIMIT_MS)
            await settle()
            await w.clock.advance(LIMIT_MS)

            await resign_without_return(second)

            assert w.controller.is_active
            assert await w.controller.release(CONTROLLER) is False
            # The next order removes what has passed.
            await w.controller.drain(1)
            assert await holds(w) == {}


async def test_drains_and_holds_leave_each_other_in_place() -> None:
    async with world(1, 2) as w:
        await w.controller.drain(2)
        second, _ = open_standby(w, 200)
        async with second:
            await w.controller.resign(hold=True)
            await settle()
            assert list(second.cluster.maintenance.drains) == [2]

            await second.restore(2)
            assert list(await holds(w)) == [CONTROLLER]


async def test_order_to_take_over_takes_precedence_over_a_hold() -> None:
    async with world(1, 2) as w:
        second, _ = open_standby(w, 200)
        async with second:
            await w.controller.resign(hold=True)
            await settle()
            w.controller.loop.controllership.stopping = True
            later, _ = open_standby(w, CONTROLLER, take_over=True)
            async with later:
                await settle()

                assert later.is_active
                assert not second.is_active


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"hold": True, "until_ms": 1}, BadRequest),
        ({"hold": True, "until_ms": UNTIL_MS_MAX + 1}, BadRequest),
        ({"hold": True, "until_ms": "tomorrow"}, BadRequest),
        ({"until_ms": UNTIL_MS_MAX}, BadRequest),
        ({"hold": "yes"}, BadRequest),
        ({"hold": True, "reason": 7}, BadRequest),
        ({"hold": True, "expected_epoch": 9}, StaleEpoch),
    ],
)
async def test_refused_hold_leaves_the_instance_active(arguments: dict[str, object], error: type[Exception]) -> None:
    async with world(1, 2) as w:
        with pytest.raises(error):
            await w.controller.resign(**arguments)  # type: ignore[arg-type]

        assert w.controller.is_active
        assert await holds(w) == {}


async def test_hold_that_cannot_be_stored_leaves_the_instance_active() -> None:
    async with world(1, 2) as w:

        async def fails(*_: object) -> None:
            raise StoreUnavailable("no answer")

        w.controller.store.write_maintenance = fails  # type: ignore[method-assign, assignment]

        with pytest.raises(StoreUnavailable):
            await w.controller.resign(hold=True)

        assert w.controller.is_active
        assert w.controller.cluster.maintenance.holds == {}
