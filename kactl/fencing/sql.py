"""Guard for writes to a SQL database: the highest token of each resource, compared in the transaction of the write.

    with connection:  # one transaction
        await sql_guard(connection, leader, "invoices-7")
        connection.execute("UPDATE ...")

The guard locks the row of the resource until the end of the transaction. A delayed transaction of an earlier leader
waits for it, then finds the higher token.
"""

import inspect
from typing import Any, Final, Literal, get_args

from kactl.errors import BadRequest, StaleToken
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.token import FencingToken

Dialect = Literal["sqlite", "postgresql", "mysql"]

# One row for each resource and topic: tokens of different topics cannot be compared.
_DDL: Final[dict[Dialect, str]] = {
    "sqlite": """\
CREATE TABLE IF NOT EXISTS kactl_fence (
    resource TEXT NOT NULL,
    topic_id TEXT NOT NULL,
    token INTEGER NOT NULL,
    PRIMARY KEY (resource, topic_id)
);""",
    "postgresql": """\
CREATE TABLE IF NOT EXISTS kactl_fence (
    resource varchar(255) NOT NULL,
    topic_id char(32) NOT NULL,
    token bigint NOT NULL,
    PRIMARY KEY (resource, topic_id)
);""",
    "mysql": """\
CREATE TABLE IF NOT EXISTS kactl_fence (
    resource varchar(255) NOT NULL,
    topic_id char(32) NOT NULL,
    token bigint NOT NULL,
    PRIMARY KEY (resource, topic_id)
) ENGINE = InnoDB;""",
}
_ON_CONFLICT: Final = (
    "INSERT INTO kactl_fence (resource, topic_id, token) VALUES (%s, %s, %s) "
    "ON CONFLICT (resource, topic_id) DO UPDATE SET token = excluded.token WHERE kactl_fence.token <= excluded.token"
)
_UPSERT: Final[dict[Dialect, str]] = {
    "sqlite": _ON_CONFLICT,
    "postgresql": _ON_CONFLICT,
    "mysql": "INSERT INTO kactl_fence (resource, topic_id, token) VALUES (%s, %s, %s) "
    "ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))",
}
_READ: Final = "SELECT token FROM kactl_fence WHERE resource = %s AND topic_id = %s"
# A locking read sees the commits of other transactions at every isolation level. SQLite has one writer.
_LOCKED: Final[dict[Dialect, str]] = {"sqlite": "", "postgresql": " FOR UPDATE", "mysql": " FOR UPDATE"}
_DIALECTS: Final[dict[str, Dialect]] = {
    "sqlite3": "sqlite",
    "aiosqlite": "sqlite",
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "asyncpg": "postgresql",
    "pymysql": "mysql",
    "MySQLdb": "mysql",
    "mysql": "mysql",
    "aiomysql": "mysql",
    "asyncmy": "mysql",
}
_RESOURCE_MAX: Final = 255


def ddl(dialect: Dialect) -> str:
    """Returns the statement that creates the table of the guard."""
    if dialect not in get_args(Dialect):
        raise BadRequest("dialect", f"{dialect!r} is not known: choose one of {', '.join(get_args(Dialect))}")
    return _DDL[dialect]


async def sql_guard(
    connection: Any, leader: Leader, resource: str, *, dialect: Dialect | None = None, placeholder: str | None = None
) -> None:
    """Record the leader's token for a resource, in the transaction that is open or that the driver begins.

    Args:
        connection: of a DB-API driver, or of an asynchronous one with the same methods, or of asyncpg.
        resource: name of the written resource, at most 255 characters.
        dialect, placeholder: for a driver that is not known: its SQL, and its placeholder for parameters, ? or %s.

    Raises:
        LeadershipLost: the lease has ended; nothing was sent.
        StaleToken: a later leader has written to the resource. The caller has to roll the transaction back.
    """
    leader.check()
    if not 0 < len(resource) <= _RESOURCE_MAX:
        raise BadRequest("resource", f"{len(resource)} characters are not possible: choose 1 to {_RESOURCE_MAX}")
    driver = type(connection).__module__.partition(".")[0]
    dialect = dialect or _DIALECTS.get(driver)
    if dialect is None:
        raise BadRequest("dialect", f"the driver {driver!r} is not known: pass dialect= and placeholder=")
    token, topic = leader.token.as_int(), leader.token.topic_id.hex()
    read = _READ + _LOCKED[dialect]
    if driver == "asyncpg":
        await connection.execute(_numbered(_UPSERT[dialect]), resource, topic, token)
        stored = await connection.fetchval(_numbered(read), resource, topic)
    else:
        mark = placeholder or ("?" if dialect == "sqlite" else "%s")
        cursor = await _done(connection.cursor())
        await _done(cursor.execute(_UPSERT[dialect].replace("%s", mark), (resource, topic, token)))
        await _done(cursor.execute(read.replace("%s", mark), (resource, topic)))
        (stored,) = await _done(cursor.fetchone())
        await _done(cursor.close())
    if stored > token:
        highest = FencingToken(stored >> 32, stored & 0xFFFF_FFFF, leader.token.topic_id)
        raise StaleToken(resource, ours=str(leader.token), highest=str(highest))


def _numbered(statement: str) -> str:
    """Returns a statement with the placeholders $1, $2 ..."""
    first, *others = statement.split("%s")
    return first + "".join(f"${number}{text}" for number, text in enumerate(others, start=1))


async def _done(result: Any) -> Any:
    """Returns the result of a driver's method, which may be asynchronous."""
    return await result if inspect.isawaitable(result) else result
