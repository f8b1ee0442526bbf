"""Store with latency and faults around any other store, on a real or a simulated loop.

The faults act around the client: between the program and the store's own client code. kactl's simulated stores inject
theirs between client and server, which reaches more; this wrapper needs nothing but the `Store` protocol.
"""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from kactl.model.errors import StoreUnavailable
from kactl.stores.base import Session, SessionBound, Store, StoreEvent

# Lets mypy accept a class with delegated methods where a `Store` or a `Session` is expected.
_Delegating: Any = object


class StoreFaults(msgspec.Struct):
    """Faults of one `LatentStore`; they may be changed at any moment.

    Attributes:
        latency_ms: each call and each event takes a uniform time between the two values, half of it on the way there.
        lost_requests: probability that a call fails with StoreUnavailable without an effect.
        lost_answers: probability that a call fails with StoreUnavailable after its effect.
        timeout_ms: time after which a call fails that a cut holds up.
    """

    latency_ms: tuple[float, float] = (0.0, 0.0)
    lost_requests: float = 0.0
    lost_answers: float = 0.0
    timeout_ms: float = 10_000.0


class LatentStore(_Delegating):  # type: ignore[misc]
    """A store with calls that take time and fail.

        store = LatentStore(SqliteStore(path), rng=random.Random(7), faults=StoreFaults(latency_ms=(1, 20)))
        async with kactl.Controller(1, store=store): ...

    Events are delayed as well. One that the store reported before it returned from a call arrives before the result of
    that call.

    Args:
        store: any store; it is entered and left with this one.
        rng: source of latencies and faults.
    """

    def __init__(self, store: Store, *, rng: random.Random, faults: StoreFaults | None = None) -> None:
        self.store = store
        self.faults = StoreFaults() if faults is None else faults
        self._rng = rng
        self._healed = asyncio.Event()
        self._healed.set()
        self._last_arrival_s = 0.0

    async def __aenter__(self) -> Self:
        await self.store.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self.store.__aexit__(kind, error, trace)

    @property
    def trouble(self) -> str:
        return self.store.trouble

    def take_deleted_topics(self) -> frozenset[str]:
        return self.store.take_deleted_topics()

    def subscribe(self, listener: Callable[[StoreEvent], None]) -> None:
        def delayed(event: StoreEvent) -> None:
            loop = asyncio.get_running_loop()
            loop.call_at(self._arrival_s(loop.time()), listener, event)

        self.store.subscribe(delayed)

    async def new_session(self, timeout_ms: int) -> Session:
        return LatentSession(self, await self.call(self.store.new_session, timeout_ms))

    # -- faults --------------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Let all calls wait until `heal`, or for their time limit; they have no effect then."""
        self._healed.clear()

    def heal(self) -> None:
        """End a cut."""
        self._healed.set()

    async def call(self, method: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        """Call a method of the wrapped store, or of one of its sessions, with the faults."""
        loop, name = asyncio.get_running_loop(), getattr(method, "__name__", "the call")
        try:
            async with asyncio.timeout(self.faults.timeout_ms / 1000):
                await self._healed.wait()
        except TimeoutError:
            limit_ms = self.faults.timeout_ms
            raise StoreUnavailable(f"the store did not answer {name} within {limit_ms:g} ms: it is cut off") from None
        await asyncio.sleep(self._delay_s() / 2)
        if self._rng.random() < self.faults.lost_requests:
            raise StoreUnavailable(f"the store did not receive {name}")
        try:
            result = await method(*args, **kwargs)
        finally:
            await asyncio.sleep(max(0.0, self._arrival_s(loop.time()) - loop.time()))
        if self._rng.random() < self.faults.lost_answers:
            raise StoreUnavailable(f"the answer to {name} was lost")
        return result

    def _delay_s(self) -> float:
        return self._rng.uniform(*self.faults.latency_ms) / 1000

    def _arrival_s(self, now_s: float) -> float:
        """Returns when something that the store sends now arrives: in order, and half a latency later."""
        self._last_arrival_s = max(self._last_arrival_s, now_s + self._delay_s() / 2)
        return self._last_arrival_s


class LatentSession(_Delegating):  # type: ignore[misc]
    """A broker's session of a `LatentStore`."""

    def __init__(self, store: LatentStore, session: Session) -> None:
        self._store = store
        self.session = session

    @property
    def timeout_ms(self) -> int:
        return self.session.timeout_ms

    async def register(self, broker: Any) -> Any:
        return await self._store.call(self.session.register, broker)

    @property
    def bound(self) -> SessionBound:
        # The store has one clock, and each simulated node its own.
        return msgspec.structs.replace(self.session.bound, same_clock=False)

    async def renew(self, sent_ns: int) -> None:
        await self._store.call(self.session.renew, sent_ns)

    async def keep_alive(self) -> None:
        await self._store.call(self.session.keep_alive)

    async def close(self) -> None:
        await self._store.call(self.session.close)


def _delegated(name: str) -> Callable[..., Awaitable[Any]]:
    async def method(self: LatentStore, *args: Any, **kwargs: Any) -> Any:
        return await self.call(getattr(self.store, name), *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"See `Store.{name}`."
    return method


_OWN: Final = frozenset(vars(LatentStore))

# All other asynchronous methods of the protocol, so that a new one is delegated as well.
for _name, _method in vars(Store).items():
    if inspect.iscoroutinefunction(_method) and _name not in _OWN:
        setattr(LatentStore, _name, _delegated(_name))
