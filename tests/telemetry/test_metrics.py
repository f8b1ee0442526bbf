"""Instruments of a controller in the provider of its program, which outlives the controller."""

import gc
import weakref

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kactl.actors.system import Controller
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


def observed(reader: InMemoryMetricReader) -> set[str]:
    """Returns the names of all metrics that have a value at present."""
    data = reader.get_metrics_data()
    if data is None:
        return set()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    return {metric.name for scope in scopes for metric in scope.metrics if list(metric.data.data_points)}


async def test_closed_controller_has_no_gauges() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    async with Controller(0, clock=ManualClock(), meter_provider=provider):
        await settle()
        assert "kafka.controller.active.count" in observed(reader)

    assert "kafka.controller.active.count" not in observed(reader)


@pytest.mark.parametrize("has_provider", [True, False])
async def test_closed_controller_is_freed(has_provider: bool) -> None:
    """The provider of a program, or the one of the API until the program has set its own, lives on."""
    provider = MeterProvider(shutdown_on_exit=False) if has_provider else None

    async def run() -> weakref.ref[object]:
        async with Controller(0, clock=ManualClock(), meter_provider=provider) as controller:
            await settle()
            return weakref.ref(controller.cluster)

    cluster = await run()
    gc.collect()

    assert cluster() is None
