"""Leaderships that are held: they wait for a release, and ends are reported to the controller."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.control import StateSent
from kactl.decide.messages.leases import ReportLeaderships
from kactl.model import TopicPartition
from kactl.participant import Listener, Participant
from kactl.participant.leadership_reports import REPEAT_MS
from tests.support.clocks import settle
from tests.support.control_requests import (
    BILLS_0,
    CONTROLLER,
    ID_A,
    ID_B,
    ORDERS_0,
    ORDERS_1,
    StateRow,
    lease_release,
    stop_replica,
    texts,
    update_metadata,
)

from .conftest import Network, Recorder

pytestmark = pytest.mark.anyio

HELD = StateRow(ORDERS_0, leader_epoch=5, hold=True)


class Reports:
    """The controller's side of the reports."""

    def __init__(self) -> None:
        self.all: list[ReportLeaderships] = []

    async def ask(self, request: ControllerRequest) -> Any:
        if isinstance(request, ReportLeaderships):
            self.all.append(request)

    def ended(self) -> list[str]:
        return [text for report in self.all for text in texts(report.ended)]

    def waiting(self) -> list[str]:
        return [] if not self.all else texts(self.all[-1].waiting)


@pytest.fixture
def reports(network: Network) -> Reports:
    reports = Reports()
    network.hub.attach_controller(CONTROLLER, reports.ask)
    return reports


@pytest.fixture
async def participant(network: Network, recorder: Recorder) -> AsyncIterator[Participant]:
    async with network.participant(listener=recorder) as participant:
        await network.send(1, update_metadata(StateRow(ORDERS_0)))
        yield participant


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


async def test_held_leadership_begins_with_its_release(
    network: Network, participant: Participant, recorder: Recorder, reports: Reports
) -> None:
    await network.lead_and_follow(1, HELD)
    await settle()
    assert participant.leadership(ORDERS_0) is None
    assert participant.leaderships() == []
    assert recorder.calls == []
    assert reports.waiting() == ["orders-0 at 5"]

    await network.send(1, lease_release(ORDERS_0, leader_epoch=5))
    await settle()
    leader = participant.leadership(ORDERS_0)
    assert leader is not None
    assert leader.is_valid
    assert recorder.calls == ["leads orders-0 at 5 with (1, 2, 3)"]


async def test_release_of_another_leader_epoch_is_ignored(network: Network, participant: Participant) -> None:
    await network.lead_and_follow(1, HELD)
    for epoch in (4, 6):
        await network.send(1, lease_release(ORDERS_0, leader_epoch=epoch))
    assert participant.leadership(ORDERS_0) is None


async def test_release_for_another_topic_id_is_ignored(network: Network, participant: Participant) -> None:
    await network.lead_and_follow(1, HELD.but(topic_id=ID_A))
    await network.send(1, lease_release(ORDERS_0, leader_epoch=5, topic_id=ID_B))
    assert participant.leadership(ORDERS_0) is None
    await network.send(1, lease_release(ORDERS_0, leader_epoch=5, topic_id=ID_A))
    assert participant.leadership(ORDERS_0) is not None


async def test_waiting_is_reported_again_until_the_release(
    network: Network, participant: Participant, reports: Reports
) -> None:
    await network.lead_and_follow(1, HELD)
    await network.clock.advance(2 * REPEAT_MS)
    assert len(reports.all) >= 3
    await network.send(1, lease_release(ORDERS_0, leader_epoch=5))
    await network.clock.advance(REPEAT_MS)
    count = len(reports.all)
    await network.clock.advance(10 * REPEAT_MS)
    assert len(reports.all) == count


async def test_leadership_that_is_valid_is_not_held(network: Network, participant: Participant) -> None:
    await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=4))
    await network.lead_and_follow(1, HELD.but(partition_epoch=1), epoch=2)
    assert participant.leadership(ORDERS_0) is not None


async def test_end_is_reported_where_another_broker_waits(
    network: Network, participant: Participant, reports: Reports
) -> None:
    rows = [StateRow(name, leader_epoch=4) for name in (ORDERS_0, ORDERS_1)]
    await network.lead_and_follow(1, *rows)
    before = participant.leadership(ORDERS_0)
    await network.lead_and_follow(1, HELD.but(leader=2), rows[1].but(leader=2, leader_epoch=5))
    await settle()

    assert before is not None
    assert not before.is_valid
    assert reports.ended() == ["orders-0 at 5"]


async def test_stopped_leadership_waits_under_the_same_epoch(
    network: Network, participant: Participant, reports: Reports
) -> None:
    await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=4))
    await network.send(1, stop_replica(ORDERS_0, leader_epoch=4))
    await settle()
    assert reports.ended() == ["orders-0 at 5"]

    # A later controller does not know that it was stopped.
    assert await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=4), epoch=2) == [0]
    await settle()
    assert participant.leadership(ORDERS_0) is None
    assert reports.waiting() == ["orders-0 at 4"]


async def test_failed_order_ends_the_leadership(
    network: Network, participant: Participant, recorder: Recorder, reports: Reports
) -> None:
    await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=4))
    recorder.failing.add(ORDERS_0)
    assert await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=5)) == [56]
    await settle()

    assert participant.leadership(ORDERS_0) is None
    assert reports.ended() == ["orders-0 at 6"]
    assert reports.waiting() == []

    recorder.failing.clear()
    assert await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=5)) == [0]
    await settle()
    assert participant.leadership(ORDERS_0) is None
    assert reports.waiting() == ["orders-0 at 5"]


async def test_failed_directory_ends_the_leadership(
    network: Network, participant: Participant, reports: Reports
) -> None:
    await network.lead_and_follow(1, StateRow(ORDERS_0, leader_epoch=4))
    await participant.fail_directory([ORDERS_0])
    await settle()
    assert reports.ended() == ["orders-0 at 5"]


@pytest.mark.parametrize("leader", [1, 2])
async def test_directory_that_fails_during_an_order_ends_the_leadership(
    network: Network, reports: Reports, leader: int
) -> None:
    """The participant has the leader epoch of an order only once it is carried out."""
    begun, done = anyio.Event(), anyio.Event()

    class Slow(Listener):
        async def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
            begun.set()
            await done.wait()

        async def became_follower(self, name: TopicPartition, *, leader: int, leader_epoch: int) -> None:
            begun.set()
            await done.wait()

    codes: list[int] = []

    async def order() -> None:
        codes.extend(await network.lead_and_follow(1, StateRow(ORDERS_0, leader=leader, leader_epoch=4)))

    async with network.participant(listener=Slow()) as participant, anyio.create_task_group() as tasks:
        await network.send(1, update_metadata(StateRow(ORDERS_0)))
        tasks.start_soon(order)
        await begun.wait()
        await participant.fail_directory([ORDERS_0])
        done.set()
        await settle()

        assert codes == [56]
        assert reports.ended() == ["orders-0 at 5"]


async def test_leaderships_that_a_new_controller_does_not_name_end(
    network: Network, participant: Participant, recorder: Recorder, reports: Reports
) -> None:
    kept, moved = StateRow(BILLS_0, leader_epoch=4, topic_id=ID_B), StateRow(ORDERS_0, leader_epoch=4, topic_id=ID_A)
    await network.lead_and_follow(1, kept, moved)
    before = participant.leadership(ORDERS_0)
    await network.send(1, update_metadata(StateRow(ORDERS_0), epoch=2))
    await network.lead_and_follow(1, kept, epoch=2)
    await network.send(1, StateSent(CONTROLLER, 2, -1))
    await settle()

    assert before is not None
    assert not before.is_valid
    assert participant.leadership(BILLS_0) is not None
    assert recorder.calls[-1] == "stops orders-0"
    assert reports.all[-1].complete == 2

    # It may still be named later, under the same epoch.
    assert await network.lead_and_follow(1, moved, epoch=2) == [0]
    await network.send(1, lease_release(ORDERS_0, leader_epoch=4, epoch=2))
    assert participant.leadership(ORDERS_0) is not None
