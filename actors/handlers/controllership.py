"""Controllership: contest, takeover, resignation.

Only this module decides whether this instance is the active controller. Resigning never fails and drops every queued
request.

Source: the classic controller's KafkaController.
"""

import logging
from typing import Final, Protocol

import msgspec

from kactl.actors.machines.topic_settings import Unclean
from kactl.actors.priority_inbox import Timers
from kactl.decide.messages.admin import ReleaseController, ResignController
from kactl.decide.messages.events import ControllerChange, Event, Expire, Reelect, RegisterBrokerAndReelect, Startup
from kactl.decide.messages.log import ControllerEvent
from kactl.model import ControllerRecord, Order
from kactl.model.errors import ControllerMoved, StaleEpoch, StoreError
from kactl.runtime.conditions import FailureLog
from kactl.runtime.logs import logger
from kactl.telemetry.terms import Controllerships

from .base import ControllerContext, Handler, Handlers
from .failover import Failover, Held
from .standby import Standby

log = logger(__name__)

# The pause before contesting again after a takeover, a resignation or a read of the controller record that failed, so
# that a lasting failure does not spin. Perhaps no instance is the controller meanwhile.
CONTEST_BACKOFF_MS: Final = 1000
# An instance that is held contests after this time without a controller. Others contest at once, or after the pause
# above; sessions of participants, of nine seconds unless they choose another time, outlast it.
VACANT_MS: Final = 3000


class RetryLater(Protocol):
    """Queues an event again after a pause."""

    def __call__(self, event: Event, *, pause_ms: float = ...) -> None: ...


class Controllership(Handlers):
    """Contests for the controllership, takes over and resigns.

    Args:
        retry_later: queues an event again if the store cannot be read now.
        standby: keeps a copy of the cluster while another instance is the controller.
        timers: cancelled on resignation.
        unclean: its stored default is reset on resignation.
    """

    def __init__(
        self,
        context: ControllerContext,
        failover: Failover,
        *,
        retry_later: RetryLater,
        standby: Standby,
        timers: Timers,
        unclean: Unclean,
    ) -> None:
        super().__init__(context)
        self.active_id: int | None = None  # the active controller, as last read
        self.elections_won = 0
        self.terms = Controllerships()
        self.stopping = False
        self._failover = failover
        self._retry_later = retry_later
        self._standby = standby
        self._timers = timers
        self._take_over = context.settings.take_over
        # Whether the store may name this instance under an unknown epoch: an election or a resignation got no response.
        self._perhaps_named = False
        self._unclean = unclean
        self._seen: ControllerRecord | None = None  # as last read
        self._is_held = False  # as last known; the store has the hold
        self._failures = FailureLog(log, self.clock.monotonic_ms)
        self._vacant_ms: float | None = None  # monotonic; since when a held instance has seen no controller

    @property
    def active_address(self) -> str:
        """Where the active controller listens for participants; empty if it is not known."""
        known = self._seen
        return "" if known is None or known.id != self.active_id else known.address

    @property
    def ready(self) -> bool:
        """Whether this instance is active, and its takeover is complete."""
        return self.context.preemption.is_ready

    @property
    def is_active(self) -> bool:
        return self.active_id == self.cluster.controller_id and self.cluster.fence.epoch > 0

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            Startup: self.on_startup,
            ControllerChange: self.on_controller_change,
            Reelect: self.on_reelect,
            Expire: self.on_expire,
            RegisterBrokerAndReelect: self.on_register_broker_and_reelect,
            ResignController: self.on_resign_controller,
            ReleaseController: self.on_release_controller,
        }

    # -- events --------------------------------------------------------------------------------------------------------

    async def on_startup(self, event: Startup) -> None:
        await self._contest()

    async def on_controller_change(self, event: ControllerChange) -> None:
        await self._maybe_resign()
        if self.active_id in (None, self.cluster.controller_id):
            # The holder was gone again before it was read, or the record names this instance under an unknown epoch.
            await self._contest()

    async def on_reelect(self, event: Reelect) -> None:
        await self._maybe_resign()
        await self._contest()

    async def on_expire(self, event: Expire) -> None:
        # An election that was in progress may have been won in the next session.
        self.active_id, self._perhaps_named = None, True
        self._standby.forget()
        self.resign("the session with the store was lost")

    async def on_register_broker_and_reelect(self, event: RegisterBrokerAndReelect) -> None:
        await self._maybe_resign()
        await self._contest()

    async def on_resign_controller(self, event: ResignController) -> None:
        self.stopping |= event.stop
        if event.expected_epoch is not None and event.expected_epoch != self.epoch:
            raise StaleEpoch("expected_epoch", expected=event.expected_epoch, present=self.epoch)
        if not self.is_active:
            return
        self.check_until(event.until_ms)
        cause = "asked to resign"
        if event.hold:
            hold = Order(self.clock.now_ms(), event.until_ms, event.by, event.reason)
            await self._write_holds({**self.cluster.maintenance.holds, self.cluster.controller_id: hold})
            self._is_held = True
            cause += f", and held {hold}"
        await self.give_up(cause)

    async def on_release_controller(self, event: ReleaseController) -> bool:
        holds = dict(self.cluster.maintenance.without_past(self.clock.now_ms()).holds)
        was_held = holds.pop(event.controller_id, None) is not None
        if was_held and not event.dry_run:
            await self._write_holds(holds)
            log.info("instance %d is not held any more", event.controller_id)
        return was_held

    async def _write_holds(self, holds: dict[int, Order]) -> None:
        maintenance = msgspec.structs.replace(self.cluster.maintenance, holds=dict(sorted(holds.items())))
        await self.write_maintenance(maintenance)

    async def _contest(self) -> None:
        """Take the controllership if no instance holds it, and take over the cluster.

        The first contest takes it from its holder if `Settings.take_over` is set. It is also taken from this instance
        itself if an election or a resignation got no response: no instance would ever act under that epoch.
        """
        if self.stopping or self.is_active:
            return
        record = await self._look()
        self.active_id = record.id if record is not None else None
        ours = self._perhaps_named and self.active_id == self.cluster.controller_id
        take_over = self._take_over or ours
        if record is not None and not take_over:
            if record.id == self.cluster.controller_id:
                log.warning(
                    "controller %d is active%s, which is the id of this instance, too: it stands by. If that is not an "
                    "earlier process whose session has to end, choose another node_id for one of them",
                    record.id,
                    f" at {record.address}" if record.address else "",
                )
            else:
                log.info("controller %d is active; this instance stands by", record.id)
            self._standby.begin()
            return
        if record is None and not take_over and await self._leaves_to_others():
            return
        # Neither for an order to take over, nor where no other instance has come, does a hold matter.
        yields = not self._take_over and self._vacant_ms is None
        # Until the store responds. ControllerMoved means that the record names another instance.
        self._perhaps_named = True
        try:
            fence = await self.store.contest(
                self.cluster.controller_id, take_over=take_over, address=self.context.address()
            )
        except ControllerMoved:
            self._perhaps_named = False
            raise
        self._perhaps_named = self._take_over = False
        self._vacant_ms = None
        self.cluster.fence = fence
        self.active_id = self.cluster.controller_id
        self.context.sessions.elected(fence)
        self.context.links.elected()
        self.history.outages.clear()
        self.elections_won += 1
        began_ms = self.clock.now_ms()
        self.terms.elected(epoch=fence.epoch, controller_id=self.active_id, now_ms=began_ms)
        try:
            await self._failover.take_over(yields=yields)
            self.context.preemption.is_ready = True
            self.history.add(
                ControllerEvent(
                    what="elected", controller_id=self.active_id, controller_epoch=fence.epoch, began_ms=began_ms
                )
            )
        except ControllerMoved:
            raise
        except Held as hold:
            self._is_held = True
            await self.give_up(f"this instance is held {hold}")
        except Exception as error:
            log.error(
                "taking over under epoch %d failed, the controllership is given up: %s", fence.epoch, error,
                # An error of the store is no bug of the controller: its message is enough.
                exc_info=not isinstance(error, StoreError),
            )  # fmt: skip
            await self.give_up("taking over failed")
            await self.clock.sleep_ms(CONTEST_BACKOFF_MS)

    async def _leaves_to_others(self) -> bool:
        """Returns whether this instance is held and does not contest now. It does once no other has for a while."""
        if not self._is_held:
            return False
        now_ms = self.clock.monotonic_ms()
        maintenance = (await self.store.membership()).maintenance.without_past(self.clock.now_ms())
        hold = maintenance.holds.get(self.cluster.controller_id)
        self._is_held = hold is not None
        if hold is None:
            self._vacant_ms = None
            return False
        if self._vacant_ms is None:
            self._vacant_ms = now_ms
            log.info("this instance leaves the controllership to others: it is held %s", hold)
        rest_ms = self._vacant_ms + VACANT_MS - now_ms
        if rest_ms > 0:
            self._retry_later(Reelect(), pause_ms=rest_ms)
            return True
        log.warning(
            "no other instance has become the controller: this one contests, although it is held %s. To end the hold: "
            "kactl controller release %d", hold, self.cluster.controller_id,
        )  # fmt: skip
        return False

    async def moved(self, *, refused: bool) -> None:
        """Verify a sign that another instance is the controller, and resign if it is. Never raises.

        Args:
            refused: the store rejected the fence. It is useless then even if the record still names this instance:
                queued requests are dropped before the record is read.
        """
        refused = refused and self.is_active
        if refused:
            self.active_id = None
            self.resign("the store rejects the fence: a later controller was elected")
        try:
            await self._maybe_resign()
        except Exception as error:
            text = "the active controller cannot be determined now"
            self._failures.add(logging.ERROR, error, text)
            self._perhaps_named |= refused
            self._retry_later(ControllerChange(), pause_ms=CONTEST_BACKOFF_MS)
        else:
            self._failures.end("the active controller is known again")
            if refused and self.active_id == self.cluster.controller_id:
                log.warning(
                    "the store rejects the fence but still names this instance; the controllership is taken again"
                )
                self.active_id, self._perhaps_named = None, True
                self._retry_later(Reelect(), pause_ms=CONTEST_BACKOFF_MS)

    async def _maybe_resign(self) -> None:
        """Read the controller record; resign if it no longer names this instance under the present epoch."""
        was_active = self.is_active
        record = await self._look()
        ours = record is not None and (record.id, record.epoch) == (
            self.cluster.controller_id,
            self.cluster.fence.epoch,
        )
        self.active_id = record.id if record is not None else None
        if was_active and not ours:
            if self.active_id == self.cluster.controller_id:
                # Under another epoch: a different instance with the same id.
                self.active_id = None
            self.resign("a later controller was elected" if record is not None else "the controllership was lost")
        if record is not None and not self.is_active:
            self._standby.begin()

    async def _look(self) -> ControllerRecord | None:
        """Returns the stored controller record, and adds it to the known terms."""
        record = self._seen = await self.store.controller()
        if record is not None:
            self._vacant_ms = None
        self.terms.seen(record, now_ms=self.clock.now_ms())
        return record

    async def give_up(self, cause: str) -> None:
        """Resign, and delete the stored record so that another instance can take over."""
        fence = self.cluster.fence
        self.active_id = None
        self.resign(cause)
        try:
            await self.store.resign(fence)
        except ControllerMoved as moved:
            log.info("another controller was elected meanwhile: %s", moved)
        except Exception as failed:
            # After any error: no other instance can take the controllership while the record names this one.
            log.warning(
                "the controllership ends with the store session, unless this instance takes it again: %r", failed
            )
            self._perhaps_named = True
            self._retry_later(Reelect(), pause_ms=CONTEST_BACKOFF_MS)

    async def abandon(self) -> None:
        """Resign after an internal error; never raises."""
        try:
            await self.give_up("an error ended the controller")
        except Exception as error:
            log.exception("%s", error)

    def resign(self, cause: str) -> None:
        """Stop being the controller: drop queued requests and the cluster's state. Never fails."""
        epoch = self.cluster.fence.epoch
        self.context.preemption.is_ready = False
        self.context.sessions.resigned()
        self._timers.cancel_all()
        self.channels.close()
        self.batch.clear()
        self.cluster.reset()
        self._unclean.stored = None
        if epoch:
            log.info("resigned from epoch %d: %s", epoch, cause)
            event = self.history.add(
                ControllerEvent(
                    what="resigned",
                    controller_id=self.cluster.controller_id,
                    cause=cause,
                    controller_epoch=epoch,
                    began_ms=self.terms.began_ms(epoch),
                )
            )
            self.terms.resigned(epoch=epoch, cause=cause, now_ms=event.time_ms)
