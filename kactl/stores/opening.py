"""Opening and closing of stores by the objects that use them."""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio

from kactl.model.errors import IllegalState


class _Users:
    """The blocks that have opened one store together."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.count = 0


_users: Final[weakref.WeakKeyDictionary[Any, _Users]] = weakref.WeakKeyDictionary()


def check_unopened(store: object) -> None:
    """Verify that a store is not open: each object is entered once, and a controller or spectator enters its own.

    Raises:
        IllegalState: it is.
    """
    if getattr(store, "is_open", False):
        raise IllegalState(
            f"the {type(store).__name__} is open already: a controller or spectator opens and closes its store, so "
            "pass it without `async with`, and another object to each of them"
        )


@contextlib.asynccontextmanager
async def opened(store: Any) -> AsyncIterator[None]:
    """Open a store until the end of the last block that uses it. One that is open stays so: what has entered it leaves
    it."""
    users = _users.setdefault(store, _Users())
    async with users.lock:
        if not users.count and getattr(store, "is_open", True):
            users = _Users()
        elif not users.count:
            await store.__aenter__()
        users.count += 1
        is_own = _users.get(store) is users
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            async with users.lock:
                users.count -= 1
                if is_own and not users.count:
                    await store.__aexit__(None, None, None)
