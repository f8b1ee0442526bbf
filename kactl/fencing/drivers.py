"""Transactions of the known drivers of SQL databases, blocking and asynchronous, behind one class.

No driver is imported: the class of a connection selects its adapter. The methods are coroutines, which wait for nothing
if the driver blocks; `finished` then runs them without an event loop.
"""

import inspect
import sys
from collections.abc import Coroutine
from typing import Any, ClassVar, Final, Literal

from kactl.model.errors import BadRequest

Dialect = Literal["sqlite", "postgresql", "mysql"]

# Of libpq: a transaction is open, or has failed and was not rolled back.
_IN_TRANSACTION: Final = (2, 3)
# Of the status that a MySQL server sends: a transaction is open.
_MYSQL_IN_TRANSACTION: Final = 1


class Driver:
    """One transaction on a connection of a DB-API driver, or of an asynchronous one with the same methods.

    Attributes:
        needs: a method that connections of the driver have, and its pools, engines and cursors do not.
        is_async: whether the methods of the connection have to be awaited.
    """

    needs: ClassVar[str] = "commit"

    def __init__(self, connection: Any, dialect: Dialect | None, placeholder: str | None) -> None:
        self.connection = connection
        self.dialect = dialect
        methods = (getattr(connection.__class__, name, None) for name in ("commit", "execute", "cursor"))
        self.is_async = any(map(inspect.iscoroutinefunction, methods))
        self._mark = placeholder or ("?" if dialect == "sqlite" else "%s")

    def is_open(self) -> bool | None:
        """Whether a transaction is open; None if that cannot be known."""
        return _in_transaction(self.connection)

    async def refuse_open(self) -> None:
        """Raises BadRequest if a transaction is open: its statements may have read before the guard."""
        if _in_transaction(self.connection):
            raise BadRequest(
                "connection", "an earlier statement has begun a transaction: commit it or roll it back before the block"
            )

    async def begin(self) -> None:
        if self.dialect == "mysql":
            await self._execute("START TRANSACTION")  # with other drivers the first statement begins it

    async def attach(self) -> None:
        """Find out the dialect, if the transaction has to be open for that."""

    async def value(self, statement: str, values: tuple[object, ...]) -> Any:
        """Execute a query with %s as placeholder. Returns the first column of the first row; None if there is none."""
        row = await self._execute(statement.replace("%s", self._mark), values, reads=True)
        return row and next(iter(row.values() if isinstance(row, dict) else row))

    async def write(self, statement: str, values: tuple[object, ...]) -> None:
        await self._execute(statement.replace("%s", self._mark), values)

    async def _execute(self, statement: str, values: tuple[object, ...] = (), *, reads: bool = False) -> Any:
        cursor = await self._cursor()
        try:
            await _done(cursor.execute(statement, values))
            return await _done(cursor.fetchone()) if reads else None
        finally:
            await _done(cursor.close())

    async def _cursor(self) -> Any:
        return await _done(self.connection.cursor())

    async def flush(self) -> None:
        """Send what the connection has collected and not sent yet."""

    async def commit(self) -> None:
        await _done(self.connection.commit())

    async def roll_back(self, error: BaseException) -> None:
        await _done(self.connection.rollback())

    def discard(self) -> None:
        """Make the connection unusable at once, without a wait. The server rolls back what is open."""
        way = next(filter(None, (getattr(self.connection, name, None) for name in ("terminate", "stop", "close"))))
        if inspect.iscoroutine(closing := way()):
            closing.close()
            raise BadRequest("connection", "the driver cannot close it without a wait: close it")


class _Sqlite(Driver):
    """sqlite3 and aiosqlite, in each mode of their transaction control."""

    # With autocommit=False (Python 3.12) a transaction is always open. It has no effect before its first statement, and
    # SQLite refuses its first write if it has read what was changed since.
    _is_endless = False

    def is_open(self) -> bool | None:
        return None if self._is_endless else super().is_open()

    async def refuse_open(self) -> None:
        raw, run = getattr(self.connection, "_conn", self.connection), getattr(self.connection, "_execute", None)
        # Only the thread of an aiosqlite connection can read it.
        mode = await run(getattr, raw, "autocommit", None) if run else getattr(raw, "autocommit", None)
        self._is_endless = mode is False
        if not self._is_endless:
            await super().refuse_open()

    async def begin(self) -> None:
        if not self._is_endless:
            await self._execute("BEGIN IMMEDIATE")

    async def _cursor(self) -> Any:
        cursor = await super()._cursor()
        cursor.row_factory = None  # tuples, whatever the connection returns
        return cursor

    async def commit(self) -> None:
        # With autocommit=True the method has no effect.
        await (super().commit() if self._is_endless else self._execute("COMMIT"))

    async def roll_back(self, error: BaseException) -> None:
        await (super().roll_back(error) if self._is_endless else self._execute("ROLLBACK"))


class _Blocks(Driver):
    """A driver with blocks for transactions. Most of them refuse a commit inside their block."""

    needs = "transaction"
    _block: Any = None

    def _new_block(self) -> Any:
        return self.connection.transaction()

    async def begin(self) -> None:
        block = self._new_block()
        await _done(block.__aenter__() if self.is_async else block.__enter__())
        self._block = block

    async def commit(self) -> None:
        await self._exit(None)

    async def roll_back(self, error: BaseException) -> None:
        await self._exit(error)

    async def _exit(self, error: BaseException | None) -> None:
        block, self._block = self._block, None
        if block is not None:
            of = (None if error is None else type(error), error, None)
            await _done(block.__aexit__(*of) if self.is_async else block.__exit__(*of))


class _Psycopg(_Blocks):
    async def _cursor(self) -> Any:
        return self.connection.cursor(row_factory=lambda _: tuple)  # tuples, whatever the connection returns

    def discard(self) -> None:
        self.connection.pgconn.finish()


class _Asyncpg(_Blocks):
    needs = "is_in_transaction"  # a pool has the other methods, too

    def __init__(self, connection: Any, dialect: Dialect | None, placeholder: str | None) -> None:
        super().__init__(connection, dialect, placeholder)
        self.is_async = True  # the methods of a pool's proxy do not show it

    async def value(self, statement: str, values: tuple[object, ...]) -> Any:
        return await self.connection.fetchval(_with_marks(statement, "${}"), *values)

    async def write(self, statement: str, values: tuple[object, ...]) -> None:
        await self.connection.execute(_with_marks(statement, "${}"), *values)


class _SqlAlchemy(_Blocks):
    """Connection, Session, AsyncConnection and AsyncSession of SQLAlchemy, over any driver of the dialects."""

    needs = "in_transaction"  # an engine has the other methods, too
    _bound: Any = None  # the connection, also of a session, while the block is open

    def _new_block(self) -> Any:
        return self.connection.begin()

    async def attach(self) -> None:
        is_session = hasattr(self.connection, "flush")
        self._bound = await _done(self.connection.connection()) if is_session else self.connection
        name = self._bound.dialect.name
        self.dialect = "mysql" if name == "mariadb" else name

    def is_open(self) -> bool | None:
        if self._bound is None:
            return None
        # SQLAlchemy's own transaction is open in autocommit mode, too.
        bound = getattr(self._bound, "sync_connection", self._bound)
        return _in_transaction(bound.connection.driver_connection)

    async def _exit(self, error: BaseException | None) -> None:
        self._bound = None
        await super()._exit(error)

    async def value(self, statement: str, values: tuple[object, ...]) -> Any:
        return (await self._run(statement, values)).scalar()

    async def write(self, statement: str, values: tuple[object, ...]) -> None:
        await self._run(statement, values)

    async def _run(self, statement: str, values: tuple[object, ...]) -> Any:
        text = sys.modules["sqlalchemy"].text(_with_marks(statement, ":v{}"))
        return await _done(self._bound.execute(text, {f"v{number}": v for number, v in enumerate(values, start=1)}))

    async def flush(self) -> None:
        if hasattr(self.connection, "flush"):
            await _done(self.connection.flush())

    def discard(self) -> None:
        """Refuse each commit: sessions that are closed begin again."""

        def refuse(*_: object) -> None:
            raise BadRequest("connection", "it has an unused guard, or could not be rolled back: use another one")

        target: Any = self.connection
        for name in ("sync_session", "sync_connection"):
            target = getattr(target, name, target)
        event = "before_commit" if hasattr(target, "flush") else "commit"
        sys.modules["sqlalchemy"].event.listen(target, event, refuse)


_ADAPTERS: Final[dict[str, tuple[type[Driver], Dialect | None]]] = {
    "sqlite3": (_Sqlite, "sqlite"),
    "aiosqlite": (_Sqlite, "sqlite"),
    "psycopg": (_Psycopg, "postgresql"),
    "asyncpg": (_Asyncpg, "postgresql"),
    "sqlalchemy": (_SqlAlchemy, None),  # its connections know their dialects
    "psycopg2": (Driver, "postgresql"),
    "pymysql": (Driver, "mysql"),
    "MySQLdb": (Driver, "mysql"),
    "mysql": (Driver, "mysql"),
    "aiomysql": (Driver, "mysql"),
    "asyncmy": (Driver, "mysql"),
}


def driver_of(connection: Any, dialect: Dialect | None, placeholder: str | None) -> Driver:
    """Returns the adapter of a connection, which may be of a subclass or a proxy of a driver's class.

    Raises:
        BadRequest: it is no connection, or one of an unknown driver without a dialect.
    """
    names = [base.__module__.partition(".")[0] for base in connection.__class__.__mro__]
    adapter, known = next((_ADAPTERS[name] for name in names if name in _ADAPTERS), (Driver, None))
    if dialect is None and adapter is Driver and known is None:
        raise BadRequest("dialect", f"the driver {names[0]!r} is not known: pass dialect= and placeholder=")
    if not hasattr(connection, adapter.needs):
        kind = f"{names[0]}.{connection.__class__.__qualname__}"
        raise BadRequest("connection", f"a {kind} has no transaction: pass a connection, or a session of SQLAlchemy")
    return adapter(connection, dialect or known, placeholder)


def finished(running: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine of a `Driver` that blocks, and return its result."""
    try:
        running.send(None)
    except StopIteration as end:
        return end.value
    running.close()
    raise BadRequest("connection", "a method of this driver has to be awaited: use `async with`")


def _in_transaction(connection: Any) -> bool | None:
    if hasattr(connection, "is_in_transaction"):  # asyncpg
        return bool(connection.is_in_transaction())
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if status is not None:  # psycopg, psycopg2
        return status in _IN_TRANSACTION
    open_now = getattr(connection, "in_transaction", None)  # sqlite3, aiosqlite, mysql.connector, SQLAlchemy
    if open_now is not None:
        return bool(open_now() if callable(open_now) else open_now)
    flags = getattr(connection, "server_status", None)  # pymysql
    if isinstance(flags, int):
        return bool(flags & _MYSQL_IN_TRANSACTION)
    return False if getattr(connection, "autocommit", None) is True else None


def _with_marks(statement: str, mark: str) -> str:
    first, *others = statement.split("%s")
    return first + "".join(mark.format(number) + text for number, text in enumerate(others, start=1))


async def _done(result: Any) -> Any:
    """Returns the result of a driver's method, which may be asynchronous."""
    return await result if inspect.isawaitable(result) else result
