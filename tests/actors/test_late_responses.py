"""Responses to LeaderAndIsr that are no news: the failure of the replica was reported, and only a report ends it."""

import anyio
import pytest

from kactl.actors.handlers.serving_replicas import PAUSES_MS
from kactl.actors.system import Controller
from kactl.decide.messages.broker import PartitionReport, ReportPartitions
from kactl.decide.messages.control import LeaderAndIsr, Request, Response
from kactl.model import ReplicaStatus, TopicPartition
from kactl.model.errors import ErrorCode
from kactl.participant import Participant
from kactl.participant.handlers import handler_failures
from kactl.participant.handlers.handler import PartitionHandler
from kactl.participant.hosted_replicas import Role
from kactl.participant.leases.leader import Leader
from kactl.stores.memory import MemoryStore
from kactl.transports.base import Handler
from tests.support.clocks import ManualClock, settle
from tests.support.controller_harness import World, world

from .directory_responses import directory_response

pytestmark = pytest.mark.anyio

T0 = TopicPartition("t", 0)


async def respond(w: World, error: ErrorCode = ErrorCode.NONE, request: LeaderAndIsr | None = None) -> None:
    """Let broker 1 respond to a LeaderAndIsr with t-0."""
    w.controller.loop.inbox.put(directory_response(w, 1, {"t-0": error}, request=request))
    await settle()


async def report(w: World, status: ReplicaStatus) -> None:
    reports = (PartitionReport(T0, 0, status, recovered=status is ReplicaStatus.READY),)
    await w.controller.ask(ReportPartitions(1, w.epoch(1), reports))
    await settle()


def counts_as_failed(w: World) -> bool:
    return len(w.controller.cluster.table.dirs_offline(1)) > 0


@pytest.mark.parametrize("status", [status for status in ReplicaStatus if status.is_failure], ids=str)
async def test_response_does_not_end_a_reported_failure(status: ReplicaStatus) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await report(w, status)
        w.brokers.forget()
        await respond(w)
        await w.wait(int(sum(PAUSES_MS)))

        assert counts_as_failed(w)
        assert "t-0" not in w.brokers.told(1)
        assert w.known("t-0").leader == 2

        await report(w, ReplicaStatus.READY)

        assert not counts_as_failed(w)
        assert "t-0" in w.brokers.told(1)


async def test_start_that_waits_is_dropped_by_a_report() -> None:
    """The replica has failed and responded in turns, so that its next start comes after a pause."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        for _ in range(2):
            await respond(w, ErrorCode.KAFKA_STORAGE_ERROR)
            await respond(w)
        assert counts_as_failed(w)
        await report(w, ReplicaStatus.FAILED)
        await w.wait(int(sum(PAUSES_MS)))
        assert counts_as_failed(w)

        await report(w, ReplicaStatus.READY)

        assert not counts_as_failed(w)


def last_order(w: World) -> LeaderAndIsr:
    """Returns the last LeaderAndIsr to broker 1."""
    request = w.brokers.of(1, LeaderAndIsr)[-1]
    assert isinstance(request, LeaderAndIsr)
    return request


async def test_failure_from_before_the_end_of_a_reported_one_is_no_news() -> None:
    """The response waited for a large event, and the reports did not. The replica was started again meanwhile."""
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        for is_in_sync in (True, False):
            assert (1 in (await w.stored("t-0"))[2]) is is_in_sync
            before = last_order(w)
            await report(w, ReplicaStatus.FAILED)
            await report(w, ReplicaStatus.READY)
            w.brokers.forget()
            await respond(w, ErrorCode.KAFKA_STORAGE_ERROR, before)

            assert not counts_as_failed(w)
            assert not w.brokers.sent
            await w.start(2)

        await respond(w, ErrorCode.KAFKA_STORAGE_ERROR, last_order(w))

        assert counts_as_failed(w)


@pytest.mark.parametrize("renewed", ["topic", "registration"])
async def test_failure_of_the_next_topic_or_registration_is_news(renewed: str) -> None:
    async with world(1, 2) as w:
        await w.create("t", [[1, 2]])
        await report(w, ReplicaStatus.FAILED)
        await report(w, ReplicaStatus.READY)
        if renewed == "topic":
            await w.delete("t")
            await w.create("t", [[1, 2]])
        else:
            await w.start(1)
        assert not counts_as_failed(w)

        await respond(w, ErrorCode.KAFKA_STORAGE_ERROR, last_order(w))

        assert counts_as_failed(w)


class LateResponses:
    """A participant whose responses to LeaderAndIsr wait for an event."""

    def __init__(self, participant: Handler) -> None:
        self._participant = participant
        self.sent = anyio.Event()

    async def handle(self, request: Request) -> Response:
        response = await self._participant.handle(request)
        if isinstance(request, LeaderAndIsr):
            await self.sent.wait()
        return response


@pytest.mark.parametrize("parity", [False, True], ids=["", "parity"])
async def test_handler_that_fails_before_its_response_arrives_has_its_pause(
    parity: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order was accepted, because the handler took long. It would be in the ISR again at once, or never."""
    monkeypatch.setattr(handler_failures, "TRIES_HERE", 1)
    monkeypatch.setattr(handler_failures, "PAUSE_SPREAD", 0.0)
    clock, failed = ManualClock(), anyio.Event()
    store = MemoryStore(clock=clock)

    class Failing(PartitionHandler):
        async def prepare(self, leader: Leader) -> None:
            await failed.wait()
            raise OSError("disk full")

    async with Controller(100, store=store, clock=clock, parity=parity) as controller:

        def participant(broker: int, handler: type[PartitionHandler]) -> Participant:
            return Participant(
                broker, store=store, hub=controller.hub, clock=clock, handler=handler, shutdown_attempts=0
            )

        async with participant(1, Failing) as one, participant(2, PartitionHandler):
            await settle()
            port = controller.hub.find(1)
            assert port is not None
            late = LateResponses(port)
            controller.hub.attach(1, late)
            await controller.create_topic("t", assignment={0: (1, 2)}, timeout_ms=0)
            await clock.advance(60)
            failed.set()
            await settle()

            late.sent.set()
            await settle()

            view = controller.partition(T0)
            assert view is not None
            assert (view.leader, view.isr) == (2, (2,))
            assert controller.replica_status(T0)[1].status is ReplicaStatus.FAILED
            await clock.advance(1_000)
            view, hosted = controller.partition(T0), one.hosted(T0)
            assert view is not None
            assert hosted is not None
            assert (view.leader, sorted(view.isr)) == (2, [1, 2])
            assert hosted.role is Role.FOLLOWER
