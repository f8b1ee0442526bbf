"""Replicas whose handlers cannot delete them: the deletion of the topic waits, is shown, and ends once they can."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from kactl.actors.system import Controller
from kactl.decide.state.deletion_blockers import BlockerReason
from kactl.model import ReplicaStatus, TopicPartition
from kactl.participant import Participant
from kactl.participant.handlers import handler_failures
from kactl.participant.handlers.handler import PartitionHandler
from kactl.participant.leases.leader import Leader
from kactl.stores.memory import MemoryStore
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers report each failure at once; `test_retries.py` has those that do not."""
    monkeypatch.setattr(handler_failures, "TRIES_HERE", 1)
    monkeypatch.setattr(handler_failures, "PAUSE_SPREAD", 0.0)


T0 = TopicPartition("t", 0)


class Cluster:
    """A controller and participant 1 with one replica of each topic.

    Attributes:
        cannot_make, cannot_delete: raised by the factory of handlers, and by deletions.
        made_ms: when the factory was called.
        delay_ms: of deletions.
        calls: of `lead`, and of `stop` for deletions, with the numbers of the handlers.
    """

    controller: Controller
    participant: Participant

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cannot_make: Exception | None = None
        self.cannot_delete: Exception | None = None
        self.delay_ms = 0.0
        self.calls: list[tuple[int, str]] = []
        self.made_ms: list[float] = []
        self._made = 0

    def make(self, name: TopicPartition) -> PartitionHandler:
        self.made_ms.append(self.clock.monotonic_ms())
        if self.cannot_make is not None:
            raise self.cannot_make
        self._made += 1
        cluster, number = self, self._made

        class Handler(PartitionHandler):
            async def lead(self, leader: Leader) -> None:
                cluster.calls.append((number, "lead"))

            async def stop(self, *, deleted: bool) -> None:
                if deleted:
                    cluster.calls.append((number, "delete"))
                    await cluster.clock.sleep_ms(cluster.delay_ms)
                    if cluster.cannot_delete is not None:
                        raise cluster.cannot_delete

        return Handler(name)

    @property
    def topics(self) -> list[str]:
        return [topic.name for topic in self.controller.topics()]

    @property
    def blockers(self) -> list[tuple[BlockerReason, tuple[int, ...]]]:
        """Why the deletion of t cannot continue."""
        return [(halt.reason, halt.brokers) for halt in self.controller.cluster.deletion_ineligible.get("t", ())]

    @property
    def status(self) -> ReplicaStatus | None:
        report = self.controller.replica_status(T0).get(1)
        return None if report is None else report.status

    async def create(self) -> None:
        await self.controller.create_topic("t", assignment={0: (1,)}, timeout_ms=0)
        await settle()

    async def delete(self) -> None:
        await self.controller.delete_topic("t", timeout_ms=0)
        await settle()

    async def fail_late(self, wait_ms: float) -> None:
        """Create and delete a topic, whose deletion fails after the participant has confirmed it; wait."""
        await self.create()
        self.cannot_delete, self.delay_ms = OSError("busy"), 100.0
        await self.delete()
        await self.clock.advance(wait_ms)
        assert self.topics == []


@asynccontextmanager
async def open_cluster(*, uses_store: bool = True) -> AsyncIterator[Cluster]:
    cluster = Cluster()
    store = MemoryStore(clock=cluster.clock)
    async with Controller(100, store=store, clock=cluster.clock) as cluster.controller:
        cluster.participant = Participant(
            1,
            store=store if uses_store else None,
            hub=cluster.controller.hub,
            clock=cluster.clock,
            handler=cluster.make,
            shutdown_attempts=0,
        )
        async with cluster.participant:
            await settle()
            yield cluster
            cluster.delay_ms = 0.0


async def test_topic_is_deleted_once_its_handler_can_delete() -> None:
    async with open_cluster() as cluster:
        await cluster.create()
        cluster.cannot_delete = OSError("busy")
        await cluster.delete()
        assert cluster.blockers == [(BlockerReason.REPLICA_FAILED, (1,))]
        assert cluster.status is ReplicaStatus.FAILED
        cluster.cannot_delete = None
        await cluster.clock.advance(1_000)
        assert cluster.topics == []
        await cluster.create()

        assert cluster.calls == [(1, "lead"), (1, "delete"), (1, "delete"), (2, "lead")]


async def test_deletion_without_a_handler_is_shown_and_ends_after_a_reset() -> None:
    """Data of an earlier process may exist, so the replica does not count as deleted."""
    async with open_cluster() as cluster:
        cluster.cannot_make = OSError("not mounted")
        await cluster.create()
        await cluster.clock.advance(10_000)
        assert [at_ms - cluster.made_ms[0] for at_ms in cluster.made_ms] == [*range(0, 11_000, 1_000)][
            : len(cluster.made_ms)
        ]
        assert cluster.status is ReplicaStatus.FAILED
        await cluster.delete()
        cluster.made_ms.clear()
        await cluster.clock.advance(10_000)
        assert 4 <= len(cluster.made_ms) <= 10  # the controller repeats the deletion after each pause
        assert cluster.topics == ["t"]
        assert cluster.blockers == [(BlockerReason.REPLICA_FAILED, (1,))]
        assert cluster.controller.explain(T0).remedies[-1].endswith("kactl replica reset t-0 --broker 1")
        report = cluster.controller.replica_status(T0)[1]
        assert (report.status, report.detail) == (ReplicaStatus.FAILED, "making: not mounted")
        cluster.cannot_make = None
        await cluster.controller.reset_replica("t-0", 1)
        await settle()

        assert cluster.topics == []
        assert cluster.calls == [(1, "delete")]


async def test_next_topic_waits_for_a_confirmed_deletion_that_has_failed() -> None:
    async with open_cluster() as cluster:
        await cluster.fail_late(60)  # the participant responds after 50 ms
        await cluster.create()
        await cluster.clock.advance(1_200)
        assert cluster.status is ReplicaStatus.FAILED
        cluster.cannot_delete = None
        await cluster.clock.advance(10_000)

        assert cluster.calls == [(1, "lead"), *[(1, "delete")] * 3, (2, "lead")]
        assert cluster.controller.replica_status(T0) == {}


@pytest.mark.parametrize("uses_store", [True, False], ids=["store", "controller"])
@pytest.mark.parametrize("fails", [False, True])
async def test_directory_that_fails_during_a_deletion(uses_store: bool, fails: bool) -> None:
    """A replica that was deleted nevertheless does not keep the topic from being deleted."""
    async with open_cluster(uses_store=uses_store) as cluster:
        await cluster.create()
        cluster.delay_ms = 30.0
        cluster.cannot_delete = OSError("I/O error") if fails else None
        await cluster.controller.delete_topic("t", timeout_ms=0)
        await cluster.clock.advance(10)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.participant.fail_directory, [T0])
            await cluster.clock.advance(10_000)

        assert cluster.calls == [(1, "lead"), (1, "delete")]
        assert cluster.topics == (["t"] if fails else [])
        assert cluster.blockers == ([(BlockerReason.REPLICA_FAILED, (1,))] if fails else [])


async def test_directory_of_the_next_topic_that_fails_is_reported() -> None:
    async with open_cluster(uses_store=False) as cluster:
        await cluster.create()
        await cluster.delete()
        await cluster.create()
        await cluster.participant.fail_directory([T0])
        await settle()

        assert cluster.status is ReplicaStatus.FAILED
