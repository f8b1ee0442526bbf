"""Records the commits to a SQLite store's file, in commit order, and checks that each operation is atomic."""

import itertools
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from kactl.model import Fence
from kactl.model.errors import ControllerMoved, StoreError, StoreUnavailable
from kactl.runtime.clock import BootTime
from kactl.stores.base import Write
from kactl.testing.history import History
from kactl.testing.nodes import NODE
from kactl.testing.violations import Violation
from tests.sim.engine.worlds.written import Op

from .content import Content, ContentReader, Execute, difference

T = TypeVar("T")

Outcome = Literal["ok", "conflict", "fenced", "error"]
# The node of events that the file's server would record.
STORE: Final = "store"


@dataclass
class Operation:
    """A call of a method that may write. The jobs of the call find it in `OPERATION`.

    Attributes:
        sent: length of the history when the client made the call.
        fence: controller epoch of the fence that was passed.
        write: leadership that a commit is to write.
        commits: number of transactions committed by its jobs.
        wrote: whether one of them has changed the content.
    """

    txn: int
    client: str
    name: str
    sent: int
    fence: int | None
    write: Write | None
    commits: int = 0
    wrote: bool = False


OPERATION: Final[ContextVar[Operation | None]] = ContextVar("OPERATION", default=None)


class CommitRecorder:
    """Recorder of the commits to one file.

    Args:
        boot_time: of the host.
        on_violation: called when a check fails.

    Attributes:
        content: of the file, after the last commit.
    """

    def __init__(
        self, history: History, *, boot_time: Callable[[], BootTime], on_violation: Callable[[Violation], None]
    ) -> None:
        self._history = history
        self._boot_time = boot_time
        self._on_violation = on_violation
        self._numbers = itertools.count(1)
        self._reader = ContentReader()
        self._leases: dict[int, tuple[str, BootTime]] = {}  # client and end, by session
        self._announced: dict[int, int] = {}  # broker, by session
        self.content: Content = {}

    async def run(self, name: str, call: Callable[[], Awaitable[T]], *arguments: object) -> T:
        """Run a call of the method `name`, and record whether its answer has reached the caller."""
        node = NODE.get()
        operation = Operation(
            next(self._numbers),
            "" if node is None else node.name,
            name,
            len(self._history.events),
            next((value.epoch for value in arguments if isinstance(value, Fence)), None),
            next((value for value in arguments if isinstance(value, Write)), None),
        )
        OPERATION.set(operation)
        try:
            result = await call()
        except StoreUnavailable:
            self._history.record("store.unknown", txn=operation.txn, client=operation.client, done=operation.wrote)
            raise
        finally:
            OPERATION.set(None)  # not a reset: the coroutine of a killed node is closed in another context
        if operation.commits:
            self._history.record("store.answered", txn=operation.txn, client=operation.client)
        return result

    def committed(self, execute: Execute) -> None:
        """Record the transaction that the current job has just committed; `execute` reads the file."""
        content = self._reader.read(execute)
        ops = difference(self.content, content)
        self.content = content
        operation = OPERATION.get()
        if operation is None:
            if ops:
                self._record(Operation(next(self._numbers), "", "expire", len(self._history.events), None, None), ops)
        else:
            is_split = operation.wrote and bool(ops)
            operation.commits += 1
            operation.wrote |= bool(ops)
            self._record(operation, ops)
            if is_split:
                text = (
                    f"{operation.name} of {operation.client} changed {[op.key for op in ops]} in a second transaction"
                )
                self._on_violation(Violation("INV-08", text, event=self._history.events[-1]))
        self._record_sessions(execute)

    def rejected(self, error: BaseException | None) -> None:
        """Record that the current job rolls its transaction back because of an error."""
        operation = OPERATION.get()
        if operation is None or error is None:
            return
        if isinstance(error, ControllerMoved):
            self._record(operation, [], "conflict" if operation.fence is None else "fenced")
        else:
            is_conflict = isinstance(error, StoreError) and not isinstance(error, StoreUnavailable)
            self._record(operation, [], "conflict" if is_conflict else "error")

    def sessions(self, client: str, *, of_brokers: bool) -> list[int]:
        """Returns the sessions that a node has opened and that exist, in order."""
        return [
            session
            for session, (owner, _) in sorted(self._leases.items())
            if owner == client and (self._announced.get(session, 0) != -1) == of_brokers
        ]

    def _record(self, operation: Operation, ops: list[Op], outcome: Outcome = "ok") -> None:
        conflicts = _conflicts(operation, ops, self.content) if outcome == "ok" else []
        if conflicts and not ops:
            outcome = "conflict"
        self._history.record(
            "store.commit",
            node=STORE,
            txn=operation.txn,
            client=operation.client,
            operation=operation.name,
            sent=operation.sent,
            fence=operation.fence,
            ops=ops,
            conflicts=conflicts,
            outcome=outcome,
        )

    def _record_sessions(self, execute: Execute) -> None:
        now, node, operation = self._boot_time(), NODE.get(), OPERATION.get()
        leases = {
            session: BootTime(boot, expires_ms)
            for session, expires_ms, boot in execute("SELECT id, expires_ms, boot FROM leases")
        }
        for session in leases.keys() - self._leases.keys():
            self._leases[session] = "" if node is None else node.name, leases[session]
            if operation is None:  # the session of a client itself, not of a broker
                self._announce(session, -1)
        for session, broker in execute("SELECT session, id FROM brokers"):
            if session in leases and session not in self._announced:
                self._announce(session, broker)
        for session in sorted(self._leases.keys() - leases.keys()):
            client, end = self._leases.pop(session)
            broker = self._announced.pop(session, None)
            if broker is not None:
                what = "closed" if end > now and end.boot == now.boot else "expired"
                self._history.record(
                    "store.session", node=STORE, session=session, client=client, broker=broker, what=what
                )
        self._leases.update({session: (self._leases[session][0], leases[session]) for session in leases})

    def _announce(self, session: int, broker: int) -> None:
        self._announced[session] = broker
        self._history.record(
            "store.session",
            node=STORE,
            session=session,
            client=self._leases[session][0],
            broker=broker,
            what="opened",
        )


def _conflicts(operation: Operation, ops: list[Op], content: Content) -> list[str]:
    """Returns the keys that a commit has not written because another version is stored."""
    if operation.write is not None:
        written = {op.key for op in ops}
        keys = [f"leadership/{name.topic}/{name.partition}" for name in operation.write.names]
        return [key for key in keys if key not in written and key in content]
    return ["producer ids"] if operation.name == "write_producer_ids" and not ops else []
