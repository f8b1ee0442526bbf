"""Brokers come, go, and come back; what the controller does then.

Source: the classic controller's processBrokerChange, onBrokerStartup, onBrokerFailure, processBrokerModification.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import numpy as np

from kactl.actors.chunks import WHOLE
from kactl.errors import StoreError
from kactl.messages.events import BrokerLagged, BrokerModified, BrokersChanged, Event, WritesFailed
from kactl.messages.log import BrokerEvent
from kactl.model import PartitionState
from kactl.runtime.logs import logger
from kactl.state.change import Change
from kactl.state.rows import RowNumbers, common, without

from .base import ControllerContext, Handler, Handlers
from .controller_replicas import Hosting
from .deletion import Deletion
from .features import FeatureEvents
from .offline import Offline
from .reassignments import Reassignments

log = logger(__name__)

# How many chunks of partitions a broker that comes is told of at one time. Brokers of Kafka copy what they know of the
# whole cluster with each request.
METADATA_CHUNKS: Final = 2


class BrokerEvents(Handlers):
    """New brokers are welcomed before dead ones are mourned; one that registered anew in between is both.

    Args:
        features: who does not support what is finalized is no broker of this cluster.
        offline: what is done when replicas become offline.
        deletion, reassignments, hosting: go on when the brokers that they wait for start.
    """

    def __init__(
        self,
        context: ControllerContext,
        features: FeatureEvents,
        *,
        offline: Offline,
        deletion: Deletion,
        reassignments: Reassignments,
        hosting: Hosting,
    ) -> None:
        super().__init__(context)
        self._features = features
        self._offline = offline
        self._deletion = deletion
        self._reassignments = reassignments
        self._hosting = hosting

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            BrokersChanged: self.on_brokers_changed,
            BrokerModified: self.on_broker_modified,
            BrokerLagged: self.on_broker_lagged,
            WritesFailed: self.on_writes_failed,
        }

    async def on_brokers_changed(self, event: BrokersChanged) -> None:
        cluster = self.cluster
        registered = self._features.compatible(await self.store.brokers())
        known = cluster.brokers
        new = sorted(registered.keys() - known.keys())
        dead = sorted(known.keys() - registered.keys())
        bounced = sorted(
            each for each in registered.keys() & known.keys() if registered[each].epoch > known[each].epoch
        )
        if not (new or dead or bounced):
            return
        log.info("brokers: new %s, dead %s, bounced %s; registered %s", new, dead, bounced, sorted(registered))
        if cluster.controller_id in new:
            log.error(
                "broker %d has the id of this controller and will take itself for it: give the controller another id",
                cluster.controller_id,
            )
        # Also of new ones, should an earlier event have got no further than that.
        for broker in (*new, *bounced, *dead):
            self.channels.remove(broker)
        for broker in (*new, *bounced):
            self.channels.add(registered[broker])
        if new:
            # Not between the registration and the first full LeaderAndIsr; see `on_broker_startup`.
            await self.run_small_events()
            with self._or_found_again():
                cluster.add_brokers(registered[broker] for broker in new)
                await self._hosting.brokers_came()
                await self._brokers_started(new, "started")
        if bounced:
            with self._or_found_again():
                cluster.remove_brokers(bounced)
                await self._brokers_failed(bounced)
                await self.run_small_events()
                cluster.add_brokers(registered[broker] for broker in bounced)
                await self._brokers_started(bounced, "bounced")
        if dead:
            with self._or_found_again():
                cluster.remove_brokers(dead)
                await self._brokers_failed(dead)

    @contextlib.contextmanager
    def _or_found_again(self) -> Iterator[None]:
        """If what is done fails, the brokers are known as before it, so that the next look finds the same."""
        before = self.cluster.brokers.copy()
        try:
            yield
        except Exception:
            self.cluster.remove_brokers(tuple(self.cluster.brokers))
            self.cluster.add_brokers(before.values())
            raise

    async def _brokers_started(self, brokers: list[int], what: str) -> None:
        for broker in brokers:
            self.cluster.forget_offline_dirs(broker)
        await self.on_broker_startup(brokers, what)

    async def on_broker_startup(self, brokers: list[int], what: str) -> None:
        """Count on brokers, for the first time or again: send everything to them, and their registrations to the rest.

        A new registration gets UpdateMetadata first, and then one LeaderAndIsr of all that it hosts. Small events are
        handled before and after, never in between: an election would send it a LeaderAndIsr of one partition.
        """
        cluster = self.cluster
        for broker in brokers:
            self.history.add(self.broker_event(what, broker))
        self.tell_brokers(cluster.brokers.keys() - set(brokers))
        await self._tell_of_all_partitions(brokers)
        ids = frozenset(brokers)
        at = cluster.table.with_replica_on(ids)
        for broker in brokers:
            # Of one that was here all the time; who has just come has none.
            at = without(at, cluster.table.dirs_offline(broker))
        await self.introduce(ids, at)
        await self.elect_offline()
        await self._reassignments.resume_on(ids)
        await self._deletion.resume_on(ids)

    async def _brokers_failed(self, brokers: list[int]) -> None:
        cluster = self.cluster
        for broker in brokers:
            cluster.forget_offline_dirs(broker)
            cluster.mark_shutting_down(broker, False)
            self.history.add(BrokerEvent(what="failed", broker=broker, broker_epoch=-1, controller_epoch=self.epoch))
        ids = frozenset(brokers)
        await self._offline.replicas_offline(cluster.table.with_replica_on(ids), ids)

    async def on_broker_modified(self, event: BrokerModified) -> None:
        known = self.cluster.brokers.get(event.broker)
        now = await self.store.broker(event.broker)
        if known is None or now is None or now.epoch != known.epoch:
            return
        if (now.endpoints, now.features) == (known.endpoints, known.features):
            return
        self.cluster.add_brokers([now])
        # Requests go to where the broker listens now.
        self.channels.remove(now.id)
        self.channels.add(now)
        self.history.add(self.broker_event("modified", now.id))
        self.tell_brokers(self.cluster.brokers)
        await self.tell_everything(now.id)

    async def on_writes_failed(self, event: WritesFailed) -> None:
        """Elections, first leaders, and replicas that are to leave ISRs: whatever the store did not keep."""
        cluster, table = self.cluster, self.cluster.table
        at = cluster.pop_retries()
        try:
            await self._learn(at)
        except StoreError:
            cluster.mark_for_retry(at)
            raise
        rows = table.rows(at)
        gone = frozenset(np.unique(rows.replicas[rows.assigned]).tolist()) - cluster.brokers.keys()
        await self._offline.replicas_offline(common(at, table.with_replica_on(gone)), gone)
        for broker in cluster.brokers:
            failed = common(at, table.dirs_offline(broker))
            if len(failed):
                await self._offline.replicas_offline(failed, frozenset({broker}))
        await self._reassignments.resume(at)
        await self._deletion.resume()

    async def _learn(self, at: RowNumbers) -> None:
        """Take over what was kept although nobody could say so, and send LeaderAndIsr for all of the rows.

        Nothing else would send it: for whoever looks at memory alone, nothing is left to be written. That holds as well
        where another handler has read the row meanwhile, as when its leader proposed an ISR. Brokers pass over a leader
        epoch that they have. Rows that are NEW are sent when their first leader is taken over.
        """
        table = self.cluster.table
        rows = table.rows(at)
        stored = await self.store.leaderships(table.names(at))
        ahead = rows.has_leadership & stored.found & (stored.partition_epoch > rows.partition_epoch)
        if ahead.any():
            self.cluster.put_leaderships(at[ahead], stored.take(ahead))
            rows = table.rows(at[ahead])
            log.info("%d partitions have leadership in the store that nobody was told of", len(rows))
            self.history.add_partitions(Change.of(rows), table.refs, controller_epoch=self.epoch)
        rows = table.rows(at)
        rows = rows.take(rows.has_leadership & (ahead | (rows.state != PartitionState.NEW)))
        self.batch.begin()
        self.batch.lead_and_follow(
            rows, rows.assigned & rows.online(self.cluster.live_brokers.registered) & ~rows.queued
        )
        self.channels.send(self.batch.flush())

    async def on_broker_lagged(self, event: BrokerLagged) -> None:
        if event.broker in self.cluster.brokers:
            self.channels.resume(event.broker)
            await self.tell_everything(event.broker)

    async def tell_everything(self, broker: int) -> None:
        """Tell a broker all that it has to know, in place of requests that it did not get."""
        table = self.cluster.table
        await self._tell_of_all_partitions([broker])
        await self.introduce(frozenset({broker}), table.with_replica_on([broker]))
        await self._deletion.send_again(broker)

    async def _tell_of_all_partitions(self, brokers: list[int]) -> None:
        """UpdateMetadata of everything that has leadership, in parts that are gathered in some milliseconds.

        Other tasks of the process run between two parts, small events do not; see `on_broker_startup`.
        """
        at = self.cluster.table.with_leadership()
        size = WHOLE if self.settings.parity else METADATA_CHUNKS * self.settings.chunk_partitions
        for begin in range(0, max(1, len(at)), size):
            self.batch.begin()
            self.batch.update_metadata(brokers, self.cluster.table.rows(at[begin : begin + size]))
            self.channels.send(self.batch.flush())
            await asyncio.sleep(0)
