"""What a controller instance knows, as methods. They only look: nothing waits, and nothing is changed."""

from collections.abc import AsyncIterator, Collection

import msgspec

from kactl.cluster import Cluster
from kactl.controllerships import Term
from kactl.history import History
from kactl.history_events import AnyEvent
from kactl.machines.deletion import Waiting, waiting
from kactl.model import Broker, PartitionView, TopicPartition, TopicRef

from .controller import ControllerLoop
from .queue import QueueView


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


class Looking:
    """See the module."""

    node_id: int
    loop: ControllerLoop
    cluster: Cluster
    history: History

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

    def controllerships(self) -> list[Term]:
        """Who has been the controller, as far as this instance has seen it; the oldest first."""
        return self.loop.controllership.terms.all()

    def queue(self, *, limit: int = 20) -> QueueView:
        """What waits for this instance, the first `limit` by name; what it has in hand; how long each kind took."""
        return self.loop.turns.view(self.loop.inbox, limit=limit)

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

    def deletions(self) -> list[Waiting]:
        """The topics that wait for their deletion, how far it has come, and why it does not go on; by name."""
        return waiting(self.cluster)

    def events(self, *, after: int | None = None, kinds: Collection[str] = ()) -> AsyncIterator[AnyEvent]:
        """What happens from now on, or from behind event number `after`; see `kactl.history_events` for the kinds."""
        return self.history.follow(after, kinds=kinds)
