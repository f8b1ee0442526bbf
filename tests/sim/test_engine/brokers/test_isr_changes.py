"""ISR changes of a modelled broker that writes them into the store itself."""

import asyncio
import contextlib
import random
from typing import Any

from kactl.config.protocol_level import ProtocolLevel
from kactl.model import Assignment, Leadership, TopicPartition, TopicRef
from kactl.stores.memory import MemoryStore
from kactl.testing import LoopClock, sim
from kactl.testing.contracts.store_support import new_write, stored_leadership
from kactl.testing.history import History
from kactl.testing.latent_store import LatentStore, StoreFaults
from tests.sim.engine.brokers.isr_changes import RETRY_MS, IsrChanges
from tests.sim.engine.brokers.receiver import Receiver
from tests.sim.engine.brokers.replica import Disk, Replica
from tests.sim.engine.brokers.replica_log import ReplicaLog

T = TopicRef("t")
T_0 = TopicPartition("t", 0)
BOTH = frozenset((1, 2))
ALONE = frozenset((1,))


async def unreachable(request: Any) -> Any:
    raise AssertionError(f"{request} is sent to a controller")


def test_write_with_a_lost_answer_is_repeated_until_its_outcome_is_known() -> None:
    """Another ISR would conflict with it, and the leader would wait for its next LeaderAndIsr."""

    async def main() -> tuple[Replica, Leadership | None]:
        store = LatentStore(MemoryStore(clock=LoopClock()), rng=random.Random(1), faults=StoreFaults())
        async with store:
            await store.create_topic(T, {0: Assignment((1, 2))}, {})
            fence = await store.contest(100)
            await store.commit(new_write([T_0], isr=(1, 2)), fence)
            history = History(lambda: 0.0)
            receiver = Receiver(1, Disk(), history, removed_by_hand={}, now_ms=lambda: 0.0)
            replica = receiver.replicas[T_0] = Replica(T, ReplicaLog(), 1, 0, BOTH, 0, (1, 2), fence.epoch)
            changes = IsrChanges(
                receiver,
                history,
                level=ProtocolLevel.parse("2.6"),
                store=store,
                ask=unreachable,
                rng=random.Random(1),
            )
            running = asyncio.create_task(changes.run())
            store.faults.lost_answers = 1.0
            changes.propose(T_0, replica, ALONE)
            await asyncio.sleep(RETRY_MS / 2000)
            assert (replica.isr, replica.proposed) == (BOTH, ALONE)

            store.faults.lost_answers = 0.0
            await asyncio.sleep(RETRY_MS / 1000)

            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            return replica, await stored_leadership(store, T_0)

    replica, stored = sim.run(main)

    assert stored is not None
    assert (replica.isr, replica.proposed, replica.waits) == (ALONE, None, False)
    assert (replica.partition_epoch, set(stored.isr)) == (stored.partition_epoch, {1})
