"""One ZooKeeper session: sending requests at a bounded rate, and retrying them when connections break.

A `Connection` carries the requests; `kactl.stores.zookeeper.connection` has two implementations of it.

At most `max_in_flight` requests are unanswered at a time; the others are queued here. A request that was lost with its
connection, and only that one, is sent again when there is a new connection: it may then find that its first attempt
succeeded. When the session ends all queued requests fail, and the connection opens a new session by itself.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    SessionExpiredError,
    UnimplementedError,
    ZookeeperError,
)
from kazoo.protocol.serialization import Exists, GetChildren2, GetData
from kazoo.protocol.states import KazooState

from kactl.model.errors import KactlError, ProcessForked, SessionExpired, StoreUnavailable
from kactl.runtime import forks
from kactl.runtime.clock import SystemClock
from kactl.runtime.logs import logger
from kactl.runtime.patience import Patience

from . import connection, request
from .acls import NodeAcls
from .request import MultiRead
from .responses import Call, Responses

log = logger(__name__)

_MOMENT_MS: Final = 20  # more than a turn of the loop, less than an attempt that is worth beginning

# A node can hold 1 MB; a response with this many of these is still accepted. More nodes in a request would save the
# server little.
READ_BATCH: Final = 100
# Session timeouts without any response after which a call fails: one for the server to end the session, one to find
# another server.
PATIENCE: Final = 2

# kazoo's names of the session's states, which this package uses.
_KAZOO_STATES: Final = {
    connection.State.CONNECTED: KazooState.CONNECTED,
    connection.State.SUSPENDED: KazooState.SUSPENDED,
    connection.State.LOST: KazooState.LOST,
}


class Client:
    """A session with retries and flow control. Used from one event loop; opened once.

    Args:
        connect: `host:port[,host:port...][/chroot]`.
        on_state: called in the loop with kazoo's state, at every change.
        on_watch: called in the loop with the kind of event and the path, relative to the chroot.
        on_tree: called in the loop with the path of every write below a watched tree, unless `watch_tree` was given a
            callback.
        factory: see `connection.make`.
        rng: of the connection.
        credentials: of the connection.
        acls: the permissions of new nodes; open ones by default.

    Attributes:
        epoch_seen: the highest controller epoch that was read or written, also before a loss of the data.
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
        factory: connection.Factory | None = None,
        rng: random.Random | None = None,
        credentials: connection.Credentials = connection.NONE,
        acls: NodeAcls | None = None,
    ) -> None:
        self.acls = NodeAcls() if acls is None else acls
        self.hosts, slash, chroot = connect.partition("/")
        self.chroot = (slash + chroot).rstrip("/")
        self.session_timeout_ms = session_timeout_ms
        self.connected = False
        self.epoch_seen = 0
        self._max_in_flight = max_in_flight
        self._on_state = on_state
        self._on_watch = on_watch
        self._on_tree = on_tree
        self._trees: dict[str, Callable[[str, str], None]] = {}
        self._patience_s = PATIENCE * session_timeout_ms / 1000
        self._reads_many = True
        self._closing = False
        self._home: forks.Home | None = None  # since it was opened

        self._waiting: deque[Call] = deque()
        self._lost: deque[Call] = deque()
        self._flying: dict[Call, None] = {}  # in the order of sending
        self._progress = 0
        self._connection = connection.make(
            factory,
            self.hosts,
            session_timeout_ms=session_timeout_ms,
            listener=SessionListener(self),
            rng=rng or random.SystemRandom(),
            credentials=credentials,
        )

    # -- beginning and end

    async def open(self, patience: Patience | None = None) -> None:
        """Connect.

        Args:
            patience: of a program that starts; a session timeout if it is None.

        Raises:
            StoreUnavailable: no server accepted the session in time, or none accepts this client, or this client does
                not accept a server's certificate; everything is closed again.
        """
        self._home = forks.home()
        patience = patience or Patience(
            "the session with ZooKeeper is not open", SystemClock(), self.session_timeout_ms
        )
        try:
            while not await self._connection.open():
                # An attempt takes a session timeout, which may be all the time that there is: it ends a moment before
                # or after that by this clock.
                is_over = patience.rest_ms < _MOMENT_MS
                answers = f"answered within {patience.limit_ms / 1000:g} s" if is_over else "has answered"
                if self._connection.is_rejected:
                    answers = "accepts this program, and is accepted by it"
                error = StoreUnavailable(f"no ZooKeeper at {self.hosts} {answers}{self._trouble()}")
                if self._connection.is_rejected or is_over:
                    raise error
                patience.failed(error)
        except BaseException:
            await self.close()
            raise

    @property
    def is_open(self) -> bool:
        return self._home is not None and not self._closing

    async def close(self) -> None:
        """End the session and fail the queued requests. Takes at most a session timeout or 10 s."""
        if self._closing:
            return
        self._closing = True
        self._fail_all(StoreUnavailable("the ZooKeeper client has been closed"))
        with anyio.CancelScope(shield=True):
            await self._connection.close()

    @property
    def trouble(self) -> str:
        """Returns why no request can be sent now; empty while there is a connection."""
        return "" if self.connected else f"there is no connection to ZooKeeper at {self.hosts}{self._trouble()}"

    @property
    def granted_timeout_ms(self) -> int:
        """The session timeout that the server has granted, within its own limits; the requested one before that."""
        return self._connection.granted_ms

    @property
    def session_id(self) -> int | None:
        """None while there is no connection."""
        session = self._connection.session
        return None if session is None else session[0]

    @property
    def session(self) -> tuple[int, bytes] | None:
        """The session's id and password, with which another connection could take it over."""
        return self._connection.session

    @property
    def reads_many(self) -> bool:
        """Whether multi-reads may be sent; False once the server has rejected one as unknown.

        A server responds to an unknown request at once, before earlier requests, which ends the connection. A request
        that may be unknown is therefore sent first when nothing else is in flight.
        """
        return self._reads_many

    def path(self, path: str) -> str:
        """Returns the absolute path of a path relative to the chroot."""
        return self.chroot + path

    # -- requests

    async def ask(self, request: Any) -> Any:
        """Returns the response to one request, or its error as an object. See `ask_all`."""
        return (await self.ask_all([request])).results[0]

    async def ask_all(self, requests: Sequence[Any]) -> Responses:
        """Send requests, in order and without waiting in between. Returns the result of each.

        Raises:
            SessionExpired: the session ended before all responses; each request may have been executed or not.
            StoreUnavailable: no response at all for two session timeouts; the same holds.
        """
        done = asyncio.get_running_loop().create_future()
        responses = self.submit(requests, lambda responses: None if done.done() else done.set_result(None))
        try:
            while not done.done():
                before = self._progress
                await asyncio.wait([done], timeout=self._patience_s)
                if not done.done() and self._progress == before:
                    raise self._silent()
        finally:
            responses.over = True
        if responses.error is not None:
            raise responses.error
        return responses

    async def read_all(self, paths: Sequence[str]) -> list[Any]:
        """Returns the data of many nodes, as (data, stat) or an error for each; arms no watches. Paths are relative."""
        if self._reads_many:
            whole = [self.path(path) for path in paths]
            blocks = [tuple(whole[begin : begin + READ_BATCH]) for begin in range(0, len(whole), READ_BATCH)]
            responses = await self.ask_all([MultiRead(block) for block in blocks])
            if not any(isinstance(block, UnimplementedError) for block in responses.results):
                return _unfold(responses.results, [len(block) for block in blocks])
            log.info("ZooKeeper at %s reads one node at a time; version 3.6 or later is faster", self.hosts)
            self._reads_many = False
        return (await self.ask_all([self.get(path) for path in paths])).results

    async def watch_tree(self, path: str, on_event: Callable[[str, str], None] | None = None) -> Any:
        """Watch everything at and below a path for as long as this connection lasts.

        Several trees may be watched, also one within another.

        Args:
            on_event: called in the loop with kazoo's name of the kind of event, and the path relative to the chroot;
                None for the client's `on_tree`.

        Returns:
            None, or an error as an object.
        """
        self._trees[self.path(path)] = on_event or (lambda kind, path: self._on_tree(path))
        return await self.ask(request.watch_tree(self.path(path)))

    def submit(self, requests: Sequence[Any], finished: Callable[[Responses], None]) -> Responses:
        """Send requests; `finished` is called in the loop after all responses, or when `error` is set."""
        responses = Responses(len(requests), finished)
        if self._home is not None and self._home.left:
            responses.finish(ProcessForked("the ZooKeeper store", self._home.pid))
        elif self._closing:
            responses.finish(StoreUnavailable("the ZooKeeper client has been closed"))
        elif not requests:
            responses.finish()
        else:
            self._waiting.extend(Call(request, responses, index) for index, request in enumerate(requests))
            self._send()
        return responses

    def _send(self) -> None:
        while self.connected and len(self._flying) < self._max_in_flight:
            if self._lost:
                call = self._lost.popleft()
            elif self._waiting:
                call = self._waiting.popleft()
            else:
                return
            if call.responses.over:
                continue
            self._flying[call] = None
            self._connection.send(call)

    # -- events of the connection

    def _answered(self, call: Call, result: Any) -> None:
        if call not in self._flying:
            return  # the session ended meanwhile, and failed the call
        del self._flying[call]
        responses = call.responses
        if responses.over:
            return
        if self._closing and isinstance(result, ZookeeperError):
            responses.finish(StoreUnavailable("the ZooKeeper client has been closed"))
        elif isinstance(result, ConnectionClosedError | AuthFailedError):
            responses.finish(StoreUnavailable(f"the ZooKeeper session at {self.hosts} is closed: {result!r}"))
        elif isinstance(result, SessionExpiredError):
            responses.finish(self._expired())
        elif isinstance(result, Exception) and not isinstance(result, ZookeeperError):
            responses.finish(StoreUnavailable(f"a request or its response could not be processed: {result!r}"))
        else:
            self._progress += 1
            responses.put(call.index, result)

    def _lose(self, call: Call) -> None:
        if call in self._flying:
            del self._flying[call]
            if not call.responses.over:
                call.responses.repeated.add(call.index)
                self._lost.append(call)

    def _state_changed(self, state: connection.State) -> None:
        self.connected = state is connection.State.CONNECTED
        if state is connection.State.LOST:
            self._fail_all(self._expired())
        self._on_state(_KAZOO_STATES[state])

    def _watch_fired(self, kind: str, path: str) -> None:
        if path.startswith(self.chroot):
            self._on_watch(kind, path[len(self.chroot) :])

    def _tree_changed(self, root: str, kind: str, path: str) -> None:
        self._trees[root](kind, path[len(self.chroot) :])

    def _silent(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"ZooKeeper at {self.hosts} has not answered for {self._patience_s:g} s{self._trouble()}"
        )

    def _trouble(self) -> str:
        return f"; last error: {self._connection.trouble}" if self._connection.trouble else ""

    def _expired(self) -> SessionExpired:
        return SessionExpired(f"ZooKeeper at {self.hosts} has ended our session")

    def _fail_all(self, error: KactlError) -> None:
        calls = [*self._flying, *self._lost, *self._waiting]
        self._flying.clear()
        self._lost.clear()
        self._waiting.clear()
        for call in calls:
            call.responses.finish(error)

    # -- requests with relative paths

    def create(self, path: str, data: bytes | None, *, ephemeral: bool = False, sequential: bool = False) -> Any:
        """Returns the request for a new node with the permissions that are due to it; see `request.create`."""
        acls = self.acls.of(path)
        return request.create(self.path(path), data, ephemeral=ephemeral, sequential=sequential, acls=acls)

    def get(self, path: str, *, watch: bool = False) -> Any:
        return GetData(self.path(path), self._connection.watcher if watch else None)

    def exists(self, path: str, *, watch: bool = False) -> Any:
        return Exists(self.path(path), self._connection.watcher if watch else None)

    def children(self, path: str, *, watch: bool = False) -> Any:
        return GetChildren2(self.path(path), self._connection.watcher if watch else None)


class SessionListener:
    """Receives the events of a client's connection. An error in a handler is logged and does not affect later
    events.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def answered(self, call: Any, result: Any) -> None:
        self._safely(self._client._answered, call, result)

    def lost(self, call: Any) -> None:
        self._safely(self._client._lose, call)

    def watch_fired(self, kind: str, path: str) -> None:
        if not self._client._closing:
            self._safely(self._client._watch_fired, kind, path)

    def tree_changed(self, root: str, kind: str, path: str) -> None:
        if not self._client._closing:
            self._safely(self._client._tree_changed, root, kind, path)

    def state_changed(self, state: connection.State) -> None:
        if not self._client._closing:
            self._safely(self._client._state_changed, state)

    def settled(self) -> None:
        self._safely(self._client._send)

    def _safely(self, handler: Callable[..., None], *args: Any) -> None:
        try:
            handler(*args)
        except Exception:
            log.exception("the handler of %s failed", args)


def _unfold(blocks: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """Returns one result for each node; a block that failed as a whole yields its error for each."""
    nodes: list[Any] = []
    for block, size in zip(blocks, sizes, strict=True):
        nodes += block if isinstance(block, list) else [block] * size
    return nodes
