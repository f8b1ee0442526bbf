"""Interface of the objects that the actors of a participant's partitions share."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from kactl.decide.messages.broker import PartitionReport
from kactl.model import TopicPartition
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.lease import Lease
from kactl.participant.leases.watchdog import Watchdog
from kactl.runtime.clock import Clock
from kactl.runtime.conditions import FailureLog

from .handler import Follower, PartitionHandler
from .orders import Lead, Order
from .waiting import Slots


class Hosted(Protocol):
    """The actor of one partition."""

    name: TopicPartition

    @property
    def is_new(self) -> bool:
        """Whether another actor would be equal to this one, which has neither a handler nor failures."""


class Environment(Protocol):
    """What the actors of a participant share.

    Attributes:
        lease: the current lease; one that has ended while there is none.
        slots: bounds the transitions that run at once.
        margin_ms: time for a cancelled call to end.
    """

    clock: Clock
    lease: Lease
    slots: Slots
    transition_timeout_ms: float
    margin_ms: float
    watchdog: Watchdog
    failure_log: FailureLog

    def start(self, main: Callable[[], Coroutine[Any, Any, None]], /) -> None:
        """Start a task that lives as long as the participant."""

    def make(self, name: TopicPartition, /) -> PartitionHandler:
        """Returns a new handler; may raise anything."""

    def report(self, report: PartitionReport) -> None: ...

    def leads(self, leader: Leader, leads: bool, /) -> None:
        """Report that a leadership acts, under its present leader epoch, or that it does so no more."""

    def follows(self, follower: Follower, position: int, caught_up: bool, /) -> None:
        """Report the position of a followership to its leader."""

    def follower_at(self, leader: Leader, follower: int, position: int, /) -> None:
        """Note how far a follower of a leadership has copied."""

    def began(self, name: TopicPartition, order: Order) -> None:
        """Called once for each order that is not replaced, when the calls of earlier orders have ended."""

    def prepared(self, order: Lead) -> None:
        """Called when `prepare` has ended, for a leadership that waits for its release."""

    def replaced(self, order: Order) -> None:
        """Called for an order that was replaced before it began, or under which a leadership goes on."""

    def failed(self, name: TopicPartition, order: Order, *, had_begun: bool) -> None:
        """Called when an order has failed: no leadership is left."""

    def is_idle(self, actor: Hosted) -> None:
        """Called when no order of an actor is left."""
