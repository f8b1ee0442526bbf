"""Calls of a listener: in order, one at a time, and bounded in time.

    a plain function       runs inline
    an asynchronous one    runs in a task, for `limit_ms` at most; then it is cancelled and counts as failed
    cancelled, and alive   after another `margin_ms` it is stuck: the partition gets no other call until it has ended

A call that leads is cancelled when the lease ends, so that `stopped` is called in time. The remaining calls of the same
request are deferred to the next lease.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.lowlevel
import numpy as np

from kactl.decide.messages.control import Shorts
from kactl.decide.state.rows import Bools
from kactl.model import TopicPartition
from kactl.model.errors import ErrorCode
from kactl.runtime.clock import Clock
from kactl.runtime.conditions import FailureLog
from kactl.runtime.logs import logger
from kactl.stores.base import Names

from .handlers.phase import Phase, StartTask
from .handlers.waiting import Signal

log = logger(__name__)

# The event loop runs other tasks after this many calls: the session must be kept alive meanwhile.
CALLS_PER_TURN: Final = 1_000
# Until the first lease is known.
_MARGIN_MS: Final = 1_000.0

Call = Callable[[TopicPartition, int], Awaitable[None] | None]


class ListenerCalls:
    """The calls of one participant's listener, in all its registrations.

    Args:
        limit_ms: time limit of each asynchronous call.

    Attributes:
        margin_ms: time for a cancelled call to end.
    """

    def __init__(self, clock: Clock, *, limit_ms: float) -> None:
        self.margin_ms = _MARGIN_MS
        self._limit_ms = limit_ms
        self._signal = Signal(clock)
        self._start: StartTask | None = None
        self._stuck: dict[TopicPartition, Phase] = {}
        self._leads = False  # the calls in progress need the lease
        self._lease_is_over = False

    def open(self, start: StartTask) -> None:
        """Run all asynchronous calls by `start` from now on."""
        self._start = start
        self._failures = FailureLog(log)

    def lease_ended(self) -> None:
        """Cancel a call that leads."""
        if self._leads:
            self._lease_is_over = True
            self._signal.set()

    async def run(self, call: Call, names: Names, chosen: Bools, error: Shorts, *, leads: bool = False) -> Bools:
        """Call `call` for each chosen row in order, with its name and its position.

        If a call raises or takes too long, the row's error in int16[n] `error` is set to KAFKA_STORAGE_ERROR, and the
        row is not chosen any more.

        Args:
            leads: the calls need the lease.

        Returns:
            bool[n]: chosen rows without a call, because the lease has ended.
        """
        deferred = np.zeros(len(chosen), np.bool_)
        self._leads, self._lease_is_over = leads, False
        try:
            positions = np.flatnonzero(chosen).tolist()
            for count, (position, name) in enumerate(zip(positions, names.take(chosen), strict=True), start=1):
                if self._lease_is_over:
                    deferred[positions[count - 1 :]] = True
                    break
                try:
                    await self._call(call, name, position)
                except Exception as failure:
                    text = "the listener failed for %s: the request is not carried out for this partition"
                    self._failures.add(logging.ERROR, failure, text, name)
                    error[position] = ErrorCode.KAFKA_STORAGE_ERROR
                    chosen[position] = False
                if count % CALLS_PER_TURN == 0:
                    await anyio.lowlevel.checkpoint()
        finally:
            self._leads = False
        return deferred

    async def _call(self, call: Call, name: TopicPartition, position: int) -> None:
        stuck = self._stuck.get(name)
        if stuck is not None and not stuck.ended:
            raise TimeoutError("an earlier call of this partition ignores its cancellation: restart the process")
        self._stuck.pop(name, None)
        pending = call(name, position)
        if pending is not None:
            await self._finish(name, pending)

    async def _finish(self, name: TopicPartition, pending: Awaitable[None]) -> None:
        """Wait for the end of an asynchronous call.

        Raises:
            TimeoutError: it took too long, and was cancelled.
            Exception: what it raised.
        """
        assert self._start is not None
        phase = Phase(lambda: pending, self._signal.set, f"a call of the listener for {name}", is_last=True)
        self._start(phase.run)
        in_time = False
        try:
            in_time = await self._signal.wait_for(lambda: phase.ended or self._lease_is_over, self._limit_ms)
        finally:
            if not phase.ended:
                await self._cancel(name, phase)
        if phase.error is not None:
            raise phase.error
        if not in_time:
            raise TimeoutError(f"the call has taken more than {self._limit_ms:.0f} ms (transition_timeout_ms)")

    async def _cancel(self, name: TopicPartition, phase: Phase) -> None:
        phase.cancel()
        with anyio.CancelScope(shield=True):
            if not await self._signal.wait_for(lambda: phase.ended, self.margin_ms):
                self._stuck[name] = phase
                log.error(
                    "a call of the listener for %s ignores its cancellation: the partition gets no other call", name
                )
