"""Liveness: conditions that must hold again some time after the last fault, without any help.

    faults end ── T_session + 2·T_req: a controller ── + 2·T_req: leaders ── T_settle: everything ──▶ end of the run

Each unmet condition is a text that names the missing part. A condition that is unmet after its limit is a violation.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kactl.actors.controller import RETRY_LATER_MS
from kactl.config.controller_settings import ControllerSettings
from kactl.decide.machines.restart import PACE_DELAYS_MAX
from kactl.testing.violations import Violation
from tests.sim.engine.cluster import ControllerMember, SimulatedCluster

from .conditions import ConditionsNow
from .leftovers import Leftovers
from .shares import SharesNow

# The timeout of a request from which limits follow, if that of a run is shorter: other pauses are not.
_REQUEST_MS: Final = 1_000.0
# How often all partitions are written at most, a chunk at a time, until each has a leader: when they are taken over,
# lose their leaders, and leave the ISRs of brokers that registered again, which is a write for each broker of a chunk.
_PASSES: Final = 4
# How long the shares of owners may be uneven: a joining participant that is followed by others delays the hand-overs,
# up to five times, and one batch of them follows the other. After a restart they wait for the next step of it.
_EVEN_DELAYS: Final = 6 + 2 * PACE_DELAYS_MAX
_EVEN_MS: Final = 20_000.0
# Conditions that every run checks, in the order of their limits.
INVARIANTS: Final = (
    "LIV-01", "LIV-02", "LIV-03", "LIV-04", "LIV-05", "LIV-07", "LIV-08", "LIV-10", "LIV-11", "INV-09", "INV-16",
    "INV-42", "INV-50",
)  # fmt: skip


_PREFERRED: Final = "LIV-07"


class Unmet(NamedTuple):
    """A condition that does not hold now.

    Attributes:
        invariant: number of the property.
        limit_ms: after the end of all faults, until which it may be unmet.
    """

    invariant: str
    text: str
    limit_ms: float


class Limits:
    """Limits of the conditions.

    Preferred leaders may be elected long after everything else has come to rest. Their election is a change, after
    which the other conditions have their limits again. So is the end of a shutdown mark: until then the broker was not
    eligible as a leader. Marks that are set later do not count.
    """

    def __init__(self) -> None:
        self._changed_ms = 0.0
        self._leaving: frozenset[int] | None = None

    def violation(
        self, unmet: list[Unmet], *, since_ms: float, leaving: frozenset[int] | None = None
    ) -> Violation | None:
        """Returns the violation of the first condition whose limit has passed.

        Args:
            since_ms: time since the end of all faults; it grows with each call.
            leaving: brokers that are marked as shutting down; None if no controller is active.
        """
        if self._has_restored(leaving) or (unmet and all(condition.invariant == _PREFERRED for condition in unmet)):
            self._changed_ms = since_ms
        for condition in sorted(unmet, key=lambda each: each.limit_ms):
            begin_ms = 0.0 if condition.invariant == _PREFERRED else self._changed_ms
            if since_ms - begin_ms > condition.limit_ms:
                return Violation(condition.invariant, f"{condition.text}, {since_ms / 1000:.1f} s after the last fault")
        return None

    def _has_restored(self, leaving: frozenset[int] | None) -> bool:
        """Returns whether the shutdown mark of a broker has ended since the last call."""
        if leaving is None:
            return False
        before = leaving if self._leaving is None else self._leaving
        self._leaving = before & leaving
        return self._leaving != before


class Quiet:
    """Conditions of a cluster at rest.

    Args:
        core_down: members that stay down.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        request, lag = max(_REQUEST_MS, cluster.settings["request_timeout_ms"]), cluster.settings["lag_ms"]
        session = cluster.session_end_ms
        own = ControllerSettings.of(None, cluster.own_settings)
        replicas = sum(len(assignment.replicas) for assignment in cluster.stored.assignments().values())
        chunks = math.ceil(replicas / own.chunk_partitions)
        chunks_ms = _PASSES * max(0, chunks - 1) * cluster.store_round_trip_ms
        self.controller_ms = session + 2 * request + chunks_ms
        # A write whose outcome is unknown, and that could not be read back before the faults ended, is repeated later.
        self.leader_ms = max(self.controller_ms, RETRY_LATER_MS + chunks_ms) + 2 * request
        self.settle_ms = 3 * session + 10 * request + 3 * lag + chunks_ms
        self.balance_ms = own.balance_interval_ms + self.settle_ms
        # A longer limit only has to have its timer: a run does not wait for it.
        self.shutdown_ms = own.shutdown_limit_ms + self.settle_ms
        self.even_ms = self.settle_ms + _EVEN_DELAYS * own.participant_balance_ms + _EVEN_MS
        self._waits_for_shutdowns = own.shutdown_limit_ms <= self.settle_ms
        self._balance_percentage = own.balance_percentage if own.auto_balance else 100
        # Otherwise a participant that comes later owns nothing until another one leaves.
        self._evens = own.auto_balance and own.participant_balance_ms > 0
        self._limits = Limits()

    def unmet(self) -> list[Unmet]:
        """Returns all conditions that do not hold now."""
        if (active := self._active()) is None:
            return [Unmet("LIV-01", self._who_is_active(), self.controller_ms)]
        assert active.controller is not None
        view = ConditionsNow(self._cluster, active.controller)
        left = Leftovers(self._cluster, active.controller)
        shares = SharesNow(self._cluster, active.controller)
        parts: tuple[tuple[str, float, Callable[[], Iterator[str]]], ...] = (
            ("LIV-02", self.leader_ms, view.without_leader),
            ("LIV-10", self.settle_ms, view.unregistered),
            ("LIV-05", self.settle_ms, view.unfinished),
            ("LIV-05", self.settle_ms, view.undrained),
            ("LIV-03", self.settle_ms, view.disagreements),
            ("LIV-03", self.settle_ms, view.unknown_replicas),
            ("LIV-03", self.settle_ms, view.unknown_failures),
            ("LIV-04", self.settle_ms, view.out_of_sync),
            ("LIV-04", self.settle_ms, view.dead_members),
            ("LIV-04", self.shutdown_ms, lambda: left.shutdowns(wait=self._waits_for_shutdowns)),
            (_PREFERRED, self.balance_ms, lambda: view.led_elsewhere(self._balance_percentage)),
            ("LIV-11", self.even_ms, shares.uneven if self._evens else lambda: iter(())),
            ("LIV-11", self.even_ms, shares.without_standbys),
            ("LIV-08", self.settle_ms, view.retries),
            ("LIV-08", self.settle_ms, left.retries),
            ("LIV-08", self.even_ms, left.silences),
            ("INV-09", self.settle_ms, view.memory_differences),
            ("INV-09", self.settle_ms, view.state_differences),
            ("INV-16", self.settle_ms, view.strangers),
            ("INV-42", self.settle_ms, view.remains),
            ("INV-50", self.settle_ms, view.unanswered),
            ("INV-42", self.settle_ms, left.deleted_topics),
        )
        return [Unmet(number, text, limit_ms) for number, limit_ms, texts in parts for text in texts()]

    def violation(self, unmet: list[Unmet], *, since_ms: float) -> Violation | None:
        """Returns the violation of the first condition whose limit has passed; see `Limits`."""
        active = self._active()
        leaving = None if active is None or active.controller is None else active.controller.cluster.shutting_down
        return self._limits.violation(unmet, since_ms=since_ms, leaving=leaving)

    def _active(self) -> ControllerMember | None:
        """Returns the controller if exactly one instance is active and has taken over."""
        active = [member for member in self._cluster.controllers.values() if member.is_active]
        if len(active) != 1 or active[0] is not self._cluster.active or active[0].controller is None:
            return None
        return active[0] if active[0].controller.loop.controllership.ready else None

    def _who_is_active(self) -> str:
        active = [member.name for member in self._cluster.controllers.values() if member.is_active]
        stored = self._cluster.stored.controller()
        named = "no controller" if stored is None else f"controller {stored.id} under epoch {stored.epoch}"
        return f"active and ready is not exactly one instance: active are {active}, the store names {named}"
