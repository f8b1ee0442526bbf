"""The controllership: contesting for it, taking over, resigning.

Whether it is ours is known here and nowhere else. Resigning never fails, and leaves nothing that could still be sent.

Source: the classic controller's KafkaController.
"""

from typing import Final, Protocol

from kactl.actors.machines.unclean import Unclean
from kactl.errors import ControllerMoved, StaleEpoch
from kactl.messages.admin import ResignRequested
from kactl.messages.events import ControllerChanged, ControllerGone, Event, SessionLost, SessionOpened, Started
from kactl.messages.log import ControllerEvent
from kactl.model import ControllerRecord
from kactl.runtime.logs import logger
from kactl.telemetry.terms import Controllerships

from .base import ControllerContext, Handler, Handlers
from .failover import Failover
from .standby import Standby
from .timers import Timers

log = logger(__name__)

# The pause before contesting again after a takeover that failed, so that a lasting failure does not spin.
CONTEST_BACKOFF_MS: Final = 1000


class LookAgain(Protocol):
    """Puts an event down for later."""

    def __call__(self, event: Event, *, pause_ms: float = ...) -> None: ...


class Controllership(Handlers):
    """See the module.

    Args:
        look_again: where to put down what cannot be told now.
        standby: keeps a copy of the cluster while another instance is the controller.
        timers: what was to come by itself is called off there on resignation.
        unclean: what the store says of unclean elections is forgotten there on resignation.
    """

    def __init__(
        self,
        context: ControllerContext,
        failover: Failover,
        *,
        retry_later: LookAgain,
        standby: Standby,
        timers: Timers,
        unclean: Unclean,
    ) -> None:
        super().__init__(context)
        self.active_id: int | None = None  # who holds the controllership, as far as we know
        self.ready = False  # whether we are active and have taken over wholly
        self.elections_won = 0
        self.terms = Controllerships()
        self.stopping = False
        self._failover = failover
        self._look_again = retry_later
        self._standby = standby
        self._timers = timers
        self._take_over = context.settings.take_over
        # Whether the store may name us without our knowing the epoch: an election, or its end, got no answer.
        self._perhaps_named = False
        self._unclean = unclean

    @property
    def is_active(self) -> bool:
        return self.active_id == self.cluster.controller_id and self.cluster.fence.epoch > 0

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            Started: self.on_started,
            ControllerChanged: self.on_controller_changed,
            ControllerGone: self.on_controller_gone,
            SessionLost: self.on_session_lost,
            SessionOpened: self.on_session_opened,
            ResignRequested: self.on_resign_requested,
        }

    # -- what happens to it --------------------------------------------------------------------------------------------

    async def on_started(self, event: Started) -> None:
        await self._contest()

    async def on_controller_changed(self, event: ControllerChanged) -> None:
        await self._maybe_resign()
        if self.active_id in (None, self.cluster.controller_id):
            # It came and went before we looked, or names us and may have to be taken again.
            await self._contest()

    async def on_controller_gone(self, event: ControllerGone) -> None:
        await self._maybe_resign()
        await self._contest()

    async def on_session_lost(self, event: SessionLost) -> None:
        # An election that was going on meanwhile may have been won in the next session already.
        self.active_id, self._perhaps_named = None, True
        self._standby.forget()
        self.resign("the session with the store was lost")

    async def on_session_opened(self, event: SessionOpened) -> None:
        await self._maybe_resign()
        await self._contest()

    async def on_resign_requested(self, event: ResignRequested) -> None:
        self.stopping |= event.stop
        if event.expected_epoch is not None and event.expected_epoch != self.epoch:
            raise StaleEpoch("expected_epoch", expected=event.expected_epoch, present=self.epoch)
        if self.is_active:
            await self.give_up("asked to resign")

    async def _contest(self) -> None:
        """Take the controllership if nobody holds it, and everything that goes with it.

        It is taken from its holder at our first election, if we were told to; and from ourselves, if an election, or
        its end, got no answer: nobody would ever act under it.
        """
        if self.stopping or self.is_active:
            return
        record = await self._look()
        self.active_id = record.id if record is not None else None
        ours = self._perhaps_named and self.active_id == self.cluster.controller_id
        take_over = self._take_over or ours
        if record is not None and not take_over:
            log.info("controller %d is active; this instance stands by", record.id)
            self._standby.begin()
            return
        # Until the store says otherwise. ControllerMoved says that we are not named.
        self._perhaps_named = True
        try:
            fence = await self.store.contest(self.cluster.controller_id, take_over=take_over)
        except ControllerMoved:
            self._perhaps_named = False
            raise
        self._perhaps_named = self._take_over = False
        self.cluster.fence = fence
        self.active_id = self.cluster.controller_id
        self.elections_won += 1
        self.terms.elected(epoch=fence.epoch, controller_id=self.active_id, now_ms=self.clock.now_ms())
        try:
            await self._failover.take_over()
            self.ready = True
            self.history.add(
                ControllerEvent(what="elected", controller_id=self.active_id, controller_epoch=fence.epoch)
            )
        except ControllerMoved:
            raise
        except Exception as error:
            log.exception("taking over under epoch %d failed, the controllership is given up: %s", fence.epoch, error)
            await self.give_up("taking over failed")
            await self.clock.sleep_ms(CONTEST_BACKOFF_MS)

    async def moved(self, *, refused: bool) -> None:
        """Something said that another is the controller: see whether it is so. Never throws.

        Args:
            refused: the store said so, by refusing our fence, which then is of no use even if it still names us:
                whatever waits for brokers is dropped before anything else is asked.
        """
        refused = refused and self.is_active
        if refused:
            self.active_id = None
            self.resign("the store refuses our fence: a later controller was elected")
        try:
            await self._maybe_resign()
        except Exception as error:
            log.exception("who is the controller cannot be told now: %s", error)
            self._perhaps_named |= refused
            self._look_again(ControllerChanged())
        else:
            if refused and self.active_id == self.cluster.controller_id:
                log.warning("the store refuses our fence, and still names us; the controllership is taken again")
                self.active_id, self._perhaps_named = None, True
                self._look_again(ControllerGone(), pause_ms=CONTEST_BACKOFF_MS)

    async def _maybe_resign(self) -> None:
        """See who is the controller; if it no longer is us under our epoch, resign."""
        was_active = self.is_active
        record = await self._look()
        ours = record is not None and (record.id, record.epoch) == (
            self.cluster.controller_id,
            self.cluster.fence.epoch,
        )
        self.active_id = record.id if record is not None else None
        if was_active and not ours:
            if self.active_id == self.cluster.controller_id:
                # Under another epoch: an instance with our id, which is not us.
                self.active_id = None
            self.resign("a later controller was elected" if record is not None else "the controllership was lost")
        if record is not None and not self.is_active:
            self._standby.begin()

    async def _look(self) -> ControllerRecord | None:
        """Who is the controller, as the store has it; what is seen is remembered."""
        record = await self.store.controller()
        self.terms.seen(record, now_ms=self.clock.now_ms())
        return record

    async def give_up(self, cause: str) -> None:
        """Resign, and let the store say so, that somebody else may take over."""
        fence = self.cluster.fence
        self.active_id = None
        self.resign(cause)
        try:
            await self.store.resign(fence)
        except ControllerMoved as moved:
            log.info("somebody was faster: %s", moved)
        except Exception as failed:
            # Whatever it was: nobody else may take what the store still says is ours.
            log.warning("the controllership ends with our session, unless we take it again: %r", failed)
            self._perhaps_named = True
            self._look_again(ControllerGone())

    async def abandon(self) -> None:
        """Give up everything after an error that should not have been; never raises."""
        try:
            await self.give_up("an error ended the controller")
        except Exception as error:
            log.exception("%s", error)

    def resign(self, cause: str) -> None:
        """Stop being the controller: nothing that waits is sent, nothing that was known is kept. Never fails."""
        epoch = self.cluster.fence.epoch
        self.ready = False
        self._timers.cancel_all()
        self.channels.close()
        self.batch.clear()
        self.cluster.reset()
        self._unclean.stored = None
        if epoch:
            log.info("resigned from epoch %d: %s", epoch, cause)
            self.terms.resigned(epoch=epoch, cause=cause, now_ms=self.clock.now_ms())
            self.history.add(
                ControllerEvent(
                    what="resigned", controller_id=self.cluster.controller_id, cause=cause, controller_epoch=epoch
                )
            )
