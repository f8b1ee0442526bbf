"""A participant with recording handlers, and a fake controller that receives its reports."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kactl.decide.messages.broker import PartitionReport, ReportPartitions
from kactl.decide.messages.leases import ReportLeaderships
from kactl.model import NO_EPOCH, ReplicaStatus, TopicPartition
from kactl.model.errors import NotController
from kactl.participant import Participant
from kactl.participant.handlers import handler_failures
from kactl.participant.handlers.handler import Follower, PartitionHandler
from kactl.participant.handlers.hosting import HandlerHosting, MakeHandler
from kactl.participant.handlers.orders import HandlerState
from kactl.participant.leases.leader import Leader
from tests.participant.conftest import SESSION_MS, Network, network
from tests.support.clocks import ManualClock, settle
from tests.support.control_requests import CONTROLLER, ORDERS_0, texts, update_metadata

__all__ = ["network"]


class Recording(PartitionHandler):
    """Records its calls in `cluster.calls`; `cluster.scripts` replaces calls by their names."""

    cluster: "Handled"

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(partition)
        self.cluster.handlers.append(self)

    async def prepare(self, leader: Leader) -> None:
        await self._call(f"prepare {leader.token}", "prepare", leader)

    async def lead(self, leader: Leader) -> None:
        self.cluster.leaders.append(leader)
        await self._call(f"lead {leader.token}", "lead", leader)
        await anyio.sleep_forever()

    async def follow(self, follower: Follower) -> None:
        await self._call(f"follow {follower.leader} at {follower.leader_epoch}", "follow", follower)
        await anyio.sleep_forever()

    async def stop(self, *, deleted: bool) -> None:
        await self._call("delete" if deleted else "stop", "stop", None)

    def lease_lost(self, leader: Leader) -> None:
        assert not leader.is_valid
        self.cluster.calls.append((self.partition, f"lost {leader.token}"))

    async def _call(self, what: str, name: str, argument: Any) -> None:
        cluster = self.cluster
        cluster.running[self.partition] = cluster.running.get(self.partition, 0) + 1
        assert cluster.running[self.partition] == 1, f"two calls of {self.partition} at a time"
        cluster.calls.append((self.partition, what))
        try:
            script = cluster.scripts.get((self.partition, name))
            if script is not None:
                await script(argument)
            if name in ("lead", "follow"):
                await anyio.sleep_forever()
        finally:
            cluster.running[self.partition] -= 1


class Handled:
    """One participant with handlers.

    Attributes:
        calls: of all handlers, in order.
        reports: received by the controller; `last_report` is all of the last one.
        ended, waiting: leaderships that were reported as ended, with the time, and those that wait by the last report.
        complete: controller epochs of the complete states that were reported as carried out.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.calls: list[tuple[TopicPartition, str]] = []
        self.running: dict[TopicPartition, int] = {}
        self.scripts: dict[tuple[TopicPartition, str], Any] = {}
        self.handlers: list[Recording] = []
        self.leaders: list[Leader] = []
        self.reports: list[tuple[TopicPartition, ReplicaStatus]] = []
        self.last_report: PartitionReport | None = None
        self.ended: list[tuple[float, str]] = []
        self.waiting: list[str] = []
        self.complete: list[int] = []
        self.participant: Participant

    @property
    def clock(self) -> ManualClock:
        return self.network.clock

    def calls_of(self, name: TopicPartition = ORDERS_0) -> list[str]:
        return [call for partition, call in self.calls if partition == name]

    @property
    def statuses(self) -> list[ReplicaStatus]:
        """The statuses that were reported, of all partitions."""
        return [status for _, status in self.reports]

    @property
    def hosting(self) -> HandlerHosting:
        hosting = self.participant._hosting
        assert hosting is not None
        return hosting

    def state(self, name: TopicPartition = ORDERS_0) -> HandlerState | None:
        return self.hosting.state(name)

    def make_by(self, make: MakeHandler) -> None:
        """Make handlers by another function from now on."""
        self.hosting._make = make

    async def receive(self, request: Any) -> None:
        if isinstance(request, ReportLeaderships):
            now_ms = self.clock.monotonic_ms()
            self.ended += [(now_ms, text) for text in texts(request.ended)]
            self.waiting = texts(request.waiting)
            if request.complete != NO_EPOCH:
                self.complete.append(request.complete)
            return
        if not isinstance(request, ReportPartitions):
            raise NotController  # the other requests are not tested here
        assert request.broker_epoch == self.participant.epoch
        self.reports += [(report.partition, report.status) for report in request.reports]
        self.last_report = request.reports[-1]

    @asynccontextmanager
    async def running_participant(self, **settings: Any) -> AsyncIterator[Participant]:
        class Handler(Recording):
            cluster = self

        self.participant = Participant(
            1,
            store=self.network.store,
            hub=self.network.hub,
            clock=self.clock,
            handler=Handler,
            session_timeout_ms=SESSION_MS,
            **{"shutdown_attempts": 0} | settings,
        )
        self.network.hub.attach_controller(CONTROLLER, self.receive)
        async with self.participant:
            await self.network.send(1, update_metadata())
            await settle()
            yield self.participant


@pytest.fixture
def handled(network: Network, monkeypatch: pytest.MonkeyPatch) -> Handled:
    """A participant whose handlers report each failure at once; see `test_retries.py` for those that do not."""
    monkeypatch.setattr(handler_failures, "TRIES_HERE", 1)
    monkeypatch.setattr(handler_failures, "PAUSE_SPREAD", 0.0)
    return Handled(network)
