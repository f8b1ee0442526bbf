"""Ids of topics: given once, kept in a copy, and written back when a tool has removed them.

Tools from before protocol level 2.8 rewrite a topic's entry without its id. Kafka's controller gives such a topic
another id at its next election, and its brokers then reject all partitions (KAFKA-14190). Here:

    a tool rewrites the entry of a known topic   the known id is written back
    an entry without an id, at a takeover        the copy is written back, if there is one; otherwise the topic gets an
                                                 id if it never had a leader, if no topic of the cluster has an id yet
                                                 (the level is being raised), or if `new_topic_ids` names it
    none of these                                the topic is served without an id, and reported, until its id is back
"""

import dataclasses
from collections.abc import Collection, Iterable
from typing import Final

import numpy as np

from kactl.decide.messages.events import Event, TopicIdCopy
from kactl.decide.state.table import Topic
from kactl.model import ZERO_ID, Assignment, TopicRef
from kactl.model.errors import BadRequest, NotFound, Remedy, StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Assignments

from .base import Handler, Handlers

log = logger(__name__)

# Topics per call of the store while copies are checked.
TOPICS_AT_ONCE: Final = 500


class TopicIds(Handlers):
    """Gives topics their ids, and restores lost ones."""

    def handlers(self) -> dict[type[Event], Handler]:
        return {TopicIdCopy: self.on_topic_id_copy}

    async def complete(self, loaded: Assignments) -> Assignments:
        """Write the ids of topics that were read without one. Returns the assignments, without topics that are gone."""
        nameless = [ref.name for ref in loaded.topics if ref.id == ZERO_ID]
        if not nameless or not self.settings.level.topic_ids:
            return loaded
        ids = await self.store.topic_id_copies(nameless)
        await self._restore([TopicRef(name, topic_id) for name, topic_id in ids.items()])
        led = {name for name in nameless if name not in ids and await self.store.partitions_begun(name)}
        known = (*loaded.topics, *(topic.ref for topic in self.cluster.table.topics()))
        is_first = all(ref.id == ZERO_ID for ref in known)
        lost = {name for name in led if not is_first and name not in self.settings.new_topic_ids}
        for name in sorted(lost):
            log.error(
                "topic %s has lost its id: its entry in the store has none, its partitions have leaders, and there is "
                "no copy. It is served without an id: replicas that have the old one would be rejected under another. "
                "Write the old topic_id into its entry (each log of a broker has it in the file partition.metadata). "
                "If no replica has one, name the topic in new-topic-ids of [controller] (new_topic_ids=) for the next "
                "takeover",
                name,
            )
        self.cluster.without_id.update(lost)
        ids |= await self._give(led - lost)
        new = [name for name in nameless if name not in ids and name not in lost]
        given, gone = await self._give_new(loaded, new)
        return _with_ids(loaded, ids | given, gone)

    async def _restore(self, refs: list[TopicRef]) -> None:
        if refs:
            log.warning(
                "%d topics have lost their ids to a tool that does not know them; they are written back: %s",
                len(refs), ", ".join(ref.name for ref in refs[:5]),
            )  # fmt: skip
            await self.store.write_topic_ids(refs, self.cluster.fence)

    async def _give(self, topics: Iterable[str]) -> dict[str, bytes]:
        """Give ids to topics with leadership. The copies are first, so that a takeover after a crash completes this."""
        refs = [TopicRef(name, self.context.new_topic_id()) for name in sorted(topics)]
        if refs:
            log.info("%d topics get ids: %s", len(refs), ", ".join(ref.name for ref in refs[:5]))
            await self.store.write_topic_ids(refs, self.cluster.fence, copies_only=True)
            await self.store.write_topic_ids(refs, self.cluster.fence)
        return {ref.name: ref.id for ref in refs}

    async def _give_new(self, loaded: Assignments, topics: list[str]) -> tuple[dict[str, bytes], set[str]]:
        """Give ids to topics without leadership. Returns them, and the topics that are gone."""
        given, gone = {}, set()
        numbers = {ref.name: number for number, ref in enumerate(loaded.topics)}
        assignments: dict[str, dict[int, Assignment]] = {name: {} for name in topics}
        partitions = loaded.take(np.isin(loaded.topic, [numbers[name] for name in topics]))
        for partition, assignment in partitions.items():
            assignments[partition.topic][partition.partition] = assignment
        for name in topics:
            ref = TopicRef(name, self.context.new_topic_id())
            try:
                await self.store.write_assignment(ref, assignments[name], self.cluster.fence)
            except NotFound:
                gone.add(name)
            except BadRequest as refused:
                log.warning("topic %s stays without an id: %s", name, refused)
            else:
                given[name] = ref.id
        return given, gone

    async def on_topic_id_copy(self, event: TopicIdCopy) -> None:
        """Copy the ids of topics that were created by another controller, or before there were copies."""
        if not self.settings.level.topic_ids:
            return
        topics = [topic.ref for topic in self.cluster.table.topics() if topic.ref.id != ZERO_ID]
        for begin in range(0, len(topics), TOPICS_AT_ONCE):
            some = topics[begin : begin + TOPICS_AT_ONCE]
            copies = await self.store.topic_id_copies([ref.name for ref in some])
            await self.copy([ref for ref in some if copies.get(ref.name) != ref.id])
            await self.context.yield_point()

    async def copy(self, refs: Collection[TopicRef]) -> None:
        """Copy the ids of topics with leadership. A failure is no obstacle: the next takeover does it again."""
        wanted = [ref for ref in refs if ref.id != ZERO_ID and ref.name not in self.cluster.topics_to_delete]
        if not wanted or not self.settings.level.topic_ids:
            return
        try:
            await self.store.write_topic_ids(wanted, self.cluster.fence, copies_only=True)
        except StoreError as failed:
            if failed.remedy is Remedy.RESIGN:
                raise
            log.warning("the ids of %d topics could not be copied: %s", len(wanted), failed)

    async def follow(self, topic: Topic, stored: TopicRef) -> TopicRef:
        """Compare the id of a known topic with that of its rewritten entry. Returns the topic with its id."""
        if topic.ref.id == stored.id or not self.settings.level.topic_ids:
            return topic.ref
        if topic.ref.id == ZERO_ID:
            log.info("topic %s has the id %s again", topic.name, stored.id.hex())
            self.cluster.put_topic_id(topic.name, stored.id)
            self.cluster.without_id.discard(topic.name)
            self.cluster.mark_for_retry(self.cluster.table.rows_of(topic))  # brokers receive it
            await self.copy([topic.ref])
        else:
            has = "no id" if stored.id == ZERO_ID else f"the id {stored.id.hex()}"
            log.warning(
                "topic %s was rewritten with %s by a tool; its id %s is written back",
                topic.name,
                has,
                topic.ref.id.hex(),
            )
            await self.store.write_topic_ids([topic.ref], self.cluster.fence)
        return topic.ref


def _with_ids(loaded: Assignments, ids: dict[str, bytes], gone: Collection[str]) -> Assignments:
    """Returns the assignments with ids, and without the topics that are gone."""
    refs = [TopicRef(ref.name, ids.get(ref.name, ref.id)) for ref in loaded.topics]
    if not gone:
        return dataclasses.replace(loaded, topics=tuple(refs))
    stays = np.array([ref.name not in gone for ref in refs], np.bool_)
    left = loaded.take(stays[loaded.topic])
    topic = (np.cumsum(stays, dtype=np.int32) - 1)[left.topic]
    return dataclasses.replace(left, topics=tuple(ref for ref in refs if ref.name not in gone), topic=topic)
