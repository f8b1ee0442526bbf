"""A host program whose blocking jobs occupy all threads of asyncio's executor and of anyio."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import anyio.to_thread

_EXECUTOR_MAX = 32  # whatever the number of processors
_LIMIT = 40


@contextlib.asynccontextmanager
async def busy_threads() -> AsyncIterator[None]:
    """Jobs that end with the block."""
    release = threading.Event()

    def job() -> None:
        release.wait()

    loop = asyncio.get_running_loop()
    jobs = [loop.run_in_executor(None, job) for _ in range(_EXECUTOR_MAX)]
    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(_LIMIT):
                tasks.start_soon(anyio.to_thread.run_sync, job)
            try:
                await anyio.lowlevel.checkpoint()
                yield
            finally:
                release.set()
    finally:
        release.set()
        await asyncio.gather(*jobs)
