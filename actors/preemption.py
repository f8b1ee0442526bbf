"""Preemption: small events are handled in the middle of a large one.

The controller handles one event completely before the next starts. An event that concerns a hundred thousand partitions
takes long, and a request for a single election would wait for all of it. A large event therefore yields between two of
its chunks, at explicit yield points (`ControllerContext.yield_point`). Nothing of it is in flight there: what it has
decided is committed, applied and sent, and of the rest nothing was begun. A small event finds the cluster as if the
rest had not been looked at yet. Afterwards the rows of the rest are read anew, so that nothing is decided twice.

    BrokersChanged    chunk 1, 2 ┐                     ┌ chunk 3, 4 ...
    ElectionRequested            └ handled ─ response  ┘

The `priority` of an event determines whether it may preempt; see `kactl.decide.messages.events.Priority`. The time of
small events is bounded, so that a flood of them delays the large event without starving it: at one yield point they
may take four times as long as the large event ran since the one before, so that at least a fifth of the time is its
own. At least one event is handled at each. Under any lower load all of them are handled, since a small event may well
be a write that is forced to disk, as a chunk is.
"""


class Preemption:
    """Preemption of the event in progress; this one never occurs. The controller has its own."""

    def is_due(self) -> bool:
        """Returns whether a small event waits that should not wait any longer."""
        return False

    def is_high_rate(self) -> bool:
        """Returns whether small events have arrived lately, so that more are likely."""
        return False

    async def run_small_events(self) -> None:
        """Handle small events that wait. To be called where nothing of the large event is in flight.

        Raises:
            ControllerMoved, IllegalState: a small event ended the controllership, or must end it. The large event is
                over.
        """


NEVER = Preemption()
