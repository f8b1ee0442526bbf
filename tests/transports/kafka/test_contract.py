"""Shared transport contract of Kafka's transport, over a real socket."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from kactl.config.protocol_level import LATEST
from kactl.model import Broker
from kactl.testing.contracts.network import ConnectBroker, NetworkContract, Respond
from kactl.transports.base import Transport
from kactl.transports.kafka import KafkaTransport
from tests.support.message_strategies import LISTENER

from .peer import listening


class TestKafkaTransport(NetworkContract):
    @pytest.fixture
    async def reached(self) -> AsyncIterator[ConnectBroker]:
        async with contextlib.AsyncExitStack() as peers:

            async def reach(respond: Respond) -> tuple[Transport, Broker]:
                transport = KafkaTransport(
                    controller_id=1000, level=LATEST, listener_name=LISTENER, request_timeout_ms=200
                )
                peer = await peers.enter_async_context(listening(respond, transport.versions))
                return transport, peer.broker

            yield reach
