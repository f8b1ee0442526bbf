"""The pause after a failure of a handler."""

import math
from typing import Final

from kactl.clock import Clock
from kactl.model import NO_EPOCH

from .orders import Follow, Order, Stop

# After each failure in a row; the next one is permanent.
BACKOFFS_MS: Final = (1_000, 2_000, 4_000)


class BackOff:
    """Carries out no order to lead for a while.

    Args:
        order: the one that has failed.
        earlier: the pause within which a stop has failed, which does not become shorter.
    """

    def __init__(self, order: Order, delay_ms: float, clock: Clock, earlier: "BackOff | None") -> None:
        self.order = order
        self._clock = clock
        end_ms = clock.monotonic_ms() + delay_ms
        self._end_ms: float = end_ms if earlier is None else max(end_ms, earlier._end_ms)

    @property
    def left_ms(self) -> float:
        return self._end_ms - self._clock.monotonic_ms()

    def end(self) -> None:
        self._end_ms = -math.inf

    def is_ended_by(self, order: Order | None) -> bool:
        """Whether a new order ends the pause: one to follow, a deletion, or a stop since the registration ends."""
        if isinstance(order, Stop):
            return order.deleted or order.leader_epoch == NO_EPOCH
        return isinstance(order, Follow)
