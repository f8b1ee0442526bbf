"""The controller: takes one event after the other, and says which lives must move, in which order.

Read the handlers top to bottom and you have read the protocol. Nothing is decided here that a machine could decide;
nothing is awaited but the machines and the store, and never a broker.

Source: the classic controller's KafkaController.
"""

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from kactl.batch import RequestBatch
from kactl.clock import Clock
from kactl.cluster import Cluster
from kactl.election import Election
from kactl.errors import ControllerMoved, ErrorCode, IllegalState, NotController, StoreError
from kactl.events import (
    BrokerLagged,
    BrokerModified,
    BrokersChanged,
    ControllerChanged,
    ControllerGone,
    ControllerState,
    ElectionRequested,
    ElectionResult,
    Event,
    IsrNotified,
    LeaderAndIsrAnswered,
    LogDirNotified,
    ResignRequested,
    SessionLost,
    SessionOpened,
    Started,
    TopicConfigChanged,
    TopicCreationRequested,
    TopicModified,
    TopicsChanged,
    UncleanElectionsEnabled,
    UpdateMetadataAnswered,
)
from kactl.history import BrokerEvent, ControllerEvent, History, TopicEvent
from kactl.machines import partition
from kactl.model import PartitionState, ReplicaState, TopicRef
from kactl.placement import check_creation
from kactl.rows import Change, RowNumbers, some
from kactl.store import Assignments, Names, Store
from kactl.table import NO_ROW
from kactl.telemetry import Telemetry

from . import elections
from .actor import Actor, Ref
from .messages import Move, Moved, MoveReplicas
from .outbox import BrokerChannels

log = logging.getLogger(__name__)

NEW, ONLINE, OFFLINE = PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE
# How often an event is tried while the store fails for the moment, and the first pause; each further one is longer.
STORE_TRIES = 4
STORE_BACKOFF_MS = 200
# The pause before contesting again after a takeover that failed, so that a lasting failure does not spin.
CONTEST_BACKOFF_MS = 1000
NOBODY = frozenset[int]()


class ControllerLoop(Actor[Event]):
    """See the module. Owns the cluster and lends it to a machine for as long as it waits for it.

    Args:
        topic_ids: whether topics without an id are given one (protocol level 2.8 and above).
        take_over: whether to take the controllership from whoever holds it, at the first contest.
        new_topic_id: makes an id of 16 bytes.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        *,
        partitions: Ref[Move],
        replicas: Ref[MoveReplicas],
        channels: BrokerChannels,
        history: History,
        clock: Clock,
        telemetry: Telemetry,
        topic_ids: bool,
        take_over: bool,
        new_topic_id: Callable[[], bytes],
        set_unclean_default: Callable[[bool], None],
    ) -> None:
        super().__init__("controller")
        self.cluster = cluster
        self.store = store
        self.partitions = partitions
        self.replicas = replicas
        self.channels = channels
        self.history = history
        self.clock = clock
        self.telemetry = telemetry
        self.batch = RequestBatch(cluster)
        self.active_id: int | None = None  # who holds the controllership, as far as we know
        self.state = ControllerState.IDLE
        self.elections_won = 0
        self.ready = False  # whether we are active and have taken over wholly
        self.stopping = False
        self._topic_ids = topic_ids
        self._take_over = take_over
        self._new_topic_id = new_topic_id
        self._set_unclean_default = set_unclean_default
        self._handlers: dict[type[Event], Callable[[Any], Any]] = {
            Started: self.on_started,
            ControllerChanged: self.on_controller_changed,
            ControllerGone: self.on_controller_gone,
            SessionLost: self.on_session_lost,
            SessionOpened: self.on_session_opened,
            ResignRequested: self.on_resign_requested,
            BrokersChanged: self.on_brokers_changed,
            BrokerModified: self.on_broker_modified,
            BrokerLagged: self.on_broker_lagged,
            TopicsChanged: self.on_topics_changed,
            TopicModified: self.on_topic_modified,
            IsrNotified: self.on_isr_notified,
            LogDirNotified: self.on_log_dir_notified,
            TopicConfigChanged: self.on_topic_config_changed,
            UncleanElectionsEnabled: self.on_unclean_elections_enabled,
            LeaderAndIsrAnswered: self.on_leader_and_isr_answered,
            UpdateMetadataAnswered: self.on_update_metadata_answered,
            ElectionRequested: self.on_election_requested,
            TopicCreationRequested: self.on_topic_creation_requested,
        }

    @property
    def is_active(self) -> bool:
        return self.active_id == self.cluster.controller_id and self.cluster.fence.epoch > 0

    # -- one event -----------------------------------------------------------------------------------------------------

    async def receive(self, message: Event) -> Any:
        """Handle one event to its end. Whatever goes wrong, the next event finds the controller ready."""
        asked = type(message) in _ASKED
        if not self.is_active and type(message) not in _ALWAYS:
            if asked:
                raise NotController(self.active_id)
            return None
        self.state = message.state
        began_ms = self.clock.monotonic_ms()
        try:
            return await self._handle(message)
        except ControllerMoved as moved:
            log.info("%s: %s", message.label, moved)
            await self._guarded(self._maybe_resign)
            if asked:
                raise NotController(self.active_id) from moved
        except Exception as error:
            if asked:
                raise
            log.exception("%s was abandoned: %s", message.label, error)
        finally:
            self.batch.clear()
            self.state = ControllerState.IDLE
            self.telemetry.processed(message.state.label, self.clock.monotonic_ms() - began_ms)
        return None

    async def _handle(self, event: Event) -> Any:
        """Handle an event; one that only says "read again" is tried again while the store fails for the moment."""
        handler = self._handlers[type(event)]
        for attempt in range(STORE_TRIES - 1):
            try:
                return await handler(event)
            except ControllerMoved:
                raise
            except StoreError as failed:
                if type(event) in _ASKED:
                    raise
                pause_ms = STORE_BACKOFF_MS << attempt
                log.warning("%s: %s; trying again in %d ms", event.label, failed, pause_ms)
                self.batch.clear()
                await self.clock.sleep_ms(pause_ms)
        return await handler(event)

    async def _guarded(self, step: Callable[[], Any]) -> None:
        """A step that must not throw: it is on the way out already."""
        try:
            await step()
        except Exception as error:
            log.exception("%s", error)

    def clear_and_put(self, event: Event) -> None:
        """Empty the queue, answer those who waited for an answer, and let `event` be the next.

        For the end of a session: no event of the old one may be handled under the new one.
        """
        for _, asker in self.inbox.drain():
            if asker is not None and not asker.done():
                asker.set_exception(NotController(None))
        self.inbox.put(event)

    # -- the controllership --------------------------------------------------------------------------------------------

    async def on_started(self, event: Started) -> None:
        await self._contest(take_over=self._take_over)

    async def on_controller_changed(self, event: ControllerChanged) -> None:
        await self._maybe_resign()

    async def on_controller_gone(self, event: ControllerGone) -> None:
        await self._maybe_resign()
        await self._contest()

    async def on_session_lost(self, event: SessionLost) -> None:
        self.active_id = None
        self._resign("the session with the store was lost")

    async def on_session_opened(self, event: SessionOpened) -> None:
        await self._maybe_resign()
        await self._contest()

    async def on_resign_requested(self, event: ResignRequested) -> None:
        self.stopping |= event.stop
        if self.is_active:
            await self._give_up("asked to resign")

    async def _contest(self, *, take_over: bool = False) -> None:
        """Take the controllership if nobody holds it, and everything that goes with it."""
        if self.stopping or self.is_active:
            return
        record = await self.store.controller()
        self.active_id = record.id if record is not None else None
        if record is not None and not take_over:
            log.info("controller %d is active; this instance stands by", record.id)
            return
        fence = await self.store.contest(self.cluster.controller_id, take_over=take_over)
        self.cluster.fence = fence
        self.active_id = self.cluster.controller_id
        self.elections_won += 1
        try:
            await self._failover()
            self.ready = True
            self.history.add(
                ControllerEvent(what="elected", controller_id=self.active_id, controller_epoch=fence.epoch)
            )
        except ControllerMoved:
            raise
        except Exception as error:
            log.exception("taking over under epoch %d failed, the controllership is given up: %s", fence.epoch, error)
            await self._give_up("taking over failed")
            await self.clock.sleep_ms(CONTEST_BACKOFF_MS)

    async def _maybe_resign(self) -> None:
        """See who is the controller; if it no longer is us under our epoch, resign."""
        was_active = self.is_active
        record = await self.store.controller()
        ours = record is not None and (record.id, record.epoch) == (
            self.cluster.controller_id,
            self.cluster.fence.epoch,
        )
        self.active_id = record.id if record is not None else None
        if was_active and not ours:
            if self.active_id == self.cluster.controller_id:
                # Under another epoch: an instance with our id, which is not us.
                self.active_id = None
            self._resign("a later controller was elected" if record is not None else "the controllership was lost")

    async def _give_up(self, cause: str) -> None:
        """Resign, and let the store say so, that somebody else may take over."""
        fence = self.cluster.fence
        self.active_id = None
        self._resign(cause)
        try:
            await self.store.resign(fence)
        except ControllerMoved as moved:
            log.info("somebody was faster: %s", moved)
        except StoreError as failed:
            log.warning("the controllership will end with our session: %s", failed)

    async def abandon(self) -> None:
        """Give up everything after an error that should not have been; never raises."""
        await self._guarded(lambda: self._give_up("an error ended the controller"))

    def _resign(self, cause: str) -> None:
        """Stop being the controller: nothing that waits is sent, nothing that was known is kept. Never fails."""
        epoch = self.cluster.fence.epoch
        self.ready = False
        self.channels.close()
        self.batch.clear()
        self.cluster.reset()
        if epoch:
            log.info("resigned from epoch %d: %s", epoch, cause)
            self.history.add(
                ControllerEvent(
                    what="resigned", controller_id=self.cluster.controller_id, cause=cause, controller_epoch=epoch
                )
            )

    async def _failover(self) -> None:
        """Take over: watches before reads, reads before machines, the live brokers before any leadership."""
        cluster, store = self.cluster, self.store
        log.info("controller %d takes over under epoch %d", cluster.controller_id, cluster.fence.epoch)
        await store.delete_notifications(await store.log_dir_notifications(), cluster.fence)
        await store.delete_notifications(await store.isr_notifications(), cluster.fence)
        brokers = await store.brokers()
        cluster.add_brokers(brokers.values())
        names = await store.topics()
        loaded = await self._load_topics(names)
        await self._load_leaderships(loaded)
        for broker in brokers.values():
            self.channels.add(broker)
        marked = await store.deletions()
        if marked:
            log.warning(
                "%d topics are marked for deletion and stay as they are: %s", len(marked), ", ".join(marked[:5])
            )
        self._tell_brokers(cluster.brokers)
        await self._start_replicas()
        await self._start_partitions()
        log.info(
            "controller %d is active under epoch %d: %d brokers, %d topics, %d partitions, %d of them offline",
            cluster.controller_id, cluster.fence.epoch, len(brokers), len(names), len(cluster.table),
            cluster.offline_count,
        )  # fmt: skip

    async def _load_topics(self, names: list[str]) -> Assignments:
        """Read topics and put what is assigned; topics without an id get one."""
        loaded = await self.store.assignments(names)
        for name in names:
            self.cluster.table.add_topic(name)
        self.cluster.put_assignments(loaded)
        self.cluster.reassigning |= {name for name, held in _reassigned(loaded)}
        if self._topic_ids:
            await self._give_ids(loaded)
        return loaded

    async def _give_ids(self, loaded: Assignments) -> None:
        for ref in loaded.topics:
            if any(ref.id):
                continue
            named = TopicRef(ref.name, self._new_topic_id())
            assignment = {name.partition: held for name, held in loaded.items() if name.topic == ref.name}
            await self.store.write_assignment(named, assignment, self.cluster.fence)
            self.cluster.put_topic_id(named.name, named.id)

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
        await self._move_replicas(at, ReplicaState.ONLINE, holders & cluster.now.live.ids)
        gone = holders - cluster.now.live.ids
        await self._move_replicas(cluster.table.with_replica_on(gone), ReplicaState.OFFLINE, gone)

    async def _start_partitions(self) -> None:
        rows = self.cluster.table.rows(self.cluster.table.all())
        self.cluster.apply(partition.begin(rows, self.cluster.now))
        await self._elect_offline()

    # -- brokers -------------------------------------------------------------------------------------------------------

    async def on_brokers_changed(self, event: BrokersChanged) -> None:
        cluster = self.cluster
        registered = await self.store.brokers()
        known = cluster.brokers
        new = sorted(registered.keys() - known.keys())
        dead = sorted(known.keys() - registered.keys())
        bounced = sorted(
            each for each in registered.keys() & known.keys() if registered[each].epoch > known[each].epoch
        )
        if not (new or dead or bounced):
            return
        log.info("brokers: new %s, dead %s, bounced %s; registered %s", new, dead, bounced, sorted(registered))
        for broker in (*bounced, *dead):
            self.channels.remove(broker)
        for broker in (*new, *bounced):
            self.channels.add(registered[broker])
        if new:
            cluster.add_brokers(registered[broker] for broker in new)
            await self._brokers_started(new, "started")
        if bounced:
            cluster.remove_brokers(bounced)
            await self._brokers_failed(bounced)
            cluster.add_brokers(registered[broker] for broker in bounced)
            await self._brokers_started(bounced, "bounced")
        if dead:
            cluster.remove_brokers(dead)
            await self._brokers_failed(dead)

    async def _brokers_started(self, brokers: list[int], what: str) -> None:
        cluster = self.cluster
        for broker in brokers:
            cluster.forget_offline_dirs(broker)
            self.history.add(self._broker_event(what, broker))
        self._tell_brokers(cluster.brokers.keys() - set(brokers))
        self.batch.begin()
        self.batch.update_metadata(brokers, cluster.table.rows(cluster.table.with_leadership()))
        self.channels.send(self.batch.flush())
        ids = frozenset(brokers)
        await self._move_replicas(cluster.table.with_replica_on(ids), ReplicaState.ONLINE, ids)
        await self._elect_offline()

    async def _brokers_failed(self, brokers: list[int]) -> None:
        cluster = self.cluster
        for broker in brokers:
            cluster.forget_offline_dirs(broker)
            cluster.mark_shutting_down(broker, False)
            self.history.add(BrokerEvent(what="failed", broker=broker, broker_epoch=-1, controller_epoch=self._epoch))
        ids = frozenset(brokers)
        await self._replicas_offline(cluster.table.with_replica_on(ids), ids)

    async def _replicas_offline(self, at: RowNumbers, brokers: frozenset[int]) -> None:
        """Replicas became offline: first their leaders are followed by others, then they leave the ISRs."""
        table = self.cluster.table
        await self.partitions.ask(Move(table.led_by_none_of(self.cluster.now.live), OFFLINE))
        moved = await self._elect_offline()
        await self._move_replicas(at, ReplicaState.OFFLINE, brokers)
        if not len(at) and not moved.elected.any():
            # Nothing was sent that would tell of the brokers that are gone.
            self._tell_brokers(self.cluster.brokers)

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
        self.history.add(self._broker_event("modified", now.id))
        self._tell_brokers(self.cluster.brokers)
        await self._tell_everything(now.id)

    async def on_broker_lagged(self, event: BrokerLagged) -> None:
        if event.broker in self.cluster.brokers:
            await self._tell_everything(event.broker)

    async def _tell_everything(self, broker: int) -> None:
        """Tell a broker all that it has to know, in place of requests that it did not get."""
        table = self.cluster.table
        self.batch.begin()
        self.batch.update_metadata([broker], table.rows(table.with_leadership()))
        self.channels.send(self.batch.flush())
        await self._move_replicas(table.with_replica_on([broker]), ReplicaState.ONLINE, frozenset({broker}))

    # -- topics --------------------------------------------------------------------------------------------------------

    async def on_topics_changed(self, event: TopicsChanged) -> None:
        table = self.cluster.table
        listed = await self.store.topics()
        known = {topic.name for topic in table.topics()}
        for name in sorted(known - set(listed)):
            self.cluster.remove_topic(name)
            self.history.add(TopicEvent(what="vanished", topic=name, controller_epoch=self._epoch))
        new = [name for name in listed if name not in known]
        if not new:
            return
        loaded = await self._load_topics(new)
        log.info("topics: %d new with %d partitions, %d gone", len(new), len(loaded), len(known - set(listed)))
        for name in new:
            self.history.add(TopicEvent(what="created", topic=name, controller_epoch=self._epoch))
        await self._create_partitions(loaded)

    async def on_topic_modified(self, event: TopicModified) -> None:
        """Partitions were added. What else changed in the entry is not for us to follow."""
        loaded = await self.store.assignments([event.topic])
        table = self.cluster.table
        if table.topic(event.topic) is None or not len(loaded):
            return
        rows = table.rows_at(Names(loaded.topics, loaded.topic, loaded.partition))
        added = loaded.take(rows == NO_ROW)
        if not len(added):
            return
        if event.topic in self.cluster.topics_to_delete:
            log.warning(
                "topic %s is being deleted; the %d partitions added to it are not created", event.topic, len(added)
            )
            return
        self.cluster.put_assignments(added)
        self.history.add(TopicEvent(what="grown", topic=event.topic, controller_epoch=self._epoch))
        await self._create_partitions(added)

    async def _create_partitions(self, loaded: Assignments) -> None:
        at = self.cluster.table.rows_at(Names(loaded.topics, loaded.topic, loaded.partition))
        await self.partitions.ask(Move(at, NEW))
        await self._move_replicas(at, ReplicaState.NEW)
        await self.partitions.ask(Move(at, ONLINE, Election.OFFLINE))
        await self._move_replicas(at, ReplicaState.ONLINE)

    # -- what brokers wrote and answered -------------------------------------------------------------------------------

    async def on_isr_notified(self, event: IsrNotified) -> None:
        notifications = await self.store.isr_notifications()
        try:
            names = sorted({name for each in notifications for name in each.partitions})
            at = np.array([row for name in names if (row := self.cluster.table.row(name)) != NO_ROW], np.intp)
            if len(at):
                await self._reload(at)
        finally:
            await self.store.delete_notifications(notifications, self.cluster.fence)

    async def _reload(self, at: RowNumbers) -> None:
        """Read what leaders have written, and tell everybody."""
        table = self.cluster.table
        self.cluster.put_leaderships(at, await self.store.leaderships(table.names(at)))
        self.history.add_partitions(*self._unmoved(at), controller_epoch=self._epoch)
        self.batch.begin()
        self.batch.update_metadata(self.cluster.brokers, table.rows(at))
        self.channels.send(self.batch.flush())

    def _unmoved(self, at: RowNumbers) -> tuple[Any, dict[int, TopicRef]]:
        rows = self.cluster.table.rows(at)
        return Change.of(rows), self.cluster.table.refs_of(rows.topic)

    async def on_log_dir_notified(self, event: LogDirNotified) -> None:
        """Ask the brokers which of their replicas still serve, by telling them everything that they host."""
        notifications = await self.store.log_dir_notifications()
        try:
            brokers = frozenset(each.broker for each in notifications)
            await self._move_replicas(self.cluster.table.with_replica_on(brokers), ReplicaState.ONLINE, brokers)
        finally:
            await self.store.delete_notifications(notifications, self.cluster.fence)

    async def on_leader_and_isr_answered(self, event: LeaderAndIsrAnswered) -> None:
        response, broker = event.response, event.broker
        if response.error != ErrorCode.NONE:
            log.warning("broker %d refused a LeaderAndIsr with error %d", broker, response.error)
            if response.error == ErrorCode.STALE_CONTROLLER_EPOCH:
                # It has heard a later controller; see whether that is so.
                await self._maybe_resign()
            return
        if broker not in self.cluster.brokers or not len(response.partitions):
            return
        table, errors = self.cluster.table, response.partitions
        failed = errors.error == ErrorCode.KAFKA_STORAGE_ERROR
        before = table.dirs_offline(broker)
        if not failed.any() and not len(before):
            return
        at = table.rows_named_in(errors.topics, errors.topic, errors.partition)
        known = at != NO_ROW
        serving = at[known & (errors.error == ErrorCode.NONE)]
        table.mark_dirs(broker, serving, False)
        fresh = np.setdiff1d(at[known & failed], before)
        if len(fresh):
            log.warning("broker %d: the directories of %d replicas have failed", broker, len(fresh))
            table.mark_dirs(broker, fresh, True)
            self.history.add(self._broker_event("directory-failed", broker))
            await self._replicas_offline(fresh, frozenset({broker}))

    async def on_update_metadata_answered(self, event: UpdateMetadataAnswered) -> None:
        if event.response.error != ErrorCode.NONE:
            log.error("broker %d refused an UpdateMetadata with error %d", event.broker, event.response.error)

    # -- elections and what is asked for -------------------------------------------------------------------------------

    async def on_topic_config_changed(self, event: TopicConfigChanged) -> None:
        topic = self.cluster.table.topic(event.topic)
        config = (await self.store.topic_configs([event.topic])).get(event.topic) or {}
        if topic is None or config.get("unclean.leader.election.enable", "").strip().lower() != "true":
            return
        at = np.intersect1d(self.cluster.table.in_state(NEW, OFFLINE), self.cluster.table.rows_of(topic))
        log.info("topic %s allows unclean elections: %d of its partitions want a leader", event.topic, len(at))
        await self.partitions.ask(Move(at, ONLINE, Election.OFFLINE))

    async def on_unclean_elections_enabled(self, event: UncleanElectionsEnabled) -> None:
        log.info("unclean elections are %s by default", "enabled" if event.enabled else "disabled")
        self._set_unclean_default(event.enabled)
        if event.enabled and self.is_active:
            await self._elect_offline()

    async def on_election_requested(self, event: ElectionRequested) -> list[ElectionResult]:
        return await elections.answer(event, self.cluster, self.partitions)

    async def on_topic_creation_requested(self, event: TopicCreationRequested) -> TopicRef:
        topic, assignment = check_creation(event, self.cluster)
        if self._topic_ids:
            topic = msgspec.structs.replace(topic, id=self._new_topic_id())
        if not event.dry_run:
            await self.store.create_topic(topic, assignment, event.config)
        return topic

    # -- small words ---------------------------------------------------------------------------------------------------

    @property
    def _epoch(self) -> int:
        return self.cluster.fence.epoch

    async def _elect_offline(self) -> Moved:
        """Find leaders for all partitions that want one, topics that are being deleted left out."""
        at = self.cluster.table.in_state(NEW, OFFLINE)
        moved: Moved = await self.partitions.ask(Move(at, ONLINE, Election.OFFLINE))
        return moved

    async def _move_replicas(self, at: RowNumbers, target: ReplicaState, brokers: frozenset[int] | None = None) -> None:
        if brokers is None or brokers:
            await self.replicas.ask(MoveReplicas(at, target, brokers))

    def _tell_brokers(self, brokers: Any) -> None:
        """UpdateMetadata without partitions: who is there."""
        try:
            self.batch.begin()
            self.batch.update_metadata(brokers)
            self.channels.send(self.batch.flush())
        except IllegalState:
            self.batch.clear()
            raise

    def _broker_event(self, what: str, broker: int) -> BrokerEvent:
        return BrokerEvent(
            what=what, broker=broker, broker_epoch=self.cluster.brokers[broker].epoch, controller_epoch=self._epoch
        )


def _reassigned(loaded: Assignments) -> Any:
    """The partitions that are being reassigned."""
    moving = some(loaded.adding | loaded.removing)
    return loaded.take(moving).items()


# Handled whether we are the controller or not.
_ALWAYS = frozenset(
    {Started, ControllerChanged, ControllerGone, SessionLost, SessionOpened, ResignRequested, UncleanElectionsEnabled}
)
# Somebody waits for the answer.
_ASKED = frozenset({ElectionRequested, TopicCreationRequested, ResignRequested, UncleanElectionsEnabled})
