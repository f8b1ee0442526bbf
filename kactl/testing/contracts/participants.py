"""Contract suite of participants over a network, a store and handlers. All three may be of the user's own:

    from kactl.testing.contracts.participants import ParticipantContract

    class TestParticipants(ParticipantContract):
        @pytest.fixture
        def network(self) -> Network: ...

        @pytest.fixture
        def open_store(self) -> Callable[[], Store]: ...

        @pytest.fixture
        def make_handler(self) -> MakeHandler: ...  # the class of the handler; nothing is done without this fixture

Each test runs controllers and participants on real clocks, with sessions in the store and with the controller. All of
them share `network`, and `open_store` returns another client of one new, empty store at each call. The tests wait for
what has to happen, up to PATIENCE_S. What must never happen is compared at each of their steps: whether two
participants act as leaders of one partition, whether two calls of one handler run at a time, and whether epochs fall.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, NamedTuple

import anyio
import pytest

from kactl.actors.system import Controller
from kactl.model import TopicPartition
from kactl.model.errors import KactlError, LeadershipLost
from kactl.participant.handlers.handler import Follower, PartitionHandler
from kactl.participant.handlers.hosting import MakeHandler
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.token import FencingToken
from kactl.participant.participant import Participant
from kactl.stores.base import Store
from kactl.transports.base import Network

from .link_support import moment

# An election of a controller and the timeouts of sessions fit many times.
PATIENCE_S: Final = 60
# A busy machine delays renewals by seconds.
SESSION_MS: Final = 6_000
CONTROLLERS: Final = (100, 101)
ORDERS: Final = TopicPartition("orders", 0)


class Call(NamedTuple):
    """One call of a handler.

    Attributes:
        token: of `prepare` and `lead`.
        detail: of `stop`: whether the replica is deleted; of `follow`: the leader.
    """

    broker: int
    partition: TopicPartition
    phase: str
    token: FencingToken | None = None
    detail: Any = None


class Record:
    """The calls of all handlers, and what leaders do."""

    def __init__(self) -> None:
        self.begun: list[Call] = []
        self.ended: list[Call] = []
        self.lost: list[Call] = []
        self.violations: list[str] = []
        self._running: dict[tuple[int, TopicPartition], Call] = {}
        self._acted: dict[TopicPartition, tuple[FencingToken, int]] = {}
        self._leaders: dict[TopicPartition, dict[int, Leader]] = {}

    @contextmanager
    def running(self, call: Call) -> Iterator[None]:
        """Record a call of a handler until its end."""
        replica = call.broker, call.partition
        if replica in self._running:
            self.violations.append(f"{call} has begun while {self._running[replica]} was running")
        self._running[replica] = call
        self.begun.append(call)
        try:
            yield
        finally:
            self._running.pop(replica, None)
            self.ended.append(call)

    def acted(self, broker: int, leader: Leader) -> None:
        """A leader has acted after a check that has succeeded."""
        before = self._acted.get(leader.partition)
        if before is not None:
            token, other = before
            if token.topic_id == leader.token.topic_id and leader.token < token:
                self.violations.append(f"broker {broker} acts under {leader.token} after broker {other} under {token}")
            if token == leader.token and other != broker:
                self.violations.append(f"brokers {broker} and {other} act under {token}")
        self._acted[leader.partition] = leader.token, broker
        # One that hangs may learn of its successor before it acts again: its check is compared, not only what it does.
        leaders = self._leaders.setdefault(leader.partition, {})
        leaders[broker] = leader
        acting = [other for other, its in leaders.items() if other != broker and its.is_valid]
        if acting:
            self.violations.append(f"broker {broker} acts under {leader.token} while the check of {acting} succeeds")

    def led_by(self, partition: TopicPartition) -> int | None:
        """Returns the participant whose `lead` was called last, if that call has not ended."""
        calls = [call for call in self.begun if call.phase == "lead" and call.partition == partition]
        if not calls or self._running.get((calls[-1].broker, partition)) != calls[-1]:
            return None
        return calls[-1].broker

    def calls(self, phase: str, broker: int) -> list[Call]:
        """Returns the calls of a phase that have begun at a participant."""
        return [call for call in self.begun if (call.phase, call.broker) == (phase, broker)]


class Observed(PartitionHandler):
    """Calls another handler, and acts as long as it may."""

    def __init__(self, inner: PartitionHandler, broker: int, record: Record) -> None:
        super().__init__(inner.partition)
        self._inner = inner
        self._broker = broker
        self._record = record

    def _call(self, phase: str, token: FencingToken | None = None, detail: Any = None) -> Call:
        return Call(self._broker, self.partition, phase, token, detail)

    async def prepare(self, leader: Leader) -> None:
        with self._record.running(self._call("prepare", leader.token)):
            if leader.is_valid:
                self._record.violations.append(f"the check of broker {self._broker} succeeds in prepare")
            await self._inner.prepare(leader)

    async def lead(self, leader: Leader) -> None:
        with self._record.running(self._call("lead", leader.token)):
            leader.tasks.start_soon(self._act, leader)
            await self._inner.lead(leader)
            await anyio.sleep_forever()

    async def _act(self, leader: Leader) -> None:
        while True:
            try:
                leader.check()
            except LeadershipLost:
                return
            self._record.acted(self._broker, leader)
            await moment()

    async def follow(self, follower: Follower) -> None:
        with self._record.running(self._call("follow", detail=follower.leader)):
            await self._inner.follow(follower)
            await anyio.sleep_forever()

    async def stop(self, *, deleted: bool) -> None:
        with self._record.running(self._call("stop", detail=deleted)):
            await self._inner.stop(deleted=deleted)

    def lease_lost(self, leader: Leader) -> None:
        if leader.is_valid:
            self._record.violations.append(f"the check of broker {self._broker} succeeds in lease_lost")
        self._record.lost.append(self._call("lease_lost", leader.token))
        self._inner.lease_lost(leader)


class Cluster:
    """Controllers and participants over one network and one store."""

    def __init__(self) -> None:
        self.record = Record()
        self.controllers: list[Controller] = []
        self.participants: dict[int, Participant] = {}

    @property
    def active(self) -> Controller:
        """The controller that was elected last."""
        return max(self.controllers, key=lambda controller: controller.snapshot().epoch)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds. Fails if a promise is broken meanwhile."""
        with anyio.fail_after(PATIENCE_S):
            while not condition():
                assert self.record.violations == []
                await moment()
        assert self.record.violations == []

    async def led_by(self, broker: int, partition: TopicPartition = ORDERS) -> Leader:
        """Wait until a participant leads. Returns its leadership."""
        found: Leader | None = None

        def leads() -> bool:
            nonlocal found
            found = self.participants[broker].leadership(partition)
            return self.record.led_by(partition) == broker and found is not None

        await self.until(leads)
        assert found is not None
        return found


@asynccontextmanager
async def running(
    network: Network, open_store: Callable[[], Store], make_handler: MakeHandler, sessions: str, brokers: int = 2
) -> AsyncIterator[Cluster]:
    """Run two controllers and some participants, and the topic `orders`, whose partition 0 prefers participant 1."""
    cluster = Cluster()

    def handlers(broker: int) -> MakeHandler:
        return lambda partition: Observed(make_handler(partition), broker, cluster.record)

    async with AsyncExitStack() as stack:
        for node in CONTROLLERS:
            # Leaderships move when a test moves them.
            controller = Controller(node, store=open_store(), network=network, participant_balance_ms=0)
            cluster.controllers.append(await stack.enter_async_context(controller))
        for broker in range(1, brokers + 1):
            store = await stack.enter_async_context(open_store()) if sessions == "store" else None
            participant = Participant(
                broker,
                store=store,
                network=network,
                handler=handlers(broker),
                session_timeout_ms=SESSION_MS,
                shutdown_attempts=1,
            )
            cluster.participants[broker] = await stack.enter_async_context(participant)
        for participant in cluster.participants.values():
            await participant.wait_linked(timeout_ms=PATIENCE_S * 1000)
        await retried(lambda: cluster.active.ensure_topic("orders", assignment={0: [*range(1, brokers + 1)]}))
        yield cluster
    assert cluster.record.violations == []
    assert len(cluster.record.ended) == len(cluster.record.begun), "calls of handlers outlive their participants"


async def retried(ask: Callable[[], Awaitable[object]]) -> None:
    """Send a request to the active controller, which another one may just replace."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                await ask()
            except KactlError:
                await anyio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize("sessions", ["store", "controller"])
class ParticipantContract:
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def make_handler(self) -> MakeHandler:
        return PartitionHandler

    @pytest.fixture
    async def cluster(
        self, network: Network, open_store: Callable[[], Store], make_handler: MakeHandler, sessions: str
    ) -> AsyncIterator[Cluster]:
        async with running(network, open_store, make_handler, sessions) as cluster:
            yield cluster

    async def test_leader_prepares_before_it_leads_and_the_other_follows(self, cluster: Cluster) -> None:
        leader = await cluster.led_by(1)
        await cluster.until(lambda: cluster.record.calls("follow", 2))

        leader.check()
        phases = [call.phase for call in cluster.record.begun if call.broker == 1]
        assert phases[:2] == ["prepare", "lead"]
        assert cluster.record.calls("follow", 2)[-1].detail == 1
        assert cluster.participants[2].leadership(ORDERS) is None

    async def test_planned_move_ends_the_earlier_leadership_first(self, cluster: Cluster) -> None:
        before = await cluster.led_by(1)

        await retried(lambda: cluster.active.drain(1))
        after = await cluster.led_by(2)

        assert before.token < after.token
        assert not before.is_valid
        lead = next(call for call in cluster.record.begun if call[:3] == (1, ORDERS, "lead"))
        assert lead in cluster.record.ended

    async def test_participant_that_stops_hands_over(self, cluster: Cluster) -> None:
        before = await cluster.led_by(1)

        await cluster.participants[1].stop()
        after = await cluster.led_by(2)

        assert before.token < after.token
        assert [call.detail for call in cluster.record.calls("stop", 1)] == [False]

    async def test_killed_leader_is_replaced_after_its_lease(self, cluster: Cluster) -> None:
        before = await cluster.led_by(1)
        await self._in_sync(cluster, {1, 2})

        await cluster.participants[1].kill()
        after = await cluster.led_by(2)

        assert before.token < after.token
        assert not before.is_valid

    async def test_leader_that_hangs_ends_before_the_next_one_begins(self, cluster: Cluster) -> None:
        before = await cluster.led_by(1)
        await self._in_sync(cluster, {1, 2})

        # It acts until its lease ends, since neither orders nor renewals are handled.
        cluster.participants[1].pause()
        await retried(lambda: cluster.active.drain(1))
        after = await cluster.led_by(2)
        has_ended = not before.is_valid
        cluster.participants[1].resume()
        await retried(lambda: cluster.active.restore(1))
        await cluster.until(lambda: [call.detail for call in cluster.record.calls("follow", 1)][-1:] == [2])

        assert has_ended
        assert before.token < after.token

    async def test_controller_that_resigns_changes_no_leadership(self, cluster: Cluster) -> None:
        before, first = await cluster.led_by(1), cluster.active
        epoch = first.snapshot().epoch

        await first.resign()
        await cluster.until(lambda: cluster.active.snapshot().epoch > epoch)
        await retried(lambda: cluster.active.ensure_topic("payments", assignment={0: [2, 1]}))

        # The next controller reaches both of them, and has confirmed the leadership from before.
        await cluster.led_by(2, TopicPartition("payments", 0))
        assert (await cluster.led_by(1)).token == before.token

    async def test_deletion_stops_the_handlers(self, cluster: Cluster) -> None:
        leader = await cluster.led_by(1)

        await retried(lambda: cluster.active.delete_topic("orders"))
        await cluster.until(lambda: all(any(c.detail for c in cluster.record.calls("stop", b)) for b in (1, 2)))

        assert not leader.is_valid
        assert cluster.participants[1].leadership(ORDERS) is None

    async def test_participant_that_starts_again_leads_under_a_later_token(self, cluster: Cluster) -> None:
        before, epoch = await cluster.led_by(1), cluster.participants[1].epoch
        await self._in_sync(cluster, {1, 2})

        await cluster.participants[1].restart()
        await cluster.led_by(2)
        await self._in_sync(cluster, {1, 2})
        await retried(lambda: cluster.active.elect("preferred", [ORDERS]))
        after = await cluster.led_by(1)

        assert cluster.participants[1].epoch > epoch
        assert before.token < after.token
        tokens = [call.token for call in cluster.record.begun if call.phase == "lead" and call.token is not None]
        assert all(not later < earlier for earlier, later in itertools.pairwise(tokens))

    @staticmethod
    async def _in_sync(cluster: Cluster, members: set[int]) -> None:
        def in_sync() -> bool:
            view = cluster.active.partition(ORDERS)
            return view is not None and set(view.isr) == members

        await cluster.until(in_sync)
