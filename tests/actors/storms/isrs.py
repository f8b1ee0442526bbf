"""ISR changes: proposed or written by leaders, and invalid proposals."""

from typing import Any

from kactl.errors import ErrorCode
from kactl.messages.broker import AlterPartitionRequested, IsrProposal
from kactl.model import NO_EPOCH, Leadership, TopicPartition, TopicRef

from .base import Base
from .fleet import FleetReplica, Host


class IsrHappenings(Base):
    """Random ISR changes of a storm."""

    async def propose(self) -> None:
        leaders = list(self.fleet.leaders())
        if leaders:
            host, name, held = self.dice.choice(leaders)
            others = [each for each in held.replicas if each != host.id and self.dice.random() < 0.7]
            await self.proposes(host, name, held, frozenset({host.id, *others}))

    async def proposes(self, host: Host, name: TopicPartition, held: FleetReplica, isr: frozenset[int]) -> None:
        """A leader proposes an ISR; while a proposal is pending it repeats it."""
        if held.waits or (held.proposed is None and isr == held.isr):
            return
        isr = held.proposed or isr
        self.note(f"broker {host.id} proposes {sorted(isr)} for {name}, epoch {held.leader_epoch}/{held.version}")
        if not self.alter_partition:
            await self._writes(name, held, isr)
            return
        controller = self.active or self.dice.choice(self.controllers)
        held.proposed = isr
        proposal = self._proposal(name, held, tuple(sorted(isr, key=lambda _: self.dice.random())))
        asked = AlterPartitionRequested(host.id, host.epoch, (proposal,) * self.dice.choice((1, 1, 1, 2)),
                                        3 if self.topic_ids else 1)  # fmt: skip
        self.ask(controller.ask(asked), lambda answer: self._answered(held, answer))

    def _proposal(self, name: TopicPartition, held: FleetReplica, isr: tuple[int, ...]) -> IsrProposal:
        topic = TopicRef("", held.topic.id) if self.topic_ids else TopicRef(name.topic)
        epochs = tuple(self.fleet.hosts[each].epoch if each in self.fleet.hosts else NO_EPOCH for each in isr)
        return IsrProposal(
            topic, name.partition, held.leader_epoch, isr, held.version, broker_epochs=epochs if self.topic_ids else ()
        )

    def _answered(self, held: FleetReplica, answer: Any) -> None:
        error = answer[-1].error if isinstance(answer, list) else None
        self.note(f"... became {error.name if error is not None else answer!r}")
        if error is ErrorCode.NONE:
            now = answer[-1].leadership
            if now.leader_epoch == held.leader_epoch and now.partition_epoch >= held.version:
                held.isr, held.version, held.proposed = frozenset(now.isr), now.partition_epoch, None
        elif error in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            held.proposed = None
        elif error is not None and error not in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER):
            held.waits = True

    async def _writes(self, name: TopicPartition, held: FleetReplica, isr: frozenset[int]) -> None:
        """Leaders below protocol level 2.7 write the store themselves, and notify the controller."""
        now = Leadership(held.leader, held.leader_epoch, tuple(isr), held.version, held.controller_epoch)
        version = await self.store.write_isr(name, now, expected=held.version)
        if version is None:
            held.waits = True
        else:
            held.isr, held.version = isr, version
            await self.store.notify_isr([name])

    async def nonsense(self) -> None:
        """Proposals by followers, stale proposals and invalid ones."""
        everything = [(host, name, held) for host in self.fleet.hosts.values() for name, held in host.replicas.items()]
        if not everything or not self.alter_partition:
            return
        host, name, held = self.dice.choice(everything)
        isr = tuple(self.dice.choice(((), (9,), (-1, 1), (1, 1, 2), held.replicas, (1, 2, 3, 4))))
        proposal = self._proposal(name, held, isr)
        spoilt = self.dice.choice((("leader_epoch", -1), ("leader_epoch", 1), ("partition_epoch", -1),
                                   ("partition_epoch", 7), ("recovering", 1), ("isr", (9, 1))))  # fmt: skip
        field, step = spoilt
        value = step if isinstance(step, tuple) else int(getattr(proposal, field)) + step
        fields = {each: getattr(proposal, each) for each in proposal.__struct_fields__} | {field: value}
        asked = AlterPartitionRequested(host.id, host.epoch, (IsrProposal(**fields),), 3 if self.topic_ids else 1)
        self.note(f"broker {host.id} proposes nonsense for {name}: {field} is {value}, ISR {isr}")
        self.ask(self.dice.choice(self.controllers).ask(asked))
