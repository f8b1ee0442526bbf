"""Controller failover: load the cluster, send it to every broker, resume the previous controller's work.

The order matters: watches before reads, reads before machines, live brokers before leadership, and replicas before
partitions, so that dead brokers have left the ISRs before leaders are elected.

Source: the classic controller's onControllerFailover.
"""

from collections.abc import Collection

import numpy as np

from kactl.decide.machines import partition
from kactl.decide.messages.events import DrainProgress, TopicIdCopy
from kactl.model import ReplicaState
from kactl.runtime.logs import logger
from kactl.stores.base import Names

from .balance import Balancing
from .base import ControllerContext, Handlers
from .deletion import Deletion
from .drains import Drains
from .elections import Elections
from .features import FeatureEvents
from .leases import Leases
from .ownership import Ownership
from .reassignments import Reassignments
from .standby import Standby
from .topics import TopicEvents

log = logger(__name__)


class Held(Exception):
    """This instance is held; by whom, since and until when, and why."""


class Failover(Handlers):
    """Initialise a controller that has just been elected."""

    def __init__(
        self,
        context: ControllerContext,
        topics: TopicEvents,
        features: FeatureEvents,
        deletion: Deletion,
        *,
        reassignments: Reassignments,
        elections: Elections,
        balancing: Balancing,
        standby: Standby,
        leases: Leases,
        drains: Drains,
        ownership: Ownership,
    ) -> None:
        super().__init__(context)
        self._ownership = ownership
        self._drains = drains
        self._topics = topics
        self._features = features
        self._deletion = deletion
        self._reassignments = reassignments
        self._elections = elections
        self._balancing = balancing
        self._standby = standby
        self._leases = leases

    async def take_over(self, *, yields: bool) -> None:
        """Take over the cluster under the epoch of the cluster's fence.

        Args:
            yields: whether an instance that is held leaves the controllership to others.

        Raises:
            Held: this instance is held. Nothing was sent; resign.
            ControllerMoved: a later controller exists.
            StoreError: the cluster is loaded in part; resign.
        """
        cluster, store = self.cluster, self.store
        log.info("controller %d takes over under epoch %d", cluster.controller_id, cluster.fence.epoch)
        await self._features.take_over()
        await store.delete_notifications(await store.log_dir_notifications(), cluster.fence)
        await store.delete_notifications(await store.isr_notifications(), cluster.fence)
        stored, maintenance = await store.membership()
        hold = maintenance.without_past(self.clock.now_ms()).holds.get(cluster.controller_id)
        if yields and hold is not None:
            raise Held(str(hold))
        self.context.sessions.take_over(stored)
        brokers = self._features.compatible(self._leases.without_evicted(stored))
        if cluster.controller_id in brokers:
            log.error(
                "broker %d has the id of this controller and will take itself for it: give the controller another id",
                cluster.controller_id,
            )
        self.add_brokers(brokers.values())
        await self._drains.take_over(maintenance)
        self._leases.begin(stored.values())
        names = await store.topics()
        await self.load(names, store.take_deleted_topics())
        await self._topics.hosting.rewrite(cluster.table.all())
        await self._leases.read_settings([topic.name for topic in cluster.table.owned_topics()])
        await self._topics.read_default_config()
        for broker in brokers.values():
            self.channels.add(broker)
        await self._deletion.init(await store.deletions())
        self.tell_brokers(cluster.brokers)
        await self._start_replicas()
        self._leases.state_sent(cluster.brokers)
        await self._start_partitions()
        await self._reassignments.take_over()
        await self._deletion.resume()
        await self._elections.hold_stored()
        self._balancing.begin()
        for drained in sorted(cluster.drained):
            self.context.enqueue(DrainProgress(drained, stop_again=True))
        self.context.enqueue(TopicIdCopy())
        log.info(
            "controller %d is active under epoch %d: %d brokers, %d topics, %d partitions, %d of them offline",
            cluster.controller_id, cluster.fence.epoch, len(brokers), cluster.table.topic_count(), len(cluster.table),
            cluster.offline_count,
        )  # fmt: skip

    async def load(self, names: Collection[str], deleted: Collection[str] = ()) -> None:
        """Load topics and partitions: from the standby's copy, except the rows that have changed since it was read.

        Args:
            names: all topics in the store.
            deleted: topics deleted since they were read; those in `names` were created again.
        """
        cluster = self.cluster
        copy = await self._standby.hand_over()
        copy.drop(deleted)
        left = await copy.settle(self.store, names)
        if self.settings.level.topic_ids:
            # A standby cannot assign ids.
            nameless = [topic.name for topic in copy.cluster.table.topics() if not any(topic.ref.id)]
            copy.drop(nameless)
            left = sorted({*left, *nameless})
        cluster.adopt(copy.cluster)
        log.info(
            "topics: %d of %d from the standby's copy, %d read",
            len(names) - len(left),
            len(names),
            len(left),
        )
        await self._read_topics(left)
        # An instance that was the controller before may find only now that topics were replaced since it read them.
        # The record would otherwise end the lives that were just read, with the next change of topics.
        while replaced := sorted(self.store.take_deleted_topics()):
            cluster.remove_topics(replaced)
            await self._read_topics(replaced)

    async def _read_topics(self, names: list[str]) -> None:
        """Read topics that are not in the table, and the leadership of their partitions."""
        loaded = await self._topics.load_topics(names)
        partitions = Names(loaded.topics, loaded.topic, loaded.partition)
        table = self.cluster.table
        self.cluster.put_leaderships(table.rows_at(partitions), await self.store.leaderships(partitions))

    async def _start_replicas(self) -> None:
        """Move replicas on live brokers to ONLINE; remove those on dead ones from the ISRs before leaders are elected.

        Drained brokers receive everything, too, and a StopReplica for what they would follow, see `RequestBatch`. They
        stay in the ISRs that they have not left until the drains go on.
        """
        cluster = self.cluster
        row_numbers = cluster.table.all()
        rows = cluster.table.rows(row_numbers)
        alive = rows.online(cluster.staying)
        states = np.where(alive, np.uint8(ReplicaState.ONLINE), np.uint8(ReplicaState.DELETION_INELIGIBLE))
        cluster.table.set_replica_states(row_numbers, np.where(rows.assigned, states, np.uint8(ReplicaState.ABSENT)))
        holders = frozenset(np.unique(rows.replicas[rows.assigned]).tolist())
        await self.introduce(holders & cluster.staying.ids, row_numbers)
        gone = holders - cluster.staying.ids
        await self.move_many_replicas(cluster.table.with_replica_on(gone), ReplicaState.OFFLINE, gone)

    async def _start_partitions(self) -> None:
        rows = self.cluster.table.rows(self.cluster.table.all())
        self.cluster.apply(partition.begin(rows, self.cluster.staying))
        await self._ownership.members_came()
        await self.elect_offline()
