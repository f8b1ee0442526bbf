"""One ZooKeeper session, brought from kazoo's threads into the event loop.

Everything that kazoo's connection thread learns, answers, watches and states alike, goes through one queue into the
loop, in the order in which it came over the wire. The loop is woken once for all that has piled up, not once for each.

At most `max_in_flight` requests are unanswered at a time; the rest wait here. A request that was lost with its
connection is sent again, and only that one, once there is a connection again: it may then find its own first try done.
When the session ends everything that waits fails, and kazoo makes a new session by itself.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
import anyio.to_thread
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    SessionExpiredError,
    UnimplementedError,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.serialization import Exists, GetChildren2, GetData
from kazoo.protocol.states import EventType, KazooState, KeeperState
from kazoo.retry import KazooRetry

from kactl.errors import KactlError, SessionExpired, StoreUnavailable

from . import request
from .answers import Answers, Call
from .request import MultiRead
from .tree_client import TreeClient

log = logging.getLogger(__name__)

# An answer of some 100 KB for leadership; small enough that the first is decoded while the next is on its way.
READ_BATCH: Final = 500
# A server that is away is asked again at least this often, for ever.
RECONNECT_S_MAX: Final = 1.0
# How many session timeouts may pass without a single answer before a call gives up: one for the server to give the
# session up, one for us to find another server.
PATIENCE: Final = 2
# Marks what a watched tree has said, among what has arrived.
_TREE: Final = object()


class Client:
    """See the module. Used from one event loop; entered once.

    Args:
        connect: `host:port[,host:port...][/chroot]`.
        on_state: called in the loop with kazoo's state, for every change of it.
        on_watch: called in the loop with the kind of event and the path, relative to the chroot.
        on_tree: called in the loop with the path of whatever is written below a tree that is watched as a whole.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int,
        max_in_flight: int,
        on_state: Callable[[str], None] = lambda state: None,
        on_watch: Callable[[str, str], None] = lambda kind, path: None,
        on_tree: Callable[[str], None] = lambda path: None,
    ) -> None:
        self.hosts, slash, chroot = connect.partition("/")
        self.chroot = (slash + chroot).rstrip("/")
        self.session_timeout_ms = session_timeout_ms
        self.connected = False
        self._max_in_flight = max_in_flight
        self._on_state = on_state
        self._on_watch = on_watch
        self._on_tree = on_tree
        self._patience_s = PATIENCE * session_timeout_ms / 1000
        self._reads_many = True
        self._closing = False

        self._waiting: deque[Call] = deque()
        self._lost: deque[Call] = deque()
        self._flying: set[Call] = set()
        self._progress = 0

        self._arrived: deque[tuple[Any, Any]] = deque()
        self._woken = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._revival: asyncio.Future[Any] | None = None

        handler = SequentialThreadingHandler()
        # At once, in the connection's own thread, so that a watch cannot be overtaken by a later answer.
        handler.dispatch_callback = lambda callback: callback.func(*callback.args)
        self._kazoo = TreeClient(
            hosts=self.hosts,
            timeout=session_timeout_ms / 1000,
            handler=handler,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=RECONNECT_S_MAX),
        )
        self._kazoo.add_listener(self._listen)

    # -- beginning and end

    async def open(self) -> None:
        """Connect.

        Raises:
            StoreUnavailable: no server took us in within the session timeout; everything is closed again.
        """
        self._loop = asyncio.get_running_loop()
        established = self._kazoo.start_async()
        timeout_s = self.session_timeout_ms / 1000
        try:
            if not await anyio.to_thread.run_sync(established.wait, timeout_s, abandon_on_cancel=True):
                raise StoreUnavailable(f"no ZooKeeper at {self.hosts} answered within {timeout_s:g} s")
        except BaseException:
            await self.close()
            raise
        self._drain()

    async def close(self) -> None:
        """End the session and all threads; what still waits fails. Takes no longer than a session timeout or 10 s."""
        if self._closing:
            return
        self._closing = True
        self._fail_all(StoreUnavailable("the ZooKeeper client has been closed"))
        with anyio.CancelScope(shield=True):
            if self._revival is not None:
                await asyncio.wait([self._revival])
            await anyio.to_thread.run_sync(self._stop)

    def _stop(self) -> None:
        try:
            self._kazoo.stop()
            self._kazoo.close()
        except (KazooException, KazooTimeoutError) as error:
            log.warning("the session at %s could not be ended and will time out: %s", self.hosts, error)

    @property
    def session_id(self) -> int | None:
        """None while there is no connection."""
        session = self._kazoo.client_id
        return None if session is None else session[0]

    def path(self, path: str) -> str:
        """The whole path of one that is relative to the chroot."""
        return self.chroot + path

    # -- asking

    async def ask(self, request: Any) -> Any:
        """The answer to one request, or its error as an object. See `ask_all`."""
        return (await self.ask_all([request])).results[0]

    async def ask_all(self, requests: Sequence[Any]) -> Answers:
        """Send some requests, in order and without waiting in between, and gather what comes of each.

        Raises:
            SessionExpired: the session ended before all was answered; each request may have been done or not.
            StoreUnavailable: nothing at all was answered for two session timeouts; the same holds.
        """
        done = asyncio.get_running_loop().create_future()
        answers = self.submit(requests, lambda answers: None if done.done() else done.set_result(None))
        try:
            while not done.done():
                before = self._progress
                await asyncio.wait([done], timeout=self._patience_s)
                if not done.done() and self._progress == before:
                    raise StoreUnavailable(f"ZooKeeper at {self.hosts} has not answered for {self._patience_s:g} s")
        finally:
            answers.over = True
        if answers.error is not None:
            raise answers.error
        return answers

    async def read_all(self, paths: Sequence[str]) -> list[Any]:
        """The data of many nodes, as (data, stat) or an error for each; without watches. Paths are relative."""
        if self._reads_many:
            whole = [self.path(path) for path in paths]
            blocks = [tuple(whole[at : at + READ_BATCH]) for at in range(0, len(whole), READ_BATCH)]
            answers = await self.ask_all([MultiRead(block) for block in blocks])
            if not any(isinstance(block, UnimplementedError) for block in answers.results):
                return _unfold(answers.results, [len(block) for block in blocks])
            log.info("ZooKeeper at %s reads one node at a time; version 3.6 or later is faster", self.hosts)
            self._reads_many = False
        return (await self.ask_all([self.get(path) for path in paths])).results

    async def watch_tree(self, path: str) -> Any:
        """Watch everything below a path for as long as this connection lasts; None, or an error as an object."""
        self._kazoo.watch_tree(self.path(path), lambda event: self._post(_TREE, event.path))
        return await self.ask(request.watch_tree(self.path(path)))

    def submit(self, requests: Sequence[Any], finished: Callable[[Answers], None]) -> Answers:
        """Send some requests; `finished` is called in the loop when all are answered, or `error` says why not."""
        answers = Answers(len(requests), finished)
        if self._closing:
            answers.finish(StoreUnavailable("the ZooKeeper client has been closed"))
        elif not requests:
            answers.finish()
        else:
            self._waiting.extend(Call(self._post, request, answers, at) for at, request in enumerate(requests))
            self._send()
        return answers

    def _send(self) -> None:
        while self.connected and len(self._flying) < self._max_in_flight:
            if self._lost:
                call = self._lost.popleft()
            elif self._waiting:
                call = self._waiting.popleft()
            else:
                return
            if call.answers.over:
                continue
            call.answered = False
            self._flying.add(call)
            # The one entry of kazoo that takes any request and reports to any object. Its public methods would
            # cost a lock, a queue and a change of threads for each answer.
            self._kazoo._call(call.request, call)

    # -- kazoo's threads

    def _post(self, what: Any, value: Any) -> None:
        self._arrived.append((what, value))
        if not self._woken and self._loop is not None:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is gone, and so is everybody who would listen
                self._loop.call_soon_threadsafe(self._drain)

    def _listen(self, state: str) -> None:
        self._post(None, state)

    def watch(self, event: Any) -> None:
        """What kazoo calls when a watch fires, or is gone with its connection."""
        if event.type != EventType.NONE:
            self._post(event.type, event.path)

    # -- the loop

    def _drain(self) -> None:
        self._woken = False  # before looking, so that what comes from now on wakes us again
        while self._arrived:
            what, value = self._arrived.popleft()
            if isinstance(what, Call):
                self._answered(what, value)
            elif self._closing:
                continue
            elif what is None:
                self._state_changed(value)
            elif what is _TREE:
                self._on_tree(value[len(self.chroot) :])
            elif value.startswith(self.chroot):
                self._on_watch(what, value[len(self.chroot) :])
        self._send()

    def _answered(self, call: Call, result: Any) -> None:
        if call not in self._flying:
            return  # the session ended meanwhile, and the call with it
        self._flying.discard(call)
        answers = call.answers
        if answers.over:
            return
        if self._closing and isinstance(result, ZookeeperError):
            answers.finish(StoreUnavailable("the ZooKeeper client has been closed"))
        elif isinstance(result, ConnectionClosedError | AuthFailedError):
            answers.finish(StoreUnavailable(f"the ZooKeeper session at {self.hosts} is closed: {result!r}"))
        elif isinstance(result, ConnectionLoss):
            answers.repeated.add(call.at)
            self._lost.append(call)
        elif isinstance(result, SessionExpiredError):
            answers.finish(self._expired())
        elif isinstance(result, Exception) and not isinstance(result, ZookeeperError):
            answers.finish(StoreUnavailable(f"kazoo could not make sense of an answer: {result!r}"))
        else:
            self._progress += 1
            answers.put(call.at, result)

    def _state_changed(self, state: str) -> None:
        self.connected = state == KazooState.CONNECTED
        if state == KazooState.LOST:
            self._fail_all(self._expired())
            if self._kazoo.client_state != KeeperState.EXPIRED_SESSION and self._loop is not None:
                # Its thread has ended, over a refused password or a bug; by itself it makes no new session.
                self._loop.call_later(RECONNECT_S_MAX, self._revive)
        self._on_state(state)

    def _revive(self) -> None:
        if not self._closing and self._loop is not None:
            log.warning("the ZooKeeper client of %s has stopped and is started again", self.hosts)
            self._revival = self._loop.run_in_executor(None, self._kazoo.start_async)

    def _expired(self) -> SessionExpired:
        return SessionExpired(f"ZooKeeper at {self.hosts} has ended our session")

    def _fail_all(self, error: KactlError) -> None:
        calls = [*self._flying, *self._lost, *self._waiting]
        self._flying.clear()
        self._lost.clear()
        self._waiting.clear()
        for call in calls:
            call.answers.finish(error)

    # -- requests that may watch

    def get(self, path: str, *, watch: bool = False) -> Any:
        return GetData(self.path(path), self.watch if watch else None)

    def exists(self, path: str, *, watch: bool = False) -> Any:
        return Exists(self.path(path), self.watch if watch else None)

    def children(self, path: str, *, watch: bool = False) -> Any:
        return GetChildren2(self.path(path), self.watch if watch else None)


def _unfold(blocks: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """One result for each node; a block that failed as a whole gives its error to each of them."""
    found: list[Any] = []
    for block, size in zip(blocks, sizes, strict=True):
        found += block if isinstance(block, list) else [block] * size
    return found
