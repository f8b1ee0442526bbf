"""The assembled controller, which users embed and the server and the command line run.

The only place that knows all actors. They live in one task group that belongs to the `async with` block; when the
block ends, or its scope is cancelled, everything has stopped.
"""

import dataclasses
import logging
import random
import time
import uuid
from types import TracebackType
from typing import Any, Final, Self, Unpack

import anyio
from opentelemetry import metrics, trace

from kactl.config.controller_settings import ControllerSettings, SettingKeywords
from kactl.decide.messages import arguments
from kactl.decide.messages.admin import AllocateBrokerId, ResignController
from kactl.decide.messages.events import (
    BrokerLag,
    ControllerChange,
    Event,
    LeaderAndIsrResponseReceived,
    LinkChange,
    Startup,
)
from kactl.decide.messages.routes import RouteMessage, Watch
from kactl.decide.messages.sessions import (
    Identified,
    Identify,
    NotController,
    ParticipantLink,
    Refused,
    SessionAnswer,
    SessionRequest,
    VerifyEndpoint,
)
from kactl.decide.outbound.batch import RequestBatch, deletion_answers
from kactl.decide.state.cluster import Cluster
from kactl.model import NO_BROKER, Broker, errors
from kactl.model.errors import BadRequest, ControllerFailed, IllegalState, KactlError
from kactl.runtime import forks
from kactl.runtime.background import Background, BlockStack, raise_alone
from kactl.runtime.budget import Budget
from kactl.runtime.clock import Clock, SystemClock
from kactl.runtime.conditions import FailureLog
from kactl.runtime.logs import logger
from kactl.stores.base import Store, StoreEvent
from kactl.stores.memory import MemoryStore
from kactl.stores.opening import check_unopened
from kactl.stores.store_metrics import StoreMetrics
from kactl.telemetry.attempts import Attempt, Attempts, Recorded
from kactl.telemetry.event_log import EventLog
from kactl.telemetry.metrics import Telemetry
from kactl.transports.base import Connection, Network, Transport
from kactl.transports.memory import MemoryHub

from .actor import Ref
from .answers import Answers
from .channels import Channels
from .commands import Commands
from .controller import ControllerLoop, inbox_of
from .gauges import readings
from .handlers.base import ControllerContext
from .links import Links
from .machines.machine import WHOLE
from .machines.partitions import Partitions
from .machines.replicas import Replicas
from .machines.topic_settings import TopicSettings
from .priority_inbox import Preemption
from .queries import Queries, Snapshot
from .remote_sessions import RemoteSessions
from .spectators import Spectators
from .watcher import Watcher

__all__ = ["Controller", "Snapshot"]

log = logger(__name__)

# How long a stop waits for the controllership to be given up properly; after that it ends with the session.
STOP_TIMEOUT_S: Final = 5
# The pause before a controller that ended by a bug is run again.
RESTART_PAUSE_MS: Final = 1000


class Controller(Commands, Queries, forks.OfOneProcess):
    """A controller instance: contests for the controllership, and controls the cluster while it has it.

        async with kactl.Controller(node_id=1) as controller:
            await controller.create_topic("orders", partitions=12, replication_factor=3)

    Args:
        node_id: the id of this instance, among controllers and brokers; not negative.
        store: where the cluster is stored; a MemoryStore of its own if None. It is opened and closed with the instance.
        hub: the network of this process, by which participants and this instance reach each other; a new one if None.
        network: any other network, in place of `hub`.
        transport: sends requests to brokers that are no participants of the network; by the network if None.
        clock: the clock of all timers and timestamps; the system's if None.
        rng: source of topic ids, which must be unique: the operating system's if None; seeded in a simulation.
        settings: see `ControllerSettings`. Each of its fields is also accepted as a keyword of its own, if `settings`
            is not given.
        meter_provider, tracer_provider: of OpenTelemetry; the host program's if None.
        cluster_name: the attribute `kactl.cluster` of the metrics, for programs that control several clusters.

    Raises:
        TypeError: a keyword is not a setting, or is given beside `settings`.
        BadRequest, BadConfig: a setting has an invalid value.

    An exception that is raised in the block leaves it unchanged, not in an ExceptionGroup. A bug that ends the instance
    leaves the block as ControllerFailed. `kactl.runtime.background` has the rules, also for several exceptions at once.

    Attributes:
        is_open: the block has been entered and not left.
        attempts: of peers to change something, for audit trails.
        budget: of all clients of this instance; its servers charge it.

    Nothing global is touched: no signal handlers, no logging, no event loop policy, no telemetry provider.
    """

    def __init__(
        self,
        node_id: int,
        *,
        store: Store | None = None,
        transport: Transport | None = None,
        hub: MemoryHub | None = None,
        network: Network | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        settings: ControllerSettings | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        tracer_provider: trace.TracerProvider | None = None,
        cluster_name: str = "",
        **keywords: Unpack[SettingKeywords],
    ) -> None:
        settings = ControllerSettings.of(settings, keywords)
        settings = dataclasses.replace(settings, controller_ids=frozenset((node_id, *settings.controller_ids)))
        if arguments.whole(node_id, "node_id") < 0:
            raise BadRequest("node_id", f"{node_id} is negative; choose a number that no broker has")
        if arguments.whole(settings.chunk_partitions, "chunk_partitions") < 1:
            raise BadRequest(
                "chunk_partitions", f"{settings.chunk_partitions} is no number of partitions; choose 1 or more"
            )
        if settings.listed_as is not None and settings.listed_as.id != node_id:
            raise BadRequest("listed_as", f"has the id {settings.listed_as.id}, and this instance is {node_id}")
        arguments.implements(store, Store, "store")
        arguments.implements(network if hub is None else hub, Network, "network")
        self.node_id = node_id
        self.is_open = False
        self.clock = SystemClock() if clock is None else clock
        self.store: Store = MemoryStore(clock=self.clock) if store is None else store
        if hub is not None and network is not None:
            raise BadRequest("network", "is given beside hub: give one of them")
        self.network: Network = (MemoryHub() if hub is None else hub) if network is None else network
        self.cluster = Cluster(node_id, recovery=settings.level.recovery, listed_as=settings.listed_as)
        # No process adds an event per microsecond, so numbers keep rising over restarts.
        self.history = EventLog(self.clock, first=self.clock.now_ms() * 1000)
        self.attempts = Attempts()
        self.telemetry = Telemetry(meter_provider, tracer_provider, arguments.text(cluster_name, "cluster_name"))
        self.budget = Budget(lambda: self.clock.monotonic_ms() / 1_000, time.thread_time)
        self._store_metrics = StoreMetrics(self.telemetry, self.clock)
        measured = self._store_metrics.measured(self.store)
        self.topic_settings = TopicSettings(
            measured,
            self.clock,
            min_isr=settings.min_insync_replicas,
            unclean=settings.unclean_leader_election,
        )
        self._transport = transport
        self.channels = Channels(
            self._connect,
            clock=self.clock,
            telemetry=self.telemetry,
            deliver_event=self._put,
            deletions_in=lambda request, answer: deletion_answers(request, answer, self.cluster),
            history=self.history,
            # Participants in this process receive columns, so coalescing would save nothing.
            coalesce=(transport is not None or not isinstance(self.network, MemoryHub)) and not settings.parity,
        )
        chunk = WHOLE if settings.parity else settings.chunk_partitions
        inbox = inbox_of(self.clock.monotonic_ms)
        preemption = Preemption(inbox, self.clock.monotonic_ms)
        self.partitions = Partitions(
            self.cluster,
            measured,
            self.channels,
            self.history,
            unclean_default=settings.unclean_leader_election,
            chunk=chunk,
            clock=self.clock,
            preemption=preemption,
        )
        self.replicas = Replicas(
            self.cluster,
            measured,
            self.channels,
            self.history,
            chunk=chunk,
            clock=self.clock,
            preemption=preemption,
        )
        self.sessions = RemoteSessions(
            measured,
            self.clock,
            active=self._active_controller,
            moved=self._look_for_controller,
            gate=self.channels.gate,
        )
        self.links = Links(
            self.clock,
            # A transport of its own reaches brokers that the network knows nothing about.
            reports=transport is None and getattr(self.network, "reports_links", True),
            awaited=self._link_opened,
        )
        context = ControllerContext(
            self.cluster,
            measured,
            self.partitions.ref,
            self.replicas.ref,
            self.channels,
            self.history,
            RequestBatch(self.cluster, self.history.reason),
            self.clock,
            settings,
            enqueue=lambda event: self.loop.inbox.put_once(event),
            new_topic_id=lambda: _new_topic_id(random.SystemRandom() if rng is None else rng),
            sessions=self.sessions,
            links=self.links,
            answers_wait=lambda: self.loop.inbox.holds(LeaderAndIsrResponseReceived),
            address=lambda: getattr(self.network, "controller_address", ""),
            preemption=preemption,
        )
        self.loop = ControllerLoop(context, inbox, telemetry=self.telemetry, unclean=self.partitions.unclean)
        self.answers = Answers(self.loop, self.channels)
        self._ref: Ref[Event] = self.loop.ref
        self._spectators = Spectators(self.loop, self.cluster, history=self.history, store=self.store, clock=self.clock)
        self._network_transport: Transport | None = None
        self._stack: BlockStack | None = None
        self._was_entered = False
        self._home = forks.home()
        self.telemetry.watch(self.history.outages)
        self.telemetry.observe(
            readings(self.loop, self.partitions, self.replicas, self.channels, self.sessions, self.topic_settings)
            | self._store_metrics.readings()
        )

    # -- life ----------------------------------------------------------------------------------------------------------

    def _abandon(self) -> None:
        """See `kactl.runtime.forks`."""
        gone: Any = forks.Gone(f"controller {self.node_id}", self._home)
        self.loop = self.cluster = self.history = self.links = self.sessions = self.topic_settings = gone
        self.is_open = False
        self.telemetry.close()

    async def __aenter__(self) -> Self:
        await self._open(interrupts=True)
        return self

    async def start(self) -> None:
        """Run until `aclose`, which any task may call: for programs that cannot keep a block open, such as notebooks,
        fixtures and the hooks of frameworks. If it fails, nothing has to be closed."""
        await self._open(interrupts=False)

    async def aclose(self) -> None:
        """Stop, as at the end of a block. Does nothing if the instance is not open.

        Raises:
            ControllerFailed: a bug has ended the instance.
        """
        await self.__aexit__(None, None, None)

    async def _open(self, *, interrupts: bool) -> None:
        try:
            await self._enter(interrupts)
        except KactlError as error:
            raise_alone(error)

    async def _enter(self, interrupts: bool) -> None:
        if self._was_entered:
            self._home.check(f"controller {self.node_id}")
            raise IllegalState(
                f"controller {self.node_id} has been entered before: make a new Controller for each block"
            )
        self._was_entered = True
        self._home = forks.share(self)
        async with BlockStack("the controller") as stack:
            stack.callback(self.telemetry.close)
            check_unopened(self.store)  # before this instance receives the events of another one
            watcher = Watcher(self.loop.inbox, self.loop.clear_and_put, self.channels.gate, self._store_changed)
            self.store.subscribe(watcher)
            await stack.enter_async_context(self.store)
            self._network_transport = await stack.enter_async_context(self.network.controller_side(self))
            tasks = await stack.enter_async_context(
                Background("an actor of the controller", failed=ControllerFailed, interrupts=interrupts)
            )
            for actor in (self.partitions, self.replicas):
                tasks.start_soon(actor.run, name=actor.name)
            tasks.start_soon(self.sessions.run, name="sessions of participants")
            tasks.start_soon(self._supervise, name="controller")
            stack.push_async_callback(self._stop)
            self._put(Startup())
            self._stack = stack.pop_all()
        self.is_open = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        stack, self._stack, self.is_open = self._stack, None, False
        return None if stack is None else await stack.__aexit__(kind, error, trace)

    @property
    def hub(self) -> MemoryHub:
        """The network, if it is the one of this process.

        Raises:
            IllegalState: the instance was created with another network.
        """
        if not isinstance(self.network, MemoryHub):
            raise IllegalState(f"controller {self.node_id} uses another network: pass it on as network=")
        return self.network

    def _active_controller(self) -> NotController:
        """Returns the active controller, as far as this instance knows."""
        active_id = self.loop.active_id
        return NotController(NO_BROKER if active_id is None else active_id, self.loop.active_address)

    def standby(self) -> NotController | None:
        """See `kactl.transports.base.ControllerPort`."""
        return self.sessions.standby()

    def active_term(self) -> tuple[int, int]:
        """See `kactl.transports.base.ControllerPort`."""
        return self.sessions.active_term()

    async def session(self, request: SessionRequest, *, received_ns: int) -> SessionAnswer:
        """See `kactl.transports.base.ControllerPort`."""
        if isinstance(request, Identify):
            return await self._identify(request)
        answer = await self.sessions.answer(request, received_ns=received_ns)
        if isinstance(request, VerifyEndpoint) and isinstance(answer, Refused):
            self.links.endpoint_failed(ParticipantLink(request.broker, request.incarnation), answer.reason)
        return answer

    async def _identify(self, request: Identify) -> SessionAnswer:
        if await self.sessions.knows(request):
            return Identified(request.broker)
        try:
            return Identified(await self.ask(AllocateBrokerId(request.broker, request.name, request.start)))
        except errors.NotController:
            return self._active_controller()
        except KactlError as error:
            return Refused.of(error)

    def link_opened(self, link: ParticipantLink) -> None:
        """See `kactl.transports.base.ControllerPort`."""
        self.links.opened(link)

    def link_closed(self, link: ParticipantLink, reason: str) -> None:
        """See `kactl.transports.base.ControllerPort`."""
        self.links.closed(link, reason)

    def endpoint_failed(self, link: ParticipantLink, reason: str) -> None:
        """See `kactl.transports.base.ControllerPort`."""
        self.links.endpoint_failed(link, reason)

    def attempted(self, attempt: Attempt) -> None:
        """See `kactl.transports.base.ControllerPort`."""
        self.attempts.add(Recorded(attempt, self.clock.now_ms(), self.cluster.fence.epoch))

    async def watch_routes(self, asked: Watch) -> RouteMessage:
        """See `ControllerPort`."""
        return await self._spectators.watch(asked)

    def _connect(self, broker: Broker) -> Connection:
        transport = self._network_transport if self._transport is None else self._transport
        assert transport is not None, "no request is sent before the network is open"
        return transport.connect(broker)

    async def _stop(self) -> None:
        """Give up the controllership, and let go of all connections; bounded in time."""
        self.loop.controllership.stopping = True
        with anyio.CancelScope(shield=True):
            try:
                with anyio.move_on_after(STOP_TIMEOUT_S):
                    await self.loop.clear_and_ask(ResignController(stop=True))
            except KactlError as refused:
                # It had ended before, or its inbox is full; the store ends the controllership with the session.
                log.info("the controllership was not given up in order: %s", refused)
            self.channels.close()
            with anyio.move_on_after(STOP_TIMEOUT_S):
                await self.channels.closed()

    async def _supervise(self) -> None:
        """Run the controller; if a bug ends it, resign and run it again."""
        failures = FailureLog(log, self.clock.monotonic_ms)
        while True:
            try:
                await self.loop.run()
            except Exception as error:
                failures.add(logging.ERROR, error, "the controller ended by an error; it resigns and begins anew")
                await self.loop.controllership.abandon()
                await self.clock.sleep_ms(RESTART_PAUSE_MS)
                self._put(Startup())

    def _store_changed(self, change: StoreEvent) -> None:
        """Note a change outside the controller's own tasks; never raises."""
        self._store_metrics.changed(change.what.value)
        self.topic_settings.changed(change)

    def _look_for_controller(self) -> None:
        """Read the controller record: the store has rejected the fence."""
        self._put_if_open(ControllerChange())

    def _link_opened(self, broker: int) -> None:
        if broker in self.cluster.fenced:
            self._put_if_open(LinkChange())

    def _put_if_open(self, event: Event) -> None:
        """Queue an event from outside the event loop's own tasks; it does not matter once the instance stops."""
        try:
            self.loop.inbox.put_once(event)
        except KactlError as refused:
            log.info("%s is not queued: %s", event.label, refused)

    def _put(self, event: Event) -> None:
        """Raises InboxFull or ActorStopped; the first never for events that must not be lost."""
        if isinstance(event, BrokerLag | Startup):
            self.loop.inbox.put_once(event)
        else:
            self._ref.tell(event)


def _new_topic_id(rng: random.Random) -> bytes:
    """Returns a random id. Its text form does not begin with a dash, which command lines would take for an option.

    Source: Uuid.randomUuid.
    """
    while True:
        topic_id = uuid.UUID(int=rng.getrandbits(128), version=4).bytes
        # The first character of the text form carries the first six bits; 62 is written as a dash.
        if topic_id[0] >> 2 != 62:
            return topic_id
