"""The orders of one replica that wait, and the deletion that has to succeed before the next replica is served.

    put ──▶ newest ──▶ current                        a newer order replaces one that waits, unless it is a deletion
              └──────▶ deletion ──▶ current ──▶ begun ──it succeeds──▶ none
                                       ▲          │
                                       └──again───┘ before the next order to lead or to follow

The next replica of the name may be of another topic, so it must not begin with the data of the earlier one.
"""

import dataclasses

from kactl.model import EPOCH_DURING_DELETE, NO_EPOCH

from .orders import Order, Stop


class OrderQueue:
    """The orders of one replica.

    Attributes:
        newest: the order that waits, after a deletion if there is one; a newer one replaces it.
        current: the order in progress, or the last one while none is.
        undeleted: the deletion that has begun and has not succeeded, to be made again.
    """

    def __init__(self) -> None:
        self.newest: Order | None = None
        self.current: Order | None = None
        self.undeleted: Stop | None = None
        self._deletion: Stop | None = None

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the newest order that waits or is in progress; NO_EPOCH if there is none."""
        order = self.newest or self.current
        return NO_EPOCH if order is None else order.leader_epoch

    @property
    def is_stopping(self) -> bool:
        """Whether the newest order stops the replica, and does not delete it."""
        order = self.newest or self.current
        return isinstance(order, Stop) and not order.deleted

    @property
    def has_deletion(self) -> bool:
        """Whether a deletion waits, with another order after it."""
        return self._deletion is not None

    def put(self, order: Order) -> Order | None:
        """Add an order. Returns the order that it replaces; None if there is none."""
        waiting, self.newest = self.newest, order
        if isinstance(waiting, Stop) and waiting.deleted and self._deletion is None and not _is_silent(order):
            self._deletion = waiting
            return None
        return waiting

    def take(self) -> Order | None:
        """Make the next order the current one, and return it; None if there is none.

        A deletion that has failed is made again before the next replica is served, and if its response did not contain
        the failure, so that the controller does not repeat it.
        """
        newest, deletion, undeleted = self.newest, self._deletion, self.undeleted
        if deletion is not None:
            self._deletion = None
            self.current = deletion
        elif undeleted is None or isinstance(newest, Stop):
            self.newest, self.current = None, newest
        elif newest is not None or undeleted.ticket.accepted:
            self.current = undeleted
        else:
            self.current = None
        return self.current

    def begin_deletion(self, order: Stop) -> None:
        """Repeat a deletion until it succeeds. It ends no leadership a second time, so it has no leader epoch."""
        self.undeleted = dataclasses.replace(order, leader_epoch=EPOCH_DURING_DELETE, begun=True)

    def clear(self) -> list[Order]:
        """Remove the orders that wait, and return them. A deletion among them has failed like one that has begun."""
        waiting = [order for order in (self._deletion, self.newest) if order is not None]
        self._deletion = self.newest = None
        for order in waiting:
            if isinstance(order, Stop) and order.deleted:
                self.begin_deletion(order)
        return waiting


def _is_silent(order: Order) -> bool:
    """Whether an order ends the calls of a handler without a call of `stop`."""
    return isinstance(order, Stop) and order.silent
