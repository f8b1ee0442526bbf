"""The whole controller, put together: what users embed, and what the server and the command line run.

The only place that knows all actors. They live in one task group that belongs to the `async with` block; when the
block ends, or its scope is cancelled, everything has stopped.
"""

import logging
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self, cast

import anyio
import msgspec
import numpy as np
from opentelemetry import metrics

from kactl.batch import RequestBatch
from kactl.clock import Clock, SystemClock
from kactl.cluster import Cluster
from kactl.errors import ActionTimedOut, BadRequest, KactlError
from kactl.events import BrokerLagged, Event, Started
from kactl.history import AnyEvent, History
from kactl.model import NO_LEADER, Assignment, Broker, PartitionView, TopicPartition, TopicRef
from kactl.requests import (
    ElectionKind,
    ElectionRequested,
    ElectionResult,
    ResignRequested,
    TopicCreationRequested,
    UncleanElectionsEnabled,
)
from kactl.store import Store
from kactl.stores.memory import MemoryStore
from kactl.telemetry import Telemetry
from kactl.transport import Transport
from kactl.transports.memory import MemoryHub, MemoryTransport

from .actor import Ref
from .channel import Channels
from .controller import ControllerLoop
from .gauges import readings
from .handlers.reach import Reach, Settings
from .partitions import Partitions
from .replicas import Replicas
from .watcher import Watcher

log = logging.getLogger(__name__)

# How long a stop waits for the controllership to be given up properly; after that it ends with the session.
STOP_TIMEOUT_S: Final = 5
DEFAULT_TIMEOUT_MS: Final = 30_000
# The pause before a controller that ended by a bug is run again.
RESTART_PAUSE_MS: Final = 1000


class Snapshot(msgspec.Struct, frozen=True):
    """The cluster in numbers, at one moment."""

    controller_id: int
    active_id: int | None
    epoch: int
    brokers: int
    topics: int
    partitions: int
    offline_partitions: int
    under_replicated_partitions: int
    preferred_imbalance: int
    seq: int


class Controller:
    """A controller instance: contests for the controllership, and rules the cluster while it has it.

        async with kactl.Controller(node_id=1) as controller:
            await controller.create_topic("orders", partitions=12, replication_factor=3)

    Args:
        node_id: ours, among controllers and brokers; not negative.
        store: where the cluster is kept; a MemoryStore of its own if None. It is opened and closed with this.
        transport: how brokers are reached; participants in this process, by way of `hub`, if None.
        topic_ids: whether topics get ids; False for brokers below protocol level 2.8.
        recovery: whether uncleanly elected leaders are told to recover; False below protocol level 3.2.
        unclean_leader_election: whether topics that say nothing of it allow unclean elections, as long as the store
            says nothing of it for all brokers.
        take_over: take the controllership from whoever holds it, when starting.
        meter_provider: of OpenTelemetry; the host program's if None.

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
        topic_ids: bool = True,
        recovery: bool = True,
        unclean_leader_election: bool = False,
        take_over: bool = False,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        if node_id < 0:
            raise BadRequest("node_id", f"{node_id} is negative; choose a number that no broker has")
        self.node_id = node_id
        self.clock = SystemClock() if clock is None else clock
        self.store: Store = MemoryStore(clock=self.clock) if store is None else store
        self.hub = MemoryHub() if hub is None else hub
        self.cluster = Cluster(node_id, recovery=recovery)
        # In microseconds no process counts as fast as time goes by, so that numbers go on rising over restarts.
        self.history = History(self.clock, first=self.clock.now_ms() * 1000)
        self.telemetry = Telemetry(meter_provider)
        self.channels = Channels(
            MemoryTransport(self.hub, clock=self.clock) if transport is None else transport,
            clock=self.clock,
            telemetry=self.telemetry,
            deliver_event=self._put,
        )
        self.partitions = Partitions(
            self.cluster, self.store, self.channels, self.history, unclean_default=unclean_leader_election
        )
        self.replicas = Replicas(self.cluster, self.store, self.channels, self.history)
        reach = Reach(
            self.cluster,
            self.store,
            self.partitions.ref,
            self.replicas.ref,
            self.channels,
            self.history,
            RequestBatch(self.cluster),
            self.clock,
            Settings(new_topic_id=_new_topic_id, topic_ids=topic_ids, take_over=take_over),
            enqueue=lambda event: self.loop.inbox.put_once(event),
        )
        self.loop = ControllerLoop(reach, telemetry=self.telemetry, unclean=self.partitions)
        self._ref: Ref[Event] = self.loop.ref
        self._stack: AsyncExitStack | None = None
        self.telemetry.observe(readings(self.loop, self.partitions, self.replicas, self.channels))

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.store.subscribe(Watcher(self.loop.inbox, self.loop.clear_and_put))
            await stack.enter_async_context(self.store)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
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
                    await self._ref.ask(ResignRequested(stop=True))
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

    # -- what it can be asked for --------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this instance is the controller, as far as it knows."""
        return self.loop.is_active

    async def wait_active(self, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> int:
        """Wait until this instance is the controller and has taken over; the epoch.

        Raises:
            ActionTimedOut.
        """
        await self._until(
            lambda: self.is_active and self.loop.controllership.ready, "becoming the controller", timeout_ms
        )
        return self.cluster.fence.epoch

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Mapping[int, Iterable[int]] | None = None,
        config: Mapping[str, str] | None = None,
        dry_run: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> TopicRef:
        """Create a topic, and wait until all of its partitions have a leader.

        Args:
            assignment: replicas by partition from 0 on, in place of `partitions` and `replication_factor`.
            timeout_ms: 0 does not wait.

        Raises:
            BadRequest, TopicExists: nothing was changed.
            NotController: ask the one that is.
            ActionTimedOut: the topic exists, and some partition has no leader yet.
        """
        asked = TopicCreationRequested(
            topic,
            partitions,
            replication_factor,
            None if assignment is None else {at: Assignment(tuple(held)) for at, held in assignment.items()},
            {} if config is None else dict(config),
            dry_run,
        )
        ref = cast(TopicRef, await self._ref.ask(asked))
        if not dry_run and timeout_ms:
            await self._until(lambda: self._is_led(topic), f"electing leaders for topic {topic}", timeout_ms)
        return ref

    async def elect(
        self,
        kind: ElectionKind,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        dry_run: bool = False,
    ) -> list[ElectionResult]:
        """Elect leaders on request; one result for each partition. None: all that need it.

        Raises:
            NotController: ask the one that is.
        """
        named = None if partitions is None else tuple(partitions)
        return cast(list[ElectionResult], await self._ref.ask(ElectionRequested(kind, named, dry_run)))

    async def set_unclean_leader_election(self, allowed: bool) -> None:
        """Whether topics that say nothing of it allow unclean elections from now on.

        This is the instance's own setting. What `store.set_default_config` says for all brokers wins over it.
        """
        await self._ref.ask(UncleanElectionsEnabled(allowed))

    async def resign(self) -> None:
        """Give up the controllership, if it is ours, and contest again like everybody else."""
        await self._ref.ask(ResignRequested())

    # -- what it knows -------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The cluster in numbers; zeros while another instance is the controller."""
        cluster = self.cluster
        return Snapshot(
            controller_id=self.node_id,
            active_id=self.loop.active_id,
            epoch=cluster.fence.epoch,
            brokers=len(cluster.brokers),
            topics=cluster.table.topic_count(),
            partitions=len(cluster.table),
            offline_partitions=cluster.offline_count,
            under_replicated_partitions=len(cluster.table.under_replicated()),
            preferred_imbalance=cluster.imbalance_count,
            seq=self.history.seq,
        )

    def brokers(self) -> list[Broker]:
        """The registered brokers, by id."""
        return list(self.cluster.brokers.values())

    def topics(self) -> list[TopicRef]:
        """All topics, by name."""
        return sorted((topic.ref for topic in self.cluster.table.topics()), key=lambda ref: ref.name)

    def partition(self, name: TopicPartition | str) -> PartitionView | None:
        """One partition; None if it is unknown. A string is read as `topic-0`."""
        return self.cluster.view(TopicPartition.parse(name) if isinstance(name, str) else name)

    def partitions_of(self, topic: str) -> list[PartitionView]:
        """The partitions of a topic, in order; none if it is unknown."""
        known = self.cluster.table.topic(topic)
        return [] if known is None else [self.cluster.table.view(row) for row in self.cluster.table.rows_of(known)]

    def events(self, *, after: int | None = None, kinds: Collection[str] = ()) -> AsyncIterator[AnyEvent]:
        """What happens from now on, or from behind event number `after`; see `kactl.history` for the kinds."""
        return self.history.follow(after, kinds=kinds)

    def _is_led(self, topic: str) -> bool:
        known = self.cluster.table.topic(topic)
        if known is None:
            return False
        at = self.cluster.table.rows_of(known)
        return bool(len(at)) and bool((self.cluster.table.rows(np.asarray(at)).leader != NO_LEADER).all())

    async def _until(self, reached: Callable[[], bool], what: str, timeout_ms: int) -> None:
        try:
            with anyio.fail_after(timeout_ms / 1000):
                while not reached():
                    await self.history.changed()
        except TimeoutError:
            raise ActionTimedOut(what, timeout_ms) from None


def _new_topic_id() -> bytes:
    """A random id whose text form does not begin with a dash, which command lines would take for an option.

    Source: Uuid.randomUuid.
    """
    while True:
        made = uuid.uuid4().bytes
        # The first character of the text form carries the first six bits; 62 is written as a dash.
        if made[0] >> 2 != 62:
            return made
