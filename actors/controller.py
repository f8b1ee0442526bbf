"""The controller: takes one event after the other and handles it to its end.

What has to be done for an event stands with its kind: `broker_events`, `topic_events`, `broker_answers`. Here stand the
loop and the controllership itself: contesting, taking over, and resigning. Nothing is decided here that a machine could
decide; nothing is awaited but the machines and the store, and never a broker.

Source: the classic controller's KafkaController and ControllerEventManager.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kactl.clock import Clock
from kactl.errors import ControllerMoved, IllegalState, KactlError, NotController, SessionExpired, StoreError
from kactl.events import (
    BrokerLagged,
    BrokerModified,
    BrokersChanged,
    ControllerChanged,
    ControllerGone,
    ControllerState,
    DefaultConfigChanged,
    ElectionRequested,
    ElectionResult,
    Event,
    IsrNotified,
    LeaderAndIsrAnswered,
    LogDirNotified,
    ResignRequested,
    SessionLost,
    SessionOpened,
    Started,
    TopicConfigChanged,
    TopicCreationRequested,
    TopicModified,
    TopicsChanged,
    UncleanElectionsEnabled,
    UpdateMetadataAnswered,
    WritesFailed,
)
from kactl.history import ControllerEvent
from kactl.telemetry import Telemetry

from . import elections
from .actor import Actor
from .broker_answers import BrokerAnswers
from .broker_events import BrokerEvents
from .failover import Failover
from .reach import Reach
from .topic_events import TopicEvents, UncleanDefault

log = logging.getLogger(__name__)

# How often an event is tried while the store fails for the moment, and the first pause; each further one is longer.
STORE_TRIES: Final = 4
STORE_BACKOFF_MS: Final = 200
# When an event that was abandoned is looked at again: what it spoke of may not be told a second time.
LOOK_AGAIN_MS: Final = 10_000
# The pause before contesting again after a takeover that failed, so that a lasting failure does not spin.
CONTEST_BACKOFF_MS: Final = 1000

# Handled whether we are the controller or not.
_ALWAYS: Final = frozenset(
    {Started, ControllerChanged, ControllerGone, SessionLost, SessionOpened, ResignRequested, UncleanElectionsEnabled}
)
# These say no more than "read again", and nothing may make the controller deaf to what they spoke of.
_LOOK_AGAIN: Final = frozenset(
    {
        Started,
        ControllerChanged,
        ControllerGone,
        SessionOpened,
        BrokersChanged,
        BrokerModified,
        TopicsChanged,
        TopicModified,
        TopicConfigChanged,
        DefaultConfigChanged,
        IsrNotified,
        LogDirNotified,
        WritesFailed,
    }
)
# Somebody waits for the answer.
_ASKED: Final = frozenset({ElectionRequested, TopicCreationRequested, ResignRequested, UncleanElectionsEnabled})


class ControllerLoop(Actor[Event]):
    """See the module. Owns the cluster and lends it to a machine for as long as it waits for it.

    Args:
        topic_ids: whether topics without an id are given one (protocol level 2.8 and above).
        new_topic_id: makes an id of 16 bytes.
        take_over: whether to take the controllership from whoever holds it, at the first contest.
        unclean: whether unclean elections are allowed by default; our own setting and the store's go there.
    """

    def __init__(
        self,
        reach: Reach,
        *,
        clock: Clock,
        telemetry: Telemetry,
        topic_ids: bool,
        new_topic_id: Callable[[], bytes],
        take_over: bool,
        unclean: UncleanDefault,
    ) -> None:
        super().__init__("controller")
        self.reach = reach
        self.cluster = reach.cluster
        self.store = reach.store
        self.clock = clock
        self.telemetry = telemetry
        self.active_id: int | None = None  # who holds the controllership, as far as we know
        self.state = ControllerState.IDLE
        self.ready = False  # whether we are active and have taken over wholly
        self.elections_won = 0
        self.stopping = False
        self._later: dict[Event, asyncio.Task[None]] = {}
        self._take_over = take_over
        # Whether the store may name us without our knowing the epoch: an election, or its end, got no answer.
        self._perhaps_named = False
        self._unclean = unclean
        brokers = BrokerEvents(reach)
        topics = TopicEvents(reach, topic_ids=topic_ids, new_topic_id=new_topic_id, unclean=unclean)
        answers = BrokerAnswers(reach)
        self._failover = Failover(reach, topics)
        self._handlers: dict[type[Event], Callable[[Any], Awaitable[Any]]] = {
            Started: self.on_started,
            ControllerChanged: self.on_controller_changed,
            ControllerGone: self.on_controller_gone,
            SessionLost: self.on_session_lost,
            SessionOpened: self.on_session_opened,
            ResignRequested: self.on_resign_requested,
            BrokersChanged: brokers.on_brokers_changed,
            BrokerModified: brokers.on_broker_modified,
            BrokerLagged: brokers.on_broker_lagged,
            WritesFailed: brokers.on_writes_failed,
            TopicsChanged: topics.on_topics_changed,
            TopicModified: topics.on_topic_modified,
            TopicConfigChanged: topics.on_topic_config_changed,
            DefaultConfigChanged: topics.on_default_config_changed,
            TopicCreationRequested: topics.on_topic_creation_requested,
            IsrNotified: answers.on_isr_notified,
            LogDirNotified: answers.on_log_dir_notified,
            LeaderAndIsrAnswered: answers.on_leader_and_isr_answered,
            UpdateMetadataAnswered: answers.on_update_metadata_answered,
            ElectionRequested: self.on_election_requested,
            UncleanElectionsEnabled: self.on_unclean_elections_enabled,
        }

    @property
    def is_active(self) -> bool:
        return self.active_id == self.cluster.controller_id and self.cluster.fence.epoch > 0

    # -- one event -----------------------------------------------------------------------------------------------------

    async def receive(self, message: Event) -> Any:
        """Handle one event to its end. Whatever goes wrong, the next event finds the controller ready."""
        asked = type(message) in _ASKED
        if not self.is_active and type(message) not in _ALWAYS:
            if asked:
                raise NotController(self.active_id)
            return None
        self.state = message.state
        began_ms = self.clock.monotonic_ms()
        try:
            return await self._handle(message)
        except ControllerMoved as moved:
            log.info("%s: %s", message.label, moved)
            await self._moved(refused=type(message) is not LeaderAndIsrAnswered)
            if asked:
                raise NotController(self.active_id) from moved
        except Exception as error:
            if isinstance(error, IllegalState) and self.is_active:
                # Nothing that we know can be relied on any more; whoever is elected next reads all of it anew.
                await self._give_up(f"what should not be possible has happened: {error}")
            if asked:
                raise
            # Where an error says by itself what is the matter, the way there is of no interest.
            log.error("%s was abandoned: %s", message.label, error, exc_info=not isinstance(error, KactlError))
            if type(message) in _LOOK_AGAIN:
                self._look_again(message)
        finally:
            self.reach.batch.clear()
            if self.cluster.is_undone:
                self._look_again(WritesFailed())
            self.state = ControllerState.IDLE
            self.telemetry.processed(message.state.label, self.clock.monotonic_ms() - began_ms)
        return None

    async def _handle(self, event: Event) -> Any:
        """Handle an event; one that only says "read again" is tried again while the store fails for the moment."""
        handler = self._handlers[type(event)]
        for attempt in range(STORE_TRIES - 1):
            try:
                return await handler(event)
            except ControllerMoved:
                raise
            except StoreError as failed:
                if type(event) in _ASKED or isinstance(failed, SessionExpired):
                    raise
                pause_ms = STORE_BACKOFF_MS << attempt
                log.warning("%s: %s; trying again in %d ms", event.label, failed, pause_ms)
                self.reach.batch.clear()
                await self.clock.sleep_ms(pause_ms)
        return await handler(event)

    def _look_again(self, event: Event, *, pause_ms: float = LOOK_AGAIN_MS) -> None:
        """Put an abandoned event down for later; the reading that it asked for may be what listens for the next."""

        async def later() -> None:
            await self.clock.sleep_ms(pause_ms)
            self._later.pop(event, None)
            try:
                self.inbox.put_once(event)
            except KactlError as refused:
                log.info("%s is not looked at again: %s", event.label, refused)

        # One that fails each time it is told of is still put down once.
        if event not in self._later:
            task = asyncio.get_running_loop().create_task(later(), name=f"look again: {event.label}")
            self._later[event] = task

    async def run(self) -> None:
        """Take one event after the other, until cancelled; then nothing is sent any more."""
        try:
            await super().run()
        except asyncio.CancelledError:
            self.active_id = None
            self._resign("the instance was stopped")
            raise
        finally:
            for task in self._later.values():
                task.cancel()
            self._later.clear()

    def clear_and_put(self, event: Event) -> None:
        """Empty the queue, answer those who waited for an answer, and let `event` be the next.

        For the end of a session: no event of the old one may be handled under the new one.
        """
        for _, asker in self.inbox.drain():
            if asker is not None and not asker.done():
                asker.set_exception(NotController(None))
        self.inbox.put(event)

    # -- the controllership --------------------------------------------------------------------------------------------

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
        self._resign("the session with the store was lost")

    async def on_session_opened(self, event: SessionOpened) -> None:
        await self._maybe_resign()
        await self._contest()

    async def on_resign_requested(self, event: ResignRequested) -> None:
        self.stopping |= event.stop
        if self.is_active:
            await self._give_up("asked to resign")

    async def _contest(self) -> None:
        """Take the controllership if nobody holds it, and everything that goes with it.

        It is taken from its holder at our first election, if we were told to; and from ourselves, if an election, or
        its end, got no answer: nobody would ever act under it.
        """
        if self.stopping or self.is_active:
            return
        record = await self.store.controller()
        self.active_id = record.id if record is not None else None
        ours = self._perhaps_named and self.active_id == self.cluster.controller_id
        take_over = self._take_over or ours
        if record is not None and not take_over:
            log.info("controller %d is active; this instance stands by", record.id)
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
        try:
            await self._failover.take_over()
            self.ready = True
            self.reach.history.add(
                ControllerEvent(what="elected", controller_id=self.active_id, controller_epoch=fence.epoch)
            )
        except ControllerMoved:
            raise
        except Exception as error:
            log.exception("taking over under epoch %d failed, the controllership is given up: %s", fence.epoch, error)
            await self._give_up("taking over failed")
            await self.clock.sleep_ms(CONTEST_BACKOFF_MS)

    async def _moved(self, *, refused: bool) -> None:
        """Something said that another is the controller: see whether it is so. Never throws.

        Args:
            refused: the store said so, by refusing our fence, which then is of no use even if it still names us.
        """
        try:
            await self._maybe_resign()
        except Exception as error:
            log.exception("who is the controller cannot be told now: %s", error)
            self._look_again(ControllerChanged())
        else:
            if refused and self.is_active:
                self.active_id, self._perhaps_named = None, True
                self._resign("the store refuses our fence, and still names us")
                self._look_again(ControllerGone(), pause_ms=CONTEST_BACKOFF_MS)

    async def _maybe_resign(self) -> None:
        """See who is the controller; if it no longer is us under our epoch, resign."""
        was_active = self.is_active
        record = await self.store.controller()
        ours = record is not None and (record.id, record.epoch) == (
            self.cluster.controller_id,
            self.cluster.fence.epoch,
        )
        self.active_id = record.id if record is not None else None
        if was_active and not ours:
            if self.active_id == self.cluster.controller_id:
                # Under another epoch: an instance with our id, which is not us.
                self.active_id = None
            self._resign("a later controller was elected" if record is not None else "the controllership was lost")

    async def _give_up(self, cause: str) -> None:
        """Resign, and let the store say so, that somebody else may take over."""
        fence = self.cluster.fence
        self.active_id = None
        self._resign(cause)
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
            await self._give_up("an error ended the controller")
        except Exception as error:
            log.exception("%s", error)

    def _resign(self, cause: str) -> None:
        """Stop being the controller: nothing that waits is sent, nothing that was known is kept. Never fails."""
        epoch = self.cluster.fence.epoch
        self.ready = False
        self.reach.channels.close()
        self.reach.batch.clear()
        self.cluster.reset()
        self._unclean.unclean_stored = None
        if epoch:
            log.info("resigned from epoch %d: %s", epoch, cause)
            self.reach.history.add(
                ControllerEvent(
                    what="resigned", controller_id=self.cluster.controller_id, cause=cause, controller_epoch=epoch
                )
            )

    # -- what is asked of it -------------------------------------------------------------------------------------------

    async def on_unclean_elections_enabled(self, event: UncleanElectionsEnabled) -> None:
        log.info("unclean elections are %s by our own setting", "allowed" if event.enabled else "forbidden")
        self._unclean.unclean_own = event.enabled
        if self._unclean.unclean_default != event.enabled:
            log.warning("our own setting has no effect while the store says otherwise for all brokers")
        elif event.enabled and self.is_active:
            await self._failover.elect_offline()

    async def on_election_requested(self, event: ElectionRequested) -> list[ElectionResult]:
        return await elections.answer(event, self.cluster, self.reach.partitions)
