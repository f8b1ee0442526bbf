"""Small events in the middle of a large one.

The controller handles one event to its end before the next. One that concerns a hundred thousand partitions takes a
while, and whoever asks for a single election meanwhile would wait for all of it. So a large event is held up between
two of its chunks: nothing of it is on its way then, what it has decided is kept, applied and sent, and of the rest
nothing was begun. To whatever is handled now it is as if the rest had not been looked at yet; and the rest is gathered
anew afterwards, and what was decided meanwhile is not decided again.

    BrokersChanged    chunk 1, 2 ┐                     ┌ chunk 3, 4 ...
    ElectionRequested            └ to its end ─ answer ┘

What may be handled so says its `priority`; see `kactl.messages.events.Priority`. How long it may take all together is
bounded, so that a flood of small events
delays the large one, and does not starve it: four times as long as the large one took since it
was last held up, so that at least a fifth of the time is its own; but one event at least. Under any lesser load they
are all handled, since a small event may well be a write that is forced to disk, as a chunk is.
"""

from collections.abc import Awaitable, Callable


def never() -> bool:
    return False


async def _nothing() -> None:
    """There is no loop that could hold anything."""


class Preemption:
    """What a handler of a large event knows of it. Given by the loop; without one there is never anything to hold for.

    Attributes:
        is_brisk: whether small events have come lately, so that more of them are likely.
        is_due: whether a small event waits that should not wait any longer.
        hold: handle small events; to be called where nothing is on its way. Raises what ended the controllership, or
            must end it: the large event is over then.
    """

    def __init__(self) -> None:
        self.is_high_rate: Callable[[], bool] = never
        self.is_due: Callable[[], bool] = never
        self.yield_point: Callable[[], Awaitable[None]] = _nothing
