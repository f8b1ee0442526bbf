"""Rates at which clients of the admin API may send requests, and failed logins of addresses."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

# Clients that are remembered; the one that has been silent for longest is forgotten.
CLIENTS_MAX: Final = 10_000
# Failed logins of one address within a minute, after which each further one costs the client its connection.
FAILURES_MAX: Final = 10
FAILURES_S: Final = 60.0
# Requests of one address without any token, for which a token is needed; five times as many may come at once.
STRANGERS_PER_S: Final = 20
# Plans and explanations of one client at a time: each may take a turn of the event loop.
HEAVY_MAX: Final = 2


class Rate(NamedTuple):
    """A mean rate, and the number of requests that may come at once."""

    per_s: float
    burst: float


class Buckets:
    """Token buckets by client."""

    def __init__(self, rate: Rate, now_s: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._now_s = now_s
        # Remaining requests, and the time of this count.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Count a request. Returns 0, or the time in s after which the client may send the next one."""
        now_s = self._now_s()
        left, then_s = self._left.get(client, (self._rate.burst, now_s))
        left = min(self._rate.burst, left + (now_s - then_s) * self._rate.per_s)
        wait_s = 0.0 if left >= 1 else (1 - left) / self._rate.per_s
        self._left[client] = (left if wait_s else left - 1, now_s)
        self._left.move_to_end(client)
        if len(self._left) > CLIENTS_MAX:
            self._left.popitem(last=False)
        return wait_s


class Failures:
    """Failed logins by address. A valid credential is accepted all the same: others may share the address."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._buckets = Buckets(Rate(FAILURES_MAX / FAILURES_S, FAILURES_MAX), now_s)

    def add(self, address: str) -> float:
        """Count a failure. Returns 0, or the time in s for which further ones are too many."""
        return self._buckets.take(address)
