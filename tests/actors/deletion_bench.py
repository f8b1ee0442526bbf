"""Harness for topic deletion: real machines, cluster and store; brokers act only as a test directs.

The controller has been elected for the fiftieth time. Brokers 1, 2 and 3 are live. Topics foo, bar and baz have two
partitions with three replicas each, with leaders, all in sync, and no pending work. All requested moves are recorded.
"""

import dataclasses
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import numpy as np

from kactl.actors.actor import Ref
from kactl.actors.handlers.base import ControllerContext
from kactl.actors.handlers.deletion import Deletion
from kactl.actors.handlers.deletion_events import DeletionEvents
from kactl.actors.handlers.offline import Offline, StoppedReplicas
from kactl.actors.handlers.ownership import Ownership
from kactl.actors.machines.machine import Move, MoveReplicas
from kactl.actors.priority_inbox import Timers
from kactl.config.controller_settings import ControllerSettings
from kactl.decide.machines.topic_progress import Delivery
from kactl.decide.messages.control import StopReplicaResponse
from kactl.decide.messages.events import Event, TopicDeletionStopReplicaResponseReceived
from kactl.decide.outbound.batch import RequestBatch
from kactl.decide.state.rows import RowNumbers
from kactl.model import Broker, Endpoint, PartitionState, ReplicaState, TopicPartition
from tests.support.clocks import ManualClock
from tests.support.cluster_seeds import EPOCH, led
from tests.support.control_requests import partition_errors
from tests.support.machine_harness import Machines, RecordingOutbox, open_machines

BROKERS = (1, 2, 3)
ASSIGNED = {0: (1, 2, 3), 1: (2, 3, 1)}
TOPICS = ("bar", "baz", "foo")


@dataclasses.dataclass
class Direct:
    """Stand-in for an actor reference: handles a message immediately and records it."""

    actor: Any
    asked: list[Move | MoveReplicas]

    async def ask(self, message: Move | MoveReplicas) -> Any:
        self.asked.append(message)
        return await self.actor.receive(message)


class Outlets(RecordingOutbox):
    """Channels that deliver nothing."""

    last_number = 0

    def add(self, broker: Broker) -> None: ...

    queued = 0

    def delivery(self, queued: int) -> Delivery:
        return Delivery(lambda down: (), lambda broker: "")

    def resume(self, broker: int) -> None: ...

    def remove(self, broker: int) -> None: ...

    def close(self) -> None: ...


class DeletionBench:
    """Harness for the deletion of topics. Created by `open_deletion_bench`."""

    def __init__(self, bench: Machines, *, delete_topics: bool) -> None:
        self.bench = bench
        self.cluster = bench.cluster
        self.store = bench.store
        self.asked: list[Move | MoveReplicas] = []
        self.enqueued: list[Event] = []
        self.outbox = Outlets()
        self.clock = ManualClock()
        for machine in (bench.partitions, bench.replicas):
            machine.outbox = self.outbox
        self.history = bench.history
        context = ControllerContext(
            self.cluster,
            self.store.promised,
            cast(Ref[Move], Direct(bench.partitions, self.asked)),
            cast(Ref[MoveReplicas], Direct(bench.replicas, self.asked)),
            self.outbox,
            bench.history,
            RequestBatch(self.cluster),
            self.clock,
            ControllerSettings(delete_topics=delete_topics),
            enqueue=self.enqueued.append,
            new_topic_id=lambda: bytes(16),
        )
        self.deletion = Deletion(context, Timers(self.clock, self.enqueued.append))
        self.events = DeletionEvents(context, self.deletion)
        timers = Timers(self.clock, self.enqueued.append)
        self.offline = Offline(context, self.deletion, StoppedReplicas(context), Ownership(context, timers))

    # -- events --------------------------------------------------------------------------------------------------------

    def live(self, *brokers: int, epoch: int = 1) -> None:
        self.cluster.add_brokers(Broker(each, epoch, (Endpoint("I", f"h{each}", 9092),)) for each in brokers)

    async def put(self, name: str, replicas: Sequence[int], replica_state: ReplicaState = ReplicaState.ONLINE) -> None:
        """Add a partition led by its first replica, with all replicas in sync."""
        topic = TopicPartition.parse(name).topic
        if topic not in await self.store.real.topics():
            self.bench._assigned.pop(topic, None)
        state = PartitionState.ONLINE
        await self.bench.put(
            name, replicas, state, stored=led(replicas[0], 0, replicas, 0), replica_state=replica_state
        )

    async def fail(self, *brokers: int) -> None:
        """Let brokers fail."""
        self.cluster.remove_brokers(brokers)
        ids = frozenset(brokers)
        await self.offline.replicas_offline(self.cluster.table.with_replica_on(ids), ids)

    async def delete(self, *topics: str) -> None:
        """Mark topics for deletion and notify the controller."""
        for topic in topics:
            await self.store.real.mark_deletion(topic)
        await self.deletion.enqueue(topics)

    def rows(self, *topics: str) -> RowNumbers:
        table = self.cluster.table
        known = [topic for name in topics if (topic := table.topic(name)) is not None]
        return np.concatenate([np.zeros(0, np.intp), *map(table.rows_of, known)])

    async def deleted(self, topic: str, *brokers: int) -> None:
        """Let brokers report the deletion of their replicas of a topic."""
        await self.deletion.complete_replica_deletion(self.rows(topic), frozenset(brokers))

    async def undeleted(self, topic: str, *brokers: int) -> None:
        """Let brokers report that they could not delete their replicas of a topic."""
        await self.deletion.fail_replica_deletion(self.rows(topic), frozenset(brokers))

    async def answers(self, broker: int, errors: dict[str, int], *, error: int = 0, epoch: int | None = None) -> None:
        """Let a broker respond to StopReplica with deletion, under its current registration or another one."""
        if epoch is None:
            epoch = self.cluster.brokers[broker].epoch
        response = StopReplicaResponse(error, partition_errors(errors))
        event = TopicDeletionStopReplicaResponseReceived(broker, epoch, response)
        await self.events.on_topic_deletion_stop_replica_response_received(event)

    def forget(self) -> None:
        """Clear the records."""
        self.asked.clear()
        self.outbox.flushes.clear()
        self.store.forget()

    # -- results -------------------------------------------------------------------------------------------------------

    def replicas(self, topic: str) -> dict[int, set[str]]:
        """Returns the states of a topic's replicas by broker."""
        views = [self.cluster.table.view(row) for row in self.rows(topic).tolist()]
        return {
            broker: {view.replica_states[broker].name for view in views}
            for broker in sorted({broker for view in views for broker in view.replica_states})
        }

    def partitions(self, *topics: str) -> set[str]:
        """Returns the states of all partitions of some topics."""
        return {self.cluster.table.view(row).state.name for row in self.rows(*topics).tolist()}

    @property
    def queued(self) -> set[str]:
        return self.cluster.topics_to_delete

    @property
    def started(self) -> set[str]:
        return self.cluster.deletion_started

    @property
    def halted(self) -> dict[str, list[str]]:
        """Returns the blocking reasons of each blocked topic."""
        halts = self.cluster.deletion_ineligible
        return {name: [halt.reason.name for halt in halts[name]] for name in sorted(halts)}

    def moves(self, kind: type[Move] | type[MoveReplicas], *, none_too: bool = False) -> list[str]:
        """Returns the targets of the requested moves of one kind, in order.

        Args:
            none_too: include moves without rows.
        """
        asked = [each for each in self.asked if isinstance(each, kind) and (none_too or len(each.rows))]
        return [each.target.name for each in asked]

    @property
    def stories(self) -> list[tuple[str, str]]:
        """Returns the recorded topic events."""
        found, _ = self.history.read(0, kinds=("topic",))
        return [(event.topic, event.what) for event in cast(Iterable[Any], found)]


@asynccontextmanager
async def open_deletion_bench(*topics: str, delete_topics: bool = True) -> AsyncIterator[DeletionBench]:
    """Harness with the given topics, or all of them by default."""
    async with open_machines() as bench:
        made = DeletionBench(bench, delete_topics=delete_topics)
        made.live(*BROKERS)
        for topic in topics or TOPICS:
            for partition, replicas in ASSIGNED.items():
                await made.put(f"{topic}-{partition}", replicas)
        made.forget()
        assert made.cluster.fence.epoch == EPOCH
        yield made
        cluster = made.cluster
        assert cluster.count_again() == (cluster.offline_count, cluster.imbalance_count)
