"""How workers join a cluster: over a store, with a controller in each process, or by a link to controllers elsewhere.

Equal processes over one file each have a controller. One of them is active, and is found by its address in the store;
another one replaces it within seconds. All workers of one event loop over one store share theirs.
"""

import asyncio
import contextlib
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

# Of the ids of controllers: above those that people choose, and those that are given to participants.
_ID_MIN: Final = 1 << 30


@contextlib.asynccontextmanager
async def joined(store: Any, controllers: Sequence[str], network: Any) -> AsyncIterator[tuple[Any, Any]]:
    """Returns the store and the network of participants, until the end of the block.

    Args:
        store: of a controller in this process, or its path; None for controllers elsewhere.
    """
    if store is None:
        yield None, network or TcpNetwork(controllers=controllers)
        return
    users = _users.setdefault(asyncio.get_running_loop(), {}).setdefault(store, _Users())
    async with users.lock:
        if not users.count:
            # Not as a block: a bug of this controller is to cancel no handler, since others can replace it.
            users.controller = _new_controller(store, network)
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


def _new_controller(store: Any, network: Any) -> Controller:
    if isinstance(store, Path):
        try:
            store.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"the folder of {store} cannot be made ({error.strerror}): name a file that this user may write"
            raise BadRequest("store", reason) from None
        store = SqliteStore(store)
    if network is None:
        network = MemoryHub() if isinstance(store, MemoryStore) else TcpNetwork(listen="127.0.0.1:0")
    return Controller(_ID_MIN + secrets.randbelow(_ID_MIN), store=store, network=network)


class _Users:
    """The workers of one event loop that share a controller."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.count = 0
        self.controller: Controller | None = None


_users: Final[weakref.WeakKeyDictionary[Any, dict[Any, _Users]]] = weakref.WeakKeyDictionary()
