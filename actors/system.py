"""The whole controller, put together: what users embed, and what the server and the command line run.

The only place that knows all actors. They live in one task group that belongs to the `async with` block; when the
block ends, or its scope is cancelled, everything has stopped.
"""

import uuid
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Final, Self

import anyio
from opentelemetry import metrics, trace

from kactl.clock import Clock, SystemClock
from kactl.config.protocol_level import LATEST, ProtocolLevel
from kactl.errors import BadRequest, KactlError
from kactl.messages import arguments
from kactl.messages.admin import ResignRequested
from kactl.messages.events import BrokerLagged, Event, Started
from kactl.model import Broker
from kactl.outbound.batch import RequestBatch, deletion_answers
from kactl.runtime.background import Background, BlockStack
from kactl.runtime.logs import logger
from kactl.state.cluster import Cluster
from kactl.stores.base import Store
from kactl.stores.memory import MemoryStore
from kactl.telemetry.event_log import History
from kactl.telemetry.metrics import Telemetry
from kactl.transports.base import Transport
from kactl.transports.memory import MemoryHub, MemoryTransport

from .actor import Ref
from .channels import Channels
from .commands import Commands
from .controller import ControllerLoop
from .gauges import readings
from .handlers.base import CHUNK_PARTITIONS, SHUTDOWN_LIMIT_MS, ControllerContext, Settings
from .machines.chunks import WHOLE
from .machines.min_isr import KAFKA_DEFAULT, MinIsr
from .machines.partitions import Partitions
from .machines.replicas import Replicas
from .queries import Queries, Snapshot
from .watcher import Watcher

__all__ = ["Controller", "Snapshot"]

log = logger(__name__)

# How long a stop waits for the controllership to be given up properly; after that it ends with the session.
STOP_TIMEOUT_S: Final = 5
# The pause before a controller that ended by a bug is run again.
RESTART_PAUSE_MS: Final = 1000


class Controller(Commands, Queries):
    """A controller instance: contests for the controllership, and rules the cluster while it has it.

        async with kactl.Controller(node_id=1) as controller:
            await controller.create_topic("orders", partitions=12, replication_factor=3)

    Args:
        node_id: ours, among controllers and brokers; not negative.
        store: where the cluster is kept; a MemoryStore of its own if None. It is opened and closed with this.
        transport: how brokers are reached; participants in this process, by way of `hub`, if None.
        level: the protocol level of the brokers: whether topics have ids, leaders propose their ISRs, and so on;
            text such as `3.9` is read as in a broker's configuration.
        supported_features: the lowest and highest level of each feature that may be finalized, by name; none if None.
            Brokers of Kafka that keep their cluster in ZooKeeper stop if one is finalized.
        unclean_leader_election: whether topics that say nothing of it allow unclean elections, as long as the store
            says nothing of it for all brokers.
        delete_topics: whether topics may be deleted.
        auto_balance: whether leaders return to their preferred replicas by themselves; every `balance_interval_ms`,
            where others lead more than `balance_percentage` of the partitions that prefer a broker.
        shutdown_limit_ms: how long a broker that asked to be shut down may stay, before it is counted on again.
        standby_interval_ms: how often an instance that stands by reads what has changed, so that it has little to read
            when it takes over; 0 reads nothing beforehand.
        take_over: take the controllership from whoever holds it, when starting.
        parity: send brokers exactly what Kafka's controller would send them, for comparing the two: a large change as
            one batch, once all of it is written, and nothing of what waits for a broker put together.
        chunk_partitions: without `parity`, how many partitions of a large change are decided, written and told at one
            time; brokers hear of the first while the others are written, and small requests get their turn in between.
        listed_as: our entry in the list of brokers that brokers are told; None if they are to know our id alone.
        controller_ids: ids of other instances; no replica stays on them or on ours.
        min_insync_replicas: the brokers' own setting of `min.insync.replicas`, for topics without an override while
            the store has no default for all brokers. Only health checks, lists and previews use it.
        meter_provider, tracer_provider: of OpenTelemetry; the host program's if None.

    An exception that is raised in the block leaves it unchanged, not in an ExceptionGroup; `kactl.runtime.background`
    has the rules, also for several exceptions at once.

    Nothing global is touched: no signal handlers, no logging, no event loop policy, no telemetry provider.
    """

    def __init__(
        self,
        node_id: int,
        *,
        store: Store | None = None,
        transport: Transport | None = None,
        hub: MemoryHub | None = None,
        clock: Clock | None = None,
        level: ProtocolLevel | str = LATEST,
        supported_features: Mapping[str, tuple[int, int]] | None = None,
        unclean_leader_election: bool = False,
        delete_topics: bool = True,
        auto_balance: bool = True,
        balance_interval_ms: int = 300_000,
        balance_percentage: int = 10,
        shutdown_limit_ms: int = SHUTDOWN_LIMIT_MS,
        standby_interval_ms: int = 1000,
        take_over: bool = False,
        parity: bool = False,
        chunk_partitions: int = CHUNK_PARTITIONS,
        listed_as: Broker | None = None,
        controller_ids: Collection[int] = (),
        min_insync_replicas: int = KAFKA_DEFAULT,
        meter_provider: metrics.MeterProvider | None = None,
        tracer_provider: trace.TracerProvider | None = None,
    ) -> None:
        if isinstance(level, str):
            level = ProtocolLevel.parse(level)
        if arguments.whole(node_id, "node_id") < 0:
            raise BadRequest("node_id", f"{node_id} is negative; choose a number that no broker has")
        if arguments.whole(chunk_partitions, "chunk_partitions") < 1:
            raise BadRequest("chunk_partitions", f"{chunk_partitions} is no number of partitions; choose 1 or more")
        self.node_id = node_id
        self.clock = SystemClock() if clock is None else clock
        self.store: Store = MemoryStore(clock=self.clock) if store is None else store
        self.hub = MemoryHub() if hub is None else hub
        if listed_as is not None and listed_as.id != node_id:
            raise BadRequest("listed_as", f"has the id {listed_as.id}, and this instance is {node_id}")
        self.cluster = Cluster(node_id, recovery=level.recovery, listed_as=listed_as)
        # In microseconds no process counts as fast as time goes by, so that numbers go on rising over restarts.
        self.history = History(self.clock, first=self.clock.now_ms() * 1000)
        self.telemetry = Telemetry(meter_provider, tracer_provider)
        self.min_isr = MinIsr(self.store, self.clock, own=min_insync_replicas)
        self.channels = Channels(
            MemoryTransport(self.hub, clock=self.clock) if transport is None else transport,
            clock=self.clock,
            telemetry=self.telemetry,
            deliver_event=self._put,
            deletions_in=lambda request, answer: deletion_answers(request, answer, self.cluster),
            # Participants in this process are handed columns: there is nothing to be spared.
            coalesce=transport is not None and not parity,
        )
        chunk = WHOLE if parity else chunk_partitions
        self.partitions = Partitions(
            self.cluster,
            self.store,
            self.channels,
            self.history,
            unclean_default=unclean_leader_election,
            chunk=chunk,
            clock=self.clock,
        )
        self.replicas = Replicas(self.cluster, self.store, self.channels, self.history, chunk=chunk, clock=self.clock)
        context = ControllerContext(
            self.cluster,
            self.store,
            self.partitions.ref,
            self.replicas.ref,
            self.channels,
            self.history,
            RequestBatch(self.cluster),
            self.clock,
            Settings(
                new_topic_id=_new_topic_id,
                level=level,
                supported_features=dict(supported_features or {}),
                delete_topics=delete_topics,
                auto_balance=auto_balance,
                balance_interval_ms=balance_interval_ms,
                balance_percentage=balance_percentage,
                shutdown_limit_ms=shutdown_limit_ms,
                standby_interval_ms=standby_interval_ms,
                take_over=take_over,
                parity=parity,
                chunk_partitions=chunk_partitions,
                controller_ids=frozenset((node_id, *controller_ids)),
            ),
            enqueue=lambda event: self.loop.inbox.put_once(event),
        )
        self.loop = ControllerLoop(context, telemetry=self.telemetry, unclean=self.partitions.unclean)
        self._ref: Ref[Event] = self.loop.ref
        self._stack: BlockStack | None = None
        self.telemetry.observe(readings(self.loop, self.partitions, self.replicas, self.channels))

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        async with BlockStack("the controller") as stack:
            stack.callback(self.telemetry.close)
            watcher = Watcher(self.loop.inbox, self.loop.clear_and_put, self.channels.gate, self.min_isr.changed)
            self.store.subscribe(watcher)
            await stack.enter_async_context(self.store)
            tasks = await stack.enter_async_context(Background("an actor of the controller"))
            for actor in (self.partitions, self.replicas):
                tasks.start_soon(actor.run, name=actor.name)
            tasks.start_soon(self._supervise, name="controller")
            stack.push_async_callback(self._stop)
            self.hub.attach_controller(self.node_id, self._ref.ask)
            stack.callback(self.hub.detach_controller, self.node_id, self._ref.ask)
            self._put(Started())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._stack is not None
        return await self._stack.__aexit__(kind, error, trace)

    async def _stop(self) -> None:
        """Give up the controllership, and let go of all connections; bounded in time."""
        self.loop.controllership.stopping = True
        with anyio.CancelScope(shield=True):
            try:
                with anyio.move_on_after(STOP_TIMEOUT_S):
                    await self.loop.clear_and_ask(ResignRequested(stop=True))
            except KactlError as refused:
                # It had ended before, or is too far behind; the store ends the controllership along with its session.
                log.info("the controllership was not given up in order: %s", refused)
            self.channels.close()
            with anyio.move_on_after(STOP_TIMEOUT_S):
                await self.channels.closed()

    async def _supervise(self) -> None:
        """Run the controller; if a bug ends it, resign and run it again."""
        while True:
            try:
                await self.loop.run()
            except Exception as error:
                log.exception("the controller ended by an error; it resigns and begins anew: %s", error)
                await self.loop.controllership.abandon()
                await self.clock.sleep_ms(RESTART_PAUSE_MS)
                self._put(Started())

    def _put(self, event: Event) -> None:
        """Raises InboxFull or ActorStopped; the first never for what must not be lost."""
        if isinstance(event, BrokerLagged | Started):
            self.loop.inbox.put_once(event)
        else:
            self._ref.tell(event)


def _new_topic_id() -> bytes:
    """A random id whose text form does not begin with a dash, which command lines would take for an option.

    Source: Uuid.randomUuid.
    """
    while True:
        made = uuid.uuid4().bytes
        # The first character of the text form carries the first six bits; 62 is written as a dash.
        if made[0] >> 2 != 62:
            return made
