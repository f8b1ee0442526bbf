"""What every handler of the controller reaches for, and the few sentences that several of them say."""

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final

from kactl.actors.actor import Ref
from kactl.actors.machines.messages import Move, Moved, MoveReplicas
from kactl.actors.machines.outbox import BrokerChannels
from kactl.actors.preemption import Preemption
from kactl.clock import Clock
from kactl.config.protocol_level import LATEST, ProtocolLevel
from kactl.machines.election import Election
from kactl.machines.reassignment import is_complete
from kactl.messages.events import Event, LeadershipWritten, ReassignmentStored
from kactl.messages.log import BrokerEvent
from kactl.model import PartitionState, ReplicaState
from kactl.outbound.batch import RequestBatch
from kactl.state.change import Refusal
from kactl.state.cluster import Cluster
from kactl.state.rows import Bools, RowNumbers, Rows
from kactl.stores.base import Store
from kactl.telemetry.event_log import History

# A broker is given a minute or two to hand over, and then flushes its logs: long before this is over it has stopped.
SHUTDOWN_LIMIT_MS: Final = 600_000
# A chunk this large is decided in some ten milliseconds. Smaller ones cost more in all; they are made while people ask
# for small things.
CHUNK_PARTITIONS: Final = 16_384


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the controller was told when it was made; it stays so for as long as it lives.

    Attributes:
        level: the protocol level of the brokers.
        supported_features: the lowest and highest level of each feature that may be finalized, by name. Brokers of
            Kafka that keep their cluster in ZooKeeper support none, and stop if one is finalized.
        delete_topics: whether topics may be deleted.
        auto_balance: whether leaders return to their preferred replicas by themselves.
        balance_interval_ms: how often that is looked at.
        balance_percentage: for each broker, how many of the partitions that prefer it others may lead.
        shutdown_limit_ms: how long a broker that asked to be shut down may stay, before it is counted on again.
        standby_interval_ms: how often an instance that stands by sees what has changed; 0 for one that waits blindly.
        take_over: whether to take the controllership from whoever holds it, at the first contest.
        parity: whether brokers are sent exactly what Kafka's controller would send them: one batch for each move,
            whole, however large it is, and each request of it by itself.
        chunk_partitions: how many partitions of a large change are decided, written and told at one time, unless
            `parity` says that all are.
        controller_ids: ours and those of other instances: no replica is hosted there.
        new_topic_id: makes an id of 16 bytes.
    """

    new_topic_id: Callable[[], bytes]
    level: ProtocolLevel = LATEST
    supported_features: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    delete_topics: bool = True
    auto_balance: bool = True
    balance_interval_ms: int = 300_000
    balance_percentage: int = 10
    shutdown_limit_ms: int = SHUTDOWN_LIMIT_MS
    standby_interval_ms: int = 1000
    take_over: bool = False
    parity: bool = False
    chunk_partitions: int = CHUNK_PARTITIONS
    controller_ids: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class ControllerContext:
    """The cluster and those who work on it.

    Attributes:
        batch: the controller's own; each machine has another.
        enqueue: puts an event behind those that wait; one that waits already is not put again.
        recess: lets small events be handled in the middle of a large one.
    """

    cluster: Cluster
    store: Store
    partitions: Ref[Move]
    replicas: Ref[MoveReplicas]
    channels: BrokerChannels
    history: History
    batch: RequestBatch
    clock: Clock
    settings: Settings
    enqueue: Callable[[Event], None]
    preemption: Preemption = dataclasses.field(default_factory=Preemption)


# Handles one event to its end; the result is the answer to one that was asked.
Handler = Callable[[Any], Awaitable[Any]]


class Handlers:
    """Handlers of some kinds of events. They hold no state of their own."""

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
        """The handler of each kind of event that is handled here."""
        return {}

    @property
    def epoch(self) -> int:
        return self.cluster.fence.epoch

    async def move(self, move: Move) -> Moved:
        """Move partitions; of many a part, if `move.pause` says so."""
        moved: Moved = await self.partitions.ask(move)
        if move.target is PartitionState.ONLINE and self.cluster.reassigning:
            self._complete_first_led(moved)
        return moved

    def _complete_first_led(self, moved: Moved) -> None:
        """Have reassignments completed whose whole target is in the first ISR of their partition.

        A reassignment of a partition that never had a leader waits for one. All live replicas are in the first ISR,
        those that are being added as well, so that no later change of the ISR need come.
        """
        at = moved.at[~moved.elections & (moved.refusal == Refusal.NONE)]
        rows = self.cluster.table.rows(at)
        for name in self.cluster.table.names(at[rows.has_leadership & is_complete(rows)]):
            if name in self.cluster.reassigning:
                # The first one that is complete takes the others with it.
                self.context.enqueue(LeadershipWritten(name))
                return

    async def move_many(self, move: Move) -> Moved:
        """Move partitions, however many; small events are handled meanwhile.

        What a caller knows of partitions from before may have changed then. `move.wanted` says which still want it.
        """
        preemption = self.context.preemption
        move = dataclasses.replace(move, pause=preemption.is_due)
        parts: list[Moved] = []
        while True:
            await self.run_small_events()
            parts.append(await self.move(dataclasses.replace(move, high_rate=preemption.is_high_rate())))
            move = move.rest(len(parts[-1].at))
            if not len(move.at):
                return Moved.of(parts)

    async def move_many_replicas(
        self, at: RowNumbers, target: ReplicaState, brokers: frozenset[int] | None = None
    ) -> None:
        """Move replicas, however many; small events are handled meanwhile."""
        preemption = self.context.preemption
        move = MoveReplicas(at, target, brokers, pause=preemption.is_due)
        while len(move.at) and (brokers is None or brokers):
            await self.run_small_events()
            move = move.rest(await self.replicas.ask(dataclasses.replace(move, high_rate=preemption.is_high_rate())))

    async def introduce(self, brokers: frozenset[int], at: RowNumbers) -> None:
        """Move the replicas of `brokers` in some rows to ONLINE and send each broker all of them in one LeaderAndIsr.

        No small event is handled meanwhile, so that no shorter LeaderAndIsr precedes it: a broker of Kafka begins to
        checkpoint high watermarks at its first LeaderAndIsr, and forgets those of partitions that are not in it.

        Source: ReplicaManager.becomeLeaderOrFollower, startHighWatermarkCheckPointThread.
        """
        if brokers and len(at):
            await self.replicas.ask(MoveReplicas(at, ReplicaState.ONLINE, brokers, whole=True))

    async def run_small_events(self) -> None:
        """Let small events be handled, if one waits that should not wait any longer."""
        if self.context.preemption.is_due():
            await self.context.preemption.yield_point()

    async def elect_offline(self) -> Moved:
        """Find leaders for all partitions that want one, topics that are being deleted left out."""
        at = self.cluster.table.in_state(PartitionState.NEW, PartitionState.OFFLINE)
        return await self.move_many(Move(at, PartitionState.ONLINE, Election.OFFLINE, wanted=_is_leaderless))

    async def move_replicas(self, at: RowNumbers, target: ReplicaState, brokers: frozenset[int] | None = None) -> None:
        if brokers is None or brokers:
            await self.replicas.ask(MoveReplicas(at, target, brokers))

    def tell_brokers(self, brokers: Iterable[int]) -> None:
        """UpdateMetadata without partitions: who is there."""
        self.batch.begin()
        self.batch.update_metadata(brokers)
        self.channels.send(self.batch.flush())

    def forget_topics(self, names: Collection[str]) -> None:
        """Forget topics that are gone. What older tools asked for their partitions is looked at again: nobody else
        would take it out of the store, and nothing could be asked for there any more."""
        moving = not {partition.topic for partition in self.cluster.reassigning}.isdisjoint(names)
        self.cluster.remove_topics(names)
        if moving:
            self.context.enqueue(ReassignmentStored())

    def broker_event(self, what: str, broker: int) -> BrokerEvent:
        return BrokerEvent(
            what=what, broker=broker, broker_epoch=self.cluster.brokers[broker].epoch, controller_epoch=self.epoch
        )


def _is_leaderless(rows: Rows) -> Bools:
    """bool[n]: partitions that want a leader, unless their topic is being deleted."""
    wanting: Bools = (rows.state == PartitionState.NEW) | (rows.state == PartitionState.OFFLINE)
    return wanting & ~rows.queued
