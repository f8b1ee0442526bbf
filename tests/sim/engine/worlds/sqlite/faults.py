"""Connections of a SQLite world, and the faults that they inject between a store and its file."""

import random
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kactl.stores.sqlite import Connection, Cursor
from kactl.testing.failures import Sealed
from kactl.testing.nodes import Node

from .recorder import CommitRecorder

Disk = Literal["good", "full", "read-only"]
_CHANGES: Final = frozenset({"INSERT", "UPDATE", "DELETE", "CREATE", "ALTER"})


@dataclass
class CommitFailures:
    """The next commits of a node fail.

    Attributes:
        left: number of commits that will fail.
        done: whether they are carried out nevertheless.
    """

    left: int
    done: bool


@dataclass
class Faults:
    """Faults in effect.

    Attributes:
        disk: state of the disk, for all processes.
        cut: by name of the node, whether writes still reach the disk although nothing comes back from it.
        commits: failing commits, by name of the node.
        deaths: number of statements of write transactions after which a node is killed, by its name.
        hiccups: number of statements after which one statement of a node fails, by its name.
        busy: probability that a write transaction finds the file locked.
        lost: probability that a commit fails and is not carried out.
        unknown: probability that a commit fails although it is carried out.
        rng: draws for each node.
    """

    rng: Callable[[str], random.Random]

    disk: Disk = "good"
    cut: dict[str, bool] = field(default_factory=dict)
    commits: dict[str, CommitFailures] = field(default_factory=dict)
    deaths: dict[str, int] = field(default_factory=dict)
    hiccups: dict[str, int] = field(default_factory=dict)
    busy: float = 0.0
    lost: float = 0.0
    unknown: float = 0.0

    def commit(self, node: str) -> bool | None:
        """Returns None if the next commit of a node succeeds, and otherwise whether it is carried out."""
        if (failures := self.commits.get(node)) is not None:
            failures.left -= 1
            if not failures.left:
                del self.commits[node]
            return failures.done
        if self.cut.get(node):
            return True
        if self.lost or self.unknown:
            drawn = self.rng(node).random()
            return None if drawn >= self.lost + self.unknown else drawn >= self.lost
        return None


class FaultyConnection:
    """A connection of one simulated process.

    Args:
        inner: the connection that it passes its statements to.
        kill: kills the node of the connection.
        before_write: called before each write transaction begins.

    Attributes:
        sealed: the process was killed; no statement is carried out any more.
    """

    def __init__(
        self,
        inner: Connection,
        node: Node | None,
        faults: Faults,
        recorder: CommitRecorder | None,
        *,
        kill: Callable[[Node], None],
        before_write: Callable[[], None],
    ) -> None:
        self.inner = inner
        self.node = node
        self._name = "" if node is None else node.name
        self._faults = faults
        self._recorder = recorder
        self._kill = kill
        self._before_write = before_write
        self._is_writing = False
        self.sealed = False
        self.closed = False

    @property
    def in_transaction(self) -> bool:
        return not self.sealed and self.inner.in_transaction

    def execute(self, sql: str, parameters: Any = (), /) -> Cursor:
        if sql == "BEGIN IMMEDIATE":
            self._before_write()
        self._check_sealed()
        self._count_down()
        verb = sql.split(None, 1)[0]
        self._fail(verb, is_beginning=sql == "BEGIN IMMEDIATE")
        if sql == "BEGIN IMMEDIATE" and self._faults.busy and self._faults.rng(self._name).random() < self._faults.busy:
            raise _error("database is locked", sqlite3.SQLITE_BUSY)
        if sql == "COMMIT":
            return self._commit()
        if sql == "ROLLBACK" and self._is_writing:
            self._is_writing = False
            if self._recorder is not None:
                self._recorder.rejected(sys.exc_info()[1])
        cursor = self.inner.execute(sql, parameters)
        if sql == "BEGIN IMMEDIATE":
            self._is_writing = True
        return cursor

    def executescript(self, sql_script: str, /) -> object:
        self._check_sealed()
        self._fail("CREATE")
        return self.inner.executescript(sql_script)

    def close(self) -> None:
        self._check_sealed()
        self.closed = True
        self.inner.close()

    def _commit(self) -> Cursor:
        fails_after = self._faults.commit(self._name) if self._is_writing else None
        if fails_after is False:
            raise _error("disk I/O error", sqlite3.SQLITE_IOERR)
        cursor = self.inner.execute("COMMIT")
        self._is_writing = False
        if self._recorder is not None:
            self._recorder.committed(self.inner.execute)
        if fails_after:
            raise _error("disk I/O error", sqlite3.SQLITE_IOERR)
        return cursor

    def _check_sealed(self) -> None:
        if self.node is not None and self.node.state == "killed":
            self.sealed = True
        if self.sealed:
            raise Sealed

    def _count_down(self) -> None:
        if not self._is_writing or self._name not in self._faults.deaths:
            return
        self._faults.deaths[self._name] -= 1
        if self._faults.deaths[self._name] < 0:
            del self._faults.deaths[self._name]
            assert self.node is not None
            self._kill(self.node)
            raise Sealed

    def _fail(self, verb: str, *, is_beginning: bool = False) -> None:
        """Raise the error that the disk's state makes of a statement."""
        if verb == "ROLLBACK":
            return
        if self._name in self._faults.hiccups:
            self._faults.hiccups[self._name] -= 1
            if self._faults.hiccups[self._name] < 0:
                del self._faults.hiccups[self._name]
                raise _error("disk I/O error", sqlite3.SQLITE_IOERR)
        takes_writes = self._faults.cut.get(self._name)
        if takes_writes is False or (takes_writes and not (self._is_writing or is_beginning)):
            raise _error("disk I/O error", sqlite3.SQLITE_IOERR)
        if self._faults.disk == "full" and verb == "COMMIT" and self._is_writing:
            raise _error("database or disk is full", sqlite3.SQLITE_FULL)
        if self._faults.disk == "read-only" and verb in _CHANGES:
            raise _error("attempt to write a readonly database", sqlite3.SQLITE_READONLY)


def _error(text: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error
