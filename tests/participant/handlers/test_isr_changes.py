"""Leadership goes on while only the ISR changes, and begins again if another broker may have led."""

import anyio
import pytest

from kactl.model import Leadership, ReplicaStatus
from kactl.model.errors import LeadershipLost, StoreUnavailable
from kactl.participant.handlers.orders import HandlerState
from kactl.stores.memory.store import MemorySession
from tests.participant.conftest import MARGIN_MS, SESSION_MS, Network
from tests.support.clocks import settle
from tests.support.control_requests import ID_A, ORDERS_0, StateRow, lease_release, stop_replica

from .conftest import Handled
from .scripts import raising, waiting_for

pytestmark = pytest.mark.anyio

LED = StateRow(ORDERS_0, leader_epoch=7, topic_id=ID_A, isr=(1, 2, 3))
SHRUNK = LED.but(leader_epoch=8, isr=(1, 2), controller_epoch=2)


@pytest.mark.parametrize(
    ("order", "token"),
    [
        # Each leader epoch has one leader, and there is none between 7 and 8.
        (SHRUNK, "1.7"),
        (LED.but(leader_epoch=10, isr=(1,), unbroken=2), "1.7"),
        (LED.but(leader_epoch=10, isr=(1,), unbroken=9), "1.7"),
        (LED.but(leader_epoch=8, replicas=(1, 2, 3, 4)), "1.7"),
        # Another broker may have led under 8, or under 8 and 9.
        (LED.but(leader_epoch=9, isr=(1,)), "1.9"),
        (LED.but(leader_epoch=10, isr=(1,), unbroken=1), "1.10"),
        (LED.but(leader_epoch=10, isr=(1,), unbroken=-5), "1.10"),
    ],
)
async def test_lead_goes_on_unless_another_broker_may_have_led(
    network: Network, handled: Handled, order: StateRow, token: str
) -> None:
    async with handled.running_participant() as participant:
        await network.lead_and_follow(1, LED)
        await settle()
        assert await network.lead_and_follow(1, order) == [0]
        await settle()

        leader = participant.leadership(ORDERS_0)
        assert leader is handled.leaders[-1]
        assert str(leader.token) == token
        assert (leader.leader_epoch, leader.isr) == (order.leader_epoch, order.isr)
        goes_on = token == "1.7"
        assert handled.leaders[0].is_valid is goes_on
        assert handled.calls_of()[2:] == ([] if goes_on else [f"prepare {token}", f"lead {token}"])


async def test_leader_and_its_tasks_survive_many_changes_of_the_isr(network: Network, handled: Handled) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("work")

    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await settle()
        (leader,) = handled.leaders
        leader.tasks.start_soon(work)
        for epoch in range(8, 30):
            await network.lead_and_follow(1, LED.but(leader_epoch=epoch, isr=(1, 2 + epoch % 2)), epoch=epoch)
            leader.check()
        assert (ended, handled.calls_of()) == ([], ["prepare 1.7", "lead 1.7"])

        await network.lead_and_follow(1, LED.but(leader_epoch=30, leader=2), epoch=30)
        await settle()
        assert ended == ["work"]
        with pytest.raises(LeadershipLost):
            leader.check()
        assert leader.leader_epoch == 29


async def test_committed_isr_is_visible_in_the_leader(network: Network, handled: Handled) -> None:
    isrs: list[tuple[int, ...]] = []
    async with handled.running_participant() as participant:
        await network.lead_and_follow(1, SHRUNK.but(leader_epoch=7))
        await settle()
        (leader,) = handled.leaders
        assert participant._incarnation is not None
        hosted = participant._incarnation.hosted
        hosted.apply_isr(ORDERS_0, Leadership(1, 7, (1, 2, 3), 5, 1))
        isrs.append(leader.isr)
        await network.lead_and_follow(1, SHRUNK.but(partition_epoch=6))
        isrs.append(leader.isr)
        hosted.apply_isr(ORDERS_0, Leadership(1, 7, (1,), 6, 1))  # a late response
        isrs.append(leader.isr)
        await settle()
        assert isrs == [(1, 2, 3), (1, 2), (1, 2)]
        assert handled.calls_of() == ["prepare 2.7", "lead 2.7"]


async def test_prepare_goes_on_and_its_failure_is_that_of_the_newest_order(network: Network, handled: Handled) -> None:
    release = anyio.Event()

    async def prepare(_: object) -> None:
        await release.wait()
        raise OSError("disk full")

    handled.scripts[ORDERS_0, "prepare"] = prepare
    answers: list[int] = []
    async with handled.running_participant(), anyio.create_task_group() as tasks:

        async def send(row: StateRow) -> None:
            answers.extend(await network.lead_and_follow(1, row))

        tasks.start_soon(send, LED)
        await network.clock.advance(60)
        tasks.start_soon(send, SHRUNK)
        await network.clock.advance(10)
        release.set()
        await network.clock.advance(10)

        assert handled.calls_of() == ["prepare 1.7"]
        assert answers == [0, 56]
        assert handled.statuses == [ReplicaStatus.FAILED]
        assert handled.last_report is not None
        assert handled.last_report.leader_epoch == 8


async def test_failed_leader_begins_again_under_a_new_token(network: Network, handled: Handled) -> None:
    handled.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        del handled.scripts[ORDERS_0, "lead"]
        tasks.start_soon(network.lead_and_follow, 1, SHRUNK)
        await network.clock.advance(2_000)

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "prepare 2.8", "lead 2.8"]
        assert not handled.leaders[0].is_valid


async def test_leader_that_has_resigned_begins_again_under_a_new_token(network: Network, handled: Handled) -> None:
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        await handled.leaders[0].resign()  # its actor has not run since
        tasks.start_soon(network.lead_and_follow, 1, SHRUNK)
        await network.clock.advance(2_000)

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "prepare 2.8", "lead 2.8"]
        assert handled.leaders[0].token < handled.leaders[1].token


async def test_stopped_leader_begins_again_under_a_new_token(network: Network, handled: Handled) -> None:
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await settle()
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=7, topic_id=ID_A))
        await network.lead_and_follow(1, SHRUNK)
        await settle()

        assert handled.calls_of()[-3:] == ["stop", "prepare 2.8", "lead 2.8"]


async def test_leader_that_ends_slowly_does_not_go_on(network: Network, handled: Handled) -> None:
    async def slow(_: object) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await network.clock.sleep_ms(MARGIN_MS / 2)

    handled.scripts[ORDERS_0, "lead"] = slow
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        del handled.scripts[ORDERS_0, "lead"]
        tasks.start_soon(network.lead_and_follow, 1, LED.but(leader_epoch=8, leader=2))
        await network.clock.advance(60)
        tasks.start_soon(network.lead_and_follow, 1, LED.but(leader_epoch=9))
        await network.clock.advance(60)
        tasks.start_soon(network.lead_and_follow, 1, LED.but(leader_epoch=10))
        await network.clock.advance(MARGIN_MS)

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "prepare 1.10", "lead 1.10"]


async def test_held_leader_goes_on_waiting_and_is_released_under_the_newest_epoch(
    network: Network, handled: Handled
) -> None:
    async with handled.running_participant():
        await network.lead_and_follow(1, LED.but(hold=True))
        await settle()
        await network.lead_and_follow(1, SHRUNK.but(hold=True))
        await settle()
        assert handled.waiting == ["orders-0 at 8"]
        await network.send(1, lease_release(ORDERS_0, leader_epoch=7))
        await settle()
        assert handled.state() is HandlerState.WAITING

        await network.send(1, lease_release(ORDERS_0, leader_epoch=8))
        await settle()
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7"]


async def test_order_that_does_not_hold_releases_a_leader_that_waits(network: Network, handled: Handled) -> None:
    async with handled.running_participant():
        await network.lead_and_follow(1, LED.but(hold=True))
        await settle()
        await network.lead_and_follow(1, SHRUNK)
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7"]


async def test_lapsed_leadership_resumes_with_its_token_after_a_change_of_the_isr(
    network: Network, handled: Handled, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_silent = False

    class SilentSession(MemorySession):
        """Loses the responses to its renewals, so that the session outlives the lease."""

        async def renew(self, sent_ns: int) -> None:
            await super().renew(sent_ns)
            if is_silent:
                raise StoreUnavailable("the connection broke")

    monkeypatch.setattr("kactl.stores.memory.store.MemorySession", SilentSession)
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await settle()
        is_silent = True
        await network.clock.advance(SESSION_MS)
        assert handled.state() is HandlerState.WAITING
        await network.lead_and_follow(1, SHRUNK)
        is_silent = False
        await network.clock.advance(SESSION_MS / 6)

        first, second = handled.leaders
        assert not first.is_valid
        assert (second.is_valid, second.token, second.isr) == (True, first.token, (1, 2))


async def test_change_of_the_isr_under_a_later_controller_ends_nothing(network: Network, handled: Handled) -> None:
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await settle()
        await network.lead_and_follow(1, LED, epoch=2)  # the complete state of the next controller
        await network.lead_and_follow(1, SHRUNK, epoch=2)
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7"]


async def test_topic_that_was_given_an_id_begins_again(network: Network, handled: Handled) -> None:
    """Its next leaders have tokens with the id, which cannot be compared with those without."""
    async with handled.running_participant():
        await network.lead_and_follow(1, LED.but(topic_id=b"\0" * 16))
        await settle()
        await network.lead_and_follow(1, SHRUNK)
        await settle()

        assert [leader.token.topic_id for leader in handled.leaders] == [b"\0" * 16, ID_A]


async def test_waiting_prepare_is_called_once(network: Network, handled: Handled) -> None:
    release = anyio.Event()
    handled.scripts[ORDERS_0, "prepare"] = waiting_for(release)
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        for epoch in range(7, 12):
            tasks.start_soon(network.lead_and_follow, 1, LED.but(leader_epoch=epoch))
            await network.clock.advance(60)
        release.set()
        await network.clock.advance(10)

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7"]
        assert handled.leaders[0].leader_epoch == 11
