"""How workers join a cluster: over a store, with a controller in each process, or by a link to controllers elsewhere.

Equal processes over one file each have a controller. One of them is active, and is found by its address in the store;
another one replaces it within seconds. All workers of one event loop over one store share theirs.
"""

import asyncio
import contextlib
import os
import secrets
import weakref
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import anyio

from kactl.actors.system import Controller
from kactl.model.errors import BadRequest
from kactl.stores.memory import MemoryStore
from kactl.stores.sqlite import SqliteStore
from kactl.transports.memory import MemoryHub
from kactl.transports.tcp.network import TcpNetwork

DEFAULT_STORE: Final = Path(".kactl", "workers.db")
# Above the ids that people choose.
_ID_MIN: Final = 1 << 30


def new_id() -> int:
    """Returns an id that no other participant or controller has."""
    return _ID_MIN + secrets.randbelow(_ID_MIN)


class Membership:
    """The cluster that a worker joins.

    Attributes:
        store: of a controller in this process, or its path; None for controllers elsewhere.

    Raises:
        BadRequest: the arguments contradict each other.
    """

    def __init__(self, store: Any, controllers: Sequence[str], network: Any) -> None:
        if isinstance(controllers, str):
            raise BadRequest("controllers", f"is one text, {controllers!r}: give a list of addresses")
        if controllers and not (store is None and network is None):
            raise BadRequest("controllers", "run elsewhere: give neither a store beside them nor a network")
        if store is None and network is None and not controllers:
            store = DEFAULT_STORE
        # The program may change its working directory before it starts.
        self.store = Path(os.path.abspath(store)) if isinstance(store, str | os.PathLike) else store
        self._controllers = controllers
        self._network = network

    @contextlib.asynccontextmanager
    async def joined(self) -> AsyncIterator[tuple[Any, Any]]:
        """Returns the store and the network of participants, until the end of the block."""
        if self.store is None:
            yield None, self._network or TcpNetwork(controllers=self._controllers)
            return
        users = _users.setdefault(asyncio.get_running_loop(), {}).setdefault(self.store, _Users())
        async with users.lock:
            if not users.count:
                # Not as a block: a bug of this controller is to cancel no handler, since others can replace it.
                users.controller = self._new_controller()
                await users.controller.start()
            users.count += 1
        controller: Any = users.controller
        try:
            yield controller.store, controller.network
        finally:
            with anyio.CancelScope(shield=True):
                async with users.lock:
                    users.count -= 1
                    if not users.count:
                        await controller.aclose()

    def _new_controller(self) -> Controller:
        store, network = self.store, self._network
        if isinstance(store, Path):
            store.parent.mkdir(parents=True, exist_ok=True)
            store = SqliteStore(store)
        if network is None:
            network = MemoryHub() if isinstance(store, MemoryStore) else TcpNetwork(listen="127.0.0.1:0")
        return Controller(new_id(), store=store, network=network)


class _Users:
    """The workers of one event loop that share a controller."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.count = 0
        self.controller: Controller | None = None


_users: Final[weakref.WeakKeyDictionary[Any, dict[Any, _Users]]] = weakref.WeakKeyDictionary()
