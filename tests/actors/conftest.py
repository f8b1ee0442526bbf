"""Fixtures of the actor tests."""

from collections.abc import AsyncIterator

import pytest

from tests.support.machine_harness import Machines, open_machines


@pytest.fixture
async def bench() -> AsyncIterator[Machines]:
    async with open_machines() as opened:
        yield opened
