"""Stub brokers of the benchmark of encrypted connections: each protocol is what its name states."""

import asyncio
from pathlib import Path

import pytest

from bench.encryption import Reachable, transport_of
from bench.sinks import PROTOCOLS, protected_sinks
from kactl.decide.messages.control import UpdateMetadataResponse
from kactl.model import Broker, Endpoint
from kactl.model.errors import BrokerUnreachable
from tests.support.certificates import Authority
from tests.transports.kafka.test_request import UPDATE

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_connections_have_the_protocol_of_their_listener(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signed = authority.sign("broker")
    with protected_sinks(1, certificate=signed.cert, key=signed.key) as ports:
        (broker,) = Reachable(1, 1, 1, ports=ports).registered()
        assert {endpoint.protocol for endpoint in broker.endpoints} == set(PROTOCOLS)
        for endpoint in broker.endpoints:
            only = Broker(broker.id, broker.epoch, (endpoint,))
            connection = transport_of(endpoint.protocol, authority.cert).connect(only)
            async with asyncio.timeout(60):
                assert await connection.deliver(UPDATE) == UpdateMetadataResponse(0)
            await connection.close()


async def test_encrypted_ports_reject_clear_text(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signed = authority.sign("broker")
    with protected_sinks(1, certificate=signed.cert, key=signed.key) as ports:
        for protocol in ("SSL", "SASL_SSL"):
            pretended = Broker(1, 1, (Endpoint("PLAINTEXT", "127.0.0.1", ports[protocol][0]),))
            connection = transport_of("PLAINTEXT", authority.cert).connect(pretended)
            async with asyncio.timeout(60):
                with pytest.raises(BrokerUnreachable):
                    await connection.deliver(UPDATE)
            await connection.close()
