"""Fenced transactions, through each driver that the documentation names, against SQLite and PostgreSQL."""

import gc
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from kactl.fencing import fenced
from kactl.model.errors import BadRequest, IllegalState, LeadershipLost, StaleToken

from .databases import KINDS, POSTGRES_KINDS, RESOURCE, Database, conninfo, done, driver, is_async
from .leaders import OTHER_ID, leader

pytestmark = pytest.mark.anyio

every_kind = pytest.mark.parametrize("kind", KINDS)
postgres_kinds = pytest.mark.parametrize("kind", POSTGRES_KINDS)
# How long a test waits for what another transaction does.
PATIENCE_S = 60.0


async def until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_at
        await anyio.lowlevel.checkpoint()


@every_kind
async def test_late_write_of_an_earlier_leader_is_not_committed(database: Database) -> None:
    connection = await database.open()
    for epochs in ((1, 5), (1, 5), (1, 6), (2, 0)):
        await database.write(connection, leader(*epochs), str(epochs))

    with pytest.raises(StaleToken, match=r"token 1\.6 is behind 2\.0"):
        await database.write(connection, leader(1, 6), "late")

    assert database.values() == ["(1, 5)", "(1, 5)", "(1, 6)", "(2, 0)"]
    await database.write(connection, leader(2, 0), "next")
    assert "next" in database.values()


@every_kind
async def test_tokens_of_another_topic_are_not_compared(database: Database) -> None:
    connection = await database.open()
    await database.write(connection, leader(5, 5), "first")

    await database.write(connection, leader(1, 0, topic_id=OTHER_ID), "second")

    assert database.values() == ["first", "second"]


@every_kind
async def test_exception_of_the_body_leaves_unchanged_after_rollback(database: Database) -> None:
    connection, raised = await database.open(), ValueError("of the body")

    async def fail(_: Any) -> None:
        raise raised

    with pytest.raises(ValueError, match="of the body") as caught:
        await database.write(connection, leader(9, 9), "lost", inside=fail)

    assert caught.value is raised
    assert database.values() == []
    await database.write(connection, leader(1, 0), "the token was rolled back, too")


@every_kind
async def test_lease_that_ends_in_the_block_fails_the_commit(database: Database) -> None:
    connection, ours = await database.open(), leader(1, 5)

    async def end(_: Any) -> None:
        ours._end()

    with pytest.raises(LeadershipLost):
        await database.write(connection, ours, "lost", inside=end)

    assert database.values() == []


@every_kind
async def test_leader_without_a_lease_begins_no_transaction(database: Database) -> None:
    connection = await database.open()

    with pytest.raises(LeadershipLost):
        await database.write(connection, leader(1, 5, valid=False), "lost")

    assert database.query("SELECT * FROM kactl_fence") == []
    await database.write(connection, leader(1, 5), "next")


@every_kind
async def test_block_of_the_other_kind_is_refused_before_anything(database: Database) -> None:
    connection = await database.open()
    guard: Any = fenced(connection, leader(1, 5), RESOURCE)

    with pytest.raises(TypeError, match="`async with fenced" if is_async(connection) else "`with fenced"):
        guard.__enter__() if is_async(connection) else await guard.__aenter__()

    assert database.query("SELECT * FROM kactl_fence") == []
    await database.write(connection, leader(1, 5), "usable")


@every_kind
async def test_guard_that_is_not_used_fails_the_commit(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    connection = await database.open()

    fenced(connection, leader(1, 5), RESOURCE)
    gc.collect()

    with pytest.raises(Exception):  # noqa: B017, PT011  # each driver has its own
        await database.run_and_commit(connection, "INSERT INTO invoices (value) VALUES ('unguarded')")
    assert database.values() == []
    assert "was not used" in caplog.text


@every_kind
async def test_guard_serves_one_block(database: Database) -> None:
    connection = await database.open()
    guard: Any = fenced(connection, leader(1, 5), RESOURCE)

    async def enter() -> None:
        if is_async(connection):
            async with guard:
                pass
        else:
            with guard:
                pass

    await enter()
    with pytest.raises(IllegalState):
        await enter()


@every_kind
async def test_missing_table_is_named_with_its_remedy(database: Database) -> None:
    connection = await database.open()
    database.query("DROP TABLE kactl_fence")

    with pytest.raises(BadRequest, match=f"ddl --dialect {database.dialect}"):
        await database.write(connection, leader(1, 5), "lost")

    assert database.values() == []


@every_kind
async def test_open_transaction_is_refused_and_left_alone(database: Database) -> None:
    if database.kind.endswith("autocommit=False"):
        pytest.skip("a transaction is always open")
    connection = await database.open()
    own_block = _own_transaction(database, connection)
    await own_block.begin()
    await database.run(connection, "INSERT INTO invoices (value) VALUES ('of the caller')")

    with pytest.raises(BadRequest, match="earlier statement has begun a transaction"):
        await database.write(connection, leader(1, 5), "refused")

    await own_block.commit()
    assert database.values() == ["of the caller"]


class _Statements:
    def __init__(self, database: Database, connection: Any) -> None:
        self._run: Callable[[str], Awaitable[None]] = lambda statement: database.run(connection, statement)

    async def begin(self) -> None:
        await self._run("BEGIN")

    async def commit(self) -> None:
        await self._run("COMMIT")


class _Implicit(_Statements):
    """The first statement begins the transaction."""

    def __init__(self, database: Database, connection: Any) -> None:
        super().__init__(database, connection)
        self._connection = connection

    async def begin(self) -> None:
        return

    async def commit(self) -> None:
        await done(self._connection.commit())


def _own_transaction(database: Database, connection: Any) -> _Statements:
    explicit = database.kind.startswith(("asyncpg", "psycopg, autocommit", "sqlite3, "))
    return (_Statements if explicit else _Implicit)(database, connection)


@every_kind
async def test_transaction_that_the_block_has_ended_is_an_error(database: Database) -> None:
    """What was committed inside the block was guarded. What follows is not committed unless it is guarded, too."""
    connection = await database.open()

    async def end_and_continue(tx: Any) -> None:
        if hasattr(tx, "rollback") and not database.kind.endswith("autocommit=True"):  # there it has no effect
            await done(tx.rollback())
        else:
            await database.run(tx, "ROLLBACK")

    with pytest.raises(Exception):  # noqa: B017, PT011  # some drivers refuse to end a transaction inside a block
        await database.write(connection, leader(1, 5), "rolled back", inside=end_and_continue)

    assert database.values() == []


@every_kind
async def test_earlier_leader_that_waits_for_a_later_one_is_rejected(database: Database) -> None:
    """The later leader holds the row until its commit, so that the earlier one cannot commit after it."""
    later, earlier = await database.open(), await database.open()
    await database.write(later, leader(1, 5), "first")
    outcomes: list[Exception] = []

    async def write_late() -> None:
        try:
            await database.write_beside(earlier, leader(1, 5), "late")
        except StaleToken as error:
            outcomes.append(error)

    async with anyio.create_task_group() as tasks:

        async def let_the_earlier_one_wait(_: Any) -> None:
            tasks.start_soon(write_late)
            if database.dialect == "postgresql":
                await until(lambda: database.query("SELECT 1 FROM pg_locks WHERE NOT granted") != [])
            assert outcomes == []

        await database.write(later, leader(1, 6), "second", inside=let_the_earlier_one_wait)

    assert [str(outcome) for outcome in outcomes] == [str(StaleToken(RESOURCE, ours="1.5", highest="1.6"))]
    assert database.values() == ["first", "second"]


@postgres_kinds
@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
async def test_isolation_level_does_not_change_the_outcome(database: Database, level: str) -> None:
    """At the higher levels the guard that waited gets a serialization error. It is repeated with the next snapshot."""
    database.query(f"ALTER ROLE postgres SET default_transaction_isolation = '{level}'")
    try:
        later, same, earlier = [await database.open() for _ in range(3)]
    finally:
        database.query("ALTER ROLE postgres RESET default_transaction_isolation")
    rejected: list[str] = []

    async def write(connection: Any, epoch: int, value: str) -> None:
        try:
            await database.write_beside(connection, leader(1, epoch), value)
        except StaleToken:
            rejected.append(value)

    async with anyio.create_task_group() as tasks:

        async def let_both_wait(_: Any) -> None:
            tasks.start_soon(write, earlier, 5, "earlier")
            tasks.start_soon(write, same, 6, "same")
            await until(lambda: len(database.query("SELECT 1 FROM pg_locks WHERE NOT granted")) == 2)

        await database.write(later, leader(1, 6), "first row", inside=let_both_wait)

    assert rejected == ["earlier"]
    assert database.values() == ["first row", "same"]


@pytest.mark.parametrize("kind", ["sqlalchemy, psycopg", "sqlalchemy, asyncpg", "sqlalchemy, sqlite"])
async def test_autocommit_of_an_engine_is_refused(database: Database) -> None:
    connection = await database.open(isolation_level="AUTOCOMMIT")

    with pytest.raises(BadRequest, match="autocommit"):
        await database.write(connection, leader(1, 5), "unguarded")

    assert database.values() == []


@postgres_kinds
async def test_failed_commit_leaves_the_connection_usable(database: Database) -> None:
    database.query("ALTER TABLE invoices ADD UNIQUE (value) DEFERRABLE INITIALLY DEFERRED")
    connection = await database.open()
    await database.write(connection, leader(1, 5), "one")

    with pytest.raises(Exception, match="duplicate key"):
        await database.write(connection, leader(1, 6), "one")

    await database.write(connection, leader(1, 5), "the token was rolled back, too")
    assert database.values() == ["one", "the token was rolled back, too"]


@postgres_kinds
async def test_statement_that_failed_silently_fails_the_commit(database: Database) -> None:
    """PostgreSQL answers the commit of a failed transaction with a rollback, and no driver raises."""
    connection = await database.open()

    async def fail_silently(tx: Any) -> None:
        with pytest.raises(Exception, match="no_such_table"):
            await database.run(tx, "INSERT INTO no_such_table VALUES (1)")

    with pytest.raises(Exception, match=r"aborted|rolled back"):
        await database.write(connection, leader(1, 5), "lost", inside=fail_silently)

    assert database.values() == []


@postgres_kinds
async def test_lost_connection_raises_and_commits_nothing(database: Database) -> None:
    connection = await database.open()

    async def cut(_: Any) -> None:
        database.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'")

    with pytest.raises(Exception):  # noqa: B017, PT011  # each driver has its own
        await database.write(connection, leader(1, 5), "lost", inside=cut)

    assert database.values() == []
    other = await database.open()
    await database.write(other, leader(1, 5), "next")


@pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if "aiosqlite" in kind or "async" in kind],
)
async def test_cancelled_block_is_rolled_back(database: Database) -> None:
    connection = await database.open()

    with anyio.CancelScope() as scope:

        async def cancel(_: Any) -> None:
            scope.cancel()
            await anyio.lowlevel.checkpoint()

        await database.write(connection, leader(1, 5), "lost", inside=cancel)

    assert scope.cancelled_caught
    assert database.values() == []
    await database.write(connection, leader(1, 5), "next")


@pytest.mark.parametrize("kind", [kind for kind in POSTGRES_KINDS if "async" in kind])
async def test_guard_that_is_cancelled_while_it_waits_is_rolled_back(database: Database) -> None:
    holder, waiting = await database.open(), await database.open()
    await database.write(holder, leader(1, 5), "first")

    async def cancel_the_other(_: Any) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(database.write, waiting, leader(1, 5), "lost")
            await until(lambda: database.query("SELECT 1 FROM pg_locks WHERE NOT granted") != [])
            tasks.cancel_scope.cancel()

    await database.write(holder, leader(1, 5), "second", inside=cancel_the_other)

    assert database.values() == ["first", "second"]
    await done(waiting.close())


@pytest.mark.parametrize("kind", ["psycopg", "sqlite3", "sqlite3, isolation_level=None"])
async def test_rows_of_any_type_are_read(database: Database) -> None:
    connection = await database.open()
    connection.row_factory = (
        driver("psycopg.rows").class_row(_Row) if database.kind == "psycopg" else lambda *_: {"value": None}
    )

    await database.write(connection, leader(1, 6), "first")

    with pytest.raises(StaleToken):
        await database.write(connection, leader(1, 5), "late")


class _Row:
    def __init__(self, value: str) -> None:
        self.value = value


@pytest.mark.parametrize("kind", ["sqlite3"])
async def test_connection_of_a_subclass_is_known(database: Database) -> None:
    import sqlite3

    class Own(sqlite3.Connection):
        pass

    connection = await database.open(factory=Own)

    await database.write(connection, leader(1, 5), "value")

    assert database.values() == ["value"]


@pytest.mark.parametrize("kind", ["sqlite3"])
async def test_script_that_commits_inside_the_block_is_an_error(database: Database) -> None:
    connection = await database.open()

    async def run_script(tx: Any) -> None:
        tx.executescript("INSERT INTO invoices (value) VALUES ('of the script')")  # commits first

    with pytest.raises(BadRequest, match="has ended the transaction"):
        await database.write(connection, leader(1, 5), "guarded", inside=run_script)


@pytest.mark.parametrize("kind", ["sqlite3"])
async def test_later_leader_rejects_what_follows_a_commit_in_the_block(database: Database) -> None:
    connection, other = await database.open(), await database.open()

    async def commit_and_continue(tx: Any) -> None:
        tx.commit()
        await database.write(other, leader(1, 6), "of the later leader")
        tx.execute("INSERT INTO invoices (value) VALUES ('late')")

    with pytest.raises(StaleToken):
        await database.write(connection, leader(1, 5), "guarded", inside=commit_and_continue)

    assert database.values() == ["guarded", "of the later leader"]


@pytest.mark.parametrize("kind", ["psycopg"])
async def test_what_is_no_connection_is_refused(database: Database) -> None:
    connection = await database.open()
    asyncpg, sqlalchemy = driver("asyncpg"), driver("sqlalchemy")
    engine = sqlalchemy.create_engine("sqlite://")
    pool = asyncpg.create_pool(conninfo(database.place))

    for wrong in (connection.cursor(), engine, pool):
        with pytest.raises(BadRequest, match="has no transaction: pass a connection"):
            fenced(wrong, leader(1, 5), RESOURCE)
    with pytest.raises(BadRequest, match="'builtins' is not known: pass dialect="):
        fenced(object(), leader(1, 5), RESOURCE)
    with pytest.raises(BadRequest, match="leader: 'invoices' is no Leader"):
        fenced(connection, RESOURCE, leader(1, 5))  # type: ignore[arg-type]
    for resource in ("", "r" * 256, 7):
        with pytest.raises(BadRequest, match="resource"):
            fenced(connection, leader(1, 5), resource)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg"])
async def test_block_in_a_thread_sees_the_end_of_the_lease(database: Database) -> None:
    connection, ours = await database.open(), leader(1, 5)
    entered, ended = anyio.Event(), anyio.Event()

    def work() -> None:
        with fenced(connection, ours, RESOURCE) as tx:
            tx.execute("INSERT INTO invoices (value) VALUES ('lost')")
            anyio.from_thread.run_sync(entered.set)
            anyio.from_thread.run(ended.wait)

    async def end() -> None:
        await entered.wait()
        ours._end()
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        with pytest.raises(LeadershipLost):
            await anyio.to_thread.run_sync(work)

    assert database.values() == []


@pytest.mark.parametrize("kind", ["sqlalchemy, psycopg, Session", "sqlalchemy, asyncpg, AsyncSession"])
async def test_unsent_objects_of_a_session_are_committed(database: Database) -> None:
    orm = driver("sqlalchemy.orm")
    sqlalchemy = driver("sqlalchemy")

    class Invoice(orm.declarative_base()):  # type: ignore[misc]
        __tablename__ = "invoices"
        value = sqlalchemy.Column(sqlalchemy.Text, primary_key=True)

    session = await database.open()

    async def add(tx: Any) -> None:
        tx.add(Invoice(value="of the session"))

    await database.write(session, leader(1, 5), "guarded", inside=add)

    assert database.values() == ["guarded", "of the session"]


def test_unusable_connection_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A driver that cannot close a connection without a wait is named, too."""
    from kactl.fencing.drivers import Driver

    class Unclosable:
        async def close(self) -> None: ...

        async def commit(self) -> None: ...

    with caplog.at_level(logging.ERROR):
        fenced(Unclosable(), leader(1, 5), RESOURCE, dialect="postgresql")
        gc.collect()

    assert "cannot be closed" in caplog.text
    assert Driver(Unclosable(), "postgresql", None).is_async
