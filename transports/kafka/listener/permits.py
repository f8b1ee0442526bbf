"""Permits for the requests of one connection: decisions by rights, quotas, and records of changes and denials."""

import asyncio
from typing import Any

from kactl.access import Principal

from .admission import Slot
from .api import Api
from .audit import CHANGES, Attempt, Audit, Outcome, outcome_of, target_of
from .authentication import Login
from .authorization import BROKER_REQUESTS, Decisions
from .counters import ListenerCounters, PeerRejected
from .field_types import Values
from .quotas import QuotaKeeper
from .responses import Handler
from .verdict import Verdict, unchanged


class Permits:
    """Permits of one connection.

    Args:
        login: of the connection.
        slot: its place in the admission; a broker has no quotas.
        quotas: of principals; None for no limits.
        audit: receives attempts to change something, and denials.
        peer: the peer's name in log messages.
    """

    def __init__(
        self,
        login: Login,
        slot: Slot,
        *,
        decisions: Decisions,
        quotas: QuotaKeeper | None,
        audit: Audit,
        counters: ListenerCounters,
        peer: str,
    ) -> None:
        self._login = login
        self._slot = slot
        self._decisions = decisions
        self._quotas = quotas
        self._audit = audit
        self._counters = counters
        self._peer = peer

    def knows(self, key: int) -> bool:
        """Returns whether requests with an api key can be decided about."""
        return self._decisions.knows(key)

    def may_speak_for(self, principal: Principal, broker: int) -> bool:
        """Returns whether a principal is a broker's."""
        return self._decisions.may_speak_for(principal, broker)

    async def carry_out(self, api: Api, values: dict[str, Any], version: int, handler: Handler) -> Values:
        """Returns the response to a request, of which the handler receives the permitted part."""
        principal = self._login.principal
        if principal is None:
            # Only ApiVersions is read before the login.
            return await handler(values, version)
        verdict = self.verdict(api, values, version, principal)
        if verdict.request is None:
            return verdict.complete({})
        limited = self._within_quota(api, verdict.request, version, principal)
        if limited.request is None:
            return verdict.complete(limited.complete({}))
        response = await self._audited(api, limited.request, version, handler, principal)
        return verdict.complete(limited.complete(response))

    async def _audited(
        self, api: Api, request: dict[str, Any], version: int, handler: Handler, principal: Principal
    ) -> Values:
        """Returns the response of a handler, and records a change with its outcome."""
        if api.key not in CHANGES or request.get("validate_only"):
            return await handler(request, version)
        outcome: Outcome = "unknown"
        detail = ""
        try:
            response = await handler(request, version)
            outcome, detail = outcome_of(response)
        finally:
            self.record(api, request, principal, outcome, detail)
        return response

    def record(self, api: Api, request: Values, principal: Principal, outcome: Outcome, detail: str = "") -> None:
        """Record an attempt to change something."""
        self._audit(Attempt(principal.name, principal.host, api.name, outcome, target_of(request), detail))

    def verdict(self, api: Api, values: dict[str, Any], version: int, principal: Principal) -> Verdict:
        """Returns the decision about a request. A denial is counted, logged and recorded."""
        verdict = self._decisions.check(api.key, values, version, principal)
        if verdict.denies:
            denial = PeerRejected("denied", _reason_of(api, principal))
            self._counters.reject(denial, self._peer, action="the response says so")
            self.record(api, values, principal, "denied")
        return verdict

    def _within_quota(self, api: Api, request: dict[str, Any], version: int, principal: Principal) -> Verdict:
        """Returns the part of a request that the principal's quota permits."""
        if self._quotas is None or self._slot.broker is not None:
            return Verdict(request, unchanged)
        limited = self._quotas.check(api.key, request, version, principal)
        if limited.request is not request:
            reason = (
                f"{principal.name} creates and deletes more partitions than its quota permits (kafka.mutation-rate)"
            )
            self._counters.reject(PeerRejected("quota", reason), self._peer, action="the response says so")
        return limited

    async def pause(self) -> None:
        """Wait until the principal is within its quotas again. The connection is not read meanwhile."""
        principal = self._login.principal
        if self._quotas is None or principal is None or self._slot.broker is not None:
            return
        pause_s = self._quotas.count_request(principal)
        if pause_s:
            await asyncio.sleep(pause_s)


def _reason_of(api: Api, principal: Principal) -> str:
    if principal.is_authenticated or api.key not in BROKER_REQUESTS:
        return f"{principal.name} is not allowed all of {api.name}"
    return (
        f"{api.name} from {principal.host}, which is not an address that this broker is registered under, or "
        "without the broker's epoch: if brokers connect from there, add it to kafka.broker-networks"
    )
