"""Base class of the handlers, and the context that all handlers share."""

import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

import anyio
import anyio.lowlevel
import numpy as np

from kactl.actors.actor import Ref
from kactl.actors.machines.machine import Move, MoveReplicas, MoveResult, Outbox
from kactl.actors.priority_inbox import Preemption
from kactl.config.controller_settings import ControllerSettings
from kactl.decide.machines.election import Election
from kactl.decide.machines.partition import is_leaderless
from kactl.decide.machines.reassignment import is_complete
from kactl.decide.machines.topic_progress import Delivery
from kactl.decide.messages.events import DrainProgress, Event, PartitionReassignmentIsrChange, ZkPartitionReassignment
from kactl.decide.messages.log import BrokerEvent
from kactl.decide.outbound.batch import RequestBatch
from kactl.decide.state.change import Change, Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, RowNumbers, choose, holds, some
from kactl.model import NO_EPOCH, Broker, Fence, Maintenance, PartitionState, ReplicaState
from kactl.model.errors import BadRequest
from kactl.runtime.clock import Clock
from kactl.stores.base import Store
from kactl.telemetry.event_log import EventLog
from kactl.telemetry.event_records import StoredRequests


class BrokerChannels(Outbox, Protocol):
    """The channels to all brokers, as the controller manages them."""

    @property
    def last_number(self) -> int:
        """Returns the number of the last request to any broker; see `LeaderAndIsr`."""

    def add(self, broker: Broker) -> None:
        """Open a channel to a registration. An earlier one of the same id has to be removed first."""

    def resume(self, broker: int) -> None:
        """Queue requests again for a broker after its queue was dropped: the next ones contain the complete state."""

    def remove(self, broker: int) -> None:
        """Close the channel to a broker; waiting requests are dropped."""

    @property
    def queued(self) -> int:
        """Returns the number of the requests that were queued last, for `delivery`."""

    def delivery(self, queued: int) -> Delivery:
        """Returns the delivery of the requests that were queued up to a number."""

    def close(self) -> None:
        """Close all channels at once, before anything else can be sent."""


class SessionTerms(Protocol):
    """The sessions of participants with this instance; see `kactl.actors.remote_sessions`."""

    def elected(self, fence: Fence) -> None:
        """This instance was elected."""

    def take_over(self, brokers: Mapping[int, Broker]) -> None:
        """Registrations were read from the store, for the first time since the election."""

    def resigned(self) -> None:
        """This instance is not the controller any more."""

    def observe(self, brokers: Mapping[int, Broker], *, read_ns: int) -> None:
        """Registrations were read from the store, after `read_ns` on the lease clock."""

    async def ends_stored(self) -> None:
        """Wait until the ends of sessions that have expired together are stored."""

    def evict(self, broker: int, epoch: int) -> None:
        """A registration is going to be evicted: nothing may be granted to it before the store is called."""


class LinkTable(Protocol):
    """The links of participants to this instance; see `kactl.actors.links`."""

    def elected(self) -> None:
        """This instance was elected."""

    def fenced(self, brokers: Iterable[Broker]) -> frozenset[int]:
        """Returns those of some registered brokers that this instance has not reached since its election."""


class NoLinks:
    """No broker is fenced."""

    def elected(self) -> None: ...

    def fenced(self, brokers: Iterable[Broker]) -> frozenset[int]:
        return frozenset()


NO_LINKS: Final = NoLinks()


class NoSessions:
    """No participant has a session with this instance."""

    def elected(self, fence: Fence) -> None: ...

    def take_over(self, brokers: Mapping[int, Broker]) -> None: ...

    def resigned(self) -> None: ...

    def observe(self, brokers: Mapping[int, Broker], *, read_ns: int) -> None: ...

    async def ends_stored(self) -> None: ...

    def evict(self, broker: int, epoch: int) -> None: ...


NO_SESSIONS: Final = NoSessions()

# Partitions of a request that are looked at in one step of the event loop, at up to 10 µs each.
PIECE: Final = 500
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class ControllerContext:
    """Cluster state, store, machine actors and channels, as the handlers share them.

    Attributes:
        batch: the controller's own batch; each machine actor has another.
        enqueue: appends an event to the controller's queue, unless an equal event is queued.
        settings: `controller_ids` includes this instance.
        new_topic_id: returns a new id of 16 bytes.
        answers_wait: returns whether a response to LeaderAndIsr waits to be handled.
        address: returns where this instance listens for participants; empty if it does not.
        preemption: small events that wait during a large one; the machines share it.
        requests: those that were written into the store, and take effect when it reports them.
        isr_operations: number of ISR updates by leaders: `shrink`, `expand`, `failed`.
        proposals_rejected: the failed ones of AlterPartition, by the name of the error.
    """

    cluster: Cluster
    store: Store
    partitions: Ref[Move]
    replicas: Ref[MoveReplicas]
    channels: BrokerChannels
    history: EventLog
    batch: RequestBatch
    clock: Clock
    settings: ControllerSettings
    enqueue: Callable[[Event], None]
    new_topic_id: Callable[[], bytes]
    sessions: SessionTerms = NO_SESSIONS
    links: LinkTable = NO_LINKS
    answers_wait: Callable[[], bool] = lambda: False
    address: Callable[[], str] = lambda: ""
    preemption: Preemption = dataclasses.field(default_factory=Preemption)
    requests: StoredRequests = dataclasses.field(default_factory=StoredRequests)
    isr_operations: Counter[str] = dataclasses.field(default_factory=lambda: Counter(shrink=0, expand=0, failed=0))
    proposals_rejected: Counter[str] = dataclasses.field(default_factory=Counter)

    async def yield_point(self) -> None:
        """Handle small events if one waits that should not wait any longer; see `priority_inbox`.

        To be called where nothing of the event in progress is in flight. Afterwards, earlier knowledge of the cluster
        may be outdated.

        Raises:
            ControllerMoved, IllegalState: a small event ended the controllership. The event in progress is over.
        """
        if self.preemption.is_due():
            await self.preemption.run_small_events()


# Handles one event completely. The result is the response to a `ControllerRequest`.
Handler = Callable[[Any], Awaitable[Any]]


class Handlers:
    """Handlers of some kinds of events. The cluster's state is in the context."""

    def __init__(self, context: ControllerContext) -> None:
        self.context = context
        self.cluster = context.cluster
        self.store = context.store
        self.partitions = context.partitions
        self.replicas = context.replicas
        self.channels = context.channels
        self.history = context.history
        self.batch = context.batch
        self.clock = context.clock
        self.settings = context.settings

    def handlers(self) -> dict[type[Event], Handler]:
        """Returns the handler of each kind of event that this class handles."""
        return {}

    @property
    def epoch(self) -> int:
        return self.cluster.fence.epoch

    async def move(self, move: Move) -> MoveResult:
        """Move partitions. Returns the result for all of them, or for the first ones if a small event preempted it."""
        moved: MoveResult = await self.partitions.ask(move)
        if move.target is PartitionState.ONLINE and self.cluster.reassigning:
            self._complete_in_sync(moved)
        return moved

    def check_until(self, until_ms: int | None) -> None:
        """Check that the time limit of an order has not passed.

        Raises:
            BadRequest.
        """
        if until_ms is not None and until_ms <= self.clock.now_ms():
            raise BadRequest("until_ms", f"{until_ms} has passed: name a time in the future")

    async def write_maintenance(self, maintenance: Maintenance) -> None:
        """Store orders of operators, without holds whose time limits have passed, and then adopt them.

        Raises:
            StoreError, ControllerMoved: nothing has changed in memory.
        """
        maintenance = maintenance.without_past(self.clock.now_ms())
        await self.store.write_maintenance(maintenance, self.cluster.fence)
        self.cluster.set_maintenance(maintenance)

    def continue_drains(self, row_numbers: RowNumbers) -> None:
        """Queue the rest of the drains of brokers that lead some of these rows, or joined their ISRs."""
        if not self.cluster.drained:
            return
        rows = self.cluster.table.rows(row_numbers)
        for broker in sorted(self.cluster.drained):
            if (some(holds(rows, broker) & rows.in_sync) | (rows.leader == broker)).any():
                self.context.enqueue(DrainProgress(broker))

    def _complete_in_sync(self, moved: MoveResult) -> None:
        """Complete reassignments whose whole target is in sync after an election, without a later change of the ISR.

        The first ISR of a partition contains all live replicas, also those that are being added. After an unclean
        election the ISR is the leader alone, which may be the target.
        """
        moved_rows = moved.rows[moved.refusal == Refusal.NONE]
        rows = self.cluster.table.rows(moved_rows)
        for name in self.cluster.table.names(moved_rows[rows.has_leadership & is_complete(rows)]):
            if name in self.cluster.reassigning:
                # The event completes every reassignment that is complete by then.
                self.context.enqueue(PartitionReassignmentIsrChange(name))
                return

    async def move_many(self, move: Move) -> MoveResult:
        """Move any number of partitions and handle small events between two chunks.

        Rows may change meanwhile. `move.wanted` selects those that are still to be moved.
        """
        rows, parts = move.rows, []
        while True:
            await self.context.yield_point()
            parts.append(await self.move(dataclasses.replace(move, rows=rows, preemptible=True)))
            rows = rows[len(parts[-1].rows) :]
            if not len(rows):
                return MoveResult.join(parts)

    async def move_many_replicas(
        self,
        row_numbers: RowNumbers,
        target: ReplicaState,
        brokers: frozenset[int] | None = None,
        *,
        wanted: Callable[[RowNumbers], RowNumbers] | None = None,
    ) -> None:
        """Move any number of replicas and handle small events between two chunks.

        Args:
            wanted: returns those of some rows whose replicas still need the move after small events. None: all of them.
        """
        while len(row_numbers) and (brokers is None or brokers):
            await self.context.yield_point()
            if wanted is not None:
                row_numbers = wanted(row_numbers)
            done = await self.replicas.ask(MoveReplicas(row_numbers, target, brokers, preemptible=True))
            row_numbers = row_numbers[done:]

    async def introduce(self, brokers: frozenset[int], row_numbers: RowNumbers) -> None:
        """Move the replicas of `brokers` in some rows to ONLINE and send each broker all of them in one LeaderAndIsr.

        No small event is handled meanwhile, so no shorter LeaderAndIsr precedes it. A Kafka broker starts to checkpoint
        high watermarks at its first LeaderAndIsr and discards those of partitions that are not in it.

        Source: ReplicaManager.becomeLeaderOrFollower, startHighWatermarkCheckPointThread.
        """
        if brokers and len(row_numbers):
            await self.replicas.ask(MoveReplicas(row_numbers, ReplicaState.ONLINE, brokers, whole=True))

    async def elect_offline(self) -> MoveResult:
        """Elect leaders for all partitions without one, except those of topics queued for deletion."""
        row_numbers = self.cluster.table.in_state(PartitionState.NEW, PartitionState.OFFLINE)
        return await self.move_many(Move(row_numbers, PartitionState.ONLINE, Election.OFFLINE, wanted=is_leaderless))

    async def move_replicas(
        self, row_numbers: RowNumbers, target: ReplicaState, brokers: frozenset[int] | None = None
    ) -> None:
        if brokers is None or brokers:
            await self.replicas.ask(MoveReplicas(row_numbers, target, brokers))

    async def move_replicas_in(self, row_numbers: RowNumbers, state: ReplicaState, target: ReplicaState) -> None:
        """Move the assigned replicas of some rows that are in one state."""
        rows = self.cluster.table.rows(row_numbers)
        which = rows.assigned & (rows.replica_state == state)
        if which.any():
            await self.move_some_replicas(row_numbers, which, target)

    async def move_some_replicas(self, row_numbers: RowNumbers, which: Bools, target: ReplicaState) -> None:
        """Move the replicas `which`, bool[W, n], of n rows. Those that lead already can move to NEW, too."""
        if target is ReplicaState.NEW:
            which = which & ~self._create_leaders(row_numbers, which)
        moving = some(which)
        await self.replicas.ask(MoveReplicas(row_numbers[moving], target, which=which[:, moving]))

    def _create_leaders(self, row_numbers: RowNumbers, which: Bools) -> Bools:
        """Set the state NEW of those of the replicas `which` that lead already. Returns them as bool[W, n].

        They were elected after an error had ended their creation. The election has sent them the request of a move to
        NEW, and the state machine allows that move only before an election.
        """
        table = self.cluster.table
        rows = table.rows(row_numbers)
        leading: Bools = which & rows.has_leadership & (rows.replicas == rows.leader)
        if leading.any():
            self.history.add_replicas(rows, leading, ReplicaState.NEW, table.refs, controller_epoch=self.epoch)
            states = choose(leading, np.uint8(ReplicaState.NEW), rows.replica_state)
            self.cluster.apply(Change.of(rows, replica_state=states))
        return leading

    def add_brokers(self, brokers: Iterable[Broker]) -> None:
        """Add registrations to the cluster. Participants without a link are fenced."""
        self.cluster.add_brokers(brokers)
        self.cluster.set_fenced(self.context.links.fenced(self.cluster.brokers.values()))

    def tell_brokers(self, brokers: Iterable[int]) -> None:
        """Send UpdateMetadata with the live brokers and without partitions."""
        self.batch.begin()
        self.batch.update_metadata(brokers)
        self.channels.send(self.batch.flush())

    def forget_topics(self, names: Collection[str]) -> None:
        """Remove topics from the cluster.

        A reassignment request in the store that names their partitions is processed again. Nothing else would remove
        it, and older tools cannot write another one while it exists.
        """
        moving = not {partition.topic for partition in self.cluster.reassigning}.isdisjoint(names)
        self.cluster.remove_topics(names)
        if moving:
            self.context.enqueue(ZkPartitionReassignment())

    def broker_event(self, kind: str, broker: int, detail: str | None = None) -> BrokerEvent:
        """Returns an event of a broker, which need not be registered."""
        known = self.cluster.brokers.get(broker)
        epoch = NO_EPOCH if known is None else known.epoch
        return BrokerEvent(what=kind, broker=broker, broker_epoch=epoch, detail=detail, controller_epoch=self.epoch)


async def in_pieces(items: Iterable[T]) -> AsyncIterator[T]:
    """Yields the items of a large request. Other tasks of the event loop run between two pieces; no event does."""
    for number, item in enumerate(items, 1):
        yield item
        if number % PIECE == 0:
            await anyio.lowlevel.checkpoint()
