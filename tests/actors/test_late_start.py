"""Log lines of a controller that cannot start."""

import re

import pytest

import kactl
from kactl.model import ControllerRecord, Fence
from kactl.model.errors import StoreUnavailable
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


class Unreachable(kactl.MemoryStore):
    """A store that does not respond while `silent` is set."""

    silent = True

    async def controller(self) -> ControllerRecord | None:
        if self.silent:
            raise StoreUnavailable("no server of the store responds")
        return await super().controller()

    async def contest(self, controller_id: int, *, take_over: bool = False, address: str = "") -> Fence:
        if self.silent:
            raise StoreUnavailable("no server of the store responds")
        return await super().contest(controller_id, take_over=take_over)


async def test_a_late_start_is_an_error_with_its_cause(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    store = Unreachable(clock=clock)

    def errors() -> list[str]:
        lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        return [line for line in lines if "has not started" in line]

    async with kactl.Controller(7, store=store, clock=clock) as controller:
        await clock.advance(4_900)
        assert errors() == []
        await clock.advance(6_000)
        (first,) = errors()
        assert re.fullmatch(r"controller 7 has not started for [5-9] s: .*no server of the store responds", first)
        await clock.advance(59_000)
        assert errors() == [first]
        await clock.advance(72_000)
        assert len(errors()) == 3

        store.silent = False
        await clock.advance(10_000)
        assert controller.is_active
        await clock.advance(300_000)
        assert len(errors()) == 3


async def test_a_standby_has_started(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    store = kactl.MemoryStore(clock=clock)
    async with (
        kactl.Controller(1, store=store, clock=clock) as controller,
        kactl.Controller(2, store=store.another(), clock=clock),
    ):
        await controller.wait_active()
        await settle()
        await clock.advance(70_000)

    assert not [record for record in caplog.records if "has not started" in record.getMessage()]
