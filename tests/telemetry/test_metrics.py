"""Instruments of a controller in the provider of its program, which outlives the controller."""

import gc
import weakref
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kactl.actors.system import Controller
from kactl.model.errors import IllegalState
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


def values(reader: InMemoryMetricReader, name: str) -> dict[str, float]:
    """Returns the values of a metric by the name of the cluster."""
    data = reader.get_metrics_data()
    assert data is not None
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    found: list[Any] = [metric for scope in scopes for metric in scope.metrics if metric.name == name]
    return {point.attributes.get("kactl.cluster", ""): point.value for item in found for point in item.data.data_points}


async def test_each_cluster_of_a_process_has_its_gauges() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    async with (
        Controller(0, clock=ManualClock(), meter_provider=provider, cluster_name="one") as one,
        Controller(0, clock=ManualClock(), meter_provider=provider, cluster_name="two") as two,
    ):
        await settle()
        one.cluster.offline_count, two.cluster.offline_count = 0, 6

        assert values(reader, "kafka.partition.offline") == {"one": 0, "two": 6}


async def test_clusters_without_a_name_are_counted_together() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    async with (
        Controller(0, clock=ManualClock(), meter_provider=provider) as one,
        Controller(0, clock=ManualClock(), meter_provider=provider) as two,
    ):
        await settle()
        one.cluster.offline_count, two.cluster.offline_count = 1, 6

        assert values(reader, "kafka.partition.offline") == {"": 7}
        assert values(reader, "kactl.controller.epoch") == {"": 1}


async def test_next_controller_of_a_process_has_gauges() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    async with Controller(0, clock=ManualClock(), meter_provider=provider):
        await settle()

    async with Controller(0, clock=ManualClock(), meter_provider=provider):
        await settle()

        assert values(reader, "kafka.controller.active.count") == {"": 1}


async def test_controller_cannot_be_entered_a_second_time() -> None:
    controller = Controller(7, clock=ManualClock())
    async with controller:
        await settle()
        with pytest.raises(IllegalState, match="controller 7 has been entered before: make a new Controller"):
            await controller.__aenter__()

    with pytest.raises(IllegalState, match="controller 7 has been entered before: make a new Controller"):
        await controller.__aenter__()


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
