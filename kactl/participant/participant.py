"""A broker in this process, which registers, carries out the controller's requests and calls the application.

    NEW ─start─▶ RUNNING ─pause─▶ PAUSED ─resume─▶ RUNNING
                    │ kill, stop     │ kill, stop
                    ▼                ▼
                  ENDED ─────restart, start─────▶ RUNNING

If a participant was paused for longer than its session's timeout, its registration has expired when it resumes. It then
calls the listener's `stopped` for every replica, and registers again with a higher broker epoch.
"""

import enum
import math
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.abc
import anyio.lowlevel

from kactl.clock import Clock, SystemClock
from kactl.errors import BadRequest, IllegalState, NotFound
from kactl.messages import arguments
from kactl.messages.arguments import AnyPartition
from kactl.model import NO_BROKER, NO_EPOCH, Broker, Endpoint, TopicPartition
from kactl.runtime.background import Background, BlockStack
from kactl.runtime.logs import logger
from kactl.stores.base import Session, Store

from .controlled_shutdown import ATTEMPTS, controlled_shutdown
from .handlers.hosting import HANDLERS_PARALLEL, TRANSITION_TIMEOUT_MS, HandlerHosting, MakeHandler
from .hosted_replicas import HostedPartition, Role
from .incarnation import Incarnation
from .isr_update import InSync
from .lagging_replicas import LAG_MS
from .leases.events import LeaseEvent
from .leases.leader import Leader
from .leases.metrics import LeaseMetrics
from .leases.pacemaker import Pacemaker
from .leases.terms import LeaseConfig
from .leases.watchdog import Watchdog, make_watchdog
from .listener import Listener
from .metadata import CachedPartition
from .network import ParticipantNetwork, one_network
from .pause_gate import PauseGate
from .registrar import CLOSE_S, Registrar, close_session, disconnect

log = logger(__name__)

# Kafka's default for a broker's session (zookeeper.session.timeout.ms).
SESSION_TIMEOUT_MS: Final = 18_000
# How many session timeouts a start waits for an earlier registration to expire. A server may expire a session somewhat
# late; a session that lasts twice as long is the live session of another broker.
PATIENCE: Final = 2


class Life(enum.Enum):
    """State of a participant; the module's diagram shows the transitions."""

    NEW = "new"
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


class Participant:
    """A broker in this process.

        async with Participant(1, store=store, hub=hub, listener=MyBroker()) as participant:
            ...

    Args:
        broker_id: not negative, and not used by another broker.
        hub: the network of this process, which the participant shares with the controllers and other participants.
        network: any other network, in place of `hub`.
        endpoints: the addresses of the broker for its registration. The participant does not listen on them.
        listener: the callbacks for partitions to lead, to follow and to stop.
        in_sync: (partition, follower) -> whether the follower has caught up with this leader. Called repeatedly for
            followers that are out of sync, and at intervals for those in sync. None: every follower has caught up.
        alter_partition: whether a leader proposes its ISR to the controller, which has to run on the same hub. If not,
            the leader writes the ISR to the store itself, as brokers below protocol level 2.7 do.
        lag_ms: the time for which a member of an ISR may fail to follow or to catch up before its leader removes it.
        shutdown_attempts: how often a stopping participant requests that the controller moves its leaderships; 0 to
            stop at once.
        handler: returns the code of a partition, in place of a listener. It is called for the first order that concerns
            the partition.
        handlers_parallel: how many handlers may prepare or stop at once.
        transition_timeout_ms: how long one of them may take.
        lease: settings of the lease under which this participant leads.
        on_lease_event: called in the event loop with each event of the lease.

    Raises:
        BadRequest: on entering; the session timeout leaves no time to lead.
    """

    def __init__(
        self,
        broker_id: int,
        *,
        store: Store,
        hub: ParticipantNetwork | None = None,
        network: ParticipantNetwork | None = None,
        clock: Clock | None = None,
        rack: str | None = None,
        endpoints: tuple[Endpoint, ...] = (),
        listener: Listener | None = None,
        in_sync: InSync | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        alter_partition: bool = True,
        lag_ms: float = LAG_MS,
        shutdown_attempts: int = ATTEMPTS,
        handler: MakeHandler | None = None,
        handlers_parallel: int = HANDLERS_PARALLEL,
        transition_timeout_ms: float = TRANSITION_TIMEOUT_MS,
        lease: LeaseConfig | None = None,
        on_lease_event: Callable[[LeaseEvent], None] | None = None,
    ) -> None:
        if arguments.whole(broker_id, "broker_id") < 0:
            raise BadRequest("broker_id", f"{broker_id} is negative; choose a number that no other broker has")
        self.id = broker_id
        arguments.implements(store, Store, "store")
        self._store = store
        self._network = one_network(hub, network)
        self._clock = clock or SystemClock()
        self._listener = listener or Listener()
        self._in_sync = in_sync
        self._session_timeout_ms = session_timeout_ms
        self._alter_partition = alter_partition
        self._lag_ms = lag_ms
        self._shutdown_attempts = shutdown_attempts
        self._lease = lease or LeaseConfig()
        if handler is None and self._lease.watchdog != "off":
            raise BadRequest("lease.watchdog", "it needs a handler, whose calls it watches")
        if handler is not None and listener is not None:
            raise BadRequest("handler", "a participant has a handler or a listener, not both")
        self._hosting = (
            None
            if handler is None
            else HandlerHosting(
                handler,
                clock=self._clock,
                handlers_parallel=handlers_parallel,
                transition_timeout_ms=transition_timeout_ms,
                watchdog=make_watchdog(self._lease.watchdog, self._clock.lease_ns),
            )
        )
        self._on_lease_event = on_lease_event
        self._metrics = LeaseMetrics()
        self._pause = PauseGate()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._stack: BlockStack | None = None  # what is closed at the end of the block
        self._scope: anyio.CancelScope | None = None  # of the life that runs now
        self._ended = anyio.Event()
        self._registrar = Registrar(
            Broker(broker_id, NO_EPOCH, endpoints, rack),
            store=store,
            network=self._network,
            clock=self._clock,
            pause=self._pause,
            session_timeout_ms=session_timeout_ms,
            lease=self._lease,
            make=self._make_incarnation,
            report=self._report_lease,
            watchdog=Watchdog() if self._hosting is None else self._hosting.watchdog,
        )
        self._session: Session | None = None
        self._pacemaker: Pacemaker | None = None
        self._incarnation: Incarnation | None = None
        self._started_before = False

    # -- lifecycle; not to be called from a listener's method, because its task is cancelled with the incarnation

    async def __aenter__(self) -> Self:
        """Register, and serve until the end of the block.

        Raises:
            BrokerIdTaken: another live session has held the id for twice the session timeout.
            StoreError: the store was not available in that time.
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
        """Prepare for `start`, without any I/O; the same task has to call `close`."""
        if self._stack is not None:
            raise IllegalState(f"participant {self.id} is already open: use one object for each block")
        stack = BlockStack(f"participant {self.id}")
        if self._hosting is not None:
            stack.callback(self._hosting.watchdog.stop)
        self._tasks = await stack.enter_async_context(Background(f"participant {self.id}"))
        if self._hosting is not None:
            self._hosting.open(self._tasks.start_soon)
        self._stack = stack

    async def close(self) -> None:
        """Stop for good; the participant has to be opened again before it can start."""
        await self.leave(None, None, None)

    async def leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        *,
        shutdown_attempts: int | None = None,
    ) -> bool | None:
        """Stop at the end of a block, which may have raised; `kactl.runtime.background` defines the exception that
        leaves it.

        Args:
            shutdown_attempts: overrides the value passed to the constructor.
        """
        if self._stack is None:
            return False
        stack, self._stack, self._tasks = self._stack, None, None
        attempts = self._shutdown_attempts if shutdown_attempts is None else shutdown_attempts
        stack.push_async_callback(self._shut_down, attempts)
        return await stack.__aexit__(kind, error, trace)

    async def _shut_down(self, attempts: int) -> None:
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._controlled_shutdown(attempts)
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._stop()

    async def start(self) -> None:
        """Register and serve. Returns as soon as the broker is registered, or at once if it runs already.

        If the id has an earlier registration, this waits until it expires.

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
        """End as a killed process does: at once, without any request; the broker stays registered until the session
        expires."""
        self._session = None
        await self._end()
        if self._hosting is not None:
            await self._hosting.end_life(silent=True)

    async def stop(self) -> None:
        """Stop with a controlled shutdown.

        The controller moves the leaderships to other brokers, the listener's `stopped` is called for every replica,
        and the registration ends at once.
        """
        await self._controlled_shutdown(self._shutdown_attempts)
        await self._stop()

    async def _controlled_shutdown(self, attempts: int) -> None:
        """Request a controlled shutdown, unless the participant is paused or no controller has contacted it."""
        incarnation = self._incarnation
        if incarnation is None or self._pause.paused or incarnation.metadata.controller_id == NO_BROKER:
            return
        await controlled_shutdown(
            self.id,
            epoch=lambda: incarnation.epoch if self._incarnation is incarnation else NO_EPOCH,
            controller=incarnation.controller,
            clock=self._clock,
            attempts=attempts,
        )

    async def _stop(self) -> None:
        session, self._session = self._session, None
        incarnation = await self._end()
        try:
            if incarnation is not None:
                await incarnation.notify_stopped()
        finally:
            await close_session(self.id, session)

    async def restart(self) -> None:
        """Stop if the participant runs, and start again without any state and with a higher broker epoch.

        After `kill` this waits until the old registration has expired.

        Raises:
            BrokerIdTaken, StoreError: see `__aenter__`.
        """
        await self.stop()
        await self.start()

    async def wait_closed(self) -> None:
        """Wait until the participant has stopped, was killed, or has left its block."""
        while self._scope is not None:
            await self._ended.wait()

    def pause(self) -> None:
        """Hang: send no response, no keep-alive and no write. A listener's call in progress is not interrupted."""
        if self._scope is not None:
            self._pause.pause()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._pause.resume()
        if self._incarnation is not None:
            self._incarnation.isr.schedule()
            self._incarnation.following.repeat()

    @property
    def life(self) -> Life:
        if self._scope is None:
            return Life.ENDED if self._started_before else Life.NEW
        return Life.PAUSED if self._pause.paused else Life.RUNNING

    # -- state

    @property
    def epoch(self) -> int:
        """The broker epoch; NO_EPOCH while the broker is not registered."""
        return NO_EPOCH if self._incarnation is None else self._incarnation.epoch

    @property
    def controller_epoch(self) -> int:
        """The highest controller epoch received, NO_EPOCH if none."""
        return NO_EPOCH if self._incarnation is None else self._incarnation.controller_epoch

    def hosted(self, name: AnyPartition) -> HostedPartition | None:
        """Returns the replica of a partition; None if the broker has none."""
        return None if self._incarnation is None else self._incarnation.hosted.view(arguments.partition(name))

    @property
    def hosts(self) -> list[TopicPartition]:
        """The partitions of which the broker has a replica, grouped by topic."""
        if self._incarnation is None:
            return []
        index = self._incarnation.hosted.index
        return list(index.names(index.rows))

    def leader(self, name: AnyPartition) -> int | None:
        """Returns the leader of a partition in the broker's metadata; NO_LEADER if it has none, None if the partition
        is not known."""
        return None if self._incarnation is None else self._incarnation.metadata.leader(arguments.partition(name))

    def leadership(self, name: AnyPartition) -> Leader | None:
        """Returns this broker's own leadership of a partition; None if it has none, or no lease."""
        return None if self._incarnation is None else self._incarnation.leaderships.get(arguments.partition(name))

    def leaderships(self) -> list[Leader]:
        """Returns all leaderships of this broker; none if it has no lease."""
        if self._incarnation is None:
            return []
        hosted, leaderships = self._incarnation.hosted, self._incarnation.leaderships
        names = hosted.index.names(hosted.in_role(Role.LEADER))
        return [leader for name in names if (leader := leaderships.get(name)) is not None]

    def partition(self, name: AnyPartition) -> CachedPartition | None:
        """Returns the broker's metadata of a partition; None if the partition is not known."""
        return None if self._incarnation is None else self._incarnation.metadata.partition(arguments.partition(name))

    @property
    def live_brokers(self) -> Mapping[int, Broker]:
        """The live brokers in the broker's metadata, by id."""
        return {} if self._incarnation is None else self._incarnation.metadata.live_brokers

    # -- called by the application

    async def fail_directory(self, partitions: Iterable[AnyPartition]) -> None:
        """Report the failure of the directory of some replicas to the controller.

        The participant stops serving the replicas, and rejects requests that concern them until the next restart.

        Raises:
            StoreError: the controller could not be notified; call this again.
        """
        if self._incarnation is None:
            raise IllegalState(f"participant {self.id} is not running: it has no replicas that could fail")
        failed = arguments.partitions(partitions)
        self._incarnation.hosted.fail(failed)
        self._incarnation.leaderships.end(failed)
        self._incarnation.following.update()
        await self._store.notify_log_dir(self.id)

    async def reset(self, name: AnyPartition) -> None:
        """Use a replica again whose handler has failed too often.

        Raises:
            NotFound: the participant has no handler for the partition.
        """
        partition = arguments.partition(name)
        if self._hosting is None:
            raise NotFound("handler of this participant for", partition)
        self._hosting.reset(partition)

    def look_at_isr(self) -> None:
        """Call `in_sync` again now, because its result may have changed."""
        if self._incarnation is not None:
            self._incarnation.isr.schedule()

    # -- incarnations, one after the other

    async def _live(
        self, scope: anyio.CancelScope, ended: anyio.Event, *, task_status: anyio.abc.TaskStatus[None]
    ) -> None:
        """Register and serve, and again after each loss of the session, until `scope` is cancelled."""
        known = False
        try:
            with scope:
                incarnation = await self._register(PATIENCE * self._session_timeout_ms)
                task_status.started()
                known = True
                while True:
                    await self._serve(incarnation)
                    session, self._incarnation, self._session = self._session, None, None
                    await close_session(self.id, session)
                    await incarnation.notify_stopped()
                    incarnation = await self._register(math.inf)
            if not known:
                task_status.started()  # killed before it was registered
        finally:
            if self._incarnation is not None:
                self._incarnation.end()
            self._scope = None
            ended.set()

    def _make_incarnation(self) -> Incarnation:
        return Incarnation(
            self.id,
            store=self._store,
            clock=self._clock,
            pause=self._pause,
            listener=self._listener,
            hosting=self._hosting,
            in_sync=self._in_sync,
            alter_partition=self._alter_partition,
            lag_ms=self._lag_ms,
        )

    async def _register(self, patience_ms: float) -> Incarnation:
        registration = await self._registrar.register(patience_ms)
        self._session, self._incarnation, self._pacemaker = registration
        return registration.incarnation

    async def _serve(self, incarnation: Incarnation) -> None:
        """Serve until the session is lost."""
        assert self._pacemaker is not None
        try:
            await incarnation.run(self._pacemaker)
            log.warning("broker %d has lost its registration and registers again", self.id)
        except Exception:
            log.exception("broker %d has failed, and registers again", self.id)
        finally:
            await disconnect(incarnation)

    async def _end(self) -> Incarnation | None:
        """Cancel the current incarnation, if any, and wait for its end. Returns it."""
        if self._scope is None:
            return None
        ended = self._ended
        self._scope.cancel()
        if self._incarnation is not None:
            self._incarnation.end()  # no response is sent from here on, while its tasks still end
        await ended.wait()
        incarnation, self._incarnation = self._incarnation, None
        return incarnation

    def _report_lease(self, event: LeaseEvent) -> None:
        self._metrics.record(event)
        if self._on_lease_event is not None:
            try:
                self._on_lease_event(event)
            except Exception:
                log.exception("on_lease_event of broker %d has failed", self.id)
