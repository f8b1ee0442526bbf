"""The code of the guide to networks keeps the contract of networks."""

import re
import types
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from kactl.decide.messages.control import Request, Response
from kactl.model import Broker
from kactl.testing.contracts.link_support import ContractOffice, ContractPort
from kactl.testing.contracts.links import LinkContract
from kactl.testing.contracts.network import ConnectBroker, NetworkContract, Respond
from kactl.transports.base import Network, Transport
from tests.support.tree import ROOT

GUIDE = ROOT / "docs" / "networks.md"
# The code is to be read in one sitting.
LINES_MAX = 220


def code() -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL))


def guide() -> Any:
    """Returns the guide's code as a module."""
    module = types.ModuleType("guide")
    exec(compile(code(), str(GUIDE), "exec"), module.__dict__)
    return module


class TestPipeNetwork(LinkContract):
    @pytest.fixture
    def network(self) -> Network:
        made: Network = guide().PipeNetwork()
        return made


class TestPipeTransport(NetworkContract):
    @pytest.fixture
    async def reached(self) -> AsyncIterator[ConnectBroker]:
        async with AsyncExitStack() as stack:
            network: Network = guide().PipeNetwork(request_timeout_s=0.2)

            async def reach(respond: Respond) -> tuple[Transport, Broker]:
                port = ContractPort(1)

                async def handle(request: Request) -> Response:
                    return await respond(request)

                port.respond = handle
                transport = await stack.enter_async_context(network.controller_side(ContractOffice()))
                await stack.enter_async_context(network.participant_side(port))
                return transport, Broker(1, 77)

            yield reach


def test_program_of_the_guide_runs() -> None:
    anyio.run(guide().main)


def test_guide_is_short() -> None:
    assert len([line for line in code().splitlines() if line.strip()]) <= LINES_MAX
