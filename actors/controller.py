"""The controller's event loop: handles one event completely before the next.

`handlers` has a handler for each kind of event. The loop decides nothing that a machine could decide; it waits for the
machines and the store only, never for a broker.

Small events are handled between two chunks of a large one; see `priority_inbox`.

Source: the classic controller's ControllerEventManager.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from kactl.actors.handlers.base import ControllerContext
from kactl.actors.handlers.controllership import CONTEST_BACKOFF_MS
from kactl.actors.handlers.registry import AllHandlers
from kactl.actors.machines.topic_settings import Unclean
from kactl.actors.priority_inbox import Timers
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.events import (
    ControllerState,
    Event,
    LeaderAndIsrResponseReceived,
    Priority,
    Startup,
    WriteFailure,
)
from kactl.model.errors import ControllerMoved, IllegalState, KactlError, NotController, SessionExpired, StoreError
from kactl.runtime.clock import Clock
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.telemetry.event_record import EventRecord
from kactl.telemetry.event_records import EventRecords
from kactl.telemetry.metrics import Telemetry

from .actor import TURN_MS, Actor
from .priority_inbox import PriorityInbox
from .watcher import RECORDED

log = logger(__name__)

# Attempts to handle an event while the store fails temporarily, and the first pause; each further one is twice as long.
STORE_TRIES: Final = 4
STORE_BACKOFF_MS: Final = 200
# The pause before an abandoned event is handled again: its change may not be notified a second time.
RETRY_LATER_MS: Final = 10_000
# The pause before another attempt to start.
START_AGAIN_MS: Final = 5_000
# At a yield point small events may take this many times as long as the large event ran since the one before.
PREEMPTION_SHARE: Final = 4

# A store that elects a leader of its own needs a few seconds; after that, somebody has to look.
LATE_MS: Final = 5_000


class ControllerLoop(Actor[Event]):
    """Event loop of the controller. It owns the cluster, and lends it to one machine at a time.

    Args:
        inbox: its inbox, which `context.preemption` shares.
        unclean: the permission of unclean elections, which events change.
    """

    def __init__(
        self, context: ControllerContext, inbox: PriorityInbox[Event], *, telemetry: Telemetry, unclean: Unclean
    ) -> None:
        self.inbox: PriorityInbox[Event]
        super().__init__("controller", inbox=inbox, now=context.clock.monotonic_ms)
        self.preemption = context.preemption
        self.preemption.run_small_events = self._run_small_events
        self.context = context
        self.cluster = context.cluster
        self.store = context.store
        self.clock = context.clock
        self.telemetry = telemetry
        self.state = ControllerState.IDLE
        # No process handles an event per microsecond, so ids keep rising over restarts.
        first = context.clock.now_ms() * 1000
        self.events = EventRecords(
            context.cluster.controller_id, context.history, context.clock, telemetry, first=first
        )
        self._resumed_ms = 0.0  # when the event in progress began, or was last preempted
        self._over: Exception | None = None  # the error of a small event that ends the large one
        self.retries = Timers(context.clock, self.inbox.put_once)
        self._conditions = Conditions(log, context.clock.monotonic_ms)
        self._late_start = LateStart(context.cluster.controller_id, context.clock)
        handlers = AllHandlers(context, unclean=unclean, retry_later=self._retry_later)
        self.controllership = handlers.controllership
        self.failover = handlers.failover
        self.hosting = handlers.hosting
        self.standby = handlers.standby
        self._handlers = handlers.by_kind

    @property
    def is_active(self) -> bool:
        return self.controllership.is_active

    @property
    def active_id(self) -> int | None:
        return self.controllership.active_id

    @property
    def active_address(self) -> str:
        return self.controllership.active_address

    # -- one event -----------------------------------------------------------------------------------------------------

    async def receive(self, message: Event) -> Any:
        """Handle one event completely. After any error the controller is ready for the next event."""
        record = self.events.begin(
            message, self.inbox.waited_ms, self.inbox.origin, controller_epoch=self.cluster.fence.epoch
        )
        before, self.state = self.state, message.state
        recorded = self.context.history.seq
        self.preemption.begun(message.priority)
        if self.preemption.depth == 1:
            self._resumed_ms = self.clock.monotonic_ms()
        try:
            with record.in_use():
                return await self._receive(message, record)
        finally:
            self.state = before
            unchanged = type(message) in RECORDED and self.is_active and recorded == self.context.history.seq
            self.events.end(record, unchanged=unchanged)
            self.preemption.depth -= 1

    async def _receive(self, message: Event, record: EventRecord) -> Any:
        if not self.is_active and not message.on_standby:
            if message.asked:
                raise self._not_controller(message)
            self.standby.notified(message)
            return None
        try:
            if message.asked and record.origin.check is not None:
                record.origin.check()
            result = await self._handle(message)
            if isinstance(message, Startup):
                self._late_start.started()
            return result
        except ControllerMoved as moved:
            log.info("%s: %s", message.label, moved)
            record.error = moved
            if self.preemption.depth > 1:
                # The large event relies on the cluster: it ends first, and then this instance resigns.
                self._over = moved
                if message.asked:
                    raise self._not_controller(message, unknown=True) from moved
                return None
            await self.controllership.moved(refused=type(message) is not LeaderAndIsrResponseReceived)
            if message.asked:
                raise self._not_controller(message) from moved
        except Exception as error:
            record.error = error
            if isinstance(error, IllegalState) and self.preemption.depth > 1:
                self._over = error
            elif isinstance(error, IllegalState) and self.is_active:
                # The state in memory is unreliable; the next controller reads all of it anew.
                await self.controllership.give_up(f"what should not be possible has happened: {error}")
            elif self.is_active and not self.controllership.ready:
                # The takeover has failed, and so has the resignation after it. No later event would repeat either.
                await self.controllership.give_up("taking over failed")
            if message.asked:
                raise
            starting = isinstance(message, Startup)
            if starting and isinstance(error, StoreError):
                self._late_start.failed(error)
            else:
                # A KactlError explains itself; other errors need the traceback.
                trace = None if isinstance(error, KactlError) else error
                self._conditions.add(
                    message.label, logging.ERROR, "%s was abandoned: %s", message.label, error,
                    kind=type(error).__name__, exc_info=trace,
                )  # fmt: skip
            if message.retry_later:
                later_ms = RETRY_LATER_MS if self.is_active else CONTEST_BACKOFF_MS
                self._retry_later(message, pause_ms=START_AGAIN_MS if starting else later_ms)
        finally:
            self.context.batch.clear()
            if self.cluster.has_retries:
                self._retry_later(WriteFailure())
        return None

    def _not_controller(self, asked: Event, *, unknown: bool = False) -> NotController:
        """Returns the error for the caller of `asked`, which names the active controller.

        Args:
            unknown: the active controller is not known yet.
        """
        refusal = asked.not_controller if isinstance(asked, ControllerRequest) else NotController
        return refusal() if unknown else refusal(self.active_id, self.active_address)

    async def _handle(self, event: Event) -> Any:
        """Handle an event. One that only requests a read is retried while the store fails temporarily."""
        handler = self._handlers[type(event)]
        for attempt in range(STORE_TRIES - 1):
            try:
                result = await handler(event)
            except ControllerMoved:
                raise
            except StoreError as failed:
                if event.asked or isinstance(failed, SessionExpired):
                    raise
                pause_ms = STORE_BACKOFF_MS << attempt
                text = "%s: %s; trying again in %d ms"
                self._conditions.add(event.label, logging.WARNING, text, event.label, failed, pause_ms, kind="retry")
                self.context.batch.clear()
                await self.clock.sleep_ms(pause_ms)
            else:
                self._conditions.end(event.label, "%s succeeds again", event.label)
                return result
        return await handler(event)

    # -- small events in the middle of a large one ---------------------------------------------------------------------

    async def _run_small_events(self) -> None:
        began_ms = yielded_ms = self.clock.monotonic_ms()
        share_ms = PREEMPTION_SHARE * (began_ms - self._resumed_ms)
        waiting = len(self.inbox.in_lane(Priority.HIGH)) + len(self.inbox.in_lane(Priority.LOW))
        # Events that these bring about are left for the next yield point.
        for _ in range(waiting):
            taken = self.inbox.take_from(Priority.HIGH, Priority.LOW) if self.preemption.is_allowed() else None
            if taken is None:
                break
            await self._one(*taken)
            over, self._over = self._over, None
            if over is not None:
                raise over
            now_ms = self.clock.monotonic_ms()
            if now_ms - began_ms >= share_ms:
                break
            if now_ms - yielded_ms >= TURN_MS:
                await asyncio.sleep(0)
                yielded_ms = now_ms
        self._resumed_ms = self.clock.monotonic_ms()

    # -- retries and the end ------------------------------------------------------------------------------------------

    def _retry_later(self, event: Event, *, pause_ms: float = RETRY_LATER_MS) -> None:
        """Queue an abandoned event again after a pause; the read that it requests may also set the next watch."""
        # An event that fails repeatedly is scheduled only once at a time.
        if not self.retries.is_set(event):
            self.retries.set(event, pause_ms)

    async def run(self) -> None:
        """Handle events until cancelled; nothing is sent after that."""
        try:
            await super().run()
        except asyncio.CancelledError:
            self.controllership.active_id = None
            self.controllership.resign("the instance was stopped")
            raise
        finally:
            self.retries.cancel_all()

    def clear_and_put(self, event: Event) -> None:
        """Clear the inbox, raise NotController for the waiting requests, and queue `event`.

        For the end of a session: no event of the old session may be handled under the new one.
        """
        self._preempt()
        self.inbox.put(event)

    async def clear_and_ask(self, event: Event) -> Any:
        """Do the same and return the result of `event`. For the end of the instance."""
        self._preempt()
        return await self.ref.ask(event)

    def _preempt(self) -> None:
        """Drop all waiting events, and raise NotController for those that are requests."""
        drained = self.inbox.drain()
        self.events.preempted(entry.message for entry in drained)
        for message, reply_to, *_ in drained:
            if reply_to is not None and not reply_to.done():
                reply_to.set_exception(self._not_controller(message))


def inbox_of(now: Callable[[], float]) -> PriorityInbox[Event]:
    """Returns an inbox for a controller."""
    return PriorityInbox("controller", now=now, lane=_lane_of)


def _lane_of(event: Event) -> int:
    return event.priority


class LateStart:
    """Reports failed attempts to start: the first ones as warnings, then an error once a minute."""

    def __init__(self, node_id: int, clock: Clock) -> None:
        self._node_id = node_id
        self._clock = clock
        self._began_ms: float | None = None
        self._conditions = Conditions(log, clock.monotonic_ms)

    def failed(self, error: StoreError) -> None:
        """Report a failed attempt."""
        now_ms = self._clock.monotonic_ms()
        if self._began_ms is None:
            self._began_ms = now_ms
        if now_ms - self._began_ms < LATE_MS:
            text = "controller %d cannot start yet, and tries again: %s"
            self._conditions.add("", logging.WARNING, text, self._node_id, error)
        else:
            text, late_s = "controller %d has not started for %.0f s: %s", (now_ms - self._began_ms) / 1000
            self._conditions.add("", logging.ERROR, text, self._node_id, late_s, error, kind="late")

    def started(self) -> None:
        """Forget the failed attempts."""
        self._conditions.end("", "controller %d has started", self._node_id)
        self._began_ms = None
