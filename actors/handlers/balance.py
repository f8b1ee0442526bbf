"""Leaders return to their preferred replicas by themselves, once too many have left.

Looked at five seconds after a takeover, and then every so often for as long as the controllership lasts.

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

# After a takeover brokers have yet to answer, and followers to catch up. Kafka's number.
FIRST_CHECK_MS: Final = 5_000


class Balancing(Handlers):
    """See the module.

    Args:
        timers: let the next check come, unless we resign before.
    """

    def __init__(self, context: ControllerContext, timers: Timers) -> None:
        super().__init__(context)
        self._timers = timers

    def handlers(self) -> dict[type[Event], Handler]:
        return {BalanceDue: self.on_balance_due}

    def begin(self) -> None:
        """We have taken over: have the first check made, if checks are to be made at all."""
        if self.settings.auto_balance:
            self._timers.set(BalanceDue(), FIRST_CHECK_MS)

    async def on_balance_due(self, event: BalanceDue) -> None:
        """Check once. However that ends, the next check comes; only a resignation calls it off."""
        try:
            await self._check()
        finally:
            self._timers.set(BalanceDue(), self.settings.balance_interval_ms)

    async def _check(self) -> None:
        found = balance(self.cluster.table, self.cluster.live_brokers.live, percentage=self.settings.balance_percentage)
        if not len(found.over):
            return
        for broker, preferring, elsewhere in zip(
            found.brokers.tolist(), found.preferring.tolist(), found.elsewhere.tolist(), strict=True
        ):
            log.debug("of %d partitions that prefer broker %d, %d are led elsewhere", preferring, broker, elsewhere)
        log.info(
            "more than %d %% of the partitions that prefer brokers %s are led elsewhere; %d of them can return",
            self.settings.balance_percentage, found.over.tolist(), len(found.returning),
        )  # fmt: skip
        moved = await self.move_many(
            Move(found.returning, PartitionState.ONLINE, Election.PREFERRED, wanted=_is_led_elsewhere)
        )
        failed = int(np.count_nonzero(moved.refusal != Refusal.NONE))
        if failed:
            log.error("%d of %d leaders did not return to their preferred replicas", failed, len(found.returning))


def _is_led_elsewhere(rows: Rows) -> Bools:
    """bool[n]: as `balance` has it; some may have returned since."""
    elsewhere: Bools = rows.leader != first(preferred_slot(rows.assigned), rows.replicas)
    return elsewhere
