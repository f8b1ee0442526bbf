"""What a controller does first: learn everything, tell every broker, and put in order what the one before left.

The order matters: watches before reads, reads before machines, who is live before who leads; and replicas before
partitions, so that the dead are out of the ISRs before anybody is elected.

Source: the classic controller's onControllerFailover.
"""

import logging

import numpy as np

from kactl.machines import partition
from kactl.model import ReplicaState
from kactl.store import Assignments, Names

from .balance import Balancing
from .deletion import Deletion
from .elections import Elections
from .features import FeatureEvents
from .reach import Handlers, Reach
from .reassignments import Reassignments
from .topics import TopicEvents

log = logging.getLogger(__name__)


class Failover(Handlers):
    """See the module."""

    def __init__(
        self,
        reach: Reach,
        topics: TopicEvents,
        features: FeatureEvents,
        deletion: Deletion,
        *,
        reassignments: Reassignments,
        elections: Elections,
        balancing: Balancing,
    ) -> None:
        super().__init__(reach)
        self._topics = topics
        self._features = features
        self._deletion = deletion
        self._reassignments = reassignments
        self._elections = elections
        self._balancing = balancing

    async def take_over(self) -> None:
        """Take over: watches before reads, reads before machines, the live brokers before any leadership."""
        cluster, store = self.cluster, self.store
        log.info("controller %d takes over under epoch %d", cluster.controller_id, cluster.fence.epoch)
        await self._features.take_over()
        await store.delete_notifications(await store.log_dir_notifications(), cluster.fence)
        await store.delete_notifications(await store.isr_notifications(), cluster.fence)
        brokers = self._features.compatible(await store.brokers())
        if cluster.controller_id in brokers:
            log.error(
                "broker %d has the id of this controller and will take itself for it: give the controller another id",
                cluster.controller_id,
            )
        cluster.add_brokers(brokers.values())
        names = await store.topics()
        loaded = await self._topics.load_topics(names)
        await self._load_leaderships(loaded)
        await self._topics.hosting.rewrite(cluster.table.all())
        await self._topics.read_default_config()
        for broker in brokers.values():
            self.channels.add(broker)
        await self._deletion.init(await store.deletions())
        self.tell_brokers(cluster.brokers)
        await self._start_replicas()
        await self._start_partitions()
        await self._reassignments.take_over()
        await self._deletion.resume()
        await self._elections.hold_stored()
        self._balancing.begin()
        log.info(
            "controller %d is active under epoch %d: %d brokers, %d topics, %d partitions, %d of them offline",
            cluster.controller_id, cluster.fence.epoch, len(brokers), len(names), len(cluster.table),
            cluster.offline_count,
        )  # fmt: skip

    async def _load_leaderships(self, loaded: Assignments) -> None:
        names = Names(loaded.topics, loaded.topic, loaded.partition)
        at = self.cluster.table.rows_at(names)
        self.cluster.put_leaderships(at, await self.store.leaderships(names))

    async def _start_replicas(self) -> None:
        """Replicas on live brokers are online; dead ones are taken out of the ISRs, before any leader is elected."""
        cluster = self.cluster
        at = cluster.table.all()
        rows = cluster.table.rows(at)
        alive = rows.online(cluster.now.live)
        states = np.where(alive, np.uint8(ReplicaState.ONLINE), np.uint8(ReplicaState.DELETION_INELIGIBLE))
        cluster.table.set_replica_states(at, np.where(rows.assigned, states, np.uint8(ReplicaState.ABSENT)))
        holders = frozenset(np.unique(rows.replicas[rows.assigned]).tolist())
        await self.move_replicas(at, ReplicaState.ONLINE, holders & cluster.now.live.ids)
        gone = holders - cluster.now.live.ids
        await self.move_replicas(cluster.table.with_replica_on(gone), ReplicaState.OFFLINE, gone)

    async def _start_partitions(self) -> None:
        rows = self.cluster.table.rows(self.cluster.table.all())
        self.cluster.apply(partition.begin(rows, self.cluster.now))
        await self.elect_offline()
