"""Transactions that only the latest leader can commit, as `with` blocks that cannot forget their guard."""

import contextlib
import warnings
from collections.abc import Awaitable, Generator
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

import anyio

from kactl.model.errors import BadRequest, IllegalState
from kactl.participant.leases.leader import Leader
from kactl.runtime.logs import logger

from .drivers import Dialect, Driver, driver_of, finished
from .sql import confirm, guard, sqlstate

log = logger(__name__)

_Connection = TypeVar("_Connection")

_RESOURCE_MAX: Final = 255
# Another transaction has changed the row since this one began, or both wait for each other. At the isolation levels
# REPEATABLE READ and SERIALIZABLE one of two concurrent guards gets such an error; its next try reads the new row.
_RETRIED: Final = frozenset({"40001", "40P01"})
_TRIES_MAX: Final = 10
# A transaction that is not rolled back in this time ends with its connection.
_ROLLBACK_S: Final = 10.0


class Fenced(Generic[_Connection]):
    """The block of a transaction that only the latest leader can commit. `fenced` returns it, for one use."""

    def __init__(self, driver: Driver, leader: Leader, resource: str) -> None:
        self._driver = driver
        self._leader = leader
        self._resource = resource
        self._is_used = False

    def __enter__(self) -> _Connection:
        self._use(is_async=False)
        finished(self._enter())
        return self._driver.connection  # type: ignore[no-any-return]

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        finished(self._exit(error))

    async def __aenter__(self) -> _Connection:
        self._use(is_async=True)
        await self._enter()
        return self._driver.connection  # type: ignore[no-any-return]

    async def __aexit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._exit(error)

    def __del__(self) -> None:
        """Fail the commit of a transaction whose guard was made and not used."""
        if not self._is_used:
            _discard(self._driver, f"the guard of {self._resource} was not used: write `with fenced(...) as tx:`")

    def _use(self, *, is_async: bool) -> None:
        was_used, self._is_used = self._is_used, True
        if is_async is not self._driver.is_async:
            kind, written = ("an asynchronous", "async with") if self._driver.is_async else ("a blocking", "with")
            of = type(self._driver.connection)
            raise TypeError(f"{of} belongs to {kind} driver: write `{written} fenced(...) as tx:`")
        if was_used:
            raise IllegalState(f"the guard of {self._resource} was used before: call fenced(...) for each transaction")

    async def _enter(self) -> None:
        self._leader.check()
        for tries_left in reversed(range(_TRIES_MAX)):
            await self._driver.refuse_open()
            try:
                await self._driver.begin()
                await guard(self._driver, self._leader, self._resource)
            except BaseException as error:
                await self._roll_back(error)
                if not tries_left or sqlstate(error) not in _RETRIED:
                    raise
            else:
                return

    async def _exit(self, error: BaseException | None) -> None:
        if error is not None:
            await self._roll_back(error)
            return
        try:
            await self._driver.flush()
            await confirm(self._driver, self._leader, self._resource)
            self._leader.check()
            await self._driver.commit()
        except BaseException as failure:
            await self._roll_back(failure)
            raise

    async def _roll_back(self, error: BaseException) -> None:
        """Roll back, also in a task that is being cancelled. Raises nothing: the caller raises the error."""
        driver, is_over = self._driver, False
        # `finished` runs without an event loop.
        limit = anyio.move_on_after(_ROLLBACK_S, shield=True) if driver.is_async else contextlib.nullcontext()
        with limit, contextlib.suppress(Exception):  # after a failed commit nothing may be left to roll back
            await driver.roll_back(error)
            is_over = True
        with contextlib.suppress(Exception):  # the connection is closed
            is_open = driver.is_open()
            if is_open or (is_open is None and not is_over):
                _discard(driver, f"the transaction of {self._resource} could not be rolled back")


def fenced(
    connection: _Connection,
    leader: Leader,
    resource: str,
    *,
    dialect: Dialect | None = None,
    placeholder: str | None = None,
) -> Fenced[_Connection]:
    """Open a transaction that is committed only if no later leader has written to the resource.

        with fenced(connection, leader, "jobs-3") as tx:  # with an asynchronous driver: async with
            tx.execute("UPDATE ...")

    The block records the leader's token, and locks its row until the transaction ends. At the end of the block the row
    and the lease are verified again, then it commits. If the block raises, it rolls back, and the exception leaves
    unchanged. `tx` is the connection. If the block is never entered, the connection is made unusable.

    Args:
        connection: without an open transaction: of psycopg, asyncpg, sqlite3 or aiosqlite, a connection or session of
            SQLAlchemy, or of another DB-API driver.
        resource: name of the written resource, at most 255 characters.
        dialect, placeholder: for a driver that is not known: its SQL, and its placeholder for parameters, ? or %s.

    Raises:
        LeadershipLost: the lease has ended; nothing was committed.
        StaleToken: a later leader has written to the resource; nothing was committed.
        TypeError: `with` was used with an asynchronous driver, or `async with` with a blocking one.
        BadRequest: a transaction was open, the connection commits by itself, or there is no table `kactl_fence`.
    """
    return Fenced(_driver(connection, leader, resource, dialect, placeholder), leader, resource)


def sql_guard(
    connection: Any, leader: Leader, resource: str, *, dialect: Dialect | None = None, placeholder: str | None = None
) -> Awaitable[None]:
    """Deprecated: use `fenced`, which opens the transaction and commits it.

    Records the leader's token for a resource in the transaction that is open, or that the driver begins. With a
    blocking driver that has happened when this returns, and awaiting the result has no effect. With an asynchronous
    driver the result has to be awaited; if it is not, the connection is made unusable.

    Raises:
        LeadershipLost: the lease has ended; nothing was sent.
        StaleToken: a later leader has written to the resource. The caller has to roll the transaction back.
    """
    message = "sql_guard is replaced by fenced: `with fenced(connection, leader, resource) as tx:`"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    driver = _driver(connection, leader, resource, dialect, placeholder)
    guard = _Guard(driver, leader, resource)
    if not driver.is_async:
        finished(guard.run())
    return guard


class _Guard(Awaitable[None]):
    """The result of `sql_guard`."""

    def __init__(self, driver: Driver, leader: Leader, resource: str) -> None:
        self._driver = driver
        self._leader = leader
        self._resource = resource
        self._has_run = False

    async def run(self) -> None:
        self._has_run = True
        self._leader.check()
        await guard(self._driver, self._leader, self._resource)

    def __await__(self) -> Generator[Any, None, None]:
        if not self._has_run:
            yield from self.run().__await__()

    def __del__(self) -> None:
        if not self._has_run:
            _discard(self._driver, f"the guard of {self._resource} was not awaited")


def _driver(connection: Any, leader: Leader, resource: str, dialect: Dialect | None, placeholder: str | None) -> Driver:
    if not isinstance(leader, Leader):
        raise BadRequest("leader", f"{leader!r} is no Leader: pass the argument of PartitionHandler.lead")
    if not isinstance(resource, str) or not 0 < len(resource) <= _RESOURCE_MAX:
        raise BadRequest("resource", f"{resource!r:.300} is not possible: choose 1 to {_RESOURCE_MAX} characters")
    return driver_of(connection, dialect, placeholder)


def _discard(driver: Driver, reason: str) -> None:
    """Make a connection unusable, so that nothing can be committed on it without a guard."""
    try:
        driver.discard()
    except Exception:
        log.exception("%s, and its connection cannot be closed", reason)
    else:
        log.error("%s; its connection is unusable from now on", reason)
