"""Harness of the two machine actors: real cluster, real store with a script, and an outbox that records requests.

The controller is broker 5 under epoch 50. Leadership is written `led(5, 0, [5], 0)`: leader, leader epoch, ISR,
version. After every move the harness asserts that the batch is empty, that all scripted steps were used, and that the
counters of the cluster are correct.
"""

import dataclasses
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from kactl.actors.machines.machine import Move, MoveReplicas, MoveResult
from kactl.actors.machines.partitions import Partitions
from kactl.actors.machines.replicas import Replicas
from kactl.decide.machines.election import Election
from kactl.decide.messages.control import LeaderAndIsr, PartitionStates, StopReplica, UpdateMetadata
from kactl.decide.messages.log import PartitionEvent, ReplicaEvent
from kactl.decide.outbound.batch import Addressed
from kactl.decide.state.change import Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import RowNumbers
from kactl.model import (
    NO_BROKER,
    NO_VERSION,
    Assignment,
    Broker,
    Endpoint,
    Fence,
    Leadership,
    PartitionState,
    PartitionView,
    ReplicaState,
    TopicPartition,
    TopicRef,
)
from kactl.stores.base import Assignments, Leaderships, Names, Store, Write
from kactl.stores.memory import MemoryStore
from kactl.telemetry.event_log import EventLog
from tests.support.clocks import ManualClock
from tests.support.cluster_seeds import EPOCH
from tests.support.scripted_store import ScriptedStore

CONTROLLER: Final = 5
SAME: Final = Leadership(leader=-9, leader_epoch=-9, isr=(), partition_epoch=-9, controller_epoch=-9)


class SentLead(NamedTuple):
    """A partition in a LeaderAndIsr."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int
    replicas: tuple[int, ...]
    is_new: bool = False
    recovering: bool = False
    controller_epoch: int = EPOCH


class SentState(NamedTuple):
    """A partition in an UpdateMetadata."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int
    offline: tuple[int, ...] = ()


class SentStop(NamedTuple):
    """A partition in a StopReplica."""

    leader_epoch: int
    delete: bool


@dataclasses.dataclass
class Flush:
    """One flush, by broker and partition."""

    requests: list[Addressed]

    @property
    def lead(self) -> dict[int, dict[str, SentLead]]:
        """Every LeaderAndIsr."""
        return {to: _leaderships_in(each.states) for to, each in self.requests if isinstance(each, LeaderAndIsr)}

    @property
    def metadata(self) -> dict[int, dict[str, SentState]]:
        """Every UpdateMetadata."""
        return {to: _known(each.states) for to, each in self.requests if isinstance(each, UpdateMetadata)}

    @property
    def stop(self) -> dict[int, dict[str, SentStop]]:
        """Every StopReplica."""
        return {to: _stopped(each) for to, each in self.requests if isinstance(each, StopReplica)}

    @property
    def epochs(self) -> set[int]:
        """The controller epochs in the headers."""
        return {each.controller_epoch for _, each in self.requests}

    @property
    def kinds(self) -> list[str]:
        """The kinds of requests, in the order in which they were sent."""
        return list(dict.fromkeys(type(each).__name__ for _, each in self.requests))


class RecordingOutbox:
    """Records each flush."""

    def __init__(self) -> None:
        self.flushes: list[Flush] = []

    def send(self, requests: Iterable[Addressed]) -> None:
        self.flushes.append(Flush(list(requests)))


class Machines:
    """The two machines with their cluster, store and outbox. Created by `open_machines`."""

    def __init__(self, store: Store, fence: Fence, *, recovery: bool, unclean_default: bool) -> None:
        self.store = ScriptedStore(store)
        self.cluster = Cluster(CONTROLLER, recovery=recovery)
        self.cluster.fence = fence
        self.outbox = RecordingOutbox()
        clock = ManualClock()  # does not advance, so that no part of a long change is sent early
        self.history = EventLog(clock)
        promised = self.store.promised
        self.partitions = Partitions(
            self.cluster, promised, self.outbox, self.history, unclean_default=unclean_default, clock=clock
        )
        self.replicas = Replicas(self.cluster, promised, self.outbox, self.history, clock=clock)
        self.whole_script = True  # whether each move must use all steps of the script
        self._assigned: dict[str, dict[int, Assignment]] = {}

    # -- arranging -----------------------------------------------------------------------------------------------------

    def live(self, *brokers: int) -> None:
        """Registers brokers, each with epoch 0."""
        self.cluster.add_brokers(Broker(each, 0, (Endpoint("PLAINTEXT", f"host{each}", 9092),)) for each in brokers)

    def shutting_down(self, *brokers: int) -> None:
        """Registers brokers in controlled shutdown."""
        self.live(*brokers)
        for broker in brokers:
            self.cluster.mark_shutting_down(broker)

    async def put(
        self,
        name: str,
        replicas: Sequence[int],
        state: PartitionState = PartitionState.ABSENT,
        *,
        stored: Leadership | None = None,
        known: Leadership | None = SAME,
        replica_state: ReplicaState | Mapping[int, ReplicaState] = ReplicaState.ONLINE,
        adding: Sequence[int] = (),
        removing: Sequence[int] = (),
    ) -> int:
        """Adds a partition to the store and to the cluster state. Returns its row.

        Args:
            stored: the stored leadership.
            known: the leadership in the cluster state, if it differs.
        """
        partition = TopicPartition.parse(name)
        assignment = Assignment(tuple(replicas), tuple(adding), tuple(removing))
        await self._assign(partition, assignment)
        if stored is not None:
            await self.seed(name, stored)
        row = int(self.cluster.put_assignments(Assignments.of({partition: assignment}))[0])
        rows = np.array([row], np.intp)
        self.cluster.set_states(rows, state)
        states = replica_state if isinstance(replica_state, Mapping) else dict.fromkeys(replicas, replica_state)
        for broker, its in states.items():
            self.cluster.table.admit_replica(row, broker, its)
        leadership = stored if known == SAME else known
        if leadership is not None:
            self.cluster.put_leaderships(rows, Leaderships.of([leadership]))
        self.store.forget()
        return row

    async def _assign(self, partition: TopicPartition, assignment: Assignment) -> None:
        topic = self._assigned.setdefault(partition.topic, {})
        fresh = not topic
        topic[partition.partition] = assignment
        if fresh:
            await self.store.real.create_topic(TopicRef(partition.topic), topic, {})
        else:
            await self.store.real.write_assignment(TopicRef(partition.topic), topic, None)

    async def seed(self, name: str, wanted: Leadership) -> None:
        """Stores a leadership with exactly this version and controller epoch."""
        store, partition = self.store.real, TopicPartition.parse(name)
        held = (await store.leaderships(Names.of([partition]))).one(0)
        if held is None:
            fence = Fence(self.cluster.fence.epoch, self.cluster.fence.version)
            kept = await store.commit(_write(partition, wanted), fence)
            assert kept.committed.all(), f"{name} could not be seeded"
            held = msgspec.structs.replace(wanted, partition_epoch=0, controller_epoch=fence.epoch)
        if held == wanted:
            return
        assert wanted.partition_epoch > held.partition_epoch, f"{name} is at version {held.partition_epoch} already"
        for version in range(held.partition_epoch, wanted.partition_epoch):
            await self.leader_writes(name, wanted, expected=version)
        held = (await store.leaderships(Names.of([partition]))).one(0)
        assert held == wanted, f"{name} holds {held}, and was to hold {wanted}"

    async def leader_writes(self, name: str, state: Leadership, *, expected: int) -> None:
        """Writes a leadership to the store, as another process does. The cluster state is unchanged."""
        kept = await self.store.real.write_isr(TopicPartition.parse(name), state, expected=expected)
        assert kept == expected + 1, f"the store answered {kept}"

    async def follow_us(self) -> Fence:
        """Elects another controller. This one has not received the event yet."""
        return await self.store.real.contest(6, take_over=True)

    # -- acting --------------------------------------------------------------------------------------------------------

    def rows(self, *names: str) -> RowNumbers:
        return self.cluster.table.rows_named([TopicPartition.parse(name) for name in names])

    async def move(
        self, names: str | Sequence[str] | RowNumbers, target: PartitionState, election: Election | None = None
    ) -> MoveResult:
        """Requests a move of partitions. Returns its result."""
        rows = self._rows(names)
        try:
            moved: MoveResult = await self.partitions.receive(Move(rows, target, election))
        finally:
            self._check()
        return moved

    async def move_replicas(self, names: str | Sequence[str] | RowNumbers, target: ReplicaState, *brokers: int) -> None:
        """Requests a move of replicas: those on `brokers`, or all assigned ones if there are none."""
        try:
            await self.replicas.receive(MoveReplicas(self._rows(names), target, frozenset(brokers) or None))
        finally:
            self._check()

    def _rows(self, names: str | Sequence[str] | RowNumbers) -> RowNumbers:
        if isinstance(names, np.ndarray):
            return names
        return self.rows(*([names] if isinstance(names, str) else names))

    def _check(self) -> None:
        self.partitions.batch.begin()
        self.replicas.batch.begin()
        assert not self.whole_script or self.store.left == [], "the script was not played to its end"
        assert (self.cluster.offline_count, self.cluster.imbalance_count) == self.cluster.count_again()

    # -- looking -------------------------------------------------------------------------------------------------------

    def view(self, name: str) -> PartitionView:
        view = self.cluster.view(TopicPartition.parse(name))
        assert view is not None, f"{name} is unknown"
        return view

    def state(self, name: str) -> PartitionState:
        return self.view(name).state

    def replica(self, name: str, broker: int) -> ReplicaState:
        return self.view(name).replica_states.get(broker, ReplicaState.ABSENT)

    def leadership(self, name: str) -> Leadership | None:
        """Returns the leadership in the cluster state."""
        return self.view(name).leadership

    async def stored(self, name: str) -> Leadership | None:
        """Returns the stored leadership."""
        return (await self.store.real.leaderships(Names.of([TopicPartition.parse(name)]))).one(0)

    @property
    def sent(self) -> Flush:
        """Returns the only flush."""
        assert len(self.outbox.flushes) == 1, f"{len(self.outbox.flushes)} flushes"
        return self.outbox.flushes[0]

    def sent_nothing(self) -> bool:
        return not any(flush.requests for flush in self.outbox.flushes)

    @property
    def events(self) -> list[PartitionEvent | ReplicaEvent]:
        found, _ = self.history.read(0)
        return [event for event in found if isinstance(event, PartitionEvent | ReplicaEvent)]


@asynccontextmanager
async def open_machines(*, recovery: bool = True, unclean_default: bool = False) -> AsyncIterator[Machines]:
    """Opens the harness with a controller elected for the fiftieth time."""
    async with MemoryStore(clock=ManualClock()) as store:
        for _ in range(EPOCH):
            fence = await store.contest(CONTROLLER, take_over=True)
        assert fence.epoch == EPOCH
        yield Machines(store, fence, recovery=recovery, unclean_default=unclean_default)


def refusals_of(moved: MoveResult) -> list[Refusal]:
    """Returns the refusal of each row."""
    return [Refusal(each) for each in moved.refusal.tolist()]


def _write(name: TopicPartition, state: Leadership) -> Write:
    return Write(
        names=Names.of([name]),
        leader=np.array([state.leader], np.int32),
        leader_epoch=np.array([state.leader_epoch], np.int32),
        isr=np.array(state.isr, np.int32).reshape(-1, 1),
        recovering=np.array([state.recovering], np.bool_),
        expected=np.array([NO_VERSION], np.int32),
    )


# -- requests, row by row ----------------------------------------------------------------------------------------------


def broker_ids_in(column: Any, row: int) -> tuple[int, ...]:
    """Returns the broker ids of a row, without the free places of the column."""
    return () if column is None else tuple(int(each) for each in column[:, row] if each != NO_BROKER)


def _partition_names(states: PartitionStates | StopReplica) -> list[str]:
    return [f"{states.topics[topic].name}-{partition}"
            for topic, partition in zip(states.topic.tolist(), states.partition.tolist(), strict=True)]  # fmt: skip


def _leaderships_in(states: PartitionStates) -> dict[str, SentLead]:
    assert states.is_new is not None
    assert states.recovering is not None
    return {
        name: SentLead(
            int(states.leader[row]),
            int(states.leader_epoch[row]),
            broker_ids_in(states.isr, row),
            int(states.partition_epoch[row]),
            broker_ids_in(states.replicas, row),
            bool(states.is_new[row]),
            bool(states.recovering[row]),
            int(states.controller_epoch[row]),
        )
        for row, name in enumerate(_partition_names(states))
    }


def _known(states: PartitionStates) -> dict[str, SentState]:
    return {
        name: SentState(
            int(states.leader[row]),
            int(states.leader_epoch[row]),
            broker_ids_in(states.isr, row),
            int(states.partition_epoch[row]),
            broker_ids_in(states.offline_replicas, row),
        )
        for row, name in enumerate(_partition_names(states))
    }


def _stopped(request: StopReplica) -> dict[str, SentStop]:
    return {
        name: SentStop(int(request.leader_epoch[row]), bool(request.delete[row]))
        for row, name in enumerate(_partition_names(request))
    }
