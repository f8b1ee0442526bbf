"""Metrics of the store and of the event loop, read as Prometheus does."""

import re
from typing import Any

import pytest

from kactl.admin.prometheus import telemetry_for_server
from kactl.model.errors import StoreUnavailable
from kactl.stores.base import Changed
from kactl.stores.memory import MemoryStore
from kactl.stores.store_metrics import StoreMetrics
from kactl.telemetry.loop_lag import LoopLag
from kactl.telemetry.metrics import Telemetry
from tests.support.clocks import ManualClock

pytestmark = pytest.mark.anyio


class SlowStore:
    """A store that takes 30 ms of the test's clock for a request."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.name = "slow"
        self.trouble = ""

    async def brokers(self) -> dict[int, str]:
        await self._clock.sleep_ms(30)
        if self.trouble:
            raise StoreUnavailable(self.trouble)
        return {1: "one"}

    async def commit(self, write: list[int], fence: int) -> tuple[list[int], int]:
        return write, fence

    def subscribe(self, listener: object) -> object:
        return listener


class Measurement:
    def __init__(self) -> None:
        provider, self._render = telemetry_for_server()
        self.clock = ManualClock()
        self.telemetry = Telemetry(provider)
        self.metrics = StoreMetrics(self.telemetry, self.clock)
        self.telemetry.observe(self.metrics.readings())
        self.store: Any = SlowStore(self.clock)
        self.measured: Any = self.metrics.measured(self.store)

    def value(self, name: str, **labels: str) -> float | None:
        """Returns a sample of the rendered metrics."""
        text = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        found = re.search(
            rf"^{re.escape(name + (f'{{{text}}}' if text else ''))} (\S+)$", self._render().decode(), re.MULTILINE
        )
        return None if found is None else float(found[1])


@pytest.fixture
def measurement() -> Measurement:
    return Measurement()


REQUEST = "kactl_store_request_duration_seconds"


async def finish(clock: ManualClock, request: Any) -> Any:
    """Returns the result of a request that sleeps once."""
    import asyncio

    task = asyncio.ensure_future(request)
    await asyncio.sleep(0)
    await clock.advance(30)
    return await task


async def test_time_of_a_request_is_recorded_by_operation(measurement: Measurement) -> None:
    assert await finish(measurement.clock, measurement.measured.brokers()) == {1: "one"}

    assert measurement.value(f"{REQUEST}_count", op="brokers") == 1
    assert measurement.value(f"{REQUEST}_sum", op="brokers") == pytest.approx(0.03)
    assert measurement.value("kactl_store_in_flight") == 0


async def test_request_in_flight_is_counted(measurement: Measurement) -> None:
    request = measurement.measured.brokers()
    request.send(None)

    assert measurement.value("kactl_store_in_flight") == 1
    request.close()
    assert measurement.value("kactl_store_in_flight") == 0


async def test_failed_request_has_its_error_and_still_fails(measurement: Measurement) -> None:
    measurement.store.trouble = "no quorum"

    with pytest.raises(StoreUnavailable, match="no quorum"):
        await finish(measurement.clock, measurement.measured.brokers())

    assert measurement.value(f"{REQUEST}_count", error_type="StoreUnavailable", op="brokers") == 1
    assert measurement.value(f"{REQUEST}_count", op="brokers") is None


async def test_size_of_a_commit_is_recorded(measurement: Measurement) -> None:
    assert await measurement.measured.commit([7, 8, 9], 4) == ([7, 8, 9], 4)

    assert measurement.value("kactl_store_batch_size_sum") == 3


async def test_everything_else_of_the_store_is_the_same(measurement: Measurement) -> None:
    assert measurement.measured.name == "slow"
    assert measurement.measured.subscribe("x") == "x"
    measurement.store.trouble = "new"
    assert measurement.measured.trouble == "new"


async def test_state_of_the_session_follows_the_store(measurement: Measurement) -> None:
    def state(name: str) -> float | None:
        return measurement.value("kactl_store_session_state", state=name)

    assert (state("connected"), state("suspended"), state("expired")) == (1, 0, 0)
    for change, entered in (
        (Changed.SUSPENDED, "suspended"),
        (Changed.CONNECTED, "connected"),
        (Changed.TOPICS, "connected"),
        (Changed.SESSION_LOST, "expired"),
        (Changed.SESSION_OPENED, "connected"),
    ):
        measurement.metrics.changed(change.value)
        assert state(entered) == 1, change

    assert measurement.value("kactl_store_session_transition_count_total", state="connected") == 2
    assert measurement.value("kactl_store_session_transition_count_total", state="expired") == 1


class LateClock(ManualClock):
    """A clock with timers that are late by 250 ms."""

    def __init__(self) -> None:
        super().__init__()
        self._late_ms = 0.0
        self.sleeps = 0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self._late_ms

    async def sleep_ms(self, delay_ms: float) -> None:
        self.sleeps += 1
        if self.sleeps > 3:
            raise TimeoutError
        self._late_ms += delay_ms + 250


async def test_lag_of_the_loop_is_the_lateness_of_a_timer(measurement: Measurement) -> None:
    with pytest.raises(TimeoutError):
        await LoopLag(measurement.telemetry, LateClock()).run()

    assert measurement.value("kactl_loop_lag_seconds_count") == 3
    assert measurement.value("kactl_loop_lag_seconds_sum") == pytest.approx(0.75)


async def test_store_of_a_controller_stays_the_given_one() -> None:
    import kactl

    store = MemoryStore()
    async with kactl.Controller(1, store=store) as controller:
        assert controller.store is store
