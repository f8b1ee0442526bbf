"""What the tests of actors share."""

from collections.abc import AsyncIterator

import pytest

from tests.support.machine_harness import Bench, open_bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with open_bench() as opened:
        yield opened
