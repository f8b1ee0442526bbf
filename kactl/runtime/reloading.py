"""Reloading of files by a signal, before the time at which they are looked at anyway."""

import asyncio
from typing import Final

import anyio

_waiting: Final[dict[asyncio.Event, None]] = {}


async def pause(seconds: float) -> None:
    """Wait, but not beyond the next `request`."""
    wanted = asyncio.Event()
    _waiting[wanted] = None
    try:
        with anyio.move_on_after(seconds):
            await wanted.wait()
    finally:
        del _waiting[wanted]


def request() -> None:
    """End all pauses of this process. Called in its event loop."""
    for wanted in tuple(_waiting):
        wanted.set()
