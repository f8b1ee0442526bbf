"""A broker in this process: it registers, takes what the controller says, and tells the application.

    NEW ─start─▶ RUNNING ─pause─▶ PAUSED ─resume─▶ RUNNING
                    │ kill, stop     │ kill, stop
                    ▼                ▼
                  ENDED ─────restart, start─────▶ RUNNING

A participant that was paused for longer than its session's timeout finds, when it resumes, that its registration is
gone: it tells the application that nothing is served any more, and registers again under a higher broker epoch.
"""

import enum
import logging
import math
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.abc
import anyio.lowlevel

from kactl.clock import Clock, SystemClock
from kactl.errors import BadRequest, BrokerIdTaken, IllegalState, Remedy, SessionExpired, StoreError
from kactl.messages import arguments
from kactl.messages.arguments import AnyPartition
from kactl.model import NO_BROKER, NO_EPOCH, Broker, Endpoint, TopicPartition
from kactl.runtime.background import Background, BlockStack
from kactl.runtime.logs import logger
from kactl.stores.base import Session, Store

from .controlled_shutdown import ATTEMPTS, hand_over
from .hosted_replicas import HostedPartition
from .hub import Hub
from .incarnation import Incarnation
from .isr_update import InSync
from .lagging_replicas import LAG_MS
from .listener import Listener
from .metadata import CachedPartition
from .pause_gate import Pause

log = logger(__name__)

# Kafka's default for a broker's session (zookeeper.session.timeout.ms).
SESSION_TIMEOUT_MS: Final = 18_000
# Pause before the store is asked again for a session or a registration.
RETRY_MS: Final = 500
# How many times the session timeout a start waits for an earlier registration to expire: a server may end a session
# somewhat late, and twice as late is somebody else's live session.
PATIENCE: Final = 2
# How long each of two goodbyes may take, to a controller and to a store that hang; the session then ends by itself.
CLOSE_S: Final = 5.0


class Life(enum.Enum):
    """Where a participant is; see the module."""

    NEW = "new"
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


class Participant:
    """See the module.

        async with Participant(1, store=store, hub=hub, listener=MyBroker()) as participant:
            ...

    Args:
        broker_id: not negative, and nobody else's.
        hub: what the controller's memory transport and the other participants of this process share.
        endpoints: where clients find the broker, for its registration; nothing listens there by this.
        listener: is told what to lead, to follow and to stop.
        in_sync: (partition, follower) -> whether the follower has caught up with this leader. Asked again and again
            about followers that follow and are out of sync, and now and then about those in sync. None: whoever
            follows has caught up.
        alter_partition: whether a leader proposes its ISR to the controller, which has to run on the same hub, or, as
            brokers below protocol level 2.7 do, writes it into the store itself.
        lag_ms: for how long a member of an ISR may not follow, or not have caught up, before its leader drops it.
        shutdown_attempts: how often the controller is asked to lead elsewhere what this leads, before it stops in
            order; 0 to stop at once.
    """

    def __init__(
        self,
        broker_id: int,
        *,
        store: Store,
        hub: Hub,
        clock: Clock | None = None,
        rack: str | None = None,
        endpoints: tuple[Endpoint, ...] = (),
        listener: Listener | None = None,
        in_sync: InSync | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        alter_partition: bool = True,
        lag_ms: float = LAG_MS,
        shutdown_attempts: int = ATTEMPTS,
    ) -> None:
        if arguments.whole(broker_id, "broker_id") < 0:
            raise BadRequest("broker_id", f"{broker_id} is negative; choose a number that no other broker has")
        self.id = broker_id
        self._store = store
        self._hub = hub
        self._clock = clock or SystemClock()
        self._broker = Broker(broker_id, NO_EPOCH, endpoints, rack)
        self._listener = listener or Listener()
        self._in_sync = in_sync
        self._session_timeout_ms = session_timeout_ms
        self._alter_partition = alter_partition
        self._lag_ms = lag_ms
        self._shutdown_attempts = shutdown_attempts
        self._pause = Pause()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._stack: BlockStack | None = None  # what is closed at the end of the block
        self._scope: anyio.CancelScope | None = None  # of the life that runs now
        self._ended = anyio.Event()
        self._session: Session | None = None
        self._incarnation: Incarnation | None = None
        self._started_before = False

    # -- its life; not to be called from a listener's call, which ends with the life that made it

    async def __aenter__(self) -> Self:
        """Register, and serve until the end of the block.

        Raises:
            BrokerIdTaken: another live session holds the id, and kept it for twice the session's timeout.
            StoreError: the store could not be asked in that time.
        """
        await self.open()
        try:
            await self.start()
        except BaseException as error:
            if not await self.leave(type(error), error, error.__traceback__):
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self.leave(kind, error, trace)

    async def open(self) -> None:
        """Get ready to be started, and do nothing yet; `close` has to be called by the same task."""
        if self._stack is not None:
            raise IllegalState(f"participant {self.id} is open already: use one object for each block")
        stack = BlockStack(f"participant {self.id}")
        self._tasks = await stack.enter_async_context(Background(f"participant {self.id}"))
        self._stack = stack

    async def close(self) -> None:
        """Stop, and be done."""
        await self.leave(None, None, None)

    async def leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        *,
        shutdown_attempts: int | None = None,
    ) -> bool | None:
        """Stop at the end of a block, which may have raised; see `kactl.runtime.background` for what leaves it.

        Args:
            shutdown_attempts: in place of those that this was made with.
        """
        if self._stack is None:
            return False
        stack, self._stack, self._tasks = self._stack, None, None
        attempts = self._shutdown_attempts if shutdown_attempts is None else shutdown_attempts
        stack.push_async_callback(self._shut_down, attempts)
        return await stack.__aexit__(kind, error, trace)

    async def _shut_down(self, attempts: int) -> None:
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._hand_over(attempts)
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._leave()

    async def start(self) -> None:
        """Register and serve; returns as soon as it is registered. Nothing happens if it runs.

        An earlier registration of the id is waited for until it expires.

        Raises:
            BrokerIdTaken, StoreError: see `__aenter__`.
        """
        if self._tasks is None:
            raise IllegalState(f"participant {self.id} cannot start: enter it first (async with participant: ...)")
        if self._scope is None:
            self._started_before = True
            self._pause.resume()
            self._scope, self._ended = anyio.CancelScope(), anyio.Event()
            await self._tasks.start(self._live, self._scope, self._ended)

    async def kill(self) -> None:
        """End as a process does that is killed: at once, without a word, and registered until the session expires."""
        self._session = None
        await self._end()

    async def stop(self) -> None:
        """End in order: the controller is asked to lead elsewhere what this leads, the listener is told that nothing
        is served any more, and the registration ends at once."""
        await self._hand_over(self._shutdown_attempts)
        await self._leave()

    async def _hand_over(self, attempts: int) -> None:
        """Nothing is done by one that hangs, or that no controller ever spoke to."""
        incarnation = self._incarnation
        if incarnation is None or self._pause.paused or incarnation.metadata.controller_id == NO_BROKER:
            return
        await hand_over(
            self.id,
            epoch=lambda: incarnation.epoch if self._incarnation is incarnation else NO_EPOCH,
            controller=incarnation.controller,
            clock=self._clock,
            attempts=attempts,
        )

    async def _leave(self) -> None:
        session, self._session = self._session, None
        incarnation = await self._end()
        try:
            if incarnation is not None:
                await incarnation.let_go()
        finally:
            await self._goodbye(session)

    async def restart(self) -> None:
        """Stop if it runs, and start anew: nothing is remembered, and the broker epoch is a higher one.

        After `kill` this waits until the old registration has expired.

        Raises:
            BrokerIdTaken, StoreError: see `__aenter__`.
        """
        await self.stop()
        await self.start()

    def pause(self) -> None:
        """Hang: answer nothing, keep nothing alive, write nothing. What a listener's call does now goes on."""
        if self._scope is not None:
            self._pause.pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._pause.resume()
        if self._incarnation is not None:
            self._incarnation.isr.look()
            self._incarnation.announce()

    @property
    def life(self) -> Life:
        if self._scope is None:
            return Life.ENDED if self._started_before else Life.NEW
        return Life.PAUSED if self._pause.paused else Life.RUNNING

    # -- what it knows

    @property
    def epoch(self) -> int:
        """The broker epoch; NO_EPOCH while it is not registered."""
        return NO_EPOCH if self._incarnation is None else self._incarnation.epoch

    @property
    def controller_epoch(self) -> int:
        """The highest that it has seen, NO_EPOCH if none."""
        return NO_EPOCH if self._incarnation is None else self._incarnation.controller_epoch

    def hosted(self, name: AnyPartition) -> HostedPartition | None:
        """What it does for a partition; None if it has no replica of it."""
        return None if self._incarnation is None else self._incarnation.hosted.view(arguments.partition(name))

    @property
    def hosts(self) -> list[TopicPartition]:
        """The partitions of which it has a replica, those of one topic side by side."""
        if self._incarnation is None:
            return []
        index = self._incarnation.hosted.index
        return list(index.names(index.rows))

    def leader(self, name: AnyPartition) -> int | None:
        """Who leads a partition as far as it has been told; NO_LEADER if nobody, None if it does not know of it."""
        return None if self._incarnation is None else self._incarnation.metadata.leader(arguments.partition(name))

    def partition(self, name: AnyPartition) -> CachedPartition | None:
        """What it has been told about a partition of the cluster."""
        return None if self._incarnation is None else self._incarnation.metadata.partition(arguments.partition(name))

    @property
    def live_brokers(self) -> Mapping[int, Broker]:
        """The brokers that it has been told of, by id."""
        return {} if self._incarnation is None else self._incarnation.metadata.live_brokers

    # -- what the application says

    async def fail_directory(self, partitions: Iterable[AnyPartition]) -> None:
        """The directory of some replicas has failed: serve them no more, refuse what concerns them until the next
        restart, and tell the controller.

        Raises:
            StoreError: the controller could not be told; call it again.
        """
        if self._incarnation is None:
            raise IllegalState(f"participant {self.id} does not run: it has no replicas that could fail")
        self._incarnation.hosted.fail(arguments.partitions(partitions))
        await self._store.notify_log_dir(self.id)

    def look_at_isr(self) -> None:
        """Ask `in_sync` again now: something has changed."""
        if self._incarnation is not None:
            self._incarnation.isr.look()

    # -- one life after the other

    async def _live(
        self, scope: anyio.CancelScope, ended: anyio.Event, *, task_status: anyio.abc.TaskStatus[None]
    ) -> None:
        """Register and serve, and again after each loss of the session, until `scope` is cancelled."""
        known = False
        try:
            with scope:
                incarnation, session = await self._register(PATIENCE * self._session_timeout_ms)
                task_status.started()
                known = True
                while True:
                    try:
                        await incarnation.run(session)
                        log.warning("broker %d has lost its registration and registers again", self.id)
                    except Exception:
                        log.exception("broker %d has failed; it begins a new life", self.id)
                    incarnation.end()
                    self._incarnation = self._session = None
                    await self._goodbye(session)
                    await incarnation.let_go()
                    incarnation, session = await self._register(math.inf)
            if not known:
                task_status.started()  # it was killed before it was registered
        finally:
            if self._incarnation is not None:
                self._incarnation.end()
            self._scope = None
            ended.set()

    async def _end(self) -> Incarnation | None:
        """Cancel the life that runs, if one does, and wait for its end. Returns what it knew last."""
        if self._scope is None:
            return None
        ended = self._ended
        self._scope.cancel()
        if self._incarnation is not None:
            self._incarnation.end()  # nothing is answered from here on, whatever its tasks still have to unwind
        await ended.wait()
        incarnation, self._incarnation = self._incarnation, None
        return incarnation

    async def _register(self, patience_ms: float) -> tuple[Incarnation, Session]:
        """A session, a registration in it, and the life that begins with it."""
        give_up_at = self._clock.monotonic_ms() + patience_ms
        while True:
            await self._pause.over()
            incarnation = Incarnation(
                self.id,
                store=self._store,
                hub=self._hub,
                clock=self._clock,
                pause=self._pause,
                listener=self._listener,
                in_sync=self._in_sync,
                alter_partition=self._alter_partition,
                lag_ms=self._lag_ms,
            )
            try:
                return incarnation, await self._try_to_register(incarnation)
            except StoreError as error:
                hopeless = error.remedy is Remedy.REPORT and patience_ms < math.inf
                if hopeless or self._clock.monotonic_ms() >= give_up_at:
                    raise
                level = logging.INFO if isinstance(error, BrokerIdTaken) else logging.WARNING
                log.log(level, "broker %d could not register, and will try again: %s", self.id, error)
            await self._clock.sleep_ms(RETRY_MS)

    async def _try_to_register(self, incarnation: Incarnation) -> Session:
        session = await self._store.new_session(self._session_timeout_ms)
        # Attached first, since the controller may answer to the registration before we learn of it. But not in the
        # place of somebody whose registration may still hold.
        if self._hub.find(self.id) is None:
            self._hub.attach(self.id, incarnation)
        try:
            incarnation.epoch = await session.register(self._broker)
        except BaseException:
            incarnation.end()
            with anyio.move_on_after(CLOSE_S, shield=True):
                await self._goodbye(session)
            raise
        self._hub.attach(self.id, incarnation)
        self._session, self._incarnation = session, incarnation
        return session

    async def _goodbye(self, session: Session | None) -> None:
        """End a session, as far as the store lets us."""
        if session is None:
            return
        try:
            await session.close()
        except SessionExpired:
            return
        except StoreError as error:
            log.warning("broker %d could not end its session; it will expire: %s", self.id, error)
