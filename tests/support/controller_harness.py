"""Controller harness: a complete controller over a memory store, with brokers that record requests and respond as
directed.

Only the brokers are simulated: controller, machines, channels and store are the real ones, on a manual clock. `settle`
runs all consequences of an action.
"""

import dataclasses
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import numpy as np

from kactl.actors.system import Controller
from kactl.config.protocol_level import LATEST, ProtocolLevel
from kactl.decide.messages.broker import ControlledShutdown
from kactl.decide.messages.control import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    PartitionStates,
    Request,
    Response,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.decide.messages.log import AnyEvent, BrokerEvent
from kactl.model import (
    NO_BROKER,
    Assignment,
    Broker,
    Endpoint,
    Leadership,
    PartitionView,
    TopicPartition,
    TopicRef,
)
from kactl.model.errors import BrokerUnreachable, ErrorCode
from kactl.stores.base import Names, Session
from kactl.stores.memory import MemoryStore
from tests.support.clocks import ManualClock, settle
from tests.support.scripted_store import Step, really

CONTROLLER = 100
SESSION_TIMEOUT_MS = 10_000


@dataclasses.dataclass
class RecordingBrokers:
    """Transport that records delivered requests, in order, as (broker, request)."""

    sent: list[tuple[int, Request]] = dataclasses.field(default_factory=list)
    silent: set[int] = dataclasses.field(default_factory=set)
    error: dict[int, int] = dataclasses.field(default_factory=dict)  # top-level error by broker
    failed_dirs: dict[int, set[str]] = dataclasses.field(default_factory=dict)  # partitions by broker
    lost_a_dir: set[int] = dataclasses.field(default_factory=set)  # brokers that create only new replicas
    made: dict[int, set[str]] = dataclasses.field(default_factory=dict)  # replicas they have created

    undeletable: dict[int, dict[str, ErrorCode]] = dataclasses.field(default_factory=dict)  # partitions by broker

    def connect(self, broker: Broker) -> "RecordingConnection":
        return RecordingConnection(self, broker.id)

    def of(self, broker: int, kind: type[Request] | None = None) -> list[Request]:
        return [request for to, request in self.sent if to == broker and (kind is None or isinstance(request, kind))]

    def told(self, broker: int) -> dict[str, tuple[int, int, tuple[int, ...], bool]]:
        """Returns leader, leader epoch, ISR and "is new" of the last LeaderAndIsr to a broker, by partition."""
        last: dict[str, tuple[int, int, tuple[int, ...], bool]] = {}
        for request in self.of(broker, LeaderAndIsr):
            assert isinstance(request, LeaderAndIsr)
            last |= leaders_in(request.states)
        return last

    def forget(self) -> None:
        self.sent.clear()


def leaders_in(states: PartitionStates) -> dict[str, tuple[int, int, tuple[int, ...], bool]]:
    said = {}
    for row in range(len(states)):
        isr = states.isr[:, row]
        name = f"{states.topics[states.topic[row]].name}-{states.partition[row]}"
        is_new = bool(states.is_new[row]) if states.is_new is not None else False
        said[name] = (
            int(states.leader[row]),
            int(states.leader_epoch[row]),
            tuple(sorted(isr[isr != NO_BROKER].tolist())),
            is_new,
        )
    return said


@dataclasses.dataclass
class RecordingConnection:
    brokers: RecordingBrokers
    broker: int

    async def deliver(self, request: Request) -> Response:
        if self.broker in self.brokers.silent:
            raise BrokerUnreachable(self.broker, "it is silent")
        self.brokers.sent.append((self.broker, request))
        error = self.brokers.error.get(self.broker, 0)
        if isinstance(request, LeaderAndIsr):
            return LeaderAndIsrResponse(error, self._errors(request.states))
        if isinstance(request, StopReplica):
            return StopReplicaResponse(error, PartitionErrors.none() if error else self._stopped(request))
        return UpdateMetadataResponse(error)

    def _errors(self, states: PartitionStates) -> PartitionErrors:
        failed = self.brokers.failed_dirs.get(self.broker, set())
        names = [f"{states.topics[states.topic[row]].name}-{states.partition[row]}" for row in range(len(states))]
        if self.broker in self.brokers.lost_a_dir:
            assert states.is_new is not None
            made = self.brokers.made.setdefault(self.broker, set())
            made |= {name for name, is_new in zip(names, states.is_new.tolist(), strict=True) if is_new}
            failed = failed | (set(names) - made)
        errors = [ErrorCode.KAFKA_STORAGE_ERROR if name in failed else ErrorCode.NONE for name in names]
        topics = tuple(topic.name for topic in states.topics)
        return PartitionErrors(topics, states.topic, states.partition, np.array(errors, np.int16))

    def _stopped(self, request: StopReplica) -> PartitionErrors:
        refused = self.brokers.undeletable.get(self.broker, {})
        asked = zip(partitions_of(request), request.delete.tolist(), strict=True)
        errors = [refused.get(name, ErrorCode.NONE) if delete else ErrorCode.NONE for name, delete in asked]
        topics = tuple(topic.name for topic in request.topics)
        return PartitionErrors(topics, request.topic, request.partition, np.array(errors, np.int16))

    async def close(self) -> None: ...


@dataclasses.dataclass
class World:
    """A controller, its store and its brokers. Created by `world`."""

    clock: ManualClock
    store: MemoryStore  # client of admin tools, other controllers and brokers
    controller: Controller
    brokers: RecordingBrokers
    sessions: dict[int, Session] = dataclasses.field(default_factory=dict)

    # -- events --------------------------------------------------------------------------------------------------------

    async def start(self, *brokers: int, racks: Mapping[int, str] | None = None, host: str = "h") -> None:
        """Register brokers; registered ones restart with a higher epoch."""
        for id_ in brokers:
            if id_ in self.sessions:
                await self.sessions.pop(id_).close()
            session = self.sessions[id_] = await self.store.new_session(SESSION_TIMEOUT_MS)
            await session.register(Broker(id_, 0, (Endpoint("I", f"{host}{id_}", 9092),), (racks or {}).get(id_)))
        await settle()

    async def stop(self, *brokers: int) -> None:
        for id_ in brokers:
            await self.sessions.pop(id_).close()
        await settle()

    async def create(
        self, topic: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic in the store, as an admin tool does."""
        held = {at: Assignment(tuple(replicas)) for at, replicas in enumerate(assignment)}
        await self.store.create_topic(TopicRef(topic), held, config or {})
        await settle()

    async def delete(self, *topics: str) -> None:
        """Mark topics for deletion in the store, as an admin tool does."""
        for topic in topics:
            await self.store.mark_deletion(topic)
        await settle()

    async def grow(self, topic: str, *replicas: Sequence[int]) -> None:
        """Add partitions to a topic's stored assignment, as an admin tool does."""
        stored = await self.store.assignments([topic])
        held = {name.partition: assignment for name, assignment in stored.items()}
        added = {len(held) + at: Assignment(tuple(each)) for at, each in enumerate(replicas)}
        await self.store.write_assignment(stored.topics[0], held | added, None)
        await settle()

    async def write_isr(self, name: str, *isr: int) -> None:
        """Write an ISR as a leader does, with its notification."""
        partition, state = await self._stored(name)
        wrote = await self.store.write_isr(
            partition, msgspec.structs.replace(state, isr=isr), expected=state.partition_epoch
        )
        assert wrote is not None
        await self.store.notify_isr([partition])
        await settle()

    async def wait(self, delay_ms: int) -> None:
        """Advance the clock and keep the brokers' sessions alive."""
        while delay_ms > 0:
            step_ms = min(delay_ms, SESSION_TIMEOUT_MS // 5)
            for session in self.sessions.values():
                await session.keep_alive()
            await self.clock.advance(step_ms)
            delay_ms -= step_ms

    async def shut_down(
        self, broker: int, broker_epoch: int | None = None, *, dry_run: bool = False
    ) -> list[TopicPartition]:
        """Request a controlled shutdown as a broker does, by default under its current broker epoch."""
        said = self.epoch(broker) if broker_epoch is None else broker_epoch
        remaining: list[TopicPartition] = await self.controller.ask(ControlledShutdown(broker, said, dry_run))
        await settle()
        return remaining

    def script(self, method: str, *steps: Step) -> list[Step]:
        """See `script`; for the controller's store."""
        return script(self.controller, method, *steps)

    # -- results -------------------------------------------------------------------------------------------------------

    def epoch(self, broker: int) -> int:
        """Returns the epoch of a broker's registration in the cluster state."""
        return self.controller.cluster.brokers[broker].epoch

    async def _stored(self, name: str) -> tuple[TopicPartition, Leadership]:
        partition = TopicPartition.parse(name)
        state = (await self.store.leaderships(Names.of([partition]))).one(0)
        assert state is not None, f"nothing is stored of {name}"
        return partition, state

    async def stored(self, name: str) -> tuple[int, int, tuple[int, ...]]:
        """Returns the stored leader, leader epoch and sorted ISR."""
        _, state = await self._stored(name)
        return state.leader, state.leader_epoch, tuple(sorted(state.isr))

    def known(self, name: str) -> PartitionView:
        view = self.controller.partition(name)
        assert view is not None, f"the controller does not know {name}"
        return view

    def events(self, *kinds: str) -> list[AnyEvent]:
        found, _ = self.controller.history.read(0, limit=100_000, kinds=kinds)
        return found

    async def check(self) -> None:
        """Assert that cluster state and store agree, and that the counters are correct."""
        cluster = self.controller.cluster
        assert cluster.count_again() == (cluster.offline_count, cluster.imbalance_count)
        for row in cluster.table.all().tolist():
            view = cluster.table.view(row)
            state = (await self.store.leaderships(Names.of([view.name]))).one(0)
            ours = view.leadership
            assert (state is None) == (ours is None), view.name
            if state is not None and ours is not None:
                # In the cluster state, a row that needed no write can already have the current controller epoch.
                assert msgspec.structs.replace(state, controller_epoch=0, isr=tuple(sorted(state.isr))) == (
                    msgspec.structs.replace(ours, controller_epoch=0, isr=tuple(sorted(ours.isr)))
                ), view.name


@asynccontextmanager
async def world(
    *brokers: int, unclean: bool = False, level: ProtocolLevel = LATEST, **options: Any
) -> AsyncIterator[World]:
    """Open an active controller with registered brokers that have received their state. `options` are further
    controller options."""
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(MemoryStore(clock=clock))
        transport = RecordingBrokers()
        controller = Controller(
            CONTROLLER,
            store=admin.another(),
            transport=transport,
            clock=clock,
            unclean_leader_election=unclean,
            level=level,
            **options,
        )
        made = World(clock, admin, controller, transport)
        await made.start(*brokers)
        await stack.enter_async_context(controller)
        await settle()
        assert controller.is_active
        yield made
        await settle()


def open_standby(made: World, node_id: int, **options: Any) -> tuple[Controller, RecordingBrokers]:
    """Opens another instance over the same store."""
    transport = RecordingBrokers()
    return (
        Controller(node_id, store=made.store.another(), transport=transport, clock=made.clock, **options),
        transport,
    )


def script(controller: Controller, method: str, *steps: Step) -> list[Step]:
    """Apply `steps` to the next calls of a method of a controller's store. Returns the remaining steps."""
    real, left = getattr(controller.store, method), list(steps)

    async def scripted(*arguments: Any) -> Any:
        return await (left.pop(0) if left else really)(real, *arguments)

    setattr(controller.store, method, scripted)
    return left


async def resign_for_good(w: World) -> None:
    """Makes the controller resign without contesting again."""
    w.controller.loop.controllership.stopping = True
    await w.controller.resign()
    await settle()


async def stop_last_in_sync(w: World) -> None:
    """Leave no live in-sync replica: broker 2 of replicas 1 and 2 restarts out of sync, then leader 1 stops."""
    await w.stop(2)
    await w.start(2)
    await w.stop(1)


def broker_event_names(w: World) -> list[tuple[str, int]]:
    """Returns name and broker of each recorded broker event, in order."""
    return [(event.what, event.broker) for event in w.events("broker") if isinstance(event, BrokerEvent)]


def kinds(requests: Iterable[Request]) -> list[str]:
    return [type(request).__name__ for request in requests]


def partitions_of(request: Request) -> list[str]:
    """Returns the partitions of a request, in its order."""
    if isinstance(request, StopReplica):
        numbered = zip(request.topic.tolist(), request.partition.tolist(), strict=True)
        return [f"{request.topics[topic].name}-{partition}" for topic, partition in numbered]
    assert isinstance(request, LeaderAndIsr | UpdateMetadata)
    numbered = zip(request.states.topic.tolist(), request.states.partition.tolist(), strict=True)
    return [f"{request.states.topics[topic].name}-{partition}" for topic, partition in numbered]
