"""Statements of the guard for SQL databases, which compare a token with the highest one of the resource.

The guard locks the row of the resource until the end of the transaction. A delayed transaction of an earlier leader
waits for it, then finds the higher token.
"""

from typing import Final, get_args

from kactl.model.errors import BadRequest, StaleToken
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.token import FencingToken

from .drivers import Dialect, Driver

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
# An undefined table: the SQLSTATE of PostgreSQL, and the error of MySQL.
_NO_TABLE: Final = ("42P01", 1146)


def ddl(dialect: Dialect) -> str:
    """Returns the statement that creates the table of the guard."""
    if dialect not in get_args(Dialect):
        raise BadRequest("dialect", f"{dialect!r} is not known: choose one of {', '.join(get_args(Dialect))}")
    return _DDL[dialect]


async def guard(driver: Driver, leader: Leader, resource: str) -> None:
    """Record the leader's token in the open transaction, and lock its row.

    Raises:
        StaleToken: a later leader has written to the resource. The caller has to roll back.
        BadRequest: there is no table, or no transaction.
    """
    await driver.attach()
    if driver.dialect not in _UPSERT:
        raise BadRequest("dialect", f"{driver.dialect!r} is not known: choose one of {', '.join(_UPSERT)}")
    try:
        token = leader.token
        await driver.write(_UPSERT[driver.dialect], (resource, token.topic_id.hex(), token.as_int()))
        await confirm(driver, leader, resource)
    except Exception as error:
        if not _is_missing_table(error):
            raise
        command = f"python -m kactl.fencing ddl --dialect {driver.dialect}"
        reason = f"this database has no such table: create it once by the statement that `{command}` prints"
        raise BadRequest("kactl_fence", reason) from error


async def confirm(driver: Driver, leader: Leader, resource: str) -> None:
    """Verify that the open transaction has the leader's token, and lock its row."""
    assert driver.dialect is not None, "`guard` has verified it"
    token, topic = leader.token.as_int(), leader.token.topic_id.hex()
    stored = await driver.value(_READ + _LOCKED[driver.dialect], (resource, topic))
    if stored is not None and stored > token:
        highest = FencingToken(stored >> 32, stored & 0xFFFF_FFFF, leader.token.topic_id)
        raise StaleToken(resource, ours=str(leader.token), highest=str(highest))
    if stored != token or driver.is_open() is False:
        raise BadRequest(
            "connection",
            "the transaction of the guard is not open: the connection commits each statement (autocommit), or the "
            "block has ended the transaction; use neither",
        )


def sqlstate(error: BaseException) -> object:
    """Returns the SQLSTATE of a driver's error, or the number of MySQL's; None if it has neither."""
    cause = getattr(error, "orig", None) or error  # of SQLAlchemy's
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return state or next(iter(cause.args), None)


def _is_missing_table(error: Exception) -> bool:
    return sqlstate(error) in _NO_TABLE or "no such table: kactl_fence" in str(error)
