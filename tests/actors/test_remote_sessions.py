"""Sessions of participants with the controller, in a whole cluster: beginning, failover, expiry, and orderly ends."""

import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest

import kactl
from kactl.decide.messages.sessions import (
    Goodbye,
    Granted,
    Heartbeat,
    NotController,
    Refused,
    Register,
    Registered,
    SessionAnswer,
    SessionRequest,
    Unconfirmed,
)
from kactl.model import Broker, Fence, TopicPartition
from kactl.model.errors import BrokerIdTaken, StoreUnavailable
from kactl.stores.base import Changed
from kactl.stores.memory import MemoryState, MemoryStore
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

T = 6_000
STEP_MS = 100
ORDERS_0 = TopicPartition("orders", 0)
FIRST, NEXT, OTHER = (bytes([start] * 12 + [0, 0, 0, life]) for start, life in ((1, 1), (1, 2), (2, 1)))


class OfficeStore(MemoryStore):
    """Store whose checks of the controllership can be made to fail, which can lose the answer to a registration, and
    which can take longer for each further registration that it removes at a time.

    Attributes:
        reads: how often the registrations were read.
        late: what the responses to these reads wait for, if they are late.
        ends_refused: number of ends that fail next.
    """

    failing = False
    ends_refused = 0
    lost = False
    clock: ManualClock
    end_ms = 0.0
    ends = 0
    reads = 0
    late: list[anyio.Event] | None = None

    async def brokers(self) -> dict[int, Broker]:
        self.reads += 1
        brokers = await super().brokers()
        if self.late is not None:
            self.late.append(anyio.Event())
            await self.late[-1].wait()
        return brokers

    async def end_remote(self, broker: int, epoch: int, fence: Fence) -> None:
        self.ends += 1
        if self.ends_refused:
            self.ends_refused -= 1
            raise StoreUnavailable("cut off")
        if self.end_ms:
            await self.clock.sleep_ms(self.ends * self.end_ms)
        await super().end_remote(broker, epoch, fence)

    async def register_remote(self, broker: Broker, incarnation: bytes, timeout_ms: int, fence: Fence) -> int:
        epoch = await super().register_remote(broker, incarnation, timeout_ms, fence)
        if self.lost:
            self.lost = False
            raise StoreUnavailable("the answer was lost")
        return epoch

    async def check(self, fence: Fence) -> None:
        if self.failing:
            raise StoreUnavailable("cut off")
        await super().check(fence)


class Cluster:
    """Two controllers and any number of participants without a store, on one hub."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.state = MemoryState()
        self.hub = kactl.MemoryHub()
        self.stores = {number: OfficeStore(self.state, clock=self.clock) for number in (100, 101)}
        for store in self.stores.values():
            store.clock = self.clock
        self.controllers = {
            number: kactl.Controller(number, store=store, hub=self.hub, clock=self.clock, auto_balance=False)
            for number, store in self.stores.items()
        }
        self.stack = AsyncExitStack()

    @property
    def active(self) -> kactl.Controller:
        (active,) = (one for one in self.controllers.values() if one.is_active)
        return active

    def registered(self) -> dict[int, int]:
        return {number: broker.epoch for number, (broker, _) in sorted(self.state.brokers.items())}

    def participant(self, number: int, **options: object) -> kactl.Participant:
        options = {"session_timeout_ms": T, "shutdown_attempts": 0, **options}
        return kactl.Participant(number, hub=self.hub, clock=self.clock, **options)  # type: ignore[arg-type]

    async def join(self, *numbers: int) -> list[kactl.Participant]:
        """Enter participants, which leave with the cluster."""
        return [await self.stack.enter_async_context(self.participant(number)) for number in numbers]

    async def advance(self, ms: float) -> None:
        """Let time pass in small steps, as a clock does."""
        while ms > 0:
            await self.clock.advance(min(ms, STEP_MS))
            ms -= STEP_MS

    async def ask(self, request: SessionRequest) -> SessionAnswer:
        return await self.hub.session(request)


@asynccontextmanager
async def open_cluster(*controllers: int) -> AsyncIterator[Cluster]:
    cluster = Cluster()
    async with cluster.stack:
        for number in controllers or (100,):
            await cluster.stack.enter_async_context(cluster.controllers[number])
            await settle()
        yield cluster


async def test_participant_without_a_store_leads() -> None:
    async with open_cluster() as cluster:
        (one,) = await cluster.join(1)

        await cluster.active.create_topic("orders", assignment={0: [1]})
        await cluster.advance(2 * T)

        leader = one.leadership("orders-0")
        assert leader is not None
        leader.check()
        assert cluster.registered() == {1: one.epoch}
        assert cluster.state.brokers[1][0].session == "controller"
        assert cluster.active.sessions.heartbeats["granted"] >= 12
    assert cluster.registered() == {}


# -- ends --------------------------------------------------------------------------------------------------------------


async def test_silent_participant_is_replaced_after_its_timeout() -> None:
    async with open_cluster() as cluster:
        one, _ = await cluster.join(1, 2)
        await cluster.active.create_topic("orders", assignment={0: [1, 2]})
        await cluster.advance(T)
        leader = one.leadership("orders-0")
        assert leader is not None
        one.pause()
        await cluster.advance(T - 1_000)
        assert 1 in cluster.registered()

        await cluster.advance(1_300)

        assert list(cluster.registered()) == [2]
        assert cluster.active.partition(ORDERS_0).leader == 2  # type: ignore[union-attr]
        assert not leader.is_valid
        assert cluster.active.sessions.ended == Counter(expired=1)


async def test_explanation_names_the_end_of_a_session_without_a_link() -> None:
    async with open_cluster() as cluster:
        one, _ = await cluster.join(1, 2)
        await cluster.active.create_topic("orders", assignment={0: [1, 2]})
        await one.kill()

        await cluster.advance(2_000)

        first, second = cluster.active.explain("orders-0").candidates
        assert re.search(r"link was lost 2\.0 s ago: .*; its session ends in 4\.0 s unless it returns", str(first)), (
            first
        )
        assert "session ends" not in str(second)


async def test_participants_that_fail_together_are_replaced_in_one_event() -> None:
    async with open_cluster() as cluster:
        store = cluster.stores[100]
        dead = await cluster.join(1, 2, 3)
        await cluster.join(4)
        await cluster.active.create_topic("orders", assignment={number: [number + 1, 4] for number in range(3)})
        await cluster.advance(T)
        store.end_ms = 10.0
        for one in dead:
            await one.kill()
            await cluster.advance(100)
        reads = store.reads

        await cluster.advance(T + T / 6 + 500)

        assert list(cluster.registered()) == [4]
        assert {cluster.active.partition(TopicPartition("orders", number)).leader for number in range(3)} == {4}  # type: ignore[union-attr]
        assert store.reads - reads == 1
        assert cluster.active.sessions.ended == Counter(expired=3)


async def test_participant_registers_again_after_its_session_has_expired() -> None:
    async with open_cluster() as cluster:
        (one,) = await cluster.join(1)
        first = one.epoch
        one.pause()
        await cluster.advance(2 * T)
        assert cluster.registered() == {}

        one.resume()
        await cluster.advance(2_000)

        assert cluster.registered() == {1: one.epoch}
        assert one.epoch > first


async def test_killed_participant_stays_registered_until_its_session_expires() -> None:
    async with open_cluster() as cluster:
        (one,) = await cluster.join(1)

        await one.kill()
        await cluster.advance(T / 2)
        assert list(cluster.registered()) == [1]
        await cluster.advance(T)

        assert cluster.registered() == {}


async def test_stopping_participant_says_goodbye_after_everything_has_ended() -> None:
    order: list[str] = []

    class Handler(kactl.PartitionHandler):
        async def stop(self, *, deleted: bool) -> None:
            order.append(f"stopped while {list(cluster.registered())} are registered")

    async with open_cluster() as cluster:
        async with cluster.participant(1, handler=Handler):
            await cluster.active.create_topic("orders", assignment={0: [1]})
            await cluster.advance(100)

        assert order == ["stopped while [1] are registered"]
        assert cluster.registered() == {}
        assert cluster.active.sessions.ended == Counter(goodbye=1)


async def test_blocked_controller_extends_sessions() -> None:
    async with open_cluster() as cluster:
        await cluster.ask(Register(1, FIRST, T))
        await settle()
        cluster.clock.jump(3 * T)  # nothing has run meanwhile, so no heartbeat could be read
        await settle()
        await cluster.advance(T / 2)

        assert list(cluster.registered()) == [1]
        await cluster.advance(T)
        assert cluster.registered() == {}


# -- one id ------------------------------------------------------------------------------------------------------------


async def test_repeated_registration_returns_the_same_epoch() -> None:
    async with open_cluster() as cluster:
        first = await cluster.ask(Register(1, FIRST, T))

        assert await cluster.ask(Register(1, FIRST, T)) == first
        assert isinstance(first, Registered)
        assert (first.timeout_ms, first.controller_epoch) == (T, 1)
        assert cluster.registered() == {1: first.broker_epoch}


async def test_id_of_another_participant_is_refused_until_its_session_ends() -> None:
    async with open_cluster() as cluster:
        await cluster.ask(Register(1, FIRST, T))

        refused = await cluster.ask(Register(1, OTHER, T))
        await cluster.advance(T + 500)
        registered = await cluster.ask(Register(1, OTHER, T))

        assert isinstance(refused, Refused)
        assert refused.error == "BrokerIdTaken"
        assert isinstance(registered, Registered)


async def test_next_life_of_a_participant_replaces_its_registration() -> None:
    async with open_cluster() as cluster:
        first = await cluster.ask(Register(1, FIRST, T))

        later = await cluster.ask(Register(1, NEXT, T))

        assert isinstance(first, Registered)
        assert isinstance(later, Registered)
        assert later.broker_epoch > first.broker_epoch
        delayed = await cluster.ask(Register(1, FIRST, T))
        assert isinstance(delayed, Refused)
        assert isinstance(await cluster.ask(Heartbeat(1, first.broker_epoch, 1)), Refused)
        assert isinstance(await cluster.ask(Heartbeat(1, later.broker_epoch, 1)), Granted)


@pytest.mark.parametrize("refused", [1, 2])
async def test_goodbye_that_could_not_be_stored_is_stored_later(refused: int) -> None:
    async with open_cluster() as cluster:
        first = await cluster.ask(Register(1, FIRST, T))
        assert isinstance(first, Registered)
        cluster.stores[100].ends_refused = refused

        failed = await cluster.ask(Goodbye(1, first.broker_epoch))
        beaten = await cluster.ask(Heartbeat(1, first.broker_epoch, 1))
        await cluster.advance(T / 2)

        assert isinstance(failed, Refused)
        assert isinstance(beaten, Refused)  # the end may have been stored
        assert cluster.registered() == {}
        assert cluster.active.sessions.ended == Counter(goodbye=1)
        assert isinstance(await cluster.ask(Register(1, OTHER, T)), Registered)


async def test_end_for_a_next_life_that_could_not_be_stored_is_stored_without_another_request() -> None:
    async with open_cluster() as cluster:
        await cluster.ask(Register(1, FIRST, T))
        cluster.stores[100].ends_refused = 1

        refused = await cluster.ask(Register(1, NEXT, T))
        await cluster.advance(T / 2)

        assert isinstance(refused, Refused)
        assert cluster.registered() == {}
        assert cluster.active.sessions.ended == Counter({"next life": 1})


async def test_goodbye_beside_the_end_of_an_expired_session_starts_no_second_end() -> None:
    async with open_cluster() as cluster:
        store = cluster.stores[100]
        first = await cluster.ask(Register(1, FIRST, T))
        assert isinstance(first, Registered)
        store.ends_refused = 100
        await cluster.advance(T + 500)

        assert isinstance(await cluster.ask(Goodbye(1, first.broker_epoch)), Refused)
        tried = store.ends
        await cluster.advance(2_000)

        assert store.ends - tried == 4  # one each 500 ms
        store.ends_refused = 0
        await cluster.advance(500)
        assert cluster.registered() == {}


async def test_registration_ends_with_the_controllership() -> None:
    """The store may not know yet, and would accept a write of the instance that has resigned."""
    async with open_cluster() as cluster:
        first = await cluster.ask(Register(1, FIRST, T))
        assert isinstance(first, Registered)
        cluster.stores[100].end_ms = 100.0
        sessions, answers = cluster.controllers[100].sessions, list[SessionAnswer]()

        async def register() -> None:
            answers.append(await sessions.answer(Register(1, NEXT, T), received_ns=0))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(register)
            await settle()
            cluster.controllers[100].loop.controllership.stopping = True
            cluster.controllers[100].loop.controllership.resign("the session with the store was lost")
            await cluster.advance(1_000)

        assert [type(answer) for answer in answers] == [NotController]
        assert cluster.registered() == {}


async def test_second_participant_with_an_id_is_refused_once_the_first_is_alive() -> None:
    async with open_cluster() as cluster:
        await cluster.join(1)
        failures: list[BaseException] = []

        async def enter() -> None:
            try:
                async with cluster.participant(1, start_timeout_ms=5 * T):
                    pass
            except BrokerIdTaken as error:
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enter)
            await cluster.advance(T)
            assert [str(failure) for failure in failures if "that is alive: give each" in str(failure)]
        assert len(failures) == 1


async def test_former_session_is_waited_for_longer_than_a_start_takes() -> None:
    """All participants of a host restart at once, while the controller is away."""
    async with open_cluster() as cluster:
        await cluster.ask(Register(1, FIRST, T))  # a process that is killed then
        begun: list[int] = []

        async def enter() -> None:
            async with cluster.participant(1, start_timeout_ms=0) as participant:
                begun.append(participant.epoch)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enter)
            await cluster.advance(T // 2)
            assert not begun
            await cluster.advance(2 * T)
        assert begun


async def test_id_of_a_session_with_the_store_is_refused() -> None:
    async with open_cluster() as cluster:
        session = await cluster.stores[100].new_session(T)
        await session.register(Broker(1, 0))

        refused = await cluster.ask(Register(1, FIRST, T))

        assert isinstance(refused, Refused)
        assert refused.error == "BrokerIdTaken"


async def test_registration_of_unknown_outcome_is_replaced_or_expires() -> None:
    async with open_cluster() as cluster:
        store = cluster.stores[100]
        for number in (1, 2):
            store.lost = True
            refused = await cluster.ask(Register(number, FIRST, T))
            assert isinstance(refused, Refused)
            assert refused.error == "StoreUnavailable"
        assert list(cluster.registered()) == [1, 2]

        later = await cluster.ask(Register(1, NEXT, T))
        assert isinstance(later, Registered)
        for seq in range(12):
            await cluster.advance(T / 6)
            await cluster.ask(Heartbeat(1, later.broker_epoch, seq))

        assert cluster.registered() == {1: later.broker_epoch}


# -- the controller ----------------------------------------------------------------------------------------------------


async def test_controller_that_cannot_confirm_its_office_grants_nothing() -> None:
    async with open_cluster() as cluster:
        registered = await cluster.ask(Register(1, FIRST, T))
        assert isinstance(registered, Registered)
        beat = Heartbeat(1, registered.broker_epoch, 9)
        cluster.stores[100].failing = True
        await cluster.advance(T / 6)
        assert await cluster.ask(beat) == Granted(9, T, 1)
        await cluster.advance(T / 3)

        assert await cluster.ask(beat) == Unconfirmed(9, 1)

        cluster.stores[100].failing = False
        await cluster.advance(T / 6)
        assert await cluster.ask(beat) == Granted(9, T, 1)


async def test_controller_that_cannot_confirm_its_office_sends_no_orders() -> None:
    async with open_cluster() as cluster:
        one, _ = await cluster.join(1, 2)
        await cluster.active.create_topic("orders", assignment={0: [1, 2]})
        gate, store = cluster.active.channels.gate, cluster.stores[100]
        store.failing = True
        await cluster.advance(T / 6)
        assert gate.is_open

        await cluster.advance(T / 3)
        assert "does not confirm" in gate.reason
        await cluster.active.create_topic("bills", assignment={0: [1]}, timeout_ms=0)
        await settle()
        assert one.hosts == [ORDERS_0]

        store.failing = False
        await cluster.advance(T / 6)
        assert gate.is_open
        assert one.hosts == [ORDERS_0, TopicPartition("bills", 0)]


async def test_gate_stays_open_after_a_resignation_at_the_same_moment() -> None:
    async with open_cluster() as cluster:
        await cluster.join(1)
        controller = cluster.controllers[100]

        async def resign() -> None:
            await cluster.clock.sleep_ms(T / 2)  # before the first check that is late, in the same instant
            assert controller.channels.gate.is_open
            controller.loop.controllership.resign("the session with the store was lost")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(resign)
            cluster.stores[100].failing = True
            await cluster.advance(T)

        assert not controller.is_active
        assert controller.channels.gate.is_open


async def test_gate_opens_when_no_session_is_left() -> None:
    async with open_cluster() as cluster:
        registered = await cluster.ask(Register(1, FIRST, T))
        assert isinstance(registered, Registered)
        cluster.stores[100].failing = True
        await cluster.advance(T)
        gate = cluster.active.channels.gate
        assert not gate.is_open

        await cluster.advance(T)

        assert cluster.registered() == {}
        assert gate.is_open


async def test_deposed_controller_grants_nothing_once_a_check_fails() -> None:
    async with open_cluster() as cluster:
        (one,) = await cluster.join(1)
        sessions = cluster.controllers[100].sessions
        other = MemoryStore(cluster.state, clock=cluster.clock)
        async with other:
            sessions_before = len(sessions)
            cluster.stores[100].subscribe(lambda event: None)  # it does not learn of the election by the watch
            await other.contest(200, take_over=True)
            await cluster.advance(T / 6)

            answer = await sessions.answer(Heartbeat(1, one.epoch, 1), received_ns=cluster.clock.lease_ns())

        assert sessions_before == 1
        assert isinstance(answer, NotController)


async def test_sessions_and_leaderships_survive_the_controller() -> None:
    async with open_cluster(100, 101) as cluster:
        one, two = await cluster.join(1, 2)
        await cluster.active.create_topic("orders", assignment={0: [1, 2]})
        await cluster.advance(T)
        before, leader = cluster.registered(), one.leadership("orders-0")
        assert leader is not None

        for _ in range(4):
            await cluster.active.resign()
            for _ in range(20):
                await cluster.advance(T / 10)
                leader.check()

        assert cluster.registered() == before == {1: one.epoch, 2: two.epoch}
        assert one.leadership("orders-0").token == leader.token  # type: ignore[union-attr]
        assert cluster.active.cluster.fence.epoch > 1


async def test_successor_waits_for_the_grace_before_it_ends_a_session() -> None:
    async with open_cluster(100, 101) as cluster:
        (one,) = await cluster.join(1)
        await cluster.advance(T)
        await one.kill()
        await cluster.active.resign()
        await settle()

        await cluster.advance(1.5 * T - STEP_MS)
        assert list(cluster.registered()) == [1]
        await cluster.advance(3 * STEP_MS)

        assert cluster.registered() == {}


async def test_registration_that_was_removed_by_hand_ends_its_session() -> None:
    async with open_cluster() as cluster:
        registered = await cluster.ask(Register(1, FIRST, T))
        assert isinstance(registered, Registered)
        await cluster.advance(100)
        del cluster.state.brokers[1]
        cluster.state.changed(Changed.BROKERS)
        await settle()

        answer = await cluster.ask(Heartbeat(1, registered.broker_epoch, 1))

        assert isinstance(answer, Refused)
        assert answer.error == "SessionExpired"
        assert cluster.active.sessions.ended == Counter(removed=1)


async def test_registration_that_was_read_before_its_end_begins_no_session() -> None:
    """Its participant would lead beside the next leader: after its expiry nobody waits for it."""
    async with open_cluster() as cluster:
        registered = await cluster.ask(Register(1, FIRST, T))
        assert isinstance(registered, Registered)
        await cluster.advance(T - STEP_MS)
        late = cluster.stores[100].late = []
        await cluster.ask(Register(2, OTHER, T))
        await cluster.advance(T / 4)
        assert list(cluster.registered()) == [2]
        (read,) = late
        read.set()
        await settle()
        assert len(late) == 2  # the end itself is read next

        answer = await cluster.ask(Heartbeat(1, registered.broker_epoch, 1))

        assert isinstance(answer, Refused)
        assert answer.error == "SessionExpired"
        cluster.stores[100].late = None
        late[-1].set()
        await settle()
        assert cluster.active.sessions.ended == Counter(expired=1)


async def test_evicted_session_is_not_granted_and_expires() -> None:
    async with open_cluster() as cluster:
        registered = await cluster.ask(Register(1, FIRST, T))
        assert isinstance(registered, Registered)
        active = cluster.active
        active.sessions.evict(1, registered.broker_epoch)
        await cluster.stores[100].evict(1, registered.broker_epoch, active.cluster.fence)
        await settle()

        assert isinstance(await cluster.ask(Heartbeat(1, registered.broker_epoch, 1)), Refused)
        assert isinstance(await cluster.ask(Register(1, FIRST, T)), Refused)
        await cluster.advance(T / 2)
        assert list(cluster.registered()) == [1]  # the mark stays
        await cluster.advance(T)
        assert cluster.registered() == {}


# -- leases under pauses and failover ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
async def test_valid_leaderships_of_one_partition_are_disjoint(seed: int) -> None:
    """Pauses of participants, and resignations of controllers, of which one is without a confirmation at times.

    Nothing moves leaderships besides failures.
    """
    rng, until, leaders = random.Random(seed), dict[int, float](), list[tuple[int, str]]()
    async with open_cluster(100, 101) as cluster:
        participants = dict(zip((1, 2, 3), await cluster.join(1, 2, 3), strict=True))
        await cluster.active.create_topic("orders", assignment={0: [1, 2, 3]})
        for _ in range(400):
            now = cluster.clock.monotonic_ms()
            for broker in [broker for broker, end in until.items() if now >= end]:
                participants[broker].resume()
                del until[broker]
            if not until and rng.random() < 0.05:
                view = cluster.active.partition(ORDERS_0)
                leads = view is not None and view.leader in participants and rng.random() < 0.8
                broker = view.leader if view is not None and leads else rng.choice((1, 2, 3))
                participants[broker].pause()
                until[broker] = now + T * rng.uniform(0.6, 2.2)
            if rng.random() < 0.02:
                await cluster.active.resign()
            for store in cluster.stores.values():
                store.failing = rng.random() < 0.2 if rng.random() < 0.1 else store.failing
            await cluster.clock.advance(200)
            valid = {broker: one.leadership("orders-0") for broker, one in participants.items()}
            leading = {broker: str(leader.token) for broker, leader in valid.items() if leader and leader.is_valid}
            assert len(leading) <= 1, f"seed {seed}: {leading}"
            leaders += [pair for pair in leading.items() if leaders[-1:] != [pair]]
        for one in participants.values():
            one.resume()
            await one.kill()

    tokens = [tuple(int(epoch) for epoch in token.split(".")) for _, token in leaders]
    assert tokens == sorted(tokens)
    assert len({broker for broker, _ in leaders}) > 1  # leaderships have moved
