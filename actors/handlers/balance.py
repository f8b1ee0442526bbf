"""Automatic preferred replica elections, when leadership is imbalanced.

The first check is five seconds after a takeover; the next ones follow at `balance_interval_ms`.

Source: the classic controller's processAutoPreferredReplicaLeaderElection.
"""

from typing import Final

import numpy as np

from kactl.actors.machines.messages import Move
from kactl.machines.balance import balance
from kactl.machines.election import Election
from kactl.messages.events import BalanceDue, Event
from kactl.model import PartitionState
from kactl.runtime.logs import logger
from kactl.state.change import Refusal
from kactl.state.rows import Bools, Rows, first, preferred_slot

from .base import ControllerContext, Handler, Handlers
from .timers import Timers

log = logger(__name__)

# Kafka's value. After a takeover, brokers respond and followers catch up first.
FIRST_CHECK_MS: Final = 5_000


class Balancing(Handlers):
    """Checks the imbalance periodically.

    Args:
        timers: schedule the next check; cancelled on resignation.
    """

    def __init__(self, context: ControllerContext, timers: Timers) -> None:
        super().__init__(context)
        self._timers = timers

    def handlers(self) -> dict[type[Event], Handler]:
        return {BalanceDue: self.on_balance_due}

    def begin(self) -> None:
        """Schedule the first check after a takeover, if automatic balancing is enabled."""
        if self.settings.auto_balance:
            self._timers.set(BalanceDue(), FIRST_CHECK_MS)

    async def on_balance_due(self, event: BalanceDue) -> None:
        """Check once, and schedule the next check even if this one fails."""
        try:
            await self._check()
        finally:
            self._timers.set(BalanceDue(), self.settings.balance_interval_ms)

    async def _check(self) -> None:
        imbalance = balance(
            self.cluster.table, self.cluster.live_brokers.live, percentage=self.settings.balance_percentage
        )
        if not len(imbalance.over):
            return
        for broker, preferring, elsewhere in zip(
            imbalance.brokers.tolist(), imbalance.preferring.tolist(), imbalance.elsewhere.tolist(), strict=True
        ):
            log.debug("of %d partitions that prefer broker %d, %d are led elsewhere", preferring, broker, elsewhere)
        log.info(
            "more than %d %% of the partitions that prefer brokers %s are led elsewhere; moving %d of them back",
            self.settings.balance_percentage, imbalance.over.tolist(), len(imbalance.returning),
        )  # fmt: skip
        moved = await self.move_many(
            Move(imbalance.returning, PartitionState.ONLINE, Election.PREFERRED, wanted=_is_led_elsewhere)
        )
        failed = int(np.count_nonzero(moved.refusal != Refusal.NONE))
        if failed:
            log.error("%d of %d preferred replica elections failed", failed, len(imbalance.returning))


def _is_led_elsewhere(rows: Rows) -> Bools:
    """bool[n]: as in `balance`; some preferred replicas may have been elected since."""
    elsewhere: Bools = rows.leader != first(preferred_slot(rows.assigned), rows.replicas)
    return elsewhere
