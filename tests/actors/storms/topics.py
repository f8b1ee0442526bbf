"""Topics that are created, expanded and deleted, by request and by hand."""

from typing import Any

from kactl.model import Assignment, TopicPartition, TopicRef

from .base import Base


class TopicHappenings(Base):
    """Random topic events of a storm."""

    async def create(self, name: str | None = None) -> None:
        name = f"t{self.number}" if name is None else name
        held = {at: Assignment(self.replicas()) for at in range(self.dice.randint(1, 3))}
        config = {"unclean.leader.election.enable": "true"} if self.dice.random() < 0.2 else {}
        self.note(f"create {name} {[each.replicas for each in held.values()]} {config}")
        # A topic without an id that replaces one removed by hand cannot be distinguished from it: a pending write gives
        # it the old id.
        has_id = self.topic_ids and (self.dice.random() < 0.7 or name in self.vanished)
        topic_id = self.dice.randbytes(16) if has_id else bytes(16)
        await self.store.create_topic(TopicRef(name, topic_id), held, config)
        # The store may contain requests for an earlier topic of that name.
        again = name in self.names
        self.ends |= {
            TopicPartition(name, at): None if again else {each.replicas: self.number} for at, each in held.items()
        }
        if not again:
            self.unmoved.add(name)
        self.names.add(name)

    async def delete(self) -> None:
        topic, controller = await self.a_topic(), self.dice.choice(self.controllers)
        if topic:
            self.note(f"{controller.node_id} is asked to delete {topic}")
            self.ask(controller.delete_topic(topic, timeout_ms=0))

    async def mark(self) -> None:
        topic = await self.a_topic() if self.dice.random() < 0.8 else "nothing"
        if topic:
            self.note(f"{topic} is marked for deletion")
            await self.store.mark_deletion(topic)

    def forget_topic(self, topic: str) -> None:
        self.ends = {name: ends for name, ends in self.ends.items() if name.topic != topic}
        self.fleet.forget_topic(topic)

    async def vanish(self) -> None:
        topic = await self.a_topic()
        if topic:
            self.note(f"{topic} is taken out of the store by hand")
            self.store.state.delete_topic(topic)
            self.forget_topic(topic)
            self.unmoved.discard(topic)
            self.vanished.add(topic)

    async def recreate(self) -> None:
        """Create a topic under the name of a deleted one, or of one that is being removed."""
        if self.dice.random() < 0.3:
            await self.vanish()
        # Without topic ids it cannot be distinguished from the one whose deletion was never sent to brokers.
        gone = self.names - self.topics().keys() - self.store.state.deletions
        if not self.topic_ids:
            gone -= self.vanished
        if gone:
            name = self.dice.choice(sorted(gone))
            self.forget_topic(name)
            await self.create(name)

    async def grow(self) -> None:
        topic, controller = await self.a_topic(), self.dice.choice(self.controllers)
        if topic:
            ours = [name for name in await self.partitions() if name.topic == topic]
            new = TopicPartition(topic, len(ours))
            replicas, asked = self.replicas(), self.number
            self.note(f"{controller.node_id} is asked to grow {topic} by {new.partition} on {replicas}")

            def grown(answer: Any) -> None:
                # It may be another topic of that name by now.
                if new.partition and not isinstance(answer, Exception) and TopicPartition(topic, 0) in self.ends:
                    self.ends.setdefault(new, {replicas: asked})
                    self.note(f"{topic} has grown by {new.partition}")

            self.ask(controller.grow_topic(topic, len(ours) + 1, assignment=[replicas], timeout_ms=0), grown)

    async def grow_by_hand(self) -> None:
        topic = await self.a_topic()
        if topic:
            stored = await self.store.assignments([topic])
            held = {name.partition: each for name, each in stored.items()}
            if any(each.is_being_reassigned for each in held.values()):
                return  # as tools have it
            held[len(held)] = Assignment(self.replicas())
            self.note(f"{topic} grows by {len(held) - 1} on {held[len(held) - 1].replicas} by hand")
            await self.store.write_assignment(stored.topics[0], held, None)
            self.ends[TopicPartition(topic, len(held) - 1)] = None  # the controller's own write may come in between

    async def config(self) -> None:
        topic = await self.a_topic()
        if topic:
            allowed = self.dice.choice(("true", "false"))
            self.note(f"{topic}: unclean elections {allowed}")
            await self.store.set_topic_config(topic, {"unclean.leader.election.enable": allowed})
