"""Requests from a broker to the active controller."""

from typing import Any

import anyio
import pytest

from kactl.actors.system import Controller
from kactl.decide.messages.admin import ControllerRequest, ResignController
from kactl.decide.messages.broker import AllocateProducerIds
from kactl.model import NO_BROKER
from kactl.model.errors import BadRequest, ControllerUnreachable, NotController
from kactl.participant.controller_client import REQUEST_TIMEOUT_MS, ControllerClient
from kactl.stores.memory import MemoryStore
from kactl.transports.memory import MemoryHub
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

REQUEST = AllocateProducerIds(1, 1)


class Metadata:
    """The controller that the broker's metadata contain."""

    controller = NO_BROKER


@pytest.fixture
def hub() -> MemoryHub:
    return MemoryHub()


def controller_client(hub: MemoryHub, clock: ManualClock, metadata: Metadata) -> ControllerClient:
    return ControllerClient(hub.ask, controller_id=lambda: metadata.controller, clock=clock)


async def test_request_before_the_first_metadata_raises(hub: MemoryHub, clock: ManualClock) -> None:
    with pytest.raises(ControllerUnreachable, match="not known yet"):
        await controller_client(hub, clock, Metadata()).ask(REQUEST)


async def test_controller_on_another_network_is_unreachable(hub: MemoryHub, clock: ManualClock) -> None:
    metadata = Metadata()
    metadata.controller = 7

    with pytest.raises(ControllerUnreachable, match="its id is 7, and no controller with that id runs"):
        await controller_client(hub, clock, metadata).ask(REQUEST)


async def test_running_controller_answers_and_standby_raises_not_controller(hub: MemoryHub, clock: ManualClock) -> None:
    metadata = Metadata()
    ask = controller_client(hub, clock, metadata).ask
    async with MemoryStore(clock=clock) as store:
        async with (
            Controller(7, store=store.another(), hub=hub, clock=clock) as active,
            Controller(8, store=store.another(), hub=hub, clock=clock),
        ):
            await active.wait_active()
            await settle()
            epoch = active.snapshot().epoch
            metadata.controller = 8
            with pytest.raises(NotController) as standby:
                await ask(REQUEST)
            assert standby.value.active_id == 7

            metadata.controller = 7
            with pytest.raises(BadRequest, match=f"controller epoch, which is {epoch}"):
                await ask(ResignController(expected_epoch=epoch + 1))
            assert await ask(ResignController(expected_epoch=epoch)) is None
            assert not active.is_active or active.snapshot().epoch > epoch

        with pytest.raises(ControllerUnreachable, match="no controller with that id"):
            await ask(REQUEST)


async def test_later_controller_of_an_id_replaces_the_earlier_one(hub: MemoryHub) -> None:
    async def earlier(request: ControllerRequest, /) -> Any:
        return "earlier"

    async def later(request: ControllerRequest, /) -> Any:
        return "later"

    hub.attach_controller(7, earlier)
    hub.attach_controller(7, later)
    hub.detach_controller(7, earlier)  # too late: the later one stays attached

    ask = hub.controller(7)
    assert ask is not None
    assert await ask(REQUEST) == "later"


async def test_request_without_a_response_times_out(hub: MemoryHub, clock: ManualClock) -> None:
    metadata, timeouts_ms = Metadata(), []
    metadata.controller = 7

    async def hangs(request: ControllerRequest, /) -> Any:
        await anyio.sleep_forever()

    async def ask() -> None:
        with pytest.raises(ControllerUnreachable, match="sent no response within 30000 ms"):
            await controller_client(hub, clock, metadata).ask(REQUEST)
        timeouts_ms.append(clock.monotonic_ms())

    hub.attach_controller(7, hangs)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await clock.advance(REQUEST_TIMEOUT_MS - 1)
        assert timeouts_ms == []

        await clock.advance(1)
    assert timeouts_ms == [REQUEST_TIMEOUT_MS]
