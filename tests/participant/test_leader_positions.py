"""Positions that leaders report decide on the membership of ISRs."""

from typing import Final

import pytest

import kactl
from kactl.model import TopicPartition
from kactl.model.errors import BadRequest, IllegalState, LeadershipLost
from kactl.participant.leader_positions import NEVER, LeaderPositions
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

LAG_MS: Final = 4_000
ORDERS_0: Final = TopicPartition("orders", 0)


class Reported:
    """Positions of the followers 2 and 3 of leader 1 under leader epoch 5, all in their registration 9."""

    def __init__(self) -> None:
        self.positions = LeaderPositions(1)

    def at(self, now_ms: float, broker: int, position: int, *, broker_epoch: int = 9) -> bool:
        return self.positions.report(ORDERS_0, 5, broker, position, broker_epoch=broker_epoch, now_ms=now_ms)

    def caught_up(self, broker: int, *, leader_epoch: int = 5, broker_epoch: int = 9) -> float | None:
        return self.positions.caught_up_ms(ORDERS_0, leader_epoch, broker, broker_epoch=broker_epoch, now_ms=1_000.0)


async def test_follower_has_caught_up_while_it_has_the_position_of_the_leader() -> None:
    reported = Reported()
    reported.at(1, 1, 10)
    assert not reported.at(2, 2, 9)
    assert reported.caught_up(2) == NEVER
    assert reported.at(3, 2, 10)
    assert reported.caught_up(2) == 1_000.0
    assert not reported.at(4, 2, 10)  # nothing has changed

    reported.at(5, 1, 11)
    assert reported.caught_up(2) == 4


async def test_follower_of_a_leader_that_goes_on_catches_up() -> None:
    reported = Reported()
    for step in range(5):
        reported.at(step * 10, 1, 100 + step)
        reported.at(step * 10 + 1, 2, 99 + step)  # always one behind
        reported.at(step * 10 + 1, 3, 100)  # stands still
    assert reported.caught_up(2) == 31
    assert reported.caught_up(3) == 1


async def test_positions_count_for_one_leadership_and_registration() -> None:
    reported = Reported()
    assert reported.caught_up(2) is None  # its own reports decide
    reported.at(1, 2, 10)
    assert reported.caught_up(2) == 1
    assert reported.caught_up(3) == NEVER
    assert reported.caught_up(2, broker_epoch=10) == NEVER
    assert reported.caught_up(2, leader_epoch=4) is None
    assert reported.caught_up(2, leader_epoch=6) == 1  # the ISR has changed, and the leadership goes on
    reported.positions.end(ORDERS_0, 5)
    assert reported.caught_up(2) is None


class Replicates(kactl.PartitionHandler):
    """Keeps its leaderships for the test."""

    leaders: list[kactl.Leader]

    async def lead(self, leader: kactl.Leader) -> None:
        self.leaders.append(leader)


async def test_leader_decides_which_followers_are_in_sync() -> None:
    clock, hub = ManualClock(), kactl.MemoryHub()
    leaders: list[kactl.Leader] = []
    handler = type("Handler", (Replicates,), {"leaders": leaders})

    def isr() -> set[int]:
        view = controller.partition(ORDERS_0)
        assert view is not None
        return set(view.isr)

    async def pass_lag() -> None:
        for _ in range(20):
            await clock.advance(LAG_MS / 10)

    def participant(number: int) -> kactl.Participant:
        return kactl.Participant(number, hub=hub, clock=clock, handler=handler, lag_ms=LAG_MS, shutdown_attempts=0)

    async with kactl.Controller(100, hub=hub, clock=clock, auto_balance=False) as controller:
        await settle()
        async with participant(1), participant(2):
            await controller.create_topic("orders", assignment={0: [1, 2]}, timeout_ms=0)
            await clock.advance(1_000)
            (leader,) = leaders
            await pass_lag()
            assert isr() == {1, 2}  # without a report, followers decide themselves

            leader.report(1, 10)
            leader.report(2, 3)
            await pass_lag()
            assert isr() == {1}

            leader.report(2, 10)
            await clock.advance(100)
            assert isr() == {1, 2}
            await pass_lag()
            assert isr() == {1, 2}  # both stand still

            with pytest.raises(BadRequest, match="position"):
                leader.report(2, -1)
            await leader.resign("done")
            with pytest.raises(LeadershipLost):
                leader.report(2, 11)


async def test_participants_without_handlers_take_no_reports() -> None:
    clock, hub = ManualClock(), kactl.MemoryHub()
    async with (
        kactl.Controller(100, hub=hub, clock=clock) as controller,
        kactl.Participant(1, hub=hub, clock=clock, shutdown_attempts=0) as participant,
    ):
        await settle()
        await controller.create_topic("orders", assignment={0: [1]}, timeout_ms=0)
        await clock.advance(1_000)
        leader = participant.leadership(ORDERS_0)
        assert leader is not None
        with pytest.raises(IllegalState, match="pass a handler"):
            leader.report(2, 1)
