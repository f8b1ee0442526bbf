"""Automatic preferred replica elections, when leadership is imbalanced.

The first check is five seconds after a takeover; the next ones follow at `balance_interval_ms`. Leaderships of
participants return sooner: `participant_balance_ms` after a participant has joined, or after a takeover. Such a check
is repeated, after pauses of twice the length each, until it finds nothing: replicas may not be in sync or ready yet.

Source: the classic controller's processAutoPreferredReplicaLeaderElection.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from kactl.actors.machines.machine import Move
from kactl.actors.priority_inbox import Timers
from kactl.decide.machines.balance import balance
from kactl.decide.machines.election import Election
from kactl.decide.machines.partition import is_led_elsewhere
from kactl.decide.messages.events import AutoPreferredReplicaLeaderElection, Event
from kactl.decide.state.change import Refusal
from kactl.decide.state.rows import BrokerSet
from kactl.model import PartitionState
from kactl.runtime.logs import logger

from .base import ControllerContext, Handler, Handlers

log = logger(__name__)

# Kafka's value. After a takeover, brokers respond and followers catch up first.
FIRST_CHECK_MS: Final = 5_000
PARTICIPANTS_DUE: Final = AutoPreferredReplicaLeaderElection(participants=True)
# With pauses of 6 s, 12 s and so on, replicas have three minutes to catch up before only the other checks are left.
PAUSES_MAX: Final = 5


class Balancing(Handlers):
    """Checks the imbalance periodically.

    Args:
        timers: schedule the next check; cancelled on resignation.
    """

    def __init__(self, context: ControllerContext, timers: Timers) -> None:
        super().__init__(context)
        self._timers = timers
        self._pauses = 0  # since a participant has joined

    def handlers(self) -> dict[type[Event], Handler]:
        return {AutoPreferredReplicaLeaderElection: self.on_auto_preferred_replica_leader_election}

    def begin(self) -> None:
        """Schedule the first checks after a takeover, if automatic balancing is enabled."""
        if self.settings.auto_balance:
            self._timers.set(AutoPreferredReplicaLeaderElection(), FIRST_CHECK_MS)
        self.brokers_came(self.cluster.brokers)

    def brokers_came(self, brokers: Iterable[int]) -> None:
        """Schedule a check of the partitions that participants prefer, if some of these brokers are participants."""
        delay_ms = self.settings.participant_balance_ms
        if self.settings.auto_balance and delay_ms > 0 and self._participants.intersection(brokers):
            self._pauses = 0
            if not self._timers.is_set(PARTICIPANTS_DUE):
                self._timers.set(PARTICIPANTS_DUE, delay_ms)

    @property
    def _participants(self) -> frozenset[int]:
        return frozenset(id_ for id_, broker in self.cluster.brokers.items() if broker.incarnation)

    async def on_auto_preferred_replica_leader_election(self, event: AutoPreferredReplicaLeaderElection) -> None:
        """Check once, and schedule the next check even if this one fails."""
        if event.participants:
            again = await self._check(percentage=0, only=BrokerSet(self._participants))
            if again and self._pauses < PAUSES_MAX:
                self._pauses += 1
                self._timers.set(PARTICIPANTS_DUE, self.settings.participant_balance_ms << self._pauses)
            return
        try:
            await self._check(percentage=self.settings.balance_percentage)
        finally:
            self._timers.set(AutoPreferredReplicaLeaderElection(), self.settings.balance_interval_ms)

    async def _check(self, *, percentage: int, only: BrokerSet | None = None) -> bool:
        """Return leaderships. Returns whether some have to return to live brokers: they may not be able to yet."""
        held, live = self.cluster.held_leaderships(self.clock.monotonic_ms()), self.cluster.live_brokers.live
        imbalance = balance(self.cluster.table, live, percentage=percentage, held=held, only=only)
        if not len(imbalance.over):
            return False
        for broker, preferring, elsewhere in zip(
            imbalance.brokers.tolist(), imbalance.preferring.tolist(), imbalance.elsewhere.tolist(), strict=True
        ):
            log.debug("of %d partitions that prefer broker %d, %d are led elsewhere", preferring, broker, elsewhere)
        log.info(
            "more than %d %% of the partitions that prefer brokers %s are led elsewhere; moving %d of them back",
            percentage, imbalance.over.tolist(), len(imbalance.returning),
        )  # fmt: skip
        moved = await self.move_many(
            Move(imbalance.returning, PartitionState.ONLINE, Election.PREFERRED, wanted=is_led_elsewhere)
        )
        failed = int(np.count_nonzero(moved.refusal != Refusal.NONE))
        if failed:
            log.error("%d of %d preferred replica elections failed", failed, len(imbalance.returning))
        return bool(imbalance.elsewhere[live[imbalance.brokers]].any())
