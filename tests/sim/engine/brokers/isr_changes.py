"""ISR changes of a modelled broker: proposals to the controller, or writes to the store below protocol level 2.7.

    Replication ──▶ queue ──▶ one AlterPartition in flight ──▶ controller
                        └───▶ write_isr ──▶ notification to the controller

Source: AlterPartitionManager, Partition.handleAlterPartitionError; ReplicationStateZkUtils and the ISR change
notifications of ReplicaManager.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kactl.config.protocol_level import ProtocolLevel
from kactl.decide.messages.broker import AlterPartitionReceived, IsrProposal, IsrResult
from kactl.model import NO_EPOCH, ZERO_ID, Leadership, TopicPartition, TopicRef
from kactl.model.errors import ErrorCode, KactlError, StoreError
from kactl.stores.base import Names, Store
from kactl.testing.history import History
from kactl.testing.network import Unreachable

from .receiver import Receiver
from .replica import Replica

# Pause after a proposal that could not be delivered, or was answered by an instance that is not the controller.
RETRY_MS: Final = 500
# Pause of the notifications of written ISRs.
NOTIFY_MS: Final = 2_500
# The controller judged the proposal on its merits; nothing is pending afterwards.
_REVERTED: Final = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
# The proposal is repeated.
_RETRIED: Final = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER)

AskController = Callable[[Any], Awaitable[Any]]


class IsrChanges:
    """Queue of the ISR changes of one broker process.

    Args:
        ask: sends a request to the controller that the broker knows.
        store: the broker's own client.
    """

    def __init__(
        self,
        receiver: Receiver,
        history: History,
        *,
        level: ProtocolLevel,
        store: Store,
        ask: AskController,
        rng: random.Random,
    ) -> None:
        self._receiver = receiver
        self._history = history
        self._level = level
        self._store = store
        self._ask = ask
        self._rng = rng
        self._queue: dict[TopicPartition, Replica] = {}
        self._written: dict[TopicPartition, None] = {}
        self._wakes = asyncio.Event()

    def propose(self, name: TopicPartition, replica: Replica, isr: frozenset[int]) -> None:
        """Queue an ISR that a leader wants."""
        replica.proposed = isr
        self._queue[name] = replica
        self._wakes.set()

    async def run(self) -> None:
        """Send the queued changes until cancelled."""
        while True:
            await self._wakes.wait()
            self._wakes.clear()
            while self._queue:
                batch = {name: replica for name, replica in self._queue.items() if self._is_current(name, replica)}
                self._queue.clear()
                if batch:
                    await (self._send(batch) if self._level.alter_partition else self._write(batch))

    def _is_current(self, name: TopicPartition, replica: Replica) -> bool:
        return self._receiver.replicas.get(name) is replica and replica.proposed is not None

    # -- proposals -----------------------------------------------------------------------------------------------------

    async def _send(self, batch: dict[TopicPartition, Replica]) -> None:
        by_id = self._level.topic_ids and all(replica.topic.id != ZERO_ID for replica in batch.values())
        proposals = tuple(self._proposal(name, replica, by_id=by_id) for name, replica in batch.items())
        receiver = self._receiver
        for name, proposal in zip(batch, proposals, strict=True):
            self._history.record(
                "isr.propose", broker=receiver.broker, broker_epoch=receiver.epoch, topic=name.topic,
                partition=name.partition, leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch, isr=list(proposal.isr),
                member_epochs=list(proposal.broker_epochs),
            )  # fmt: skip
        request = AlterPartitionReceived(receiver.broker, receiver.epoch, proposals, 3 if by_id else 1)
        try:
            results: list[IsrResult] = await self._ask(request)
        except (Unreachable, KactlError) as failed:
            self._history.record("isr.unanswered", broker=receiver.broker, reason=type(failed).__name__)
            await self._retry(batch)
            return
        again = {
            name: replica
            for (name, replica), result in zip(batch.items(), results, strict=True)
            if not self._answered(name, replica, result)
        }
        if again:
            await self._retry(again)

    async def _retry(self, batch: dict[TopicPartition, Replica]) -> None:
        await asyncio.sleep(RETRY_MS / 1000)
        for name, replica in batch.items():
            self._queue.setdefault(name, replica)
        self._wakes.set()

    def _proposal(self, name: TopicPartition, replica: Replica, *, by_id: bool) -> IsrProposal:
        assert replica.proposed is not None
        isr = sorted(replica.proposed)
        self._rng.shuffle(isr)
        topic = TopicRef("", replica.topic.id) if by_id else TopicRef(name.topic)
        return IsrProposal(
            topic,
            name.partition,
            replica.leader_epoch,
            tuple(isr),
            replica.partition_epoch,
            recovering=False,
            broker_epochs=tuple(self._epoch(replica, broker) for broker in isr) if by_id else (),
        )

    def _epoch(self, replica: Replica, broker: int) -> int:
        """Returns the broker epoch under which a member of a proposed ISR has fetched; NO_EPOCH if it has not."""
        if broker == self._receiver.broker:
            return self._receiver.epoch
        follower = replica.followers.get(broker)
        return NO_EPOCH if follower is None else follower.broker_epoch

    def _answered(self, name: TopicPartition, replica: Replica, result: IsrResult) -> bool:
        """Apply the answer to a proposal. Returns False if it has to be repeated."""
        self._history.record(
            "isr.answer", broker=self._receiver.broker, topic=name.topic, partition=name.partition,
            leader_epoch=replica.leader_epoch, error=result.error.name,
        )  # fmt: skip
        if not self._is_current(name, replica):
            return True
        if result.error is ErrorCode.NONE:
            decided = result.leadership
            assert decided is not None
            is_newer = decided.partition_epoch >= replica.partition_epoch
            if decided.leader_epoch == replica.leader_epoch and is_newer:
                self._accept(replica, frozenset(decided.isr), decided.partition_epoch)
                replica.recovering = decided.recovering
        elif result.error in _REVERTED:
            replica.proposed = None
        elif result.error in _RETRIED:
            return False
        else:
            replica.waits, replica.proposed = True, None
        return True

    # -- writes to the store -------------------------------------------------------------------------------------------

    async def _write(self, batch: dict[TopicPartition, Replica]) -> None:
        """Write ISRs. As a stock broker's client, repeat a write until its outcome is known: one that differs from it
        would be taken for a conflict with another writer."""
        again: dict[TopicPartition, Replica] = {}
        for name, replica in batch.items():
            isr = replica.proposed
            if isr is None:
                continue
            wanted = Leadership(
                replica.leader, replica.leader_epoch, tuple(sorted(isr)), replica.partition_epoch,
                replica.controller_epoch,
            )  # fmt: skip
            try:
                version = await self._store.write_isr(name, wanted, expected=replica.partition_epoch)
                if version is None:
                    version = await self._own_write(name, wanted)
            except StoreError:
                again[name] = replica
                continue
            if not self._is_current(name, replica):
                continue
            if version is None:
                replica.waits, replica.proposed = True, None
            else:
                self._accept(replica, isr, version)
                self._written[name] = None
        if again:
            await self._retry(again)

    async def _own_write(self, name: TopicPartition, wanted: Leadership) -> int | None:
        """Returns the stored version if the stored entry is this leader's own write, whose answer was lost."""
        stored = (await self._store.leaderships(Names.of([name]))).one(0)
        if stored is None or stored.controller_epoch != wanted.controller_epoch:
            return None
        same = (stored.leader, stored.leader_epoch, set(stored.isr)) == (
            wanted.leader,
            wanted.leader_epoch,
            set(wanted.isr),
        )
        return stored.partition_epoch if same else None

    def _accept(self, replica: Replica, isr: frozenset[int], version: int) -> None:
        replica.isr, replica.partition_epoch, replica.proposed = isr, version, None

    async def notify(self) -> None:
        """Notify the controller of written ISRs until cancelled."""
        while True:
            await asyncio.sleep(NOTIFY_MS / 1000)
            names = list(self._written)
            self._written.clear()
            if names:
                try:
                    await self._store.notify_isr(names)
                except StoreError:
                    self._written |= dict.fromkeys(names)
