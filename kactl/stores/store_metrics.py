"""Metrics of the store: the time of each request, the size of commits, and the state of the session."""

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

from kactl.runtime.clock import Clock
from kactl.telemetry.metrics import Reading, Telemetry

CONNECTED: Final = "connected"
# State of the session after a change of this name; see `kactl.stores.base.Changed`.
_STATES: Final = {
    "suspended": "suspended",
    "connected": CONNECTED,
    "session lost": "expired",
    "session opened": CONNECTED,
}
_Store = TypeVar("_Store")


class StoreMetrics:
    """Measures the requests to a store, and counts changes of its session.

    Attributes:
        in_flight: requests that the store has not answered yet.
        session: the state of the session: connected, suspended or expired.
        transitions: how often the session has entered each state.
    """

    def __init__(self, telemetry: Telemetry, clock: Clock) -> None:
        self.telemetry = telemetry
        self._now = clock.monotonic_ms
        self.in_flight = 0
        self.session = CONNECTED
        self.transitions = Counter[str]()

    def changed(self, change: str) -> None:
        """Note a change that the store has reported, by its name."""
        state = _STATES.get(change)
        if state is not None:
            self.session = state
            self.transitions[state] += 1

    def measured(self, store: _Store) -> _Store:
        """Returns a store that measures its requests; everything else of it is the same."""
        return cast(_Store, _Measured(store, self))

    async def measure(self, operation: str, request: Awaitable[Any]) -> Any:
        """Await the result of a request. Its time is recorded whatever the result is."""
        began_ms = self._now()
        self.in_flight += 1
        error = ""
        try:
            return await request
        except Exception as failed:
            error = type(failed).__name__
            raise
        finally:
            self.in_flight -= 1
            self.telemetry.stored(operation, self._now() - began_ms, error)

    def readings(self) -> dict[str, Reading]:
        """Returns the gauges and counters for `kactl.telemetry.metrics`."""
        states = tuple(dict.fromkeys(_STATES.values()))

        def session() -> Iterable[tuple[float, Mapping[str, str | int]]]:
            return [(int(self.session == state), {"state": state}) for state in states]

        def transitions() -> Iterable[tuple[float, Mapping[str, str | int]]]:
            return [(self.transitions[state], {"state": state}) for state in states]

        return {
            "kactl.store.in_flight": lambda: [(self.in_flight, {})],
            "kactl.store.session.state": session,
            "kactl.store.session.transition.count": transitions,
        }


class _Measured:
    """A store in front of another one."""

    def __init__(self, store: Any, metrics: StoreMetrics) -> None:
        self._store = store
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if not inspect.iscoroutinefunction(value):
            return value
        return self._commit(value) if name == "commit" else self._request(name, value)

    def _request(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        def request(*arguments: Any, **named: Any) -> Awaitable[Any]:
            return self._metrics.measure(name, method(*arguments, **named))

        return request

    def _commit(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        def commit(write: Any, fence: Any) -> Awaitable[Any]:
            self._metrics.telemetry.committed(len(write))
            return self._metrics.measure("commit", method(write, fence))

        return commit
