"""Replicas whose handlers fail: another one leads, and they are used again once they are ready."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kactl.actors.handlers.offline import Offline
from kactl.actors.system import Controller
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.broker import PartitionReport, ReportPartitions
from kactl.decide.messages.log import HandlerEvent
from kactl.model import NO_LEADER, ReplicaState, ReplicaStatus, TopicPartition
from kactl.model.errors import (
    BadRequest,
    BrokerNotAvailable,
    NotFound,
    NothingToReset,
    NotReady,
    StaleBrokerEpoch,
    StoreUnavailable,
)
from kactl.participant import Participant
from kactl.participant.handlers import handler_failures
from kactl.participant.handlers.handler import PartitionHandler
from kactl.participant.leases.leader import Leader
from kactl.stores.memory import MemoryStore
from tests.actors.test_events import exported_metrics
from tests.support.clocks import ManualClock, settle

from .failing_steps import fail_once

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers report each failure at once; `test_retries.py` has those that do not."""
    monkeypatch.setattr(handler_failures, "TRIES_HERE", 1)
    monkeypatch.setattr(handler_failures, "PAUSE_SPREAD", 0.0)


T0 = TopicPartition("t", 0)


class Cluster:
    """Three participants.

    Attributes:
        prepare: what `prepare` does on a broker; raises to fail.
        stalled: `prepare` on broker 1 waits for it.
        ignores_cancellation: the same, and it cannot be cancelled.
        stopping: `stop` waits for it.
        leading: the tokens under which a broker leads t-0, as its handler sees it.
    """

    def __init__(self, controller: Controller, clock: ManualClock) -> None:
        self.controller = controller
        self.clock = clock
        self.prepare: dict[int, Callable[[], None]] = {}
        self.stalled: anyio.Event | None = None
        self.ignores_cancellation: anyio.Event | None = None
        self.stopping: anyio.Event | None = None
        self.leading: dict[int, Leader] = {}
        self.brokers: dict[int, Participant] = {}

    def handler(self, broker: int) -> Callable[[TopicPartition], PartitionHandler]:
        cluster = self

        class Handler(PartitionHandler):
            async def prepare(self, leader: Leader) -> None:
                cluster.prepare.get(broker, lambda: None)()
                if broker == 1 and cluster.stalled is not None:
                    await cluster.stalled.wait()
                if broker == 1 and cluster.ignores_cancellation is not None:
                    with anyio.CancelScope(shield=True):
                        await cluster.ignores_cancellation.wait()

            async def lead(self, leader: Leader) -> None:
                cluster.leading[broker] = leader

            async def stop(self, *, deleted: bool) -> None:
                if cluster.stopping is not None:
                    await cluster.stopping.wait()

        return Handler

    @property
    def leader(self) -> int:
        view = self.controller.partition(T0)
        assert view is not None
        return view.leader

    @property
    def valid(self) -> list[int]:
        """The brokers whose handlers lead with a valid lease."""
        return [broker for broker, leader in sorted(self.leading.items()) if leader.is_valid]

    def fail(self, broker: int, error: Exception) -> None:
        def prepare() -> None:
            raise error

        self.prepare[broker] = prepare


@asynccontextmanager
async def open_cluster(meter_provider: MeterProvider | None = None, **settings: Any) -> AsyncIterator[Cluster]:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with (
        Controller(100, store=store, clock=clock, meter_provider=meter_provider, **settings) as controller,
        AsyncExitStack() as stack,
    ):
        cluster = Cluster(controller, clock)
        for broker in (1, 2, 3):
            cluster.brokers[broker] = participant = Participant(
                broker,
                store=store,
                hub=controller.hub,
                clock=clock,
                handler=cluster.handler(broker),
                shutdown_attempts=0,
            )
            await stack.enter_async_context(participant)
        await settle()
        yield cluster


async def test_replica_that_cannot_prepare_is_passed_over() -> None:
    async with open_cluster() as cluster:
        cluster.fail(1, OSError("disk full"))
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()

        assert cluster.leader == 2
        assert cluster.valid == [2]


async def test_failed_replica_joins_the_isr_again_once_it_is_ready() -> None:
    async with open_cluster() as cluster:
        cluster.fail(1, OSError("disk full"))
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()
        assert cluster.controller.partition(T0).isr == (2, 3)  # type: ignore[union-attr]
        cluster.prepare.clear()
        await cluster.clock.advance(2_000)

        assert cluster.controller.partition(T0).isr == (1, 2, 3)  # type: ignore[union-attr]
        assert cluster.leader == 2


async def test_leader_that_resigns_is_replaced() -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()
        assert cluster.valid == [1]
        first = cluster.leading[1]

        await first.resign("too hot")
        await settle()

        assert cluster.leader == 2
        assert cluster.valid == [2]
        assert first.token < cluster.leading[2].token


async def test_only_replica_that_was_not_ready_leads_after_its_delay() -> None:
    async with open_cluster() as cluster:
        cluster.fail(1, NotReady(2_500, "the cache is cold"))
        await cluster.controller.create_topic("t", assignment={0: (1,)}, timeout_ms=0)
        await settle()
        assert cluster.valid == []
        assert cluster.leader == NO_LEADER
        cluster.prepare.clear()
        await cluster.clock.advance(2_499)
        assert cluster.valid == []
        await cluster.clock.advance(1)

        assert cluster.leader == 1
        assert cluster.valid == [1]


@pytest.mark.parametrize(
    ("error", "times_ms"),
    [(OSError("disk full"), [*range(0, 8_000, 1_000)]), (NotReady(2_500, "it is cold"), [0, 2_500, 5_000, 7_500])],
)
async def test_only_replica_is_called_again_after_its_pauses(error: Exception, times_ms: list[float]) -> None:
    """The controller stops the replica, which has led before, after each failure. The pauses are not cut short."""
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1,)})
        await settle()
        called: list[float] = []

        def prepare() -> None:
            called.append(cluster.clock.monotonic_ms())
            raise error

        cluster.prepare[1] = prepare
        await cluster.leading[1].resign("too hot")
        for _ in range(8_750 // 250):
            await cluster.clock.advance(250)

        assert [at_ms - called[0] for at_ms in called] == times_ms


async def test_replica_with_a_failed_directory_is_not_elected_again() -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1,)})
        await settle()
        await cluster.leading[1].resign("the disk is slow")
        await settle()
        await cluster.brokers[1].fail_directory([T0])
        await settle()
        before = cluster.controller.partition(T0)
        await cluster.clock.advance(5_000)

        assert before is not None
        assert before.leader == NO_LEADER
        assert cluster.controller.partition(T0) == before
        assert status_of(cluster, 1) is ReplicaStatus.NOT_READY


async def test_leader_whose_directory_fails_as_it_begins_is_replaced() -> None:
    async with open_cluster() as cluster:
        cluster.stalled = anyio.Event()
        await cluster.controller.create_topic("t", assignment={0: (1, 2)}, timeout_ms=0)
        await settle()
        await cluster.brokers[1].fail_directory([T0])
        cluster.stalled.set()
        await settle()
        await cluster.clock.advance(1_000)

        assert cluster.leader == 2
        assert cluster.valid == [2]


async def test_report_of_another_registration_is_rejected() -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2)})
        report = PartitionReport(T0, 0, ReplicaStatus.FAILED, "prepare: disk full")
        ask = cluster.controller.hub.controller(100)
        assert ask is not None
        epoch = cluster.brokers[1].epoch

        for broker, broker_epoch, error in ((1, epoch - 1, StaleBrokerEpoch), (9, 0, BrokerNotAvailable)):
            with pytest.raises(error):
                await ask(ReportPartitions(broker, broker_epoch, (report,)))
        await settle()
        assert cluster.leader == 1

        await ask(ReportPartitions(1, epoch, (report,)))
        await settle()
        assert cluster.leader == 2


@pytest.mark.parametrize(("epoch", "recovered", "leader"), [(0, True, 2), (0, False, 1), (-1, True, 1)])
async def test_ready_replica_whose_failure_is_unknown_is_started_again(
    epoch: int, recovered: bool, leader: int
) -> None:
    """An earlier controller knew of its failure, or none. It would lead under its epoch for ever, and not serve."""
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2)})
        ask = cluster.controller.hub.controller(100)
        assert ask is not None
        report = PartitionReport(T0, epoch, ReplicaStatus.READY, recovered=recovered)

        await ask(ReportPartitions(1, cluster.brokers[1].epoch, (report,)))
        await settle()

        assert cluster.leader == leader
        assert cluster.valid == [leader]
        view = cluster.controller.partition(T0)
        assert view is not None
        assert set(view.replica_states.values()) == {ReplicaState.ONLINE}


async def test_report_of_a_deleted_topic_is_ignored() -> None:
    async with open_cluster() as cluster:
        ask = cluster.controller.hub.controller(100)
        assert ask is not None
        reports = tuple(PartitionReport(T0, 0, status) for status in (ReplicaStatus.STUCK, ReplicaStatus.READY))

        await ask(ReportPartitions(1, cluster.brokers[1].epoch, reports))

        assert cluster.controller.topics() == []


async def test_next_topic_of_a_name_has_no_reports_of_the_earlier_one() -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2)})
        ask = cluster.controller.hub.controller(100)
        assert ask is not None
        busy = PartitionReport(T0, 0, ReplicaStatus.BUSY, "stop is in progress", age_ms=1_000.0)
        await ask(ReportPartitions(1, cluster.brokers[1].epoch, (busy,)))
        assert status_of(cluster, 1) is ReplicaStatus.BUSY

        await cluster.controller.delete_topic("t")
        await cluster.controller.create_topic("t", assignment={0: (1, 2)})

        assert cluster.controller.replica_status(T0) == {}


# -- what operators see, and the reset ---------------------------------------------------------------------------------


def status_of(cluster: Cluster, broker: int) -> ReplicaStatus | None:
    report = cluster.controller.replica_status(T0).get(broker)
    return None if report is None else report.status


def handler_events(cluster: Cluster) -> list[tuple[str, str]]:
    """Returns the statuses and details of the events about handlers."""
    events = cluster.controller.history.read(0, limit=1_000, kinds=["handler"])[0]
    return [(event.status, event.detail) for event in events if isinstance(event, HandlerEvent)]


def verdict_of(cluster: Cluster, broker: int) -> str:
    candidates = {candidate.broker: candidate for candidate in cluster.controller.explain(T0).candidates}
    return candidates[broker].verdict


async def fail_for_good(cluster: Cluster) -> None:
    """Create t-0 with its only replica on broker 1, whose handler fails each time."""
    cluster.fail(1, OSError("disk full"))
    await cluster.controller.create_topic("t", assignment={0: (1,)}, timeout_ms=0)
    for _ in range(4):
        await settle()
        await cluster.clock.advance(5_000)


async def test_failure_of_a_handler_is_shown_until_it_is_over() -> None:
    async with open_cluster() as cluster:
        cluster.fail(1, OSError("disk full"))
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()
        await cluster.clock.advance(500)

        assert status_of(cluster, 1) is ReplicaStatus.FAILED
        assert verdict_of(cluster, 1) == (
            "cannot lead: its handler has failed since 500 ms, and is called again, in at most 0.5 s"
            " (prepare: disk full) and it is not in sync"
        )
        cluster.prepare.clear()
        await cluster.clock.advance(2_000)

        assert cluster.controller.replica_status(T0) == {}
        assert verdict_of(cluster, 1) == "could lead"
        events = cluster.controller.history.read(0, limit=1_000, kinds=["handler"])[0]
        told = [(event.broker, event.status, event.detail) for event in events if isinstance(event, HandlerEvent)]
        assert told == [(1, "failed", "prepare: disk full"), (1, "ready", "")]


async def test_reason_of_a_resignation_is_in_the_events() -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        await settle()

        await cluster.leading[1].resign("too hot")
        await settle()

        assert handler_events(cluster) == [("not_ready", "lead: too hot")]
        await cluster.clock.advance(1_000)
        assert handler_events(cluster) == [("not_ready", "lead: too hot"), ("ready", "")]


async def test_call_that_takes_long_is_shown() -> None:
    async with open_cluster() as cluster:
        cluster.stalled = anyio.Event()
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)}, timeout_ms=0)
        await settle()
        await cluster.clock.advance(900)
        assert cluster.controller.replica_status(T0) == {}
        await cluster.clock.advance(8_100)

        assert verdict_of(cluster, 1) == "leads; its handler is busy since 9 s (prepare is in progress)"
        assert cluster.leader == 1
        cluster.stalled.set()
        await settle()

        assert verdict_of(cluster, 1) == "leads"


async def test_handler_that_fails_is_called_again_at_once_by_an_operator() -> None:
    async with open_cluster() as cluster:
        await fail_for_good(cluster)
        assert status_of(cluster, 1) is ReplicaStatus.FAILED
        assert (
            cluster.controller.explain(T0)
            .remedies[0]
            .endswith("to try it again now: kactl replica reset t-0 --broker 1")
        )
        assert "times in a row" in verdict_of(cluster, 1)
        assert ", and is called again, in at most " in verdict_of(cluster, 1)
        assert cluster.leader == NO_LEADER
        cluster.prepare.clear()

        report = await cluster.controller.reset_replica("t-0", 1)
        await settle()

        assert (report.status, report.detail) == (ReplicaStatus.FAILED, "prepare: disk full")
        assert report.failures > 10
        assert (cluster.leader, cluster.valid) == (1, [1])
        assert cluster.controller.replica_status(T0) == {}


async def test_reset_of_a_replica_without_a_failure_changes_nothing() -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2)})
        await settle()

        for name, broker, error, text in (
            ("t-0", 1, NothingToReset, "t-0 on broker 1 is not reset: its handler has not failed"),
            ("t-0", 3, NotFound, "no replica of t-0 on broker 3"),
            ("t-9", 1, NotFound, "no partition t-9"),
            ("t", 1, BadRequest, "partition"),
        ):
            with pytest.raises(error, match=text):
                await cluster.controller.reset_replica(name, broker)

        assert cluster.valid == [1]


async def create_stuck_leader(cluster: Cluster) -> anyio.Event:
    """Create t-0 on brokers 1 and 2. The call of `prepare` on broker 1 ignores its cancellation until the event."""
    release = cluster.ignores_cancellation = anyio.Event()
    await cluster.controller.create_topic("t", assignment={0: (1, 2)}, timeout_ms=0)
    await settle()
    await cluster.clock.advance(30_000)  # its time limit
    await cluster.clock.advance(5_000)
    return release


async def test_stuck_handler_is_not_reset() -> None:
    async with open_cluster() as cluster:
        release = await create_stuck_leader(cluster)
        assert status_of(cluster, 1) is ReplicaStatus.STUCK
        assert "restart the process of broker 1" in cluster.controller.explain(T0).remedies[-1]

        with pytest.raises(NothingToReset, match="restart the process"):
            await cluster.controller.reset_replica("t-0", 1)
        release.set()
        await settle()

        assert status_of(cluster, 1) is ReplicaStatus.FAILED
        await cluster.clock.advance(1_000)
        assert status_of(cluster, 1) is None


async def test_handler_that_fails_is_reset_under_a_later_controller() -> None:
    async with open_cluster() as cluster:
        await fail_for_good(cluster)
        await cluster.controller.resign()
        await cluster.clock.advance(100)  # an order that waits for the end of the pause is answered
        assert status_of(cluster, 1) is ReplicaStatus.FAILED
        cluster.prepare.clear()

        await cluster.controller.reset_replica("t-0", 1)
        await settle()

        assert (cluster.leader, cluster.valid) == (1, [1])
        assert cluster.controller.replica_status(T0) == {}


async def fail_beside_others(cluster: Cluster) -> None:
    """Create t-0 on brokers 1 and 2. The handler on broker 1, which leads first, pauses after a stuck call."""
    release = await create_stuck_leader(cluster)
    release.set()
    cluster.ignores_cancellation = None
    await settle()
    assert (status_of(cluster, 1), cluster.leader) == (ReplicaStatus.FAILED, 2)


async def test_replica_that_returns_to_a_broker_does_not_inherit_an_error() -> None:
    """Reassignments remove the replica of the handler that has failed, and add it again."""
    async with open_cluster() as cluster:
        await fail_beside_others(cluster)
        await cluster.controller.reassign({T0: (2, 3)})
        await settle()
        await cluster.controller.reassign({T0: (1, 2)})
        await settle()
        await cluster.clock.advance(5_000)

        view = cluster.controller.partition(T0)
        assert view is not None
        assert (view.replicas, sorted(view.isr)) == ((1, 2), [1, 2])
        assert cluster.controller.replica_status(T0) == {}


async def test_stuck_leader_whose_report_had_no_effect_is_replaced_by_a_later_controller() -> None:
    """The new controller repeats the order under the same leader epoch, which starts nothing, and is no error."""
    async with open_cluster() as cluster:
        hub = cluster.controller.hub
        ask = hub.controller(100)
        assert ask is not None

        async def losing_reports(request: ControllerRequest) -> object:
            return None if isinstance(request, ReportPartitions) else await ask(request)

        hub.attach_controller(100, losing_reports)
        release = await create_stuck_leader(cluster)
        hub.attach_controller(100, ask)
        before = cluster.leader, cluster.valid

        await cluster.controller.resign()
        await settle()

        after, status = (cluster.leader, cluster.valid), status_of(cluster, 1)
        release.set()
        await settle()
        assert (before, after, status) == ((1, []), (2, [2]), ReplicaStatus.STUCK)


async def test_stuck_leader_is_replaced_when_its_report_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the store has ended the handling of the first one."""
    left = fail_once(monkeypatch, Offline, "replicas_offline", StoreUnavailable("the store is away"))
    async with open_cluster() as cluster:
        release = await create_stuck_leader(cluster)
        after = cluster.leader, cluster.valid, left
        release.set()
        await settle()
        assert after == (2, [2], [])


async def test_report_ends_with_the_registration() -> None:
    async with open_cluster() as cluster:
        await fail_for_good(cluster)
        cluster.prepare.clear()
        await cluster.brokers[1].kill()
        await cluster.clock.advance(40_000)
        assert cluster.controller.replica_status(T0) == {}
        with pytest.raises(BrokerNotAvailable):
            await cluster.controller.reset_replica("t-0", 1)

        await cluster.brokers[1].start()
        await settle()

        assert (cluster.leader, cluster.valid) == (1, [1])


async def test_leader_that_waits_for_its_release_is_explained() -> None:
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2)})
        await settle()
        cluster.brokers[1].pause()  # it lives for the store until its session ends, and answers nothing
        await cluster.controller.drain(1)
        await settle()

        assert cluster.controller.explain(T0).verdict.startswith(
            "broker 2 was elected under leader epoch 1, and waits for the release of broker 1, which led before: it is"
            " linked; the preferred replica 1 cannot: its broker is drained (since "
        )
        cluster.brokers[1].resume()
        await settle()

        assert cluster.controller.explain(T0).verdict.startswith("broker 2 leads, elected under leader epoch 1")


async def test_replicas_are_counted_by_status() -> None:
    reader = InMemoryMetricReader()

    def counts() -> dict[str, int]:
        points = exported_metrics(reader)["kactl.replica.status.count"]
        return {attributes["kactl.replica.status"]: count for attributes, count in points if count}

    async with open_cluster(MeterProvider([reader])) as cluster:
        cluster.fail(1, OSError("disk full"))
        cluster.fail(3, NotReady(reason="no data"))
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3), 1: (3, 2, 1)})
        await settle()
        assert counts() == {"failed": 1, "not_ready": 1}
        exported = exported_metrics(reader)
        assert [each for each, _ in exported["kactl.replica.failures"]] == [{"kafka.topic": "t"}]
        assert exported["kactl.replica.failures"][0][1] >= 1
        assert 0 < exported["kactl.replica.next_attempt"][0][1] <= 60

        cluster.prepare.clear()
        await cluster.clock.advance(10_000)
        assert counts() == {}
