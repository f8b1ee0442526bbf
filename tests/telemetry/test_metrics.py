"""Instruments of a controller in the provider of its program, which outlives the controller."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kactl.actors.system import Controller
from kactl.model.errors import IllegalState
from kactl.telemetry.outages import BOUNDS_S
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


def outage_points(reader: InMemoryMetricReader) -> dict[bool, Any]:
    """Returns the points of the histogram of outages, by whether they were planned."""
    data = reader.get_metrics_data()
    assert data is not None
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    points: list[Any] = [
        point
        for scope in scopes
        for metric in scope.metrics
        if metric.name == "kactl.partition.unavailable.duration"
        for point in metric.data.data_points
    ]
    return {point.attributes["kactl.election.planned"]: point for point in points}


async def test_provider_of_a_program_has_the_time_without_a_leader() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    async with Controller(0, clock=ManualClock(), meter_provider=provider) as controller:
        outages = controller.history.outages
        outages.forced.add(np.array([3.0, 4.0, 30_000.0]))
        outages.planned.add(np.array([400_000.0]))

        points = outage_points(reader)

        assert (points[False].count, points[False].sum) == (3, pytest.approx(30.007))
        assert points[False].bucket_counts[BOUNDS_S.index(0.005)] == 2
        assert points[False].bucket_counts[BOUNDS_S.index(30.0)] == 1
        assert points[True].bucket_counts[-1] == 1
        outages.forced.add(np.array([3.0]))
        assert outage_points(reader)[False].count == 4

        outages.forced.add(np.array([3.0]))
    # What no collection has read is recorded when the controller stops.
    assert outage_points(reader)[False].count == 5


async def test_outages_of_a_large_failure_are_recorded_by_several_collections() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    async with Controller(0, clock=ManualClock(), meter_provider=provider) as controller:
        durations_ms = np.linspace(0.0, 1000.0, 10_600)
        controller.history.outages.forced.add(durations_ms)

        first, second = outage_points(reader)[False], outage_points(reader)[False]

    assert (first.count, second.count) == (10_000, 10_600)
    assert second.sum == pytest.approx(durations_ms.sum() / 1000)
    expected = np.bincount(np.searchsorted(BOUNDS_S, durations_ms / 1000), minlength=len(BOUNDS_S) + 1)
    assert second.bucket_counts == tuple(expected.tolist())
