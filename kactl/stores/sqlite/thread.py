"""The one thread that has the database, and the way into it from the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from kactl.clock import Clock
from kactl.errors import IllegalState
from kactl.stores.base import StoreEvent

from .catalog import Catalog
from .database import Database
from .requests import Requests
from .sessions import NO_HOLDER, Holder, Sessions

_P = ParamSpec("_P")
_T = TypeVar("_T")


class DatabaseThread:
    """Runs jobs one after another. After each, what has changed is told in the loop's thread, before the job's result.

    A job whose caller is cancelled is finished all the same, unless it had not begun.

    Args:
        tell: is given every change, whoever made it.
        holder: see `Sessions`.
    """

    def __init__(
        self, path: Path, tell: Callable[[StoreEvent], None], *, clock: Clock, holder: Holder = NO_HOLDER
    ) -> None:
        self._path = path
        self._tell = tell
        self._clock = clock
        self._holder = holder
        self._parts: tuple[Database, Sessions, Catalog, Requests] | None = None
        self._executor: ThreadPoolExecutor | None = None

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
        """Open the file, and load what it holds.

        Raises:
            StoreDamaged: the file was left as it was.
        """
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kactl-sqlite")
        opened: list[Database] = []

        def open_database() -> Database:
            opened.append(Database(self._path, self._clock))
            return opened[0]

        try:
            database = await asyncio.get_running_loop().run_in_executor(self._executor, open_database)
        except BaseException:
            # A caller that is cancelled leaves the thread at work; what it opens belongs to it and is closed there.
            self._executor.submit(lambda: opened[0].close() if opened else None)
            self._executor.shutdown()
            raise
        sessions = Sessions(database, self._clock, holder=self._holder)
        self._parts = (database, sessions, Catalog(database), Requests(database))

    async def close(self) -> None:
        if self._executor and self._parts:
            await asyncio.get_running_loop().run_in_executor(self._executor, self.database.close)
            self._executor.shutdown()
        self._executor = self._parts = None

    async def run(self, job: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Do a job in the thread."""
        loop = asyncio.get_running_loop()

        def work() -> _T:
            try:
                return job(*args, **kwargs)
            finally:
                self._tell_news(loop)

        return await loop.run_in_executor(self._executor, work)

    async def watch(self, arm: Callable[[], None], job: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Do a job that reads. What it reads was told before `arm` is called; what comes later is told after."""
        loop = asyncio.get_running_loop()

        def work() -> _T:
            with self.database.reading():
                self._tell_news(loop)
                loop.call_soon_threadsafe(arm)
                return job(*args, **kwargs)

        return await loop.run_in_executor(self._executor, work)

    def _tell_news(self, loop: asyncio.AbstractEventLoop) -> None:
        for event in self.database.news():
            loop.call_soon_threadsafe(self._tell, event)

    @property
    def _opened(self) -> tuple[Database, Sessions, Catalog, Requests]:
        if self._parts is None:
            raise IllegalState("a SqliteStore is used inside `async with` only")
        return self._parts
