"""Connection over kazoo, the oracle for kactl's own: its client and its threads, adapted to the event loop.

All results of kazoo's connection thread (responses, watch events, states) go through one queue into the loop, in the
order in which they came over the wire. The loop is woken once for all queued results. When the session ends kazoo makes
a new one by itself; if its thread ends, it is started again.
"""

import asyncio
import collections
import contextlib
import functools
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, KazooException
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState, KeeperState
from kazoo.retry import KazooRetry

from kactl.runtime.logs import logger
from kactl.runtime.threads import run_in_thread
from kactl.stores.zookeeper.connection import Factory
from kactl.stores.zookeeper.connection import hosts as names
from kactl.stores.zookeeper.connection.armed_watches import is_within
from kactl.stores.zookeeper.connection.interface import (
    OPEN_STEP_S,
    RECONNECT_S_MAX,
    RECONNECT_S_MIN,
    ConnectionListener,
    State,
)
from kactl.stores.zookeeper.request import Unwatch, WatchTree
from kactl.stores.zookeeper.set_watches import SetWatches

log = logger(__name__)

Watcher = Callable[[Any], None]

_STATES: Final = {
    KazooState.CONNECTED: State.CONNECTED,
    KazooState.SUSPENDED: State.SUSPENDED,
    KazooState.LOST: State.LOST,
}


class KazooConnection:
    """Implementation of `Connection` over kazoo, which draws from its own source in place of `rng`.

    Raises:
        BadConfig: `hosts` is malformed.
    """

    def __init__(
        self, hosts: str, *, session_timeout_ms: int, listener: ConnectionListener, rng: random.Random
    ) -> None:
        names.parse(hosts)
        self._hosts = hosts
        self._timeout_s = session_timeout_ms / 1000
        self._established: Any = None
        self.is_rejected = False  # unknown: kazoo repeats it
        self.granted_ms = session_timeout_ms  # kazoo does not return the timeout that the server has granted
        self._listener = listener
        self._closing = False
        # Received results: a method of this class or of the listener, with its arguments.
        self._arrived: deque[functools.partial[None]] = deque()
        self._woken = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._revival: asyncio.Future[Any] | None = None
        self.watcher: Any = self._watch
        self.trouble = ""

        handler = SequentialThreadingHandler()
        # Synchronously, in the connection's own thread, so that a watch event cannot be overtaken by a later response.
        handler.dispatch_callback = lambda callback: callback.func(*callback.args)
        self._kazoo = TreeClient(
            hosts=hosts,
            timeout=self._timeout_s,
            handler=handler,
            connection_retry=KazooRetry(max_tries=-1, delay=RECONNECT_S_MIN, max_delay=RECONNECT_S_MAX),
        )
        self._kazoo.add_listener(self._listen)

    @property
    def session(self) -> tuple[int, bytes] | None:
        client_id: tuple[int, bytes] | None = self._kazoo.client_id
        return client_id

    # -- beginning and end

    async def open(self) -> bool:
        self._loop = asyncio.get_running_loop()
        self._established = self._established or self._kazoo.start_async()
        step_s = min(self._timeout_s, OPEN_STEP_S)
        done = await run_in_thread(self._established.wait, step_s, abandon_on_cancel=True)
        self._drain()
        return bool(done)

    async def close(self) -> None:
        self._closing = True
        if self._revival is not None:
            await asyncio.wait([self._revival])
        await run_in_thread(self._stop)

    def _stop(self) -> None:
        try:
            self._kazoo.stop()
            self._kazoo.close()
        except (KazooException, KazooTimeoutError) as error:
            log.warning("the session at %s could not be ended and will time out: %s", self._hosts, error)

    # -- sending

    def send(self, call: Any) -> None:
        request = call.request
        if request.type == SetWatches.type:
            request = _KazooSetWatches(request, self._kazoo, self._watch)
        # The one entry point of kazoo that accepts any request and any result object. Its public methods would cost a
        # lock, a queue and a thread switch for each response.
        self._kazoo._call(request, _KazooResponse(self, call))

    # -- kazoo's threads

    def _post(self, result: "functools.partial[None]") -> None:
        self._arrived.append(result)
        if not self._woken and self._loop is not None:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed, nothing receives the result
                self._loop.call_soon_threadsafe(self._drain)

    def _learn(self, request: Any) -> None:
        """Register a watched tree with kazoo, or remove it, which kazoo does not do by itself."""
        if request.type == WatchTree.type:
            self._kazoo.watch_tree(request.path, functools.partial(self._watch_tree, request.path))
        elif request.type == Unwatch.type:
            self._kazoo.unwatch(request.path)

    def _listen(self, state: str) -> None:
        self._post(functools.partial(self._state_changed, state))

    def _watch(self, event: Any) -> None:
        """The watcher that kazoo calls when a watch fires, or is lost with its connection."""
        if event.type != EventType.NONE:
            self._post(functools.partial(self._listener.watch_fired, event.type, event.path))

    def _watch_tree(self, root: str, event: Any) -> None:
        if event.type != EventType.NONE:
            self._post(functools.partial(self._listener.tree_changed, root, event.type, event.path))

    # -- the loop

    def _drain(self) -> None:
        self._woken = False  # first, so that later results wake the loop again
        while self._arrived:
            self._arrived.popleft()()
        self._listener.settled()

    def _answered(self, call: Any, result: Any) -> None:
        if isinstance(result, ConnectionLoss) and not self._closing:
            self._listener.lost(call)
            return
        self._listener.answered(call, result)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.LOST and self._kazoo.client_state != KeeperState.EXPIRED_SESSION:
            # Its thread has ended, after a rejected password or a bug; by itself it opens no new session.
            assert self._loop is not None
            self._loop.call_later(RECONNECT_S_MAX, self._revive)
        self._listener.state_changed(_STATES[state])

    def _revive(self) -> None:
        if not self._closing and self._loop is not None:
            log.warning("the ZooKeeper client of %s has stopped, restarting it", self._hosts)
            self._revival = asyncio.ensure_future(run_in_thread(self._kazoo.start_async))


class TreeClient(KazooClient):  # type: ignore[misc]
    """kazoo's client with watches on whole trees; by itself it drops events that no single node's watch waits for.

    All methods run in kazoo's connection thread and send nothing to the server; paths are absolute. Like all watches in
    kazoo, those of trees are discarded with their connection.
    """

    def watch_tree(self, root: str, watcher: Watcher) -> None:
        """Call `watcher` for every event at or below a path."""
        self._data_watchers.trees[root] = watcher

    def unwatch(self, root: str) -> None:
        """Remove the watchers of exactly this path and of the tree below it, if any."""
        self._data_watchers.trees.pop(root, None)
        self._data_watchers.pop_single(root)
        self._child_watchers.pop(root, None)

    def _reset_watchers(self) -> None:
        super()._reset_watchers()
        self._data_watchers = _Watchers()


class _Watchers(collections.defaultdict[str, set[Watcher]]):
    """The watchers of single nodes' data, and of trees."""

    def __init__(self) -> None:
        super().__init__(set)
        self.trees: dict[str, Watcher] = {}

    def pop_single(self, path: str) -> Any:
        """Remove and return the watchers of exactly this node."""
        return super().pop(path, ())

    def pop(self, path: str, default: Any = None) -> Any:
        """Returns the watchers of an event at `path`; kazoo calls this."""
        trees = [watcher for root, watcher in self.trees.items() if is_within(path, root)]
        return [*self.pop_single(path), *trees]


class _KazooSetWatches:
    """A SetWatches request, whose watches are registered with kazoo in its own thread and before it is sent."""

    type = SetWatches.type

    def __init__(self, request: SetWatches, kazoo: TreeClient, watcher: Callable[[Any], None]) -> None:
        self._request = request
        self._kazoo = kazoo
        self._watcher = watcher
        self.deserialize = request.deserialize

    def serialize(self) -> bytes:
        for path in self._request.paths:
            self._kazoo._data_watchers[path].add(self._watcher)
        return self._request.serialize()


class _KazooResponse:
    """Receives the result of one call from kazoo's thread."""

    __slots__ = ("_call", "_connection", "_done")

    def __init__(self, connection: KazooConnection, call: Any) -> None:
        self._connection = connection
        self._call = call
        self._done = False

    def set(self, value: Any = None) -> None:
        if not self._done:  # kazoo may report a failure twice while it is being closed
            self._done = True
            if not isinstance(value, Exception):
                self._connection._learn(self._call.request)
            self._connection._post(functools.partial(self._connection._answered, self._call, value))

    set_exception = set


Kind = Literal["kactl", "kazoo"]
CLIENTS: Final[dict[Kind, Factory | None]] = {"kactl": None, "kazoo": KazooConnection}
KINDS: Final = tuple(CLIENTS)
