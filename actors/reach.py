"""What every handler of the controller reaches for, and the few sentences that several of them say."""

import dataclasses
from collections.abc import Iterable

from kactl.batch import RequestBatch
from kactl.cluster import Cluster
from kactl.election import Election
from kactl.history import BrokerEvent, History
from kactl.model import PartitionState, ReplicaState
from kactl.rows import RowNumbers
from kactl.store import Store

from .actor import Ref
from .messages import Move, Moved, MoveReplicas
from .outbox import BrokerChannels


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """The cluster and those who work on it.

    Attributes:
        batch: the controller's own; each machine has another.
    """

    cluster: Cluster
    store: Store
    partitions: Ref[Move]
    replicas: Ref[MoveReplicas]
    channels: BrokerChannels
    history: History
    batch: RequestBatch


class Handlers:
    """Handlers of some kinds of events. They hold no state of their own."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.cluster = reach.cluster
        self.store = reach.store
        self.partitions = reach.partitions
        self.replicas = reach.replicas
        self.channels = reach.channels
        self.history = reach.history
        self.batch = reach.batch

    @property
    def epoch(self) -> int:
        return self.cluster.fence.epoch

    async def elect_offline(self) -> Moved:
        """Find leaders for all partitions that want one, topics that are being deleted left out."""
        at = self.cluster.table.in_state(PartitionState.NEW, PartitionState.OFFLINE)
        moved: Moved = await self.partitions.ask(Move(at, PartitionState.ONLINE, Election.OFFLINE))
        return moved

    async def move_replicas(self, at: RowNumbers, target: ReplicaState, brokers: frozenset[int] | None = None) -> None:
        if brokers is None or brokers:
            await self.replicas.ask(MoveReplicas(at, target, brokers))

    def tell_brokers(self, brokers: Iterable[int]) -> None:
        """UpdateMetadata without partitions: who is there."""
        self.batch.begin()
        self.batch.update_metadata(brokers)
        self.channels.send(self.batch.flush())

    def broker_event(self, what: str, broker: int) -> BrokerEvent:
        return BrokerEvent(
            what=what, broker=broker, broker_epoch=self.cluster.brokers[broker].epoch, controller_epoch=self.epoch
        )

    async def replicas_offline(self, at: RowNumbers, brokers: frozenset[int]) -> None:
        """Replicas became offline: first their leaders are followed by others, then they leave the ISRs."""
        table = self.cluster.table
        at = table.not_queued(at)
        await self.partitions.ask(Move(table.led_by_none_of(self.cluster.now.live), PartitionState.OFFLINE))
        moved = await self.elect_offline()
        await self.move_replicas(at, ReplicaState.OFFLINE, brokers)
        if not len(at) and not moved.elected.any():
            # Nothing was sent that would tell of the brokers that are gone.
            self.tell_brokers(self.cluster.brokers)
