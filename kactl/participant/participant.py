"""A broker in this process, which registers, carries out the controller's requests and calls the application.

`wiring` connects its parts, `lives` runs its registrations.

    NEW ─start─▶ RUNNING ─pause─▶ PAUSED ─resume─▶ RUNNING
                    │ kill, stop     │ kill, stop
                    ▼                ▼
                  ENDED ─────restart, start─────▶ RUNNING

If a participant was paused for longer than its session's timeout, its registration has expired when it resumes. It then
calls the listener's `stopped` for every replica, and registers again with a higher broker epoch.
"""

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.abc
import anyio.lowlevel

from kactl.decide.messages import arguments
from kactl.decide.messages.arguments import AnyPartition
from kactl.decide.messages.sessions import START_BYTES, incarnation_ids
from kactl.model import NO_BROKER, NO_EPOCH, Broker, Endpoint, TopicRef
from kactl.model.errors import ActionTimedOut, BadRequest, IllegalState, NotFound
from kactl.runtime import forks
from kactl.runtime.background import Background, BlockStack, raise_alone
from kactl.runtime.clock import Clock, SystemClock
from kactl.runtime.conditions import FailureLog
from kactl.runtime.logs import logger
from kactl.runtime.patience import START_TIMEOUT_MS
from kactl.runtime.time_limit import limited
from kactl.stores.base import Session, Store
from kactl.stores.opening import opened
from kactl.transports.base import ParticipantNetwork

from . import wiring
from .controlled_shutdown import ATTEMPTS, controlled_shutdown
from .ensured_topics import TopicRequests
from .handlers.hosting import HANDLERS_PARALLEL, TRANSITION_TIMEOUT_MS, MakeHandler
from .incarnation import Incarnation
from .isr_update import InSync
from .lagging_replicas import LAG_MS
from .leases.events import LeaseEvent
from .leases.metrics import LeaseMetrics
from .leases.terms import LeaseConfig
from .leases.watchdog import Watchdog
from .listener import Listener
from .listener_calls import ListenerCalls
from .lives import CLOSE_S, Life, Lives
from .own_id import OwnId
from .pause_gate import PauseGate
from .registrar import Registrar
from .sessions import STORE_TIMEOUT_MS
from .views import Views

log = logger(__name__)

SESSION_TIMEOUT_MS: Final = STORE_TIMEOUT_MS
# Registrations and links change rarely, and a caller waits once.
_LINK_POLL_MS: Final = 20


WEIGHT_MAX: Final = 1_000


class Participant(TopicRequests, Views, forks.OfOneProcess):
    """A participant in this process: a handler leads the partitions that the controller gives to it.

        class Shard(kactl.PartitionHandler):
            async def lead(self, leader: kactl.Leader) -> None:
                ...  # until it is cancelled

        network = kactl.TcpNetwork(controllers=["10.0.0.1:7373"])
        async with kactl.Participant(1, network=network, handler=Shard) as participant:
            await participant.ensure_topic("shards", partitions=12)

    In the process of the controller, `store=controller.store, hub=controller.hub` replace the network.

    Args:
        broker_id: not negative, not used by another broker, and none of `kactl.model.GIVEN_IDS`.
        name: in place of an id: the controller gives the same one to each process with that name, also after restarts.
            Without both, it gives one that is free, for as long as the registration lasts.
        store: where the broker registers in a session. It is opened and closed with the participant, unless it is open.
            None: the participant registers with the active controller, and has its session there.
        hub: the network of this process, which the participant shares with the controllers and other participants.
        network: any other network, in place of `hub`.
        controllers: addresses of the controllers, `host:port`, for a network that does not know them.
        groups: the ownership topics of which it may own partitions; None: all. A process that has the code for some
            topics only names these.
        weight: of its share in them: one of weight 2 owns twice as many partitions as one of weight 1.
        endpoints: the addresses of the broker for its registration. The participant does not listen on them.
        listener: callbacks for partitions to lead, to follow and to stop, in place of a handler: for programs that
            apply Kafka's requests themselves.
        in_sync: (partition, follower) -> whether the follower has caught up with this leader. Called repeatedly for
            followers that are out of sync, and at intervals for those in sync. None: every follower has caught up.
        session_timeout_ms: 18 s if None, and 9 s for a session with the controller.
        start_timeout_ms: how long a start waits for the store, for a controller, and for an earlier registration of
            the id to expire; None waits for ever. The reasons are logged meanwhile. What cannot change by waiting, as a
            wrong secret, ends it at once.
        lag_ms: the time for which a member of an ISR may fail to follow or to catch up before its leader removes it.
        shutdown_attempts: how often a stopping participant requests that the controller moves its leaderships; 0 to
            stop at once.
        handler: the class of the code for a partition, or a function that returns an object of it. It is called for the
            first order that concerns the partition.
        handlers_parallel: how many handlers may prepare or stop at once.
        transition_timeout_ms: how long one of them, or an asynchronous call of the listener, may take.
        lease: settings of the lease under which this participant leads.
        on_lease_event: called in the event loop with each event of the lease.
        rng: source of the ids of registrations, which must be unique: the operating system's if None; seeded in a
            simulation.

    Raises:
        BadRequest: arguments contradict each other; or, on entering, the session timeout leaves no time to lead.
    """

    def __init__(
        self,
        broker_id: int | None = None,
        *,
        name: str | None = None,
        store: Store | None = None,
        hub: ParticipantNetwork | None = None,
        network: ParticipantNetwork | None = None,
        controllers: Sequence[str] = (),
        clock: Clock | None = None,
        rack: str | None = None,
        groups: Iterable[str] | None = None,
        weight: int = 1,
        endpoints: tuple[Endpoint, ...] = (),
        listener: Listener | None = None,
        in_sync: InSync | None = None,
        session_timeout_ms: int | None = None,
        start_timeout_ms: int | None = START_TIMEOUT_MS,
        lag_ms: float = LAG_MS,
        shutdown_attempts: int = ATTEMPTS,
        handler: MakeHandler | None = None,
        handlers_parallel: int = HANDLERS_PARALLEL,
        transition_timeout_ms: float = TRANSITION_TIMEOUT_MS,
        lease: LeaseConfig | None = None,
        on_lease_event: Callable[[LeaseEvent], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if not 1 <= arguments.whole(weight, "weight") <= WEIGHT_MAX:
            raise BadRequest("weight", f"{weight} is not between 1 and {WEIGHT_MAX}")
        if start_timeout_ms is not None and arguments.whole(start_timeout_ms, "start_timeout_ms") < 0:
            raise BadRequest("start_timeout_ms", f"{start_timeout_ms} is negative; None waits for ever")
        offered = None if groups is None else arguments.names(groups, "groups")
        self._store = store
        self._clock = clock or SystemClock()
        self._listener = listener or Listener()
        self._calls = ListenerCalls(self._clock, limit_ms=transition_timeout_ms)
        self._in_sync = in_sync
        self._lag_ms = lag_ms
        self._shutdown_attempts = shutdown_attempts
        self._transition_timeout_ms = transition_timeout_ms
        lease = lease or LeaseConfig()
        self._hosting = wiring.hosting(
            handler,
            listener,
            lease=lease,
            clock=self._clock,
            handlers_parallel=handlers_parallel,
            transition_timeout_ms=transition_timeout_ms,
        )
        connections = wiring.connections(
            store=store,
            hub=hub,
            network=network,
            controllers=controllers,
            session_timeout_ms=session_timeout_ms,
            lease=lease,
            clock=self._clock,
        )
        self._own = OwnId(broker_id, name, connections.network, connections.controllers)
        self._on_lease_event = on_lease_event
        self._rng = random.SystemRandom() if rng is None else rng
        self._start = b""  # of the ids of incarnations, since the last entry
        self._incarnations: Iterator[bytes] = iter(())
        self._metrics = LeaseMetrics()
        self._failures = FailureLog(log)
        self._pause = PauseGate()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._stack: BlockStack | None = None  # what is closed at the end of the block
        self._registrar = Registrar(
            Broker(NO_BROKER, NO_EPOCH, endpoints, rack, groups=offered, weight=weight),
            self._own,
            sessions=connections.sessions,
            network=connections.network,
            controllers=connections.controllers,
            clock=self._clock,
            pause=self._pause,
            lease=lease,
            make=self._make_incarnation,
            start=lambda: self._start,
            report=self._report_lease,
            watchdog=Watchdog() if self._hosting is None else self._hosting.watchdog,
        )
        self._start_timeout_ms = start_timeout_ms
        self._lives: Lives | None = None  # since the last start
        self._started_before = False
        self._home = forks.home()

    # -- lifecycle; not to be called from a listener's method, because its task is cancelled with the incarnation

    async def __aenter__(self) -> Self:
        """Register, and serve until the end of the block.

        Raises:
            BrokerIdTaken: another live session has held the id for `start_timeout_ms`.
            StoreError: the store was not available in that time.
            ControllerUnreachable: no controller was, for a session with the controller.
            EndpointUnreachable: the controller did not find this participant at the address that it advertises.
            NotAuthorized, ProtocolMismatch: every controller has refused the connection.
        """
        await self.open()
        try:
            await self.start()
        except BaseException as error:
            if not await self.leave(type(error), error, error.__traceback__):
                raise_alone(error)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self.leave(kind, error, trace)

    async def open(self, *, interrupts: bool = True) -> None:
        """Prepare for `start`: open the store, and no connection to a controller.

        Args:
            interrupts: whether a bug that ends the participant cancels the calling task.
        """
        if self._stack is not None:
            self._home.check(f"participant {self._own}")
            raise IllegalState(f"participant {self._own} is already open: use one object for each block")
        if self._home.left:
            # Made before a fork: each child needs registrations of its own, also if `rng` was copied.
            self._home, self._rng = forks.home(), random.SystemRandom()
        # Nothing of an earlier entry, or of another process, may be taken for this one.
        self._begin_life()
        self._stack = stack = BlockStack(f"participant {self._own}")
        try:
            await self._open(stack, interrupts=interrupts)
        except BaseException as error:
            self._stack = None
            await stack.__aexit__(type(error), error, error.__traceback__)
            raise

    async def _open(self, stack: BlockStack, *, interrupts: bool) -> None:
        if self._hosting is not None:
            self._hosting.watchdog.check()
            stack.callback(self._hosting.watchdog.stop)
        if self._store is not None:
            await stack.enter_async_context(opened(self._store))
        # The registration ends first, and stops the application, whose calls must not be cancelled before.
        calls = await stack.enter_async_context(
            Background(f"the application of participant {self._own}", interrupts=interrupts, end_s=CLOSE_S)
        )
        self._calls.open(calls.start_soon)
        if self._hosting is not None:
            self._hosting.open(calls.start_soon)
        self._tasks = await stack.enter_async_context(Background(f"participant {self._own}", interrupts=interrupts))

    async def aclose(self) -> None:
        """Stop for good, as at the end of a block. Does nothing if the participant is not open."""
        await self.leave(None, None, None)

    close = aclose

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
        if self._stack is None or self._tasks is None:
            return False  # it is closed, or being closed
        stack, self._tasks = self._stack, None
        attempts = self._shutdown_attempts if shutdown_attempts is None else shutdown_attempts
        if not self._home.left:
            stack.push_async_callback(self._shut_down, attempts)
        try:
            return await stack.__aexit__(kind, error, trace)
        finally:
            self._stack = None

    async def _shut_down(self, attempts: int) -> None:
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._controlled_shutdown(attempts)
        if self._lives is not None:
            with anyio.CancelScope(shield=True):
                await self._lives.end()

    async def start(self) -> None:
        """Register and serve. Returns as soon as the broker is registered, or at once if it runs already.

        It is for programs that cannot keep a block open, such as notebooks, fixtures and the hooks of frameworks: any
        task may call it, and `aclose` at the end. If it fails, nothing has to be closed.

        If the id has an earlier registration, this waits until it expires.

        Raises:
            BrokerIdTaken, StoreError, ControllerUnreachable: see `__aenter__`.
        """
        if self._stack is None:
            await self.open(interrupts=False)
            try:
                await self.start()
            except BaseException as error:
                await self.leave(type(error), error, error.__traceback__)
                raise_alone(error)
            return
        self._home.check(f"participant {self._own}")
        if self._tasks is None:
            raise IllegalState(f"participant {self._own} cannot start: another task is opening or closing it")
        if not self._runs:
            self._started_before = True
            self._pause.resume()
            self._lives = Lives(self._own, self._registrar, self._clock, start_timeout_ms=self._start_timeout_ms)
            await self._tasks.start(self._lives.run)

    async def kill(self) -> None:
        """End as a killed process does: at once, without any request; the broker stays registered until the session
        expires."""
        self._begin_life()
        if self._present is not None:
            await self._present.end(silent=True)
        if self._hosting is not None:
            await self._hosting.end_life(silent=True)

    async def stop(self) -> None:
        """Stop with a controlled shutdown.

        The controller moves the leaderships to other brokers, the listener's `stopped` is called for every replica,
        and the registration ends at once.
        """
        await self._controlled_shutdown(self._shutdown_attempts)
        if self._lives is not None:
            await self._lives.end()

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
            is_owned=lambda name: TopicRef(name.topic, incarnation.hosted.topic_id_of(name)).is_ownership,
            limit_ms=self._transition_timeout_ms,
        )

    async def restart(self) -> None:
        """Stop if the participant runs, and start again without any state and with a higher broker epoch.

        After `kill` this waits until the old registration has expired.

        Raises:
            BrokerIdTaken, StoreError, ControllerUnreachable: see `__aenter__`.
        """
        await self.stop()
        await self.start()

    async def wait_linked(self, *, timeout_ms: int = 30_000) -> int:
        """Wait until the participant is registered, its link has reached an active controller, and this controller has
        announced it to the brokers: from then on it can be named in an assignment. Returns the broker epoch.

        Raises:
            ActionTimedOut: it is not within that time.
        """

        async def linked() -> int:
            while True:
                incarnation = self._incarnation
                if incarnation is not None and incarnation.link.is_open and incarnation.is_announced:
                    return incarnation.epoch
                await self._clock.sleep_ms(_LINK_POLL_MS)

        return await limited(self._clock, timeout_ms, linked, ActionTimedOut(f"linking broker {self.id}", timeout_ms))

    async def wait_closed(self) -> None:
        """Wait until the participant has stopped, was killed, or has left its block."""
        while self._lives is not None and self._runs:
            await self._lives.ended.wait()

    def pause(self) -> None:
        """Hang: send no response, no keep-alive and no write. A listener's call in progress is not interrupted."""
        if self._runs:
            self._pause.pause()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._pause.resume()
        if self._incarnation is not None:
            self._incarnation.isr.schedule()
            self._incarnation.following.repeat()

    @property
    def id(self) -> int:
        """The broker id. One that was not chosen is NO_BROKER (-1) before the first registration, and may change with a
        later one if there is no name."""
        return self._own.broker

    @property
    def name(self) -> str:
        """The name in the registration: the given one, or `host:process` of a participant without one; empty if the id
        was chosen."""
        return self._own.name

    @property
    def life(self) -> Life:
        if not self._runs:
            return Life.ENDED if self._started_before else Life.NEW
        return Life.PAUSED if self._pause.paused else Life.RUNNING

    @property
    def _runs(self) -> bool:
        return self._present is not None and not self._present.ended.is_set()

    @property
    def _incarnation(self) -> Incarnation | None:
        """The present registration; None if there is none."""
        return None if self._present is None else self._present.incarnation

    @property
    def _session(self) -> Session | None:
        return None if self._present is None else self._present.session

    @property
    def _present(self) -> Lives | None:
        """Raises ProcessForked in a child of the process in which it was started."""
        if self._lives is not None:
            self._home.check(f"participant {self._own}")
        return self._lives

    # -- called by the application

    async def fail_directory(self, partitions: Iterable[AnyPartition]) -> None:
        """Report the failure of the directory of some replicas to the controller.

        The participant stops serving the replicas, and rejects requests that concern them until the next restart.

        Raises:
            StoreError: the controller could not be notified; call this again.
        """
        if self._incarnation is None:
            raise IllegalState(f"participant {self._own} is not running: it has no replicas that could fail")
        failed = arguments.partitions(partitions)
        self._incarnation.fail(failed)
        if self._store is not None:
            await self._store.notify_log_dir(self.id)
        else:
            self._incarnation.report_failed(failed)

    async def reset(self, name: AnyPartition) -> None:
        """Call a handler again now that has failed, without the rest of its pause.

        Raises:
            NotFound: the participant has no handler for the partition.
        """
        partition = arguments.partition(name)
        if self._hosting is None:
            raise NotFound("handler of this participant for", partition)
        self._hosting.reset(partition)

    # -- incarnations, one after the other

    def _begin_life(self) -> None:
        self._start = self._rng.randbytes(START_BYTES)
        self._incarnations = incarnation_ids(self._start)

    def _make_incarnation(self, broker: int) -> Incarnation:
        return Incarnation(
            broker,
            store=self._store,
            clock=self._clock,
            pause=self._pause,
            listener=self._listener,
            calls=self._calls,
            hosting=self._hosting,
            in_sync=self._in_sync,
            lag_ms=self._lag_ms,
            incarnation=next(self._incarnations),
            claim=self._own.claim,
        )

    def _report_lease(self, event: LeaseEvent) -> None:
        self._metrics.record(event)
        if self._on_lease_event is not None:
            try:
                self._on_lease_event(event)
            except Exception as error:
                self._failures.add(logging.ERROR, error, "on_lease_event of broker %d has failed", self.id)
