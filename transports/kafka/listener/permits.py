"""Permits for the requests of one connection: decisions by rights, quotas, and records of changes and denials.

A request is decided about when it has been read, and again when the controller begins to carry it out, if it has waited
for some seconds meanwhile: rights that were removed while it waited do not count.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Final

from kactl.model.errors import ErrorCode, KactlError, Remedy
from kactl.runtime.budget import account_of
from kactl.security.access import Principal, stranger
from kactl.telemetry.attempts import Attempt, Audit, Outcome
from kactl.telemetry.event_record import ORIGIN

from .admission import Slot
from .api import Api
from .api_keys import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from .audit import CHANGES, outcome_of, target_of
from .authentication import Login
from .authorization import BROKER_REQUESTS, Decisions
from .counters import ListenerCounters, PeerRejected
from .delegated import Decided
from .field_types import Values
from .quotas import PAUSE_MAX_S, Payer, QuotaKeeper
from .responses import Handler
from .verdict import Verdict

# A decision that is older than this is repeated.
DECIDED_AGAIN_S: Final = 5.0
_LOGIN: Final = frozenset({"login", "unauthenticated"})
_OF_TOPICS: Final = frozenset({CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS})


class RightsRemoved(KactlError):
    """The client of a request lost its rights while the request waited; nothing was changed."""

    remedy = Remedy.REPORT
    http_status = 403
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    def __init__(self, *, request: str, principal: str, waited_s: float) -> None:
        super().__init__(
            f"{principal} lost the rights for {request}, or for a part of it, during the {waited_s:.1f} s for which "
            "it waited: grant them again, and repeat it"
        )
        self.request = request
        self.principal = principal
        self.waited_s = waited_s


class TopicRightsRemoved(RightsRemoved):
    """As above, for requests with a result for each topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Permits:
    """Permits of one connection.

    Args:
        login: of the connection.
        slot: its place in the admission; a broker has no quotas.
        quotas: charge its requests.
        has_quotas: whether the listener has logins.
        audit: receives attempts to change something, and denials.
        peer: the peer's name in log messages.
    """

    def __init__(
        self,
        login: Login,
        slot: Slot,
        *,
        decisions: Decisions,
        quotas: QuotaKeeper,
        has_quotas: bool,
        audit: Audit,
        counters: ListenerCounters,
        peer: str,
    ) -> None:
        self._login = login
        self._slot = slot
        self._decisions = decisions
        self._quotas = quotas
        self._has_quotas = has_quotas
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
        verdict, decided = await self.decide(api, values, version, principal)
        if verdict.request is None:
            return verdict.complete({})
        limited = self._within_quota(api, verdict.request, version, principal)
        if limited.request is None:
            return verdict.complete(limited.complete({}))
        with self._decided_again(api, limited.request, version, principal, decided):
            response = await self._audited(api, limited.request, version, handler, principal)
        return verdict.complete(limited.complete(response))

    @contextlib.contextmanager
    def _decided_again(
        self, api: Api, request: dict[str, Any], version: int, principal: Principal, decided: Decided | None
    ) -> Iterator[None]:
        """Let the controller decide again about the events that the block queues, when it begins them.

        One request may be several events. A denial of a part of it ends the rest of it: which part an event carries out
        is not known here.
        """
        error = TopicRightsRemoved if api.key in _OF_TOPICS else RightsRemoved
        decided_s = _now_s()
        denied_after_s: float | None = None

        def check() -> None:
            nonlocal decided_s, denied_after_s
            waited_s = _now_s() - decided_s
            if denied_after_s is None and waited_s > DECIDED_AGAIN_S:
                decided_s += waited_s
                if self.verdict(api, request, version, principal, decided).denies:
                    denied_after_s = waited_s
            if denied_after_s is not None:
                raise error(request=api.name, principal=principal.name, waited_s=denied_after_s)

        token = ORIGIN.set(ORIGIN.get()._replace(check=check, principal=principal))
        # The controller cannot wait for a function of the program, so that its decisions are kept up to date here.
        refreshing = None if decided is None else asyncio.get_running_loop().create_task(decided.refresh())
        try:
            yield
        finally:
            ORIGIN.reset(token)
            if refreshing is not None:
                refreshing.cancel()

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
        self._audit(Attempt(principal, f"kafka {api.name}", outcome, target_of(request), detail))

    def rejected(self, rejection: PeerRejected) -> None:
        """Record the end of a connection whose peer failed to log in, or sent what no peer may send."""
        is_login = rejection.kind in _LOGIN or (self._login.is_pending and rejection.kind == "unsupported_version")
        if is_login or rejection.kind == "not_for_us":
            principal = self._login.principal or stranger(self._slot.address)
            operation = "kafka Login" if is_login else "kafka Request"
            self._audit(Attempt(principal, operation, "denied", detail=str(rejection)))

    async def decide(
        self, api: Api, values: dict[str, Any], version: int, principal: Principal
    ) -> tuple[Verdict, Decided | None]:
        """Returns the decision about a request, and what a function of the program has decided."""
        decided = await self._decisions.decide(api.key, values, version, principal)
        return self.verdict(api, values, version, principal, decided), decided

    def verdict(
        self, api: Api, values: dict[str, Any], version: int, principal: Principal, decided: Decided | None
    ) -> Verdict:
        """Returns the decision about a request. A denial is counted, logged and recorded."""
        verdict = self._decisions.check(api.key, values, version, principal, decided)
        if verdict.denies:
            denial = PeerRejected("denied", _reason_of(api, principal))
            self._counters.reject(denial, self._peer, action="the response says so")
            self.record(api, values, principal, "denied")
        return verdict

    def _payer(self, principal: Principal) -> Payer:
        is_free = self._slot.broker is not None or self._decisions.is_administrator(principal)
        return Payer(account_of(principal), self._has_quotas, is_free)

    def _within_quota(self, api: Api, request: dict[str, Any], version: int, principal: Principal) -> Verdict:
        limited = self._quotas.check(api, request, version, self._payer(principal))
        if limited.request is not request:
            reason = f"{principal.caller} causes more work than its account permits (kafka.mutation-rate)"
            self._counters.reject(PeerRejected("quota", reason), self._peer, action="the response says so")
        return limited

    async def pay(self, api: Api, size: int) -> None:
        """Charge a request before it is decoded. It waits while the account is overdrawn, for a bounded time."""
        payer = self._payer(self._login.principal or stranger(self._slot.address))
        if wait_s := self._quotas.charge_content(api, size, payer):
            await asyncio.sleep(min(PAUSE_MAX_S, wait_s))
            self._quotas.charge_content(api, size, payer._replace(is_free=True))

    async def pause(self) -> None:
        """Wait until the principal is within its quotas again. The connection is not read meanwhile."""
        principal = self._login.principal
        if principal is not None and (pause_s := self._quotas.charge_request(self._payer(principal))):
            await asyncio.sleep(pause_s)


def _reason_of(api: Api, principal: Principal) -> str:
    if principal.is_authenticated or api.key not in BROKER_REQUESTS:
        return f"{principal.name} is not allowed all of {api.name}"
    return (
        f"{api.name} from {principal.peer}, which is not an address that this broker is registered under, or "
        "without the broker's epoch: if brokers connect from there, add it to kafka.broker-networks"
    )


def _now_s() -> float:
    return asyncio.get_running_loop().time()
