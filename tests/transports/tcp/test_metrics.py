"""Metrics of links, as a program with a provider of OpenTelemetry sees them."""

from collections.abc import Mapping

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kactl.decide.messages.sessions import Heartbeat
from kactl.model import Broker
from kactl.testing.contracts.link_support import ContractOffice, ContractPort, answer_of, opened, until
from kactl.transports.tcp.limits import Limits
from kactl.transports.tcp.network import TcpNetwork

from .support import raw_client

pytestmark = pytest.mark.anyio


def values(reader: InMemoryMetricReader) -> Mapping[tuple[str, ...], float]:
    """Returns the value of each metric with the values of its labels; of a histogram the number of its entries."""
    found = {}
    data = reader.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            labels = map(str, (point.attributes or {}).values())
            found[metric.name, *labels] = getattr(point, "value", getattr(point, "count", 0))
    return found


async def test_links_and_their_traffic_are_counted() -> None:
    reader = InMemoryMetricReader()
    network = TcpNetwork(listen="127.0.0.1:0", limits=Limits(handshake_ms=100), meter_provider=MeterProvider([reader]))
    async with network.controller_side(ContractOffice()) as transport:
        async with network.participant_side(ContractPort(1)) as link:
            await opened(link)
            await answer_of(transport, Broker(1, 0))
            await link.session(Heartbeat(1, 41, 7))

            now = values(reader)
            assert now["kactl.network.links", "participant"] == 1
            assert now["kactl.network.links", "controller"] == 1
            assert now["kactl.network.connects",] == 1
            assert now["kactl.network.heartbeat.round_trip_ms",] == 1
            assert now["kactl.network.messages", "orders"] == 1
            for direction in ("sent", "received"):
                sent = [now["kactl.network.bytes", lane, direction] for lane in ("session", "orders", "answers")]
                assert min(sent) > 0
            assert now["kactl.network.queued", "orders"] == 0

        await until(lambda: values(reader)["kactl.network.links", "participant"] == 0)
        async with raw_client(network.address) as client:
            await client.write(b"GET / HTTP/1.1\r\n\r\n")
            await client.ended()
        assert values(reader)["kactl.network.handshake.failures", "ProtocolMismatch"] == 1


async def test_bytes_that_wait_are_shown_by_lane() -> None:
    from kactl.transports.tcp.framing import Kind, Lane, Message

    reader = InMemoryMetricReader()
    network = TcpNetwork(listen="127.0.0.1:0", meter_provider=MeterProvider([reader]))
    async with network.controller_side(ContractOffice()), network.participant_side(ContractPort(1)) as link:
        await opened(link)
        waiting = network._metrics.queues()
        assert len(waiting) == 2
        waiting[0][Lane.ORDERS] = Message(Kind.ORDER, 1, b"x").size

        assert values(reader)["kactl.network.queued", "orders"] == 17
        waiting[0][Lane.ORDERS] = 0
