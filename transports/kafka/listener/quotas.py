"""Quotas of principals on listeners with logins: partitions that they create and delete, and requests.

A quota is a token bucket of each principal; peers without a login have one for each address, or IPv6 network. Brokers
have none. As in Kafka, an action is accepted while the bucket is not empty and may overdraw it, so that one large topic
can be created. Clients of newer versions receive an error for each topic beyond the quota. For others, and for
requests, the connection is not read until the bucket has recovered.

Source: Kafka's ControllerMutationQuotaManager, KIP-599.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from kactl.access import Principal
from kactl.errors import ErrorCode
from kactl.model import TopicRef
from kactl.runtime.addresses import group_of

from .api_keys import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from .field_types import Values
from .responses import result
from .verdict import Verdict, unchanged

# First versions whose clients know the error.
_ERROR_SINCE: Final = {CREATE_TOPICS: 6, DELETE_TOPICS: 5, CREATE_PARTITIONS: 3}
_RESULTS: Final = {CREATE_TOPICS: "topics", DELETE_TOPICS: "responses", CREATE_PARTITIONS: "results"}
# Requests of a principal: at once, and in a second.
REQUESTS_BURST: Final = 400
REQUEST_RATE: Final = 200.0
# Longest time for which a connection is not read.
PAUSE_MAX_S: Final = 10.0
# A principal whose bucket is forgotten begins with a full one.
_OWNERS_MAX: Final = 10_000
# Partitions that a request can name; more of one topic are rejected by the controller.
_COUNT_MAX: Final = 100_000


class Quotas(NamedTuple):
    """Limits of one principal.

    Attributes:
        partitions_rate: partitions that it may create and delete in a second; 0 for no limit.
        partitions_burst: partitions that it may create and delete at once, after a pause.
    """

    partitions_rate: float = 100.0
    partitions_burst: int = 10_000


class Buckets:
    """Token buckets by owner."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        # Tokens and the time at which they were counted; the owner that was active most recently is last.
        self._left: dict[str, tuple[float, float]] = {}

    def is_empty(self, owner: str) -> bool:
        return self._now(owner) <= 0

    def take(self, owner: str, count: float) -> None:
        """Take tokens; the bucket may be overdrawn."""
        left = self._now(owner) - count
        self._left.pop(owner, None)
        if len(self._left) >= _OWNERS_MAX:
            del self._left[next(iter(self._left))]
        self._left[owner] = (left, self._clock())

    def wait_s(self, owner: str) -> float:
        """Returns the time until the bucket is no longer overdrawn."""
        return max(0.0, -self._now(owner) / self._rate)

    def _now(self, owner: str) -> float:
        left, then_s = self._left.get(owner, (self._burst, self._clock()))
        return min(self._burst, left + (self._clock() - then_s) * self._rate)


class QuotaKeeper:
    """Applies the quotas of one server.

    Args:
        partitions_of: returns the number of partitions of a topic; 0 if there is none.
        topics: returns all topics.
    """

    def __init__(
        self,
        quotas: Quotas,
        *,
        default_partitions: int,
        partitions_of: Callable[[str], int],
        topics: Callable[[], Iterable[TopicRef]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_limited = quotas.partitions_rate > 0
        self._partitions = Buckets(quotas.partitions_rate or 1.0, quotas.partitions_burst, clock)
        self._requests = Buckets(REQUEST_RATE, REQUESTS_BURST, clock)
        self._default = default_partitions
        self._partitions_of = partitions_of
        self._topics = topics

    def count_request(self, principal: Principal) -> float:
        """Count a request. Returns the seconds for which the peer's connection is not to be read."""
        owner = _owner(principal)
        self._requests.take(owner, 1)
        wait_s = self._requests.wait_s(owner)
        return min(PAUSE_MAX_S, max(wait_s, self._partitions.wait_s(owner) if self._is_limited else 0.0))

    def check(self, key: int, request: dict[str, Any], version: int, principal: Principal) -> Verdict:
        """Returns the part of a request that the quota permits, which is charged."""
        if not self._is_limited or key not in _RESULTS or request.get("validate_only"):
            return Verdict(request, unchanged)
        owner = _owner(principal)
        part = "topic_names" if key == DELETE_TOPICS and request["topic_names"] else "topics"
        rejects = version >= _ERROR_SINCE[key]
        ids = self._ids(request[part]) if key == DELETE_TOPICS else {}
        accepted, rejected = [], []
        for entry in request[part]:
            if rejects and self._partitions.is_empty(owner):
                rejected.append(entry)
                continue
            self._partitions.take(owner, self._cost(key, entry, ids))
            accepted.append(entry)
        throttle_ms = round(self._partitions.wait_s(owner) * 1000)
        if not rejected:
            complete = (lambda response: _throttled(response, throttle_ms)) if throttle_ms else unchanged
            return Verdict(request, complete)
        errors = list(map(_error, rejected))
        return Verdict(
            {**request, part: accepted} if accepted else None,
            lambda response: {
                **_throttled(response, throttle_ms),
                _RESULTS[key]: [*response.get(_RESULTS[key], ()), *errors],
            },
        )

    def _ids(self, entries: list[Any]) -> dict[bytes, str]:
        """Returns the topics by id, if any entry has no name."""
        by_id = any(not isinstance(entry, str) and entry["name"] is None for entry in entries)
        return {ref.id: ref.name for ref in self._topics()} if by_id else {}

    def _cost(self, key: int, entry: Any, ids: Mapping[bytes, str]) -> int:
        if key == DELETE_TOPICS:
            name = entry if isinstance(entry, str) else entry["name"] or ids.get(entry["topic_id"])
            return 0 if name is None else self._partitions_of(name)
        if key == CREATE_PARTITIONS:
            return _bounded(entry["count"] - self._partitions_of(entry["name"]))
        count = len(entry["assignments"]) or entry["num_partitions"]
        return _bounded(self._default if count < 0 else count)


def _owner(principal: Principal) -> str:
    return principal.name if principal.is_authenticated else group_of(principal.peer)


def _bounded(count: int) -> int:
    return max(0, min(count, _COUNT_MAX))


def _throttled(response: Values, throttle_ms: int) -> Values:
    return {**response, "throttle_time_ms": max(throttle_ms, 1)}


def _error(entry: Any) -> dict[str, Any]:
    fields = {"name": entry} if isinstance(entry, str) else {"name": entry["name"]}
    if not isinstance(entry, str) and "topic_id" in entry:
        fields["topic_id"] = entry["topic_id"]
    message = "the principal creates and deletes partitions faster than its quota permits: try again later"
    return {**fields, **result(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)}
