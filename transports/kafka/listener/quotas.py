"""Prices of requests, and what the budget of their principal permits of them.

Partitions that are created and deleted, or would be by a request to validate, have a quota as in Kafka. Clients of
newer versions receive an error for each topic beyond it. For others, for requests and for work, the connection is not
read until the account has recovered. Brokers and super users are charged, and never turned away.

Source: Kafka's ControllerMutationQuotaManager, KIP-599.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from kactl.model import TopicRef
from kactl.model.errors import ErrorCode
from kactl.runtime.budget import Budget, Excess, Rate, Unit
from kactl.runtime.prices import KAFKA_PRICES

from .api import Api
from .api_keys import (
    ALTER_PARTITION,
    ALTER_PARTITION_REASSIGNMENTS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    METADATA,
)
from .field_types import Values
from .responses import result
from .verdict import Verdict, unchanged

# First versions whose clients know the error.
_ERROR_SINCE: Final = {CREATE_TOPICS: 6, DELETE_TOPICS: 5, CREATE_PARTITIONS: 3}
_RESULTS: Final = {CREATE_TOPICS: "topics", DELETE_TOPICS: "responses", CREATE_PARTITIONS: "results"}
# Longest time for which a connection is not read, and a request waits for its account.
PAUSE_MAX_S: Final = 10.0
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


class Payer(NamedTuple):
    """The sender of a request.

    Attributes:
        has_quotas: it is on a listener with logins. Without logins an address has an account for its work alone.
        is_free: it is charged, and not turned away: a broker or an administrator.
    """

    account: str
    has_quotas: bool
    is_free: bool

    @property
    def units(self) -> tuple[Unit, ...]:
        return (Unit.WORK, Unit.PARTITIONS) if self.has_quotas else (Unit.WORK,)


class QuotaKeeper:
    """Charges the requests of one server.

    Args:
        partitions_of: returns the number of partitions of a topic; 0 if there is none.
        topics: returns all topics.
    """

    def __init__(
        self,
        quotas: Quotas,
        budget: Budget,
        *,
        default_partitions: int,
        partitions_of: Callable[[str], int],
        topics: Callable[[], Iterable[TopicRef]],
    ) -> None:
        budget.limit(Unit.PARTITIONS, Rate(quotas.partitions_rate, quotas.partitions_burst))
        self._budget = budget
        self._default = default_partitions
        self._partitions_of = partitions_of
        self._topics = topics

    def charge_content(self, api: Api, size: int, payer: Payer) -> float:
        """Charge a request before it is decoded. Returns 0, or the time in s after which this can be repeated."""
        amounts = {Unit.WORK: KAFKA_PRICES[api.name].ms(size=size)}
        excess = self._budget.charge(payer.account, amounts, is_free=payer.is_free)
        return 0.0 if excess is None else excess.wait_s

    def charge_request(self, payer: Payer) -> float:
        """Count a request. Returns the seconds for which the peer's connection is not to be read."""
        if payer.is_free or not payer.has_quotas:
            return 0.0
        self._budget.settle(payer.account, Unit.REQUESTS, 1)
        return min(
            PAUSE_MAX_S, max(self._budget.overdraft_s(payer.account, unit) for unit in (Unit.REQUESTS, *payer.units))
        )

    def check(self, api: Api, request: dict[str, Any], version: int, payer: Payer) -> Verdict:
        """Returns the part of a request that the account permits, which is charged."""
        price = KAFKA_PRICES[api.name]
        if api.key not in _RESULTS:
            partitions = self._named(api.key, request, version)
            self._budget.settle(payer.account, Unit.WORK, price.partition_ms * partitions)
            return Verdict(request, unchanged)
        part = "topic_names" if api.key == DELETE_TOPICS and request["topic_names"] else "topics"
        rejects = version >= _ERROR_SINCE[api.key]
        ids = self._ids(request[part]) if api.key == DELETE_TOPICS else {}
        costs = [self._cost(api.key, entry, ids) for entry in request[part]]
        units = payer.units
        prices = [(price.partition_ms * cost, cost)[: len(units)] for cost in costs]
        excesses = self._budget.charge_each(payer.account, units, prices, is_free=payer.is_free or not rejects)
        charged = list(zip(request[part], excesses, strict=True))
        accepted = [entry for entry, excess in charged if excess is None]
        errors = [_error(entry, excess) for entry, excess in charged if excess is not None]
        # Work that was accepted delays later requests, and says nothing about the partitions of this one.
        unit = Unit.PARTITIONS if payer.has_quotas else Unit.WORK
        throttle_ms = 0 if payer.is_free else round(self._budget.overdraft_s(payer.account, unit) * 1000)
        if not errors:
            complete = (lambda response: _throttled(response, throttle_ms)) if throttle_ms else unchanged
            return Verdict(request, complete)
        return Verdict(
            {**request, part: accepted} if accepted else None,
            lambda response: {
                **_throttled(response, throttle_ms),
                _RESULTS[api.key]: [*response.get(_RESULTS[api.key], ()), *errors],
            },
        )

    def _named(self, key: int, request: dict[str, Any], version: int) -> int:
        """Returns the number of partitions that a request lists, elects or moves."""
        if key in (ALTER_PARTITION_REASSIGNMENTS, ALTER_PARTITION):
            return sum(len(topic["partitions"]) for topic in request["topics"])
        if key == ELECT_LEADERS and request["topic_partitions"] is not None:
            return sum(len(topic["partitions"]) for topic in request["topic_partitions"])
        if key not in (ELECT_LEADERS, METADATA):
            return 0
        named = request["topics"] if key == METADATA else None
        if named is None or (version == 0 and not named):
            return sum(self._partitions_of(ref.name) for ref in self._topics())
        return sum(self._partitions_of(topic["name"] or "") for topic in named)

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


def _bounded(count: int) -> int:
    return max(0, min(count, _COUNT_MAX))


def _throttled(response: Values, throttle_ms: int) -> Values:
    return {**response, "throttle_time_ms": max(throttle_ms, 1)}


def _error(entry: Any, excess: Excess) -> dict[str, Any]:
    fields = {"name": entry} if isinstance(entry, str) else {"name": entry["name"]}
    if not isinstance(entry, str) and "topic_id" in entry:
        fields["topic_id"] = entry["topic_id"]
    message = f"too many {excess.unit.value} come from this principal: try again in {math.ceil(excess.wait_s)} s"
    return {**fields, **result(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)}
