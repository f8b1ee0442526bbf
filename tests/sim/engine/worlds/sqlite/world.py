"""SQLite world: one real file, shared by the stores of simulated processes on one host.

Each process has its own `SqliteStore` with its own connections. Their jobs run inline on the simulated loop, so that
transactions of two processes overlap only if one of them holds the write lock for a while (`lock`).
"""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from kactl.runtime.clock import BootTime
from kactl.stores.sqlite import Connect, Connection, connect
from kactl.stores.sqlite.connection import Access
from kactl.testing.clock import LoopClock
from kactl.testing.history import History
from kactl.testing.loop import SimLoop
from kactl.testing.nodes import JOB_MS, NODE, Node
from kactl.testing.violations import Violation

from .client import RecordedStore
from .content import Content, ContentReader
from .faults import CommitFailures, Disk, Faults, FaultyConnection
from .recorder import STORE, CommitRecorder

# A file system in memory, where there is one.
MEMORY: Final = Path("/dev/shm")
POLLS_MS: Final = (50.0, 250.0)
# The files of a database that survive its processes. The third one, `-shm`, is rebuilt from them.
SUFFIXES: Final = ("", "-wal")


class HostClock(LoopClock):
    """Clock of the host: boot time begins anew when it restarts."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self._host = loop
        self._boot = 1
        self._since_ms = 0.0

    def boot_time(self) -> BootTime:
        return BootTime(f"boot {self._boot}", int(self._host.now_s * 1000 - self._since_ms))

    def lease_ns(self) -> int:
        return int((self._host.now_s * 1000 - self._since_ms) * 1_000_000)

    def restart(self) -> None:
        """Begin another boot."""
        self._boot += 1
        self._since_ms = self._host.now_s * 1000


class SqliteWorld:
    """A host with one file and its processes. `close`, or the end of a `with` block, removes the file.

    Args:
        history: receives `store.commit`, `store.answered`, `store.unknown`, `store.session` and `store.reopened`.
        poll_ms: poll interval of all stores; drawn from POLLS_MS for the whole run if it is omitted.
        session_timeout_ms: of the stores' own sessions.
        job_ms: range of the delay of each job of a store.
        on_violation: called if the file itself breaks INV-08; ends the run if it is omitted.

    Attributes:
        path: the file.
        clock: of the host, for all its processes.
        kill: kills a node within a transaction; that of the loop unless it is replaced.
    """

    def __init__(
        self,
        loop: SimLoop,
        history: History,
        *,
        poll_ms: float | None = None,
        session_timeout_ms: int = 6_000,
        job_ms: tuple[float, float] = JOB_MS,
        on_violation: Callable[[Violation], None] | None = None,
        connect: Connect = connect,
    ) -> None:
        self._loop = loop
        self._history = history
        self._poll_ms = loop.streams["world"].choice(POLLS_MS) if poll_ms is None else poll_ms
        self._session_timeout_ms = session_timeout_ms
        self._job_ms = job_ms
        self._connect = connect
        self.kill: Callable[[Node], object] = loop.kill
        self._on_violation = loop.halt if on_violation is None else on_violation
        self._faults = Faults(lambda node: loop.streams[f"store:{node}"])
        self._connections: list[FaultyConnection] = []
        self._locking: sqlite3.Connection | None = None
        self._folder = tempfile.mkdtemp(prefix="kactl-sim-", dir=MEMORY if MEMORY.is_dir() else None)
        self.path = Path(self._folder) / "kactl.db"
        self.clock = HostClock(loop)
        self.recorder = CommitRecorder(history, boot_time=self.clock.boot_time, on_violation=self._on_violation)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and remove the file."""
        self.unlock()
        for connection in self._connections:
            if not connection.closed:
                connection.inner.close()
        self._connections.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def session_end_ms(self) -> float:
        """The longest time from the last message of a client to the end of its session."""
        return self._session_timeout_ms

    def client(self, node: Node | None, *, session_timeout_ms: int | None = None) -> RecordedStore:
        """Returns a store for a process, to be entered on its node; None for one outside all nodes."""
        if node is not None:
            node.job_ms = self._job_ms
        return RecordedStore(
            self.path,
            recorder=self.recorder,
            clock=self.clock,
            session_timeout_ms=self._session_timeout_ms if session_timeout_ms is None else session_timeout_ms,
            poll_ms=self._poll_ms,
            connect=self._connector(node),
        )

    @property
    def content(self) -> Content:
        """Content of the file after the last commit."""
        return self.recorder.content

    # -- faults; nodes are named, and their successors keep the name ---------------------------------------------------

    def slow(self, node: str, job_ms: tuple[float, float] | None = None) -> None:
        """Draw the delay of each job of a node from this range from now on; None for the range without faults."""
        for other in self._loop.nodes:
            if other.name == node:
                other.job_ms = self._job_ms if job_ms is None else job_ms

    def set_disk(self, disk: Disk) -> None:
        """Change the state of the disk, for all processes."""
        self._faults.disk = disk

    def cut(self, node: str, *, to_server: bool = True, to_client: bool = True) -> None:
        """Let the statements of a node fail, reads included, until `heal`.

        Args:
            to_server: nothing is written; otherwise commits take effect, and fail nevertheless.
        """
        self._faults.cut[node] = not to_server

    def heal(self, node: str, *, deliver: bool = True) -> None:
        """End the faults of one node."""
        for faults in (self._faults.cut, self._faults.commits, self._faults.deaths, self._faults.hiccups):
            faults.pop(node, None)
        self.slow(node)

    def fail_commits(self, node: str, count: int, *, done: bool) -> None:
        """Let the next commits of a node fail with an I/O error.

        Args:
            done: the commits take effect nevertheless: the caller cannot know their outcome.
        """
        self._faults.commits[node] = CommitFailures(count, done)

    def fail_statement(self, node: str, after: int) -> None:
        """Let one statement of a node, a reading one perhaps, fail with an I/O error, after some others."""
        self._faults.hiccups[node] = after

    def kill_in_transaction(self, node: str, statements: int) -> None:
        """Kill a node within its next write transaction, after some more statements of such transactions."""
        self._faults.deaths[node] = statements

    def set_faults(self, rates: Mapping[str, float]) -> None:
        """Set the rates of random faults, with the names of other worlds; those left out do not happen.

        `lost_requests`: commits fail; `lost_answers`: commits take effect and fail; `refusals`: the file is locked.
        """
        self._faults.lost = rates.get("lost_requests", 0.0)
        self._faults.unknown = rates.get("lost_answers", 0.0)
        self._faults.busy = rates.get("refusals", 0.0)

    def lock(self) -> None:
        """Hold the write lock, as a process does that was suspended in a transaction: all other writers are refused."""
        if self._locking is None and self.path.exists():
            self._locking = sqlite3.connect(self.path, isolation_level=None, timeout=0)
            self._locking.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        """Release the write lock."""
        if self._locking is not None:
            self._locking.execute("ROLLBACK")
            self._locking.close()
            self._locking = None

    def stop(self) -> None:
        """Refuse all writes until `start`: the write lock is held by a process that makes no progress."""
        self.lock()

    def start(self) -> None:
        """End `stop`, and all faults of the disk."""
        self.unlock()
        self.set_disk("good")

    def expire_session(self, node: str, *, notify_after_ms: float = 0.0) -> None:
        """End the leases of a node's own sessions; the first process that looks for expired leases ends the sessions.

        Args:
            notify_after_ms: has no effect: a process sees the end of its session with its next poll.
        """
        self._expire(self.recorder.sessions(node, of_brokers=False))

    def expire_brokers(self, node: str) -> None:
        """End the leases of the brokers on a node."""
        self._expire(self.recorder.sessions(node, of_brokers=True))

    def expire_lease(self, session: int) -> None:
        """End the lease of a session."""
        self._expire([session])

    def _expire(self, sessions: list[int]) -> None:
        if sessions:
            with self._by_hand() as connection:
                for session in sessions:
                    connection.execute("UPDATE leases SET expires_ms = 0 WHERE id = ?", (session,))

    def remove_topic(self, topic: str) -> None:
        """Remove a topic by hand: its assignment and its configuration, as an operator with a tool of SQLite does."""
        with self._by_hand() as connection:
            connection.execute("DELETE FROM topics WHERE name = ?", (topic,))
            connection.execute("DELETE FROM configs WHERE topic = ?", (topic,))
            connection.execute("UPDATE meta SET stamp = stamp + 1")
            connection.execute("INSERT OR REPLACE INTO stamps SELECT 'topics', '', stamp FROM meta")

    @contextlib.contextmanager
    def _by_hand(self) -> Iterator[sqlite3.Connection]:
        """A recorded transaction of no process, also while the file is locked."""
        self.bury_killed()
        is_locked = self._locking is not None
        self.unlock()
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None, timeout=0)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
            self.recorder.committed(connection.execute)
        if is_locked:
            self.lock()

    def restart_machine(self) -> None:
        """Kill all processes of the host and begin another boot. What was written to files is kept."""
        for connection in self._connections:
            if connection.node is not None and not connection.closed:
                self._loop.kill(connection.node)
        self.reboot()

    def reboot(self) -> None:
        """Begin another boot after all processes were killed; an operator's tool may have the file open still."""
        self.unlock()
        self.bury_killed()
        self.clock.restart()

    # -- ends of processes ---------------------------------------------------------------------------------------------

    def bury_killed(self) -> None:
        """Close the connections of killed nodes as the kernel does, and check the content of the file then.

        Runs before each write transaction and in each client's opening, so that a caller need not call it.
        """
        killed = [held for held in self._connections if held.node is not None and held.node.state == "killed"]
        self._connections = [held for held in self._connections if not held.closed and held not in killed]
        killed = [held for held in killed if not held.closed]
        if not killed:
            return
        with self._kept() if not self._connections and self._locking is None else contextlib.nullcontext():
            for held in killed:
                held.sealed = held.closed = True
                held.inner.close()
        self.check_reopened()

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """Leave the files as they are: the last connection that is closed transfers the log, which no kill does."""
        for suffix in SUFFIXES:
            if (file := Path(f"{self.path}{suffix}")).exists():
                shutil.copyfile(file, f"{file}.kept")
        yield
        Path(f"{self.path}-shm").unlink(missing_ok=True)
        for suffix in SUFFIXES:
            file = Path(f"{self.path}{suffix}")
            if (copy := Path(f"{file}.kept")).exists():
                copy.replace(file)

    def check_reopened(self) -> None:
        """Read a copy of the file, as another process would after all others were killed, and compare the content."""
        if not self.path.exists():
            return
        with tempfile.TemporaryDirectory(prefix="kactl-sim-", dir=self.path.parent) as folder:
            copy = Path(folder) / self.path.name
            for suffix in SUFFIXES:
                if (file := Path(f"{self.path}{suffix}")).exists():
                    shutil.copyfile(file, f"{copy}{suffix}")
            found = read_file(copy)
        event = self._history.record(
            "store.reopened", node=STORE, content={key: entry.value for key, entry in sorted(found.items())}
        )
        if found != self.content:
            keys = sorted(key for key in found.keys() | self.content.keys() if found.get(key) != self.content.get(key))
            self._on_violation(
                Violation("INV-08", f"after a kill these entries differ from the commits: {keys}", event=event)
            )

    def _connector(self, node: Node | None) -> Connect:
        def connect_on(path: Path, access: Access = "read-write") -> Connection:
            self.bury_killed()
            if NODE.get() is not node:
                raise RuntimeError(f"a store of {node} was used on {NODE.get()}")
            if node is not None and self._faults.cut.get(node.name) is False:
                raise sqlite3.OperationalError("unable to open database file")
            inner = self._connect(path, access)
            inner.execute("PRAGMA busy_timeout = 0")  # waiting would take real time
            held = FaultyConnection(
                inner,
                node,
                self._faults,
                self.recorder if path == self.path else None,
                kill=self._kill,
                before_write=self.bury_killed,
            )
            self._connections.append(held)
            return held

        return connect_on

    def _kill(self, node: Node) -> None:
        self.kill(node)
        self.bury_killed()


def read_file(path: Path) -> Content:
    """Returns the content of a file that no process uses."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        execute: Any = connection.execute
        return ContentReader().read(execute)
