"""Events of a real controller, recorded by wrapped functions."""

import functools
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from opentelemetry.metrics import NoOpMeterProvider

from kactl.actors.channel import Channel, SendGate
from kactl.actors.system import Controller
from kactl.decide.messages.broker import AlterPartitionReceived, IsrProposal
from kactl.decide.messages.control import PartitionErrors
from kactl.model import Assignment, Broker, Endpoint, TopicPartition, TopicRef
from kactl.stores.memory import MemoryStore
from kactl.telemetry.metrics import Telemetry
from kactl.testing.history import History
from kactl.testing.violations import Violation
from tests.sim.engine.checkers import Channels, Memories, Observer
from tests.sim.engine.checkers.events import validate
from tests.sim.engine.checkers.observe import WRAPPED
from tests.sim.engine.checkers.observe_channels import WRAPPED_CHANNEL
from tests.sim.engine.watching import watch
from tests.support.clocks import ManualClock, settle
from tests.support.controller_harness import RecordingBrokers

pytestmark = pytest.mark.anyio
NODE = "controller 100"
T1 = bytes(15) + b"\x0a"


class World(NamedTuple):
    """An observed controller, with broker 1 and 2 and a topic that is led by 1."""

    controller: Controller
    store: MemoryStore
    brokers: RecordingBrokers
    clock: ManualClock
    history: History
    observer: Observer
    violations: list[Violation]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event.fields for event in self.history.events if event.kind == kind]


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    clock, brokers, violations = ManualClock(), RecordingBrokers(), list[Violation]()
    store = MemoryStore(clock=clock)
    history = History(clock.monotonic_ms)
    observer = Observer(history)
    watch(history, [Channels(), Memories(observer.memories)], violations.append)
    async with store:
        for broker in (1, 2):
            session = await store.new_session(10_000)
            await session.register(Broker(broker, 0, (Endpoint("I", f"h{broker}", 9092),)))
        await store.create_topic(TopicRef("t1", T1), {0: Assignment((1, 2))}, {})
        provider = NoOpMeterProvider()
        controller = Controller(100, store=store.another(), transport=brokers, clock=clock, meter_provider=provider)
        observer.attach(controller, node=NODE, incarnation=1)
        async with controller:
            await settle()
            yield World(controller, store, brokers, clock, history, observer, violations)
    for event in history.events:
        validate(event)
    assert violations == []


@pytest.mark.parametrize("path", WRAPPED)
async def test_everything_that_is_wrapped_exists(path: str) -> None:
    functools.reduce(getattr, path.split("."), Controller(100))


@pytest.mark.parametrize("path", WRAPPED_CHANNEL)
async def test_everything_that_is_wrapped_of_a_channel_exists(path: str) -> None:
    clock, broker = ManualClock(), Broker(1, 1, ())
    channel = Channel(
        broker,
        RecordingBrokers().connect(broker),
        clock=clock,
        telemetry=Telemetry(NoOpMeterProvider(), None),
        deliver_event=lambda event: None,
        deletions_in=lambda request, answer: PartitionErrors.none(),
        gate=SendGate(),
        others_ms=lambda: 0.0,
        numbers=itertools.count(1),
        progressed=lambda: None,
    )

    functools.reduce(getattr, path.split("."), channel)


async def test_an_election_and_its_state_machines_are_recorded() -> None:
    async with world() as one:
        await one.store.create_topic(TopicRef("t2"), {0: Assignment((2, 1))}, {})
        await settle()
        moved, topics = one.of("fsm.replica"), one.of("fsm.topic")
        elected, view, ready = one.of("ctl.elected"), one.of("ctl.brokers"), one.of("ctl.ready")
        online = [move for move in one.of("fsm.partition") if move["to_state"] == "online"]

    assert elected == ready == [{"controller": 100, "incarnation": 1, "controller_epoch": 1}]
    assert view[-1] == {"controller_epoch": 1, "brokers": [(1, 1), (2, 2)], "shutting_down": []}
    assert [(move["topic"], move["partition"], move["leader"]) for move in online] == [("t1", 0, 1), ("t2", 0, 2)]
    assert [(move["broker"], move["from_state"], move["to_state"]) for move in moved] == [
        (broker, before, after) for before, after in (("absent", "new"), ("new", "online")) for broker in (2, 1)
    ]
    assert topics == [{"controller_epoch": 1, "topic": "t2", "what": "created"}]
    first = next(event for event in one.history.events if event.kind not in ("ctl.elected", "ctl.brokers"))
    assert first.node == NODE


async def test_requests_are_recorded_from_queue_to_answer() -> None:
    async with world() as one:
        enqueued, attempts = one.of("req.enqueue"), one.of("req.attempt")

    answered = {each["request"] for each in attempts if each["outcome"] == "answered"}
    assert {each["request"] for each in enqueued} == answered
    assert {(each["broker"], each["what"]) for each in enqueued} == {
        (broker, what) for broker in (1, 2) for what in ("UpdateMetadata", "LeaderAndIsr")
    }
    assert ["t1-0"] in [each["partitions"] for each in enqueued]


async def test_retries_and_merged_requests_are_recorded() -> None:
    async with world() as one:
        one.brokers.silent.add(2)
        for number in range(70):
            await one.store.create_topic(TopicRef(f"u{number}"), {0: Assignment((1, 2))}, {})
            await settle()
        await one.clock.advance(500)
        one.brokers.silent.clear()
        await one.clock.advance(500)
        attempts, replaced = one.of("req.attempt"), one.of("req.replace")

    begun = Counter(each["request"] for each in attempts if each["outcome"] == "begin")
    assert max(begun.values()) > 1
    assert any(each["outcome"] == "failed" for each in attempts)
    assert any(len(each["after"]) < len(each["before"]) for each in replaced)


async def test_decisions_on_proposals_are_recorded() -> None:
    async with world() as one:
        topic = TopicRef("", T1)
        proposal = IsrProposal(topic, 0, leader_epoch=0, isr=(1,), partition_epoch=0, broker_epochs=(1,))
        await one.controller.ask(AlterPartitionReceived(1, 1, (proposal,)))
        with pytest.raises(Exception, match="epoch"):
            await one.controller.ask(AlterPartitionReceived(1, 9, (proposal,)))
        decided = one.of("isr.decide")

    assert [(each["topic"], each["error"], each["leadership"]) for each in decided] == [
        ("t1", "NONE", (1, 0, [1], 1, False)),
        ("t1", "StaleBrokerEpoch", None),
    ]


async def test_a_resignation_names_the_event_that_it_interrupts() -> None:
    async with world() as one:
        await one.controller.resign()
        await settle()
        resigned, dropped = one.of("ctl.resigned"), one.of("req.drop")

    assert (resigned[0]["controller_epoch"], resigned[0]["handler"]) == (1, "ResignController")
    assert len(dropped) >= 2


async def test_the_gate_is_recorded_when_it_moves() -> None:
    async with world() as one:
        for _ in range(2):
            one.controller.channels.gate.pause("the store is not heard of")
        one.controller.channels.gate.open()
        one.controller.channels.gate.open()

    assert one.of("ctl.gate")[:2] == [{"open": False}, {"open": True}]


async def test_memories_are_those_of_the_active_instances() -> None:
    async with world() as one:
        (memory,) = one.observer.memories()
        one.observer.detach(NODE)
        assert one.observer.memories() == []

    (partition,) = memory.partitions
    assert (memory.node, memory.controller_epoch, memory.settled) == (NODE, 1, True)
    assert (memory.brokers, memory.live, memory.offline, memory.imbalanced) == ({1: 1, 2: 2}, 2, 0, 0)
    assert (partition.topic_id, partition.state, partition.isr) == (T1.hex(), "online", (1, 2))
    assert partition.replica_states == {1: "online", 2: "online"}


async def test_a_partition_that_memory_invents_is_found() -> None:
    async with world() as one:
        checker = Memories(one.observer.memories)
        await one.controller.create_topic("t2", assignment={0: (1, 2)})
        await settle()
        row = one.controller.cluster.table.row(TopicPartition("t2", 0))
        one.controller.cluster.table._columns["state"][row] = 2  # offline, without an event
        for event in one.history.events:
            if event.kind in checker.kinds:
                checker.check(event)
        violation = checker.at_end()
        one.controller.cluster.table._columns["state"][row] = 1

    assert violation is not None
    assert violation.invariant == "INV-14"
