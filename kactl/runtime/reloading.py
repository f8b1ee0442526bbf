"""Reloading of files: what shows that they have changed, a signal to look at once, and its failures."""

import asyncio
import os
from typing import Final, Protocol

import anyio

FileVersion = tuple[int, int, int] | None

_waiting: Final[dict[asyncio.Event, None]] = {}


def version_of(path: str | os.PathLike[str] | None) -> FileVersion:
    """Returns what distinguishes the present content of a file; None without a file."""
    if not path:
        return None
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.errno or 0, 0, 0  # reading the file explains the error
    return status.st_mtime_ns, status.st_ino, status.st_size


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
