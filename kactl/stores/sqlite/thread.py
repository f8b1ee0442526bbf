"""The one thread that accesses the database, and its interface to the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from kactl.model.errors import IllegalState
from kactl.runtime import forks
from kactl.runtime.clock import Clock
from kactl.stores.base import StoreEvent

from .catalog import Catalog
from .connection import Connect, connect
from .database import Database
from .requests import Requests
from .sessions import NO_HOLDER, Holder, Sessions

_P = ParamSpec("_P")
_T = TypeVar("_T")


class DatabaseThread:
    """Runs jobs one after another. After each, changes are reported in the loop's thread, before the job's result.

    A job that has begun runs to its end, even if its caller is cancelled.

    Args:
        listener: receives every change, by whichever process.
        holder: see `Sessions`.
    """

    def __init__(
        self,
        path: Path,
        listener: Callable[[StoreEvent], None],
        *,
        clock: Clock,
        holder: Holder = NO_HOLDER,
        connect: Connect = connect,
    ) -> None:
        self._path = path
        self._listener = listener
        self._clock = clock
        self._holder = holder
        self._connect = connect
        self._parts: tuple[Database, Sessions, Catalog, Requests] | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._checkpoints: ThreadPoolExecutor | None = None
        self._moving: asyncio.Future[None] | None = None  # the first part of a checkpoint
        self._home: forks.Home | None = None  # while it is open

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`: SQLite may neither use nor close a connection of another process."""
        self._executor = self._checkpoints = None

    @property
    def is_open(self) -> bool:
        return self._parts is not None

    @property
    def database(self) -> Database:
        return self._opened[0]

    @property
    def sessions(self) -> Sessions:
        return self._opened[1]

    @property
    def catalog(self) -> Catalog:
        return self._opened[2]

    @property
    def requests(self) -> Requests:
        return self._opened[3]

    async def open(self) -> None:
        """Open the file and load its content.

        Raises:
            StoreDamaged: the file was left unchanged.
        """
        loop = asyncio.get_running_loop()
        self._home = forks.share(self)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kactl-sqlite")
        self._checkpoints = ThreadPoolExecutor(1, thread_name_prefix="kactl-sqlite-checkpoint")
        opened: list[Database] = []

        def open_database() -> Database:
            start = partial(self._start_checkpoint, loop)
            opened.append(Database(self._path, self._clock, connect=self._connect, start=start))
            return opened[0]

        try:
            database = await loop.run_in_executor(self._executor, open_database)
        except BaseException:
            # After cancellation the thread is still opening the file; it owns the database, and closes it.
            loop.run_in_executor(self._executor, lambda: opened[0].close() if opened else None)
            self._executor.shutdown()
            raise
        sessions = Sessions(database, self._clock, holder=self._holder)
        self._parts = (database, sessions, Catalog(database), Requests(database))

    async def close(self) -> None:
        if self._executor and self._checkpoints and self._parts:
            await asyncio.get_running_loop().run_in_executor(self._executor, self.database.close)
            self._executor.shutdown()
            if self._moving is not None:
                await asyncio.wait([self._moving])
            self._checkpoints.shutdown()
        self._executor = self._checkpoints = self._parts = self._moving = self._home = None

    async def run(self, job: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a job in the thread. Returns its result."""
        loop = asyncio.get_running_loop()

        def work() -> _T:
            try:
                return job(*args, **kwargs)
            finally:
                self._report_changes(loop)

        return await loop.run_in_executor(self._own_executor, work)

    async def watch(self, arm: Callable[[], None], job: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a job that reads. Changes that it sees are reported before `arm` is called, later ones after."""
        loop = asyncio.get_running_loop()

        def work() -> _T:
            with self.database.reading():
                self._report_changes(loop)
                loop.call_soon_threadsafe(arm)
                return job(*args, **kwargs)

        return await loop.run_in_executor(self._own_executor, work)

    def _start_checkpoint(self, loop: asyncio.AbstractEventLoop, job: Callable[[], None]) -> "Future[None]":
        """Start the first part of a checkpoint in its own thread. Called in the database's thread."""
        done: Future[None] = Future()

        def report(moving: "asyncio.Future[None]") -> None:
            error = moving.exception()
            done.set_result(None) if error is None else done.set_exception(error)

        def start() -> None:
            self._moving = loop.run_in_executor(self._checkpoints, job)
            self._moving.add_done_callback(report)

        loop.call_soon_threadsafe(start)
        return done

    def _report_changes(self, loop: asyncio.AbstractEventLoop) -> None:
        for event in self.database.take_events():
            loop.call_soon_threadsafe(self._listener, event)

    @property
    def _own_executor(self) -> ThreadPoolExecutor | None:
        if self._home is not None:
            self._home.check("the SQLite store")
        return self._executor

    @property
    def _opened(self) -> tuple[Database, Sessions, Catalog, Requests]:
        if self._home is not None:
            self._home.check("the SQLite store")
        if self._parts is None:
            raise IllegalState("a SqliteStore can only be used inside `async with`")
        return self._parts
