"""Handlers of topics that are created or removed, and of changed configurations.

Source: the classic controller's processTopicChange, onNewPartitionCreation.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec
import numpy as np

from kactl.actors.machines.machine import Move
from kactl.actors.machines.topic_settings import UNCLEAN, Unclean
from kactl.decide.machines.election import Election
from kactl.decide.machines.placement import check_creation, usable_brokers
from kactl.decide.machines.topic_progress import Delivery, leader_epochs, missing_brokers, progress_of
from kactl.decide.messages.admin import AddPartitions, CreateTopic, EnsureTopic, TopicProgress
from kactl.decide.messages.events import (
    Event,
    TopicChange,
    TopicUncleanLeaderElectionEnable,
    UncleanLeaderElectionEnable,
)
from kactl.decide.messages.log import TopicEvent
from kactl.decide.state.cluster import AwaitedTopic
from kactl.decide.state.rows import RowNumbers, common, some
from kactl.decide.state.table import Topic
from kactl.model import NO_EPOCH, Assignment, PartitionState, ReplicaState, TopicPartition, TopicRef, ownership_id
from kactl.model.errors import TopicBeingDeleted, TopicExists
from kactl.runtime.logs import logger
from kactl.stores.base import Assignments, Names

from .base import ControllerContext, Handler, Handlers
from .controller_replicas import Hosting
from .deletion import Deletion
from .leases import Leases
from .ownership import Ownership
from .topic_ids import TopicIds

log = logger(__name__)

ABSENT, NEW = PartitionState.ABSENT, PartitionState.NEW
ONLINE, OFFLINE = PartitionState.ONLINE, PartitionState.OFFLINE

# The index of a topic has four bytes per partition number up to the highest. No entry that fits a store has this many
# partitions; a higher number is a mistake and would cost 4 MiB or more.
PARTITION_LIMIT: Final = 1 << 20

# Partitions of an assignment that a dry run checks in one step of the event loop; half a microsecond each.
CHECKED_AT_ONCE_MAX: Final = 1_000
# Replicas of a topic that a program ensures without a number, where there are as many brokers.
REPLICAS_DEFAULT: Final = 3
# How long leaders are watched for a remote caller after its last request.
AWAITED_MS: Final = 60_000

_BOOLEANS: Final = {"true": True, "false": False}


class TopicEvents(Handlers):
    """Creates partitions of new topics and removes topics that are gone from the store.

    Args:
        unclean: receives the stored default for all brokers.
        deletion: processes queued topics that are gone.
        leases: receives the settings of topics.
        hosting: rewrites assignments of new partitions that name controllers.
        ownership: places the partitions of ownership topics.
    """

    def __init__(
        self,
        context: ControllerContext,
        unclean: Unclean,
        deletion: Deletion,
        hosting: Hosting,
        *,
        leases: Leases,
        ownership: Ownership,
    ) -> None:
        super().__init__(context)
        self._leases = leases
        self._unclean = unclean
        self._deletion = deletion
        self.hosting = hosting
        self.ids = TopicIds(context)
        self._ownership = ownership
        self.grow: Callable[[AddPartitions], Awaitable[None]]  # set by the registry
        self._shrunk: set[tuple[TopicRef, int]] = set()  # ownership topics with a warning, and the requested number

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            TopicChange: self.on_topic_change,
            TopicUncleanLeaderElectionEnable: self.on_topic_unclean_leader_election_enable,
            UncleanLeaderElectionEnable: self.on_unclean_leader_election_enable,
            CreateTopic: self.on_create_topic,
            EnsureTopic: self.on_ensure_topic,
            **self.ids.handlers(),
        }

    async def on_topic_change(self, event: TopicChange) -> None:
        await self.follow(frozenset())

    async def follow(self, deleted: Collection[str]) -> None:
        """Forget topics that do not exist any more, and create new ones.

        Creations that an error ended are completed too.

        Args:
            deleted: topics that were deleted since they were read, besides those that the store reports now.
        """
        table = self.cluster.table
        listed = await self.store.topics()
        known = {topic.name for topic in table.topics()}
        queued = self.cluster.topics_to_delete
        # Removed before the first await, since the store reports them once. Those that are listed were created again.
        gone = known.difference(listed) | known.intersection({*deleted, *self.store.take_deleted_topics()})
        vanished = sorted(gone - queued)
        self.forget_topics(vanished)
        for name in vanished:
            self.history.add(TopicEvent(what="vanished", topic=name, controller_epoch=self.epoch))
        if not queued.isdisjoint(gone):
            await self._deletion.vanished(sorted(queued & gone))
        queued = self.cluster.topics_to_delete
        new = [name for name in listed if table.topic(name) is None and name not in queued]
        if new:
            self.context.requests.read_back("creation", new, self.history.current)
            await self.create(new)
        abandoned = self._abandoned()
        if len(abandoned):
            await self._create_rows(abandoned)
        log.info("topics: %d new, %d gone", len(new), len(gone))

    async def create(self, names: list[str]) -> None:
        """Create the partitions of new topics. A topic that cannot be read stays unknown and is retried."""
        loaded = await self.load_topics(names)
        self._mark(loaded)
        for ref in loaded.topics:
            self.history.add(TopicEvent(what="created", topic=ref.name, controller_epoch=self.epoch))
        owned = [ref.name for ref in loaded.topics if ref.is_ownership]
        if self.cluster.holds.participants or owned:
            await self._leases.read_settings([ref.name for ref in loaded.topics])
        await self.create_partitions(loaded)
        await self.ids.copy(loaded.topics)

    async def create_partitions(self, loaded: Assignments) -> None:
        """Elect the first leaders of new partitions. Their assignments are in the table."""
        self._mark(loaded)
        await self._create_rows(self.cluster.table.rows_at(Names(loaded.topics, loaded.topic, loaded.partition)))

    def _mark(self, loaded: Assignments) -> None:
        """Mark topics with new partitions, for `_abandoned`."""
        self.cluster.creations_unchecked.update(ref.name for ref in loaded.topics)

    def _abandoned(self) -> RowNumbers:
        """Returns partitions with a creation that an error ended, without those of topics queued for deletion.

        Only marked topics are read. The marks of those without such partitions are removed.
        """
        table, marked = self.cluster.table, self.cluster.creations_unchecked
        row_numbers, _ = table.rows_by_topic(sorted(marked))
        state, leader_epoch = table.column("state")[row_numbers], table.column("leader_epoch")[row_numbers]
        # Replicas that a reassignment adds are NEW until they are in sync.
        created = (table.column("assigned") & ~table.column("adding"))[:, row_numbers]
        replica_state = table.column("replica_state")[:, row_numbers]
        unfinished = created & ((replica_state == ReplicaState.ABSENT) | (replica_state == ReplicaState.NEW))
        abandoned: RowNumbers = row_numbers[((state == ABSENT) & (leader_epoch == NO_EPOCH)) | some(unfinished)]
        numbers = np.unique(table.column("topic")[abandoned]).tolist()
        marked.intersection_update({table.topic_at(number).name for number in numbers})
        return table.not_queued(abandoned)

    async def _create_rows(self, row_numbers: RowNumbers) -> None:
        """Take partitions and their replicas from ABSENT to ONLINE. After an error, a second call does the rest.

        Unlike in Kafka, the replicas are NEW before the partitions: until then no election finds them, so that no
        replica leads that cannot become NEW any more.
        """
        table = self.cluster.table
        await self.hosting.rewrite(row_numbers)
        self._ownership.assign(row_numbers)
        await self.move_replicas_in(row_numbers, ReplicaState.ABSENT, ReplicaState.NEW)
        # A partition that had no replicas until now is NEW already.
        await self.move(Move(row_numbers[table.column("state")[row_numbers] == ABSENT], NEW))
        await self.move(Move(row_numbers[table.column("state")[row_numbers] == NEW], ONLINE, Election.OFFLINE))
        await self.move_replicas_in(row_numbers, ReplicaState.NEW, ReplicaState.ONLINE)

    async def load_topics(self, names: list[str]) -> Assignments:
        """Read the assignments of topics into the table; topics without an id get one, see `TopicIds`.

        Returns:
            The assignments read, without topics that are gone or cannot be decoded.

        Raises:
            StoreError: the table has not changed.
        """
        loaded = bounded(await self.ids.complete(await self.store.assignments(names)))
        self.cluster.put_assignments(loaded)
        self.cluster.reassigning |= {name for name, _ in reassigned(loaded)}
        return loaded

    async def on_topic_unclean_leader_election_enable(self, event: TopicUncleanLeaderElectionEnable) -> None:
        topic = self.cluster.table.topic(event.topic)
        found = (await self.store.topic_configs([event.topic])).get(event.topic)
        self._leases.topic_configured(event.topic, found)
        if topic is not None and topic.ref.is_ownership:
            await self._ownership.settle()
            return
        config = found or {}
        if topic is None or config.get(UNCLEAN, "").strip().lower() != "true":
            return
        row_numbers = common(self.cluster.table.in_state(NEW, OFFLINE), self.cluster.table.rows_of(topic))
        log.info(
            "topic %s allows unclean elections: %d of its partitions have no leader", event.topic, len(row_numbers)
        )
        await self.move(Move(row_numbers, ONLINE, Election.OFFLINE))

    async def on_unclean_leader_election_enable(self, event: UncleanLeaderElectionEnable) -> None:
        before = self._unclean.default
        await self.read_default_config()
        if self._unclean.default and not before:
            await self.elect_offline()

    async def read_default_config(self) -> None:
        """Read the stored default for unclean elections. Elects no leaders."""
        before = self._unclean.default
        self._unclean.stored = _stored_default(await self.store.default_config())
        after = self._unclean.default
        if after != before:
            log.info("unclean elections are now %s by default", "allowed" if after else "forbidden")

    async def on_create_topic(self, event: CreateTopic) -> TopicRef:
        topic, assignment = check_creation(event, self.cluster, self.settings)
        if self.settings.level.topic_ids:
            topic_id = self.context.new_topic_id()
            topic_id = ownership_id(topic_id) if event.kind == "ownership" else topic_id
            topic = msgspec.structs.replace(topic, id=topic_id)
        if not event.dry_run:
            await self.store.create_topic(topic, assignment, event.config)
            self.context.requests.written("creation", topic.name, self.history.current)
        return topic

    async def on_ensure_topic(self, event: EnsureTopic) -> TopicProgress:
        name, created, awaited = event.topic, False, self._awaited()
        known = self.cluster.table.topic(name)
        if name in self.cluster.topics_to_delete:
            raise TopicBeingDeleted(name)
        if known is not None and known.ref.is_ownership != (event.kind == "ownership"):
            stored = "ownership" if known.ref.is_ownership else "replicated"
            raise TopicExists(
                name,
                f"It is of the kind {stored}, and {event.kind} was requested, perhaps by two programs that share its "
                f"name: ensure it with kind={stored!r}, or under another name",
            )
        if known is not None and known.ref.is_ownership:
            await self._ensure_count(known, event.count)
        elif known is not None and (count := len(self.cluster.table.rows_of(known))) != event.count:
            remedy = f", or add some: kactl topic add-partitions {name} --partitions {event.count}"
            asked = f"It has {count} partitions, and {event.count} were requested: ensure it with partitions={count}"
            raise TopicExists(name, asked + (remedy if event.count > count else ""))
        if event.led and (known is None or name in awaited):
            until_ms = self.clock.monotonic_ms() + AWAITED_MS
            awaited[name] = awaited.get(name, AwaitedTopic(until_ms))._replace(until_ms=until_ms)
        if known is None and (missing := missing_brokers(self.cluster, event)):
            return TopicProgress(False, event.count, (missing,))
        if known is None:
            factor = event.replication_factor
            if event.assignment is None and factor is None and event.kind != "ownership":
                factor = max(1, min(REPLICAS_DEFAULT, len(usable_brokers(self.cluster))))
            creation = CreateTopic(name, event.partitions, factor, event.assignment, event.config, kind=event.kind)
            try:
                await self.on_create_topic(creation)
                created = True
            except TopicBeingDeleted:
                raise
            except TopicExists:
                log.info("topic %s is stored already, and has not been read yet", name)
        delivery = self._delivery(name, event.count) if name in awaited else None
        progress = progress_of(
            self.cluster,
            name,
            count=event.count,
            created=created,
            delivery=delivery,
            ready_ms=self.clock.monotonic_ms() if event.ready else None,
            led=event.led,
            explained=event.explained,
        )
        if progress.waiting or not event.led:
            return progress
        if delivery is not None and self.context.answers_wait():
            # A leader may have refused.
            return TopicProgress(created, 1, ("the controller has yet to handle answers of leaders",))
        awaited.pop(name, None)
        return progress

    async def _ensure_count(self, topic: Topic, count: int) -> None:
        """Grow an ownership topic that has fewer partitions than requested; warn once if it has more."""
        present = len(self.cluster.table.rows_of(topic))
        if count < present and (topic.ref, count) not in self._shrunk:
            self._shrunk.add((topic.ref, count))
            log.warning(
                "topic %s has %d partitions, and %d were requested: all %d are served; request partitions=%d, or "
                "delete the topic to have fewer", topic.name, present, count, present, present,
            )  # fmt: skip
        if count <= present or len((await self.store.assignments([topic.name])).partition) >= count:
            return
        await self.grow(AddPartitions(topic.name, count))

    def _awaited(self) -> dict[str, AwaitedTopic]:
        """Returns the topics that remote callers wait for, without those whose callers are gone."""
        now_ms, awaited = self.clock.monotonic_ms(), self.cluster.awaited
        for name in [name for name, topic in awaited.items() if topic.until_ms <= now_ms]:
            del awaited[name]
        return awaited

    def _delivery(self, name: str, count: int) -> Delivery:
        awaited, epochs = self.cluster.awaited[name], leader_epochs(self.cluster, name, count)
        if epochs not in (None, awaited.epochs):
            # No event is in progress but this one, so the requests of the election are queued.
            awaited = self.cluster.awaited[name] = awaited._replace(epochs=epochs, queued=self.channels.queued)
        return self.channels.delivery(awaited.queued)


def _stored_default(config: Mapping[str, str]) -> bool | None:
    """Returns the stored default, or None if it is absent or not a boolean.

    Source: DynamicBrokerConfig.removeInvalidConfigs, which ignores a value that is not a boolean.
    """
    text = config.get(UNCLEAN)
    if text is None:
        return None
    default = _BOOLEANS.get(text.strip().lower())
    if default is None:
        log.warning("%s=%r, set for all brokers, is neither true nor false and is ignored", UNCLEAN, text)
    return default


def bounded(loaded: Assignments) -> Assignments:
    """Returns the assignments without partition numbers at or above `PARTITION_LIMIT`."""
    fits = loaded.partition < PARTITION_LIMIT
    if fits.all():
        return loaded
    topic, partition = loaded.topic[~fits][0], loaded.partition[~fits][0]
    log.warning(
        "%d partitions are ignored, their numbers are above %d; the first: %s-%d",
        int(np.count_nonzero(~fits)), PARTITION_LIMIT - 1, loaded.topics[topic].name, partition,
    )  # fmt: skip
    return loaded.take(fits)


def reassigned(loaded: Assignments) -> Iterable[tuple[TopicPartition, Assignment]]:
    """Returns the partitions that are being reassigned."""
    moving = some(loaded.adding | loaded.removing)
    return loaded.take(moving).items()
