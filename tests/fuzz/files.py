"""Inputs of targets as files and as text, and an event loop for decoders that wait for bytes."""

import asyncio
import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

# On a file system in memory, where there is one: files are written for each input.
_MEMORY: Final = Path("/dev/shm")


@functools.cache
def folder() -> Path:
    """Returns a folder of this process, which is removed at its end."""
    path = Path(tempfile.mkdtemp(prefix="kactl-fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    path.chmod(0o700)
    return path


def from_file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    """Returns a decoder that writes the input to a file and reads it."""

    def decode(data: bytes) -> Any:
        path = folder() / name
        path.write_bytes(data)
        path.chmod(0o600)
        return read(path)

    return decode


def run(decoding: Coroutine[Any, Any, _T]) -> _T:
    """Run a decoder in an event loop that stays open."""
    return _loop().run_until_complete(decoding)


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def text(decode: Callable[[str], Any]) -> Callable[[bytes], Any]:
    """Returns a decoder of the text of a header or parameter, as aiohttp decodes any bytes."""
    return lambda data: decode(data.decode("utf-8", "surrogateescape"))
