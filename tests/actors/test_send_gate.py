"""Gate that holds back requests while the store session may have ended."""

import asyncio

import pytest

from kactl.actors.channel import SendGate

pytestmark = pytest.mark.anyio


async def test_gate_that_is_shut_again_at_once_holds_back() -> None:
    gate = SendGate()
    gate.pause("the store is not heard of")
    passed = asyncio.create_task(gate.wait_open())
    await asyncio.sleep(0)

    gate.open()
    gate.pause("the store is not heard of")
    for _ in range(5):
        await asyncio.sleep(0)

    assert not passed.done()
    gate.open()
    await passed
    assert gate.is_open
