"""Reloading of files: by a signal, before the time at which they are looked at anyway, and its failures."""

import asyncio
from typing import Final, Protocol

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


class Reloaded(Protocol):
    """Files that are read again when they change."""

    @property
    def reload_failed(self) -> bool:
        """Whether they have changed and cannot be used, so that the previous content counts."""


class Reloads:
    """All files of a process that are read again when they change."""

    def __init__(self) -> None:
        self._reloaded: list[Reloaded] = []

    def add(self, *reloaded: Reloaded) -> None:
        """Include files."""
        self._reloaded += reloaded

    @property
    def has_failed(self) -> bool:
        """Whether the previous content of any file counts."""
        return any(each.reload_failed for each in self._reloaded)
