"""Topics come and vanish; what the controller does then.

Source: the classic controller's processTopicChange, onNewPartitionCreation.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import numpy as np

from kactl.actors.machines.messages import Move
from kactl.actors.machines.unclean import KEY as UNCLEAN
from kactl.actors.machines.unclean import Unclean
from kactl.errors import BadRequest, NotFound
from kactl.machines.election import Election
from kactl.machines.placement import check_creation
from kactl.messages.admin import TopicCreationRequested
from kactl.messages.events import DefaultConfigChanged, Event, TopicConfigChanged, TopicsChanged
from kactl.messages.log import TopicEvent
from kactl.model import Assignment, PartitionState, ReplicaState, TopicPartition, TopicRef
from kactl.runtime.logs import logger
from kactl.state.rows import common, some
from kactl.stores.base import Assignments, Names

from .base import ControllerContext, Handler, Handlers
from .controller_replicas import Hosting
from .deletion import Deletion

log = logger(__name__)

ABSENT, NEW = PartitionState.ABSENT, PartitionState.NEW
ONLINE, OFFLINE = PartitionState.ONLINE, PartitionState.OFFLINE

# A topic's rows are found by partition number, four bytes for each up to the highest. No entry that fits a store has
# as many partitions as this; a higher number is a mistake, and would cost 4 MiB of memory and more.
PARTITION_LIMIT: Final = 1 << 20

_BOOLEANS: Final = {"true": True, "false": False}


class TopicEvents(Handlers):
    """See the module.

    Args:
        unclean: gets what the store says for all brokers.
        deletion: has the topics that waited for it and are gone.
        hosting: sees new partitions before anybody acts on them.
    """

    def __init__(self, context: ControllerContext, unclean: Unclean, deletion: Deletion, hosting: Hosting) -> None:
        super().__init__(context)
        self._unclean = unclean
        self._deletion = deletion
        self.hosting = hosting

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            TopicsChanged: self.on_topics_changed,
            TopicConfigChanged: self.on_topic_config_changed,
            DefaultConfigChanged: self.on_default_config_changed,
            TopicCreationRequested: self.on_topic_creation_requested,
        }

    async def on_topics_changed(self, event: TopicsChanged) -> None:
        table = self.cluster.table
        listed = await self.store.topics()
        known = {topic.name for topic in table.topics()}
        queued = self.cluster.topics_to_delete
        # Forgotten before anything is waited for: they are not taken twice. Those that are listed came again.
        gone = known.difference(listed) | known.intersection(self.store.take_deleted_topics())
        vanished = sorted(gone - queued)
        self.forget_topics(vanished)
        for name in vanished:
            self.history.add(TopicEvent(what="vanished", topic=name, controller_epoch=self.epoch))
        if not queued.isdisjoint(gone):
            await self._deletion.vanished(sorted(queued & gone))
        queued = self.cluster.topics_to_delete
        new = [name for name in listed if table.topic(name) is None and name not in queued]
        if new:
            await self.create(new)
        log.info("topics: %d new, %d gone", len(new), len(gone))

    async def create(self, names: list[str]) -> None:
        """New topics begin. Those that are gone again, or cannot be read, stay unknown, and so are looked at again."""
        loaded = await self.load_topics(names)
        for ref in loaded.topics:
            self.history.add(TopicEvent(what="created", topic=ref.name, controller_epoch=self.epoch))
        await self.create_partitions(loaded)

    async def create_partitions(self, loaded: Assignments) -> None:
        """New partitions, whose assignments have been put, get their first leaders."""
        table = self.cluster.table
        at = table.rows_at(Names(loaded.topics, loaded.topic, loaded.partition))
        await self.hosting.rewrite(at)
        # One that had no replicas until now is NEW already.
        await self.move(Move(at[table.rows(at).state == ABSENT], NEW))
        await self.move_replicas(at, ReplicaState.NEW)
        await self.move(Move(at, ONLINE, Election.OFFLINE))
        await self.move_replicas(at, ReplicaState.ONLINE)

    async def load_topics(self, names: list[str]) -> Assignments:
        """Read topics and put what is assigned; topics without an id get one.

        Returns:
            what was put; topics that are gone, or cannot be read, are left out.

        Raises:
            StoreError: nothing was put.
        """
        loaded = await self.store.assignments(names)
        if self.settings.level.topic_ids:
            loaded = await self._with_ids(loaded)
        loaded = bounded(loaded)
        self.cluster.put_assignments(loaded)
        self.cluster.reassigning |= {name for name, held in reassigned(loaded)}
        return loaded

    async def _with_ids(self, loaded: Assignments) -> Assignments:
        """Topics without an id are written with one, before anything is known of them; without those that are gone."""
        refs = list(loaded.topics)
        nameless = [at for at, ref in enumerate(refs) if not any(ref.id)]
        held: dict[str, dict[int, Assignment]] = {refs[at].name: {} for at in nameless}
        for name, assignment in loaded.take(np.isin(loaded.topic, nameless)).items():
            held[name.topic][name.partition] = assignment
        gone = []
        for at in nameless:
            named = TopicRef(refs[at].name, self.settings.new_topic_id())
            try:
                await self.store.write_assignment(named, held[named.name], self.cluster.fence)
            except NotFound:
                gone.append(at)
            except BadRequest as refused:
                log.warning("topic %s stays without an id: %s", named.name, refused)
            else:
                refs[at] = named
        return _without_topics(dataclasses.replace(loaded, topics=tuple(refs)), gone)

    async def on_topic_config_changed(self, event: TopicConfigChanged) -> None:
        topic = self.cluster.table.topic(event.topic)
        config = (await self.store.topic_configs([event.topic])).get(event.topic) or {}
        if topic is None or config.get(UNCLEAN, "").strip().lower() != "true":
            return
        at = common(self.cluster.table.in_state(NEW, OFFLINE), self.cluster.table.rows_of(topic))
        log.info("topic %s allows unclean elections: %d of its partitions want a leader", event.topic, len(at))
        await self.move(Move(at, ONLINE, Election.OFFLINE))

    async def on_default_config_changed(self, event: DefaultConfigChanged) -> None:
        before = self._unclean.default
        await self.read_default_config()
        if self._unclean.default and not before:
            await self.elect_offline()

    async def read_default_config(self) -> None:
        """Follow what the store says for all brokers; nobody is elected by this."""
        before = self._unclean.default
        self._unclean.stored = _stored_default(await self.store.default_config())
        after = self._unclean.default
        if after != before:
            log.info("unclean elections are %s by default from now on", "allowed" if after else "forbidden")

    async def on_topic_creation_requested(self, event: TopicCreationRequested) -> TopicRef:
        topic, assignment = check_creation(event, self.cluster)
        if self.settings.level.topic_ids:
            topic = msgspec.structs.replace(topic, id=self.settings.new_topic_id())
        if not event.dry_run:
            await self.store.create_topic(topic, assignment, event.config)
        return topic


def _stored_default(config: Mapping[str, str]) -> bool | None:
    """None where nothing is said, or nothing that makes sense.

    Source: DynamicBrokerConfig.removeInvalidConfigs, which passes over a value that is no boolean.
    """
    text = config.get(UNCLEAN)
    if text is None:
        return None
    said = _BOOLEANS.get(text.strip().lower())
    if said is None:
        log.warning("%s=%r, set for all brokers, is neither true nor false and is passed over", UNCLEAN, text)
    return said


def bounded(loaded: Assignments) -> Assignments:
    """Without partitions whose number no topic can have."""
    fits = loaded.partition < PARTITION_LIMIT
    if fits.all():
        return loaded
    topic, partition = loaded.topic[~fits][0], loaded.partition[~fits][0]
    log.warning(
        "%d partitions are passed over, their numbers are above %d; the first: %s-%d",
        int(np.count_nonzero(~fits)), PARTITION_LIMIT - 1, loaded.topics[topic].name, partition,
    )  # fmt: skip
    return loaded.take(fits)


def _without_topics(loaded: Assignments, gone: list[int]) -> Assignments:
    """Without the topics at the indices `gone`."""
    if not gone:
        return loaded
    stays = ~np.isin(np.arange(len(loaded.topics)), gone)
    left = loaded.take(stays[loaded.topic])
    topics = tuple(ref for ref, here in zip(loaded.topics, stays.tolist(), strict=True) if here)
    return dataclasses.replace(left, topics=topics, topic=(np.cumsum(stays, dtype=np.int32) - 1)[left.topic])


def reassigned(loaded: Assignments) -> Iterable[tuple[TopicPartition, Assignment]]:
    """The partitions that are being reassigned."""
    moving = some(loaded.adding | loaded.removing)
    return loaded.take(moving).items()
