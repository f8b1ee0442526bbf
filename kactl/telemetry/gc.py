"""Python's garbage collector, kept out of the way of events.

By itself it runs whenever enough objects have been made, which is in the middle of the work that makes them: for a
cluster of many topics a full run takes tens of milliseconds, and it comes just when leaders are waited for. Here it
runs between events instead, while nothing waits. And what a takeover has loaded is put aside once (`gc.freeze`): it
stays for as long as the controllership, and is not looked through any more.

It is one for the whole process. So an embedding program decides for itself; `kactl` does so in processes of
its own.
"""

import gc
from collections.abc import Callable
from typing import Final

from kactl.runtime.clock import Clock

# Interval of the checks. A hostile crowd makes some ten thousand objects in 100 ms.
INTERVAL_MS: Final = 25
# Number of new objects that justifies a collection; a young collection of so many takes a few milliseconds at most.
YOUNG_WORTH: Final = 5_000
# New objects for which not even events are waited for. The takeover of 100,000 partitions makes fewer. A collection of
# so many takes up to 20 ms, and up to 50 ms if all of them are garbage.
YOUNG_MAX: Final = 20_000
# Objects that have survived young collections, for which the next older collection is due.
AGED_MAX: Final = 20_000
# Younger collections before the next older one; Python's own number.
OLDER_AFTER: Final = 10
# A full collection waits until there were no events for this time, and no longer than for so many younger ones: in a
# cluster without a quiet second, garbage that has survived these would stay forever.
CALM_MS: Final = 1_000
FULL_AFTER: Final = 100


class Collector:
    """Runs the garbage collector while no event is handled.

    Args:
        busy: whether an event is being handled, or waits.
        epoch: changes with each takeover; the objects that exist then are frozen as soon as there is time.
    """

    def __init__(self, clock: Clock, *, busy: Callable[[], bool], epoch: Callable[[], int]) -> None:
        self._clock = clock
        self._busy = busy
        self._epoch = epoch
        self._settled = epoch()
        self._calm_since_ms: float | None = None
        self._aged = 0  # objects that have survived young collections, since the last older one

    async def run(self) -> None:
        """Collect in place of Python's own schedule, until cancelled; then Python's schedule is restored."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            while True:
                await self._clock.sleep_ms(INTERVAL_MS)
                self.rest()
        finally:
            gc.unfreeze()
            if was_enabled:
                gc.enable()

    def rest(self) -> None:
        """Collect now if it is worthwhile."""
        young, younger, older = gc.get_count()
        if self._busy():
            self._calm_since_ms = None
            if young >= YOUNG_MAX:
                self._collect_young()
            return
        now_ms = self._clock.monotonic_ms()
        if self._calm_since_ms is None:
            self._calm_since_ms = now_ms
        calm = now_ms - self._calm_since_ms >= CALM_MS
        epoch = self._epoch()
        if calm and epoch != self._settled:
            self._settled = epoch
            # Garbage of the previous controllership may be among the frozen objects.
            gc.unfreeze()
            self._collect_older(2)
            gc.freeze()
        elif older >= (OLDER_AFTER if calm else FULL_AFTER):
            self._collect_older(2)
        elif younger >= OLDER_AFTER:
            self._collect_older(1)
        elif young >= YOUNG_WORTH:
            self._collect_young()

    def _collect_young(self) -> None:
        """Collect new objects, and with them the survivors of earlier collections if these are many."""
        if self._aged >= AGED_MAX:
            self._collect_older(1)
        else:
            self._aged += len(gc.get_objects(generation=0)) - gc.collect(0)

    def _collect_older(self, generation: int) -> None:
        gc.collect(generation)
        self._aged = 0
