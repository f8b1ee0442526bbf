"""How a broker finds the controller, and what it hears."""

from typing import Any

import anyio
import pytest

from kactl.actors.system import Controller
from kactl.errors import BadRequest, ControllerUnreachable, NotController
from kactl.messages.admin import ControllerRequest, ResignRequested
from kactl.messages.broker import ProducerIdsRequested
from kactl.model import NO_BROKER
from kactl.participant.controller_client import REQUEST_TIMEOUT_MS, ToController
from kactl.stores.memory import MemoryStore
from kactl.transports.memory import MemoryHub
from tests.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

WHATEVER = ProducerIdsRequested(1, 1)


class FanOut:
    """Whom the broker has been told of."""

    controller = NO_BROKER


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hub() -> MemoryHub:
    return MemoryHub()


def way(hub: MemoryHub, clock: ManualClock, told: FanOut) -> ToController:
    return ToController(hub, controller_id=lambda: told.controller, clock=clock)


async def test_nobody_is_asked_before_anybody_was_told_of(hub: MemoryHub, clock: ManualClock) -> None:
    with pytest.raises(ControllerUnreachable, match="nobody has said yet"):
        await way(hub, clock, FanOut()).ask(WHATEVER)


async def test_a_controller_of_another_network_cannot_be_asked(hub: MemoryHub, clock: ManualClock) -> None:
    told = FanOut()
    told.controller = 7

    with pytest.raises(ControllerUnreachable, match="it is 7, and no controller of that id runs"):
        await way(hub, clock, told).ask(WHATEVER)


async def test_a_controller_is_asked_while_it_runs_and_says_if_it_is_none(hub: MemoryHub, clock: ManualClock) -> None:
    told = FanOut()
    ask = way(hub, clock, told).ask
    async with MemoryStore(clock=clock) as store:
        async with (
            Controller(7, store=store.another(), hub=hub, clock=clock) as active,
            Controller(8, store=store.another(), hub=hub, clock=clock),
        ):
            await active.wait_active()
            await settle()
            epoch = active.snapshot().epoch
            told.controller = 8
            with pytest.raises(NotController) as standby:
                await ask(WHATEVER)
            assert standby.value.active_id == 7

            told.controller = 7
            with pytest.raises(BadRequest, match=f"controller epoch, which is {epoch}"):
                await ask(ResignRequested(expected_epoch=epoch + 1))
            assert await ask(ResignRequested(expected_epoch=epoch)) is None
            assert not active.is_active or active.snapshot().epoch > epoch

        with pytest.raises(ControllerUnreachable, match="no controller of that id"):
            await ask(WHATEVER)


async def test_a_controller_that_came_later_under_an_id_is_the_one_that_is_asked(hub: MemoryHub) -> None:
    async def earlier(asked: ControllerRequest, /) -> Any:
        return "earlier"

    async def later(asked: ControllerRequest, /) -> Any:
        return "later"

    hub.attach_controller(7, earlier)
    hub.attach_controller(7, later)
    hub.detach_controller(7, earlier)  # too late: it does not take the later one's place away

    found = hub.controller(7)
    assert found is not None
    assert await found(WHATEVER) == "later"


async def test_an_answer_that_does_not_come_is_given_up_in_time(hub: MemoryHub, clock: ManualClock) -> None:
    told, heard = FanOut(), []
    told.controller = 7

    async def hangs(asked: ControllerRequest, /) -> Any:
        await anyio.sleep_forever()

    async def ask() -> None:
        with pytest.raises(ControllerUnreachable, match="gave no answer within 30000 ms"):
            await way(hub, clock, told).ask(WHATEVER)
        heard.append(clock.monotonic_ms())

    hub.attach_controller(7, hangs)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await clock.advance(REQUEST_TIMEOUT_MS - 1)
        assert heard == []

        await clock.advance(1)
    assert heard == [REQUEST_TIMEOUT_MS]
