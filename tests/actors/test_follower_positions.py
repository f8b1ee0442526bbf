"""Positions that handlers report decide on the membership of ISRs."""

import pytest

import kactl
from kactl.model import TopicPartition
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio

LAG_MS = 4_000
ORDERS_0 = TopicPartition("orders", 0)


class Copies(kactl.PartitionHandler):
    """Follows, and keeps its followerships for the test."""

    followers: list[kactl.Follower]

    async def follow(self, follower: kactl.Follower) -> None:
        self.followers.append(follower)
        follower.report(0, caught_up=False)


async def test_follower_is_in_sync_once_it_reports_so() -> None:
    clock, hub = ManualClock(), kactl.MemoryHub()
    followers: list[kactl.Follower] = []
    handler = type("Handler", (Copies,), {"followers": followers})

    def isr() -> set[int]:
        view = controller.partition(ORDERS_0)
        assert view is not None
        return set(view.isr)

    async with kactl.Controller(100, hub=hub, clock=clock, auto_balance=False) as controller:
        await settle()

        def participant(number: int) -> kactl.Participant:
            return kactl.Participant(number, hub=hub, clock=clock, handler=handler, lag_ms=LAG_MS, shutdown_attempts=0)

        async with participant(1) as leader, participant(2):
            await controller.create_topic("orders", assignment={0: [1, 2]}, timeout_ms=0)
            await settle()
            (follower,) = followers
            assert (follower.leader, isr()) == (1, {1, 2})

            for _ in range(20):
                await clock.advance(LAG_MS / 10)
            assert isr() == {1}

            follower.report(7)
            await clock.advance(1_000)
            assert isr() == {1, 2}
            assert leader.leader(ORDERS_0) == 1

            # A new leader epoch is another followership: the report of the earlier one changes nothing.
            await leader.kill()
            for _ in range(40):
                await clock.advance(LAG_MS / 10)
            assert isr() == {2}
            follower.report(9)
            assert controller.partition(ORDERS_0).leader == 2  # type: ignore[union-attr]
