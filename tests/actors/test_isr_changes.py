"""Leaderships go on while ISRs and replicas change, and end when another broker may have led."""

from typing import Final

import pytest

from kactl.decide.messages.admin import ElectionKind
from kactl.participant.leases.leader import Leader
from tests.support.clocks import settle
from tests.support.leaders import T0, TIMEOUT_MS, Leaders, open_leaders

pytestmark = pytest.mark.anyio

LONG_MS: Final = 2 * TIMEOUT_MS


async def begin(leaders: Leaders, *, lease: str = "true") -> Leader:
    """Create the topic and wait until broker 1 leads it."""
    await leaders.controller.create_topic("t", assignment={0: (1, 2, 3)}, config={"leadership.lease": lease})
    await leaders.clock.advance(1_000)
    ((broker, leader),) = leaders.leaders[T0]
    assert broker == 1
    return leader


def isr(leaders: Leaders) -> set[int]:
    view = leaders.controller.partition(T0)
    assert view is not None
    return set(view.isr)


async def prefer(leaders: Leaders, *replicas: int) -> None:
    """Change the order of the replicas, and elect the first one."""
    await leaders.controller.reassign({T0: replicas})
    await leaders.clock.advance(200)
    await leaders.controller.elect(ElectionKind.PREFERRED, timeout_ms=0)  # a broker may be cut off
    await leaders.clock.advance(200)
    assert leaders.leader() == replicas[0]


@pytest.mark.parametrize("dead", [(3,), (2, 3)], ids=str)
async def test_death_and_return_of_followers_do_not_end_lead(dead: tuple[int, ...]) -> None:
    async with open_leaders() as leaders:
        leader = await begin(leaders)
        for broker in dead:
            await leaders.brokers[broker].kill()
        await leaders.clock.advance(LONG_MS)

        assert isr(leaders) == set(leader.isr) == {1, 2, 3} - set(dead)
        assert leader.leader_epoch == len(dead)  # each has left under an epoch of its own
        leader.check()
        for broker in dead:
            await leaders.brokers[broker].restart()
        await leaders.clock.advance(LONG_MS)
        assert isr(leaders) == set(leader.isr) == {1, 2, 3}
        leader.check()
        assert len(leaders.began) == 1


async def test_rolling_restarts_of_followers_do_not_end_lead() -> None:
    async with open_leaders() as leaders:
        leader = await begin(leaders)
        for broker in (2, 3, 2, 3):
            await leaders.brokers[broker].restart()
            await leaders.clock.advance(5_000)
        assert isr(leaders) == {1, 2, 3}
        assert leader.leader_epoch >= 4
        leader.check()
        assert len(leaders.began) == 1


async def test_reassignment_of_followers_does_not_end_lead() -> None:
    async with open_leaders(count=5) as leaders:
        leader = await begin(leaders)
        for replicas in ((1, 4, 5), (1, 2), (1, 2, 3, 4, 5), (5, 1)):
            await leaders.controller.reassign({T0: replicas})
            await leaders.clock.advance(5_000)
            assert isr(leaders) == set(leader.isr) == set(replicas)
        leader.check()
        assert len(leaders.began) == 1


@pytest.mark.parametrize("dies", [False, True], ids=["controller", "controller and follower"])
async def test_takeover_does_not_end_lead(dies: bool) -> None:
    async with open_leaders(controllers=2) as leaders:
        leader = await begin(leaders)
        if dies:
            await leaders.brokers[3].kill()
        await leaders.controllers[0].resign()
        await leaders.clock.advance(LONG_MS)
        assert isr(leaders) == set(leader.isr) == ({1, 2} if dies else {1, 2, 3})
        await leaders.brokers[2].kill()
        await leaders.clock.advance(LONG_MS)

        assert isr(leaders) == set(leader.isr) == ({1} if dies else {1, 3})
        leader.check()
        assert len(leaders.began) == 1


async def test_changes_that_an_earlier_controller_did_not_send_do_not_end_lead() -> None:
    """One change, which the next controller cannot tell from an election by what is stored: the leader can."""
    async with open_leaders(controllers=2) as leaders:
        leader = await begin(leaders)
        leaders.hub.cut.add(1)
        await leaders.brokers[3].kill()
        await leaders.clock.advance(TIMEOUT_MS - 500)
        while 3 in isr(leaders):
            await leaders.clock.advance(10)
        assert leader.leader_epoch == 0
        await leaders.controllers[0].resign()
        leaders.hub.cut.clear()
        await leaders.clock.advance(2_000)

        assert (leader.leader_epoch, leader.isr) == (1, (1, 2))
        leader.check()
        assert len(leaders.began) == 1


@pytest.mark.parametrize("lease", ["true", "false"])
@pytest.mark.parametrize("takeover", [False, True])
async def test_leader_that_missed_another_one_begins_again(lease: str, takeover: bool) -> None:
    async with open_leaders(controllers=2) as leaders:
        first = await begin(leaders, lease=lease)
        leaders.hub.cut.add(1)
        await prefer(leaders, 2, 1, 3)
        await prefer(leaders, 1, 2, 3)
        if takeover:
            await leaders.controllers[0].resign()
        first.check()  # it knows of nothing
        leaders.hub.cut.clear()
        await leaders.clock.advance(3_000)

        ((broker, second),) = leaders.leaders[T0]
        assert broker == 1
        assert not first.is_valid
        assert [token.split(".")[1] for _, _, _, token in leaders.began] == (
            ["0", "4"] if lease == "true" else ["0", "2", "4"]
        )
        assert first.token < second.token


async def test_leader_that_moves_away_and_back_begins_again() -> None:
    async with open_leaders() as leaders:
        first = await begin(leaders)
        await prefer(leaders, 2, 1, 3)
        assert leaders.valid() == [2]
        await prefer(leaders, 1, 2, 3)

        assert leaders.valid() == [1]
        tokens = [token for _, _, _, token in leaders.began]
        assert (len(tokens), tokens) == (3, sorted(tokens))
        assert not first.is_valid
        assert leaders.overlaps == []


async def test_next_leader_has_a_higher_token_after_changes_of_the_isr() -> None:
    async with open_leaders() as leaders:
        first = await begin(leaders)
        for _ in range(3):
            await leaders.brokers[3].restart()
            await leaders.clock.advance(5_000)
        await first.resign("the test wants it")
        await settle()
        await leaders.clock.advance(1_000)

        assert leaders.valid() == [2]
        second = leaders.leaders[T0][-1][1]
        assert first.token < second.token
        assert first.leader_epoch < second.token.leader_epoch
        assert leaders.overlaps == []
