"""Preemption: small events are handled in the middle of a large one.

The controller handles one event completely before the next starts. An event that concerns a hundred thousand partitions
takes long, and a request for a single election would wait for all of it. A large event therefore yields between two of
its chunks, at explicit yield points (`ControllerContext.yield_point`). Nothing of it is in flight there: what it has
decided is committed, applied and sent, and of the rest nothing was begun. A small event finds the cluster as if the
rest had not been looked at yet. Afterwards the rows of the rest are read anew, so that nothing is decided twice.

    BrokerChange    chunk 1, 2 ┐                     ┌ chunk 3, 4 ...
    ReplicaLeaderElection            └ handled ─ response  ┘

The `priority` of an event determines whether it may preempt; see `kactl.decide.messages.events.Priority`. The time of
small events is bounded, so that a flood of them delays the large event without starving it: at one yield point they
may take four times as long as the large event ran since the one before, so that at least a fifth of the time is its
own. At least one event is handled at each. Under any lower load all of them are handled, since a small event may well
be a write that is forced to disk, as a chunk is.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from kactl.decide.messages.events import Priority

from .priority_inbox import PriorityInbox

# Responses of brokers preempt a large event only after this time: its next chunk is not planned before they are
# handled, though the store could be writing it meanwhile.
BETWEEN_AFTER_MS: Final = 100
# Small events are expected for this long after the last one.
HIGH_RATE_MS: Final = 1_000.0


async def _nothing() -> None: ...


class Preemption:
    """Preemption of the event in progress, which the controller's loop and its machines share.

    Args:
        inbox: the controller's; None if no event is ever preempted.
        now: the monotonic clock, in ms.

    Attributes:
        is_ready: the takeover is complete. Nothing preempts one.
        depth: number of events in progress: 0, 1, or 2 while a small one preempts a large one.
        run_small_events: handles small events that wait. To be called where nothing of the large event is in flight.
            Raises ControllerMoved or IllegalState if a small event ended the controllership, or must end it. The large
            event is over.
    """

    def __init__(self, inbox: PriorityInbox[Any] | None = None, now: Callable[[], float] = lambda: 0.0) -> None:
        self._inbox = inbox
        self._now = now
        self._small_ms = -HIGH_RATE_MS
        self.is_ready = False
        self.depth = 0
        self.run_small_events: Callable[[], Awaitable[None]] = _nothing

    def begun(self, priority: Priority) -> None:
        """Note the begin of an event."""
        self.depth += 1
        if priority is Priority.HIGH:
            self._small_ms = self._now()

    def is_due(self) -> bool:
        """Returns whether a small event waits that should not wait any longer."""
        inbox = self._inbox
        if inbox is None or not (inbox.in_lane(Priority.HIGH) or inbox.oldest_ms_in(Priority.LOW) >= BETWEEN_AFTER_MS):
            return False
        return self.is_allowed()

    def is_allowed(self) -> bool:
        """Returns False during a takeover and during a small event, and if the end of the controllership waits, which
        nothing may overtake."""
        if self._inbox is None or self.depth != 1 or not self.is_ready:
            return False
        return not any(entry.message.on_standby for entry in self._inbox.in_lane(Priority.EXCLUSIVE))

    def is_high_rate(self) -> bool:
        """Returns whether small events have arrived lately, so that more are likely."""
        return self._now() - self._small_ms < HIGH_RATE_MS


# For controllers and machines that handle each event as a whole.
NEVER: Final = Preemption()
