"""Handlers of broker registrations: startup, failure, restart, modification.

Source: the classic controller's processBrokerChange, onBrokerStartup, onBrokerFailure, processBrokerModification.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import numpy as np

from kactl.actors.machines.machine import WHOLE
from kactl.actors.priority_inbox import Timers
from kactl.decide.messages.events import (
    BrokerChange,
    BrokerLag,
    BrokerModifications,
    ControlledShutdownTimeout,
    DrainProgress,
    Event,
    LinkChange,
    WriteFailure,
)
from kactl.decide.messages.log import BrokerEvent
from kactl.decide.state.change import Change
from kactl.decide.state.rows import Bools, RowNumbers, Rows, common, some, without
from kactl.decide.state.table import in_sync_of
from kactl.model import PartitionState
from kactl.runtime.logs import logger
from kactl.stores.base import Leaderships

from .balance import Balancing
from .base import ControllerContext, Handler, Handlers
from .controller_replicas import Hosting
from .deletion import Deletion
from .drains import Drains
from .features import FeatureEvents
from .leases import Leases
from .offline import Offline, StoppedReplicas
from .ownership import Ownership
from .participant_ids import ParticipantIds
from .reassignments import Reassignments

log = logger(__name__)

# How many chunks of partitions one UpdateMetadata to a starting broker contains. Kafka brokers copy their metadata of
# the whole cluster at each request.
METADATA_CHUNKS: Final = 2


class BrokerEvents(Handlers):
    """Process startups before failures. A broker that registered again in between is processed as both.

    Args:
        features: excludes registrations that do not support the finalized features.
        offline: handles replicas that become offline.
        deletion, reassignments, hosting: resume when brokers start.
        timers: of the shutdowns that registrations have requested; they end with the registrations.
        stopped: the same of replicas that they have stopped.
        leases: hold the leaderships of participants without a registration.
        drains: may end with a registration.
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
        timers: Timers,
        stopped: StoppedReplicas,
        leases: Leases,
        balancing: Balancing,
        drains: Drains,
        ownership: Ownership,
        ids: ParticipantIds,
    ) -> None:
        super().__init__(context)
        self._ownership = ownership
        self._ids = ids
        self._drains = drains
        self._balancing = balancing
        self._stopped = stopped
        self._timers = timers
        self._features = features
        self._offline = offline
        self._deletion = deletion
        self._reassignments = reassignments
        self._hosting = hosting
        self._leases = leases

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            BrokerChange: self.on_broker_change,
            BrokerModifications: self.on_broker_modifications,
            BrokerLag: self.on_broker_lag,
            LinkChange: self.on_link_change,
            WriteFailure: self.on_write_failure,
        }

    async def on_broker_change(self, event: BrokerChange) -> None:
        cluster = self.cluster
        await self.context.sessions.ends_stored()
        read_ns = self.clock.lease_ns()
        stored = await self.store.brokers()
        self.context.sessions.observe(stored, read_ns=read_ns)
        registered = self._features.compatible(self._leases.without_evicted(stored))
        known = cluster.brokers | cluster.start_failed
        dead = sorted(known.keys() - registered.keys())
        bounced = sorted(
            broker for broker in registered.keys() & known.keys() if registered[broker].epoch > known[broker].epoch
        )
        new = sorted(registered.keys() - cluster.brokers.keys() - set(bounced))
        if not (new or dead or bounced):
            return
        kind = (
            "participants" if all(each.incarnation for each in (*registered.values(), *known.values())) else "brokers"
        )
        log.info("%s: new %s, dead %s, bounced %s; registered %s", kind, new, dead, bounced, sorted(registered))
        if cluster.controller_id in new:
            log.error(
                "broker %d has the id of this controller and will take itself for it: give the controller another id",
                cluster.controller_id,
            )
        # Also the channels of new brokers: an earlier event may have failed after it added them.
        for broker in (*new, *bounced, *dead):
            self.channels.remove(broker)
        for broker in (*bounced, *dead):
            self._timers.cancel(ControlledShutdownTimeout(broker, known[broker].epoch))
        for broker in (*new, *bounced):
            self.channels.add(registered[broker])
        if new:
            # Not between the registration and the first full LeaderAndIsr; see `on_broker_startup`.
            await self.context.yield_point()
            with self._or_found_again(new):
                await self._drains.brokers_came(registered[broker] for broker in new)
                self.add_brokers(registered[broker] for broker in new)
                for broker in new:
                    self._leases.life_began(registered[broker])
                await self._hosting.brokers_came()
                await self._brokers_started(new, "started")
        if bounced:
            with self._or_found_again(bounced):
                for broker in bounced:
                    self._leases.life_ended(known[broker], stored[broker])
                cluster.remove_brokers(bounced)
                await self._brokers_failed(bounced)
                await self.context.yield_point()
                await self._drains.brokers_came(registered[broker] for broker in bounced)
                self.add_brokers(registered[broker] for broker in bounced)
                await self._brokers_started(bounced, "bounced")
        if dead:
            with self._or_found_again(dead):
                for broker in dead:
                    self._leases.life_ended(known[broker], stored.get(broker))
                cluster.remove_brokers(dead)
                await self._brokers_failed(dead)

    @contextlib.contextmanager
    def _or_found_again(self, brokers: list[int]) -> Iterator[None]:
        """If the block raises, restore the known brokers, so that the next event finds the same differences.

        New brokers may lead partitions by then. They are kept apart: if one has failed before the next event, that
        event processes its failure.
        """
        cluster, before = self.cluster, self.cluster.brokers.copy()
        try:
            yield
        except Exception:
            cluster.start_failed |= {id_: broker for id_, broker in cluster.brokers.items() if id_ not in before}
            cluster.remove_brokers(tuple(cluster.brokers))
            cluster.add_brokers(before.values())
            raise
        for broker in brokers:
            cluster.start_failed.pop(broker, None)

    async def _brokers_started(self, brokers: list[int], kind: str) -> None:
        for broker in brokers:
            self.cluster.forget_offline_dirs(broker)
        self._ids.in_use(brokers)
        await self.on_broker_startup(brokers, kind)
        self._drains.brokers_started(brokers)
        self._balancing.brokers_came(brokers)

    async def on_broker_startup(self, brokers: list[int], kind: str) -> None:
        """Use brokers, for the first time or again: send them everything, and their registrations to the other brokers.

        A drained broker receives everything, too, and a StopReplica for all that it would follow: see `RequestBatch`.

        A new registration receives UpdateMetadata first, then one LeaderAndIsr with everything that it hosts. Small
        events are handled before and after, never in between: an election would send a LeaderAndIsr of one partition.
        """
        cluster = self.cluster
        for broker in brokers:
            self.history.add(self.broker_event(kind, broker))
        self.tell_brokers(cluster.brokers.keys() - set(brokers))
        await self._tell_of_all_partitions(brokers)
        ids = frozenset(brokers)
        row_numbers = cluster.table.with_replica_on(ids)
        for broker in brokers:
            # Directories of a broker that stayed registered; a new registration has none marked.
            row_numbers = without(row_numbers, cluster.table.dirs_offline(broker))
        await self.introduce(ids, row_numbers)
        # If the first attempt to handle the start has failed, its channels were removed with what it had sent.
        await self._deletion.requests_dropped(ids)
        await self._ownership.members_came()
        await self.elect_offline()
        await self._reassignments.resume_on(ids)
        await self._deletion.resume_on(ids)

    async def _brokers_failed(self, brokers: list[int]) -> None:
        cluster = self.cluster
        for broker in brokers:
            cluster.forget_offline_dirs(broker)
            cluster.mark_shutting_down(broker, False)
            self._stopped.forget(broker)
            self.history.add(BrokerEvent(what="failed", broker=broker, broker_epoch=-1, controller_epoch=self.epoch))
        ids = frozenset(brokers)
        await self._offline.replicas_offline(cluster.table.with_replica_on(ids), ids)

    async def on_broker_modifications(self, event: BrokerModifications) -> None:
        known = self.cluster.brokers.get(event.broker)
        now = await self.store.broker(event.broker)
        if known is None or now is None or now.epoch != known.epoch:
            return
        if (now.endpoints, now.features, now.rack) == (known.endpoints, known.features, known.rack):
            return
        listed_as = self.cluster.listed_as
        self.cluster.add_brokers([now])
        if (now.endpoints, now.features) == (known.endpoints, known.features) and self.cluster.listed_as == listed_as:
            return  # only its rack: that is sent with the next change, as by Kafka's controller
        # Send requests to the new endpoints.
        self.channels.remove(now.id)
        self.channels.add(now)
        self.history.add(self.broker_event("modified", now.id))
        self.tell_brokers(self.cluster.brokers)
        await self.tell_everything(now.id)

    async def on_write_failure(self, event: WriteFailure) -> None:
        """Retry the rows that the store did not commit: elections, first leaders, replicas that leave ISRs.

        Retry those as well that concern a failed directory or a notification, and whose event an error has ended.
        """
        row_numbers = self.cluster.pop_retries()
        try:
            await self._retry(row_numbers)
        except Exception:
            # The event is handled again, also after an unexpected error.
            self.cluster.mark_for_retry(row_numbers)
            raise

    async def _retry(self, row_numbers: RowNumbers) -> None:
        cluster, table = self.cluster, self.cluster.table
        await self._learn(row_numbers)
        rows = table.rows(row_numbers)
        gone = frozenset(np.unique(rows.replicas[rows.assigned]).tolist()) - cluster.brokers.keys()
        await self._offline.replicas_offline(common(row_numbers, table.with_replica_on(gone)), gone)
        for broker in cluster.brokers:
            failed = common(row_numbers, table.dirs_offline(broker))
            if len(failed):
                await self._offline.replicas_offline(failed, frozenset({broker}))
        await self._reassignments.resume(row_numbers)
        await self._deletion.resume()
        self.continue_drains(row_numbers)

    async def _learn(self, row_numbers: RowNumbers) -> None:
        """Apply stored leadership that was committed without a response, and send LeaderAndIsr for all of the rows.

        Nothing else would send it: in memory nothing is left to be written. This includes rows that another handler has
        read meanwhile, for example because their leader proposed an ISR. Brokers ignore a leader epoch that they have.
        Rows that are NEW are sent when an election adopts their first leader. An election reads that only where another
        leader could be elected, and sends nothing if the first one is offline.
        """
        table = self.cluster.table
        rows = table.rows(row_numbers)
        stored = await self.store.leaderships(table.names(row_numbers))
        ahead = rows.has_leadership & stored.found & (stored.partition_epoch > rows.partition_epoch)
        ahead |= self._not_adopted(rows, stored)
        if ahead.any():
            self.cluster.put_leaderships(row_numbers[ahead], stored.take(ahead))
            rows = table.rows(row_numbers[ahead])
            log.info("%d partitions have leadership in the store that no broker has received", len(rows))
            self.history.add_partitions(Change.of(rows), table.refs, controller_epoch=self.epoch)
        rows = table.rows(row_numbers)
        rows = rows.take(rows.has_leadership & (ahead | (rows.state != PartitionState.NEW)))
        self.batch.begin()
        self.batch.lead_and_follow(
            rows, rows.assigned & rows.online(self.cluster.live_brokers.registered) & ~rows.queued
        )
        self.channels.send(self.batch.flush())

    def _not_adopted(self, rows: Rows, stored: Leaderships) -> Bools:
        """bool[n]: NEW rows with a first leader in the store that cannot be elected now.

        This controller wrote it, for the present topic: a deleted topic of that name may have left its leadership.
        """
        unknown = (rows.state == PartitionState.NEW) & ~rows.has_leadership & ~rows.queued
        mine = stored.found & (stored.controller_epoch == self.epoch)
        mine &= some(rows.assigned & in_sync_of(rows.replicas, stored.isr))
        candidates = rows.assigned & rows.online(self.cluster.live_brokers.electable)
        result: Bools = unknown & mine & ~some(candidates & (rows.replicas == stored.leader))
        return result

    async def on_link_change(self, event: LinkChange) -> None:
        """Use participants that can be reached now: for elections that found no other candidate, and in ISRs."""
        cluster, fenced = self.cluster, self.cluster.fenced
        cluster.set_fenced(self.context.links.fenced(cluster.brokers.values()))
        reached = fenced - cluster.fenced
        if not reached:
            return
        log.info("brokers %s have linked to this controller", sorted(reached))
        self.history.wake()  # callers wait for brokers that can be used, and a link is no event of the history
        try:
            await self._ownership.members_came()
            await self.elect_offline()
            self.continue_drains(cluster.table.with_replica_on(reached))
            await self._reassignments.resume_on(reached)
            await self._deletion.resume_on(reached)
        except Exception:
            cluster.set_fenced(cluster.fenced | reached)  # the event is handled again
            raise

    async def on_broker_lag(self, event: BrokerLag) -> None:
        if event.broker in self.cluster.brokers:
            self.channels.resume(event.broker)
            await self.tell_everything(event.broker)

    async def tell_everything(self, broker: int) -> None:
        """Send a broker its complete state, in place of requests that were dropped.

        Replicas that a reassignment adds get theirs when it is resumed, under a new leader epoch.
        """
        table = self.cluster.table
        await self._tell_of_all_partitions([broker])
        await self.introduce(frozenset({broker}), table.with_replica_on([broker]))
        if broker in self.cluster.drained:
            self.context.enqueue(DrainProgress(broker, stop_again=True))
        self._leases.state_sent([broker])
        await self._reassignments.resume_on([broker])
        await self._deletion.send_again(broker)

    async def _tell_of_all_partitions(self, brokers: list[int]) -> None:
        """Send UpdateMetadata for all partitions with leadership, in parts of a few milliseconds each.

        Other tasks run between two parts. Small events are not handled there; see `on_broker_startup`.
        """
        row_numbers = self.cluster.table.with_leadership()
        size = WHOLE if self.settings.parity else METADATA_CHUNKS * self.settings.chunk_partitions
        for begin in range(0, max(1, len(row_numbers)), size):
            self.batch.begin()
            self.batch.update_metadata(brokers, self.cluster.table.rows(row_numbers[begin : begin + size]))
            self.channels.send(self.batch.flush())
            await asyncio.sleep(0)
