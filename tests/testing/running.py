"""The simulated loop of a test."""

import asyncio

from kactl.testing import SimLoop


def this_loop() -> SimLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop
