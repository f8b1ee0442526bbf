"""The calls of one handler, in tasks of their own: slots, time limits, and cancellations.

    slot ──▶ call ──it returns or raises──▶ result
               └──cancelled──▶ it ends within the margin ──▶ result
                                     └──it does not──▶ CallStuck

`PartitionActor` decides when a call is cancelled and what follows from its result. It makes one call at a time.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from kactl.model import TopicPartition

from .environment import Environment
from .phase import Phase
from .waiting import Signal

# A bounded call that takes longer is reported, so that an operator sees what a partition waits for.
BUSY_MS: Final = 1_000.0

Call = Callable[[], Awaitable[object]]


class CallStuck(Exception):
    """A call was cancelled and has not ended within the margin."""


class CallTooLong(TimeoutError):
    """A bounded call was cancelled at its time limit."""


class HandlerCalls:
    """Makes the calls of one handler, of which at most one is in progress.

    Args:
        signal: wakes the actor, which makes the calls.
        on_cancel: called when a call that has not ended is cancelled, before the wait for its end.
    """

    def __init__(
        self, name: TopicPartition, environment: Environment, signal: Signal, on_cancel: Callable[[], None]
    ) -> None:
        self._name = name
        self._environment = environment
        self._signal = signal
        self._on_cancel = on_cancel
        self._phase: Phase | None = None

    async def bounded(
        self, call: Call, what: str, is_cancelled: Callable[[], bool], on_busy: Callable[[], None]
    ) -> Exception | None:
        """Make a call with a time limit, as soon as there is a slot.

        Args:
            is_cancelled: cancels the call once it is true, also before the call has begun.
            on_busy: called if the call takes longer than BUSY_MS.

        Returns:
            what the call raised, or CallTooLong if it was cancelled at the time limit; otherwise None.

        Raises:
            CallStuck: it ignores its cancellation.
        """
        slots, limit_ms = self._environment.slots, self._environment.transition_timeout_ms
        if not await slots.take(self._signal, is_cancelled):
            return None
        try:
            phase = self.begin(call, what)
            in_time = await self._signal.wait_for(lambda: phase.ended or is_cancelled(), min(BUSY_MS, limit_ms))
            if not in_time and limit_ms > BUSY_MS:
                on_busy()
                in_time = await self._signal.wait_for(lambda: phase.ended or is_cancelled(), limit_ms - BUSY_MS)
            await self.end(phase)
        finally:
            slots.release()
        if not in_time and phase.error is None:
            return CallTooLong(f"has taken more than {limit_ms:.0f} ms")
        return phase.error

    def begin(self, call: Call, what: str) -> Phase:
        """Begin a call without a time limit. The caller waits for its own conditions, and then calls `end`.

        Args:
            what: the name of the call.
        """
        phase = self._phase = Phase(call, self._signal.set, f"{what} of {self._name}", is_last=what == "stop")
        self._environment.start(phase.run)
        return phase

    async def end(self, phase: Phase) -> None:
        """Cancel a call that has not ended, and wait for its end.

        Raises:
            CallStuck: it has not ended within the margin. It is still the call in progress.
        """
        if not phase.ended:
            self._on_cancel()
            phase.cancel()
            if not await self._signal.wait_for(lambda: phase.ended, self._environment.margin_ms):
                raise CallStuck
        self._phase = None

    def cancel(self) -> None:
        """Cancel the call in progress, if there is one, and do not wait for its end."""
        if self._phase is not None:
            self._phase.cancel()

    async def wait(self) -> None:
        """Wait until no call is in progress."""
        if (phase := self._phase) is not None:
            await self._signal.wait(lambda: phase.ended)
            self._phase = None
