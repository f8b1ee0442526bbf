"""Order of a handler's calls: one at a time, the newest order wins, and no partition waits for another."""

import asyncio
from pathlib import Path

import anyio
import pytest

from kactl.model import ReplicaStatus
from kactl.model.errors import BadRequest, LeadershipLost
from kactl.participant import Listener, Participant
from kactl.participant.handlers.handler import PartitionHandler
from kactl.participant.handlers.orders import HandlerState
from kactl.participant.leases.terms import LeaseConfig
from kactl.participant.leases.token import FencingToken
from tests.participant.conftest import MARGIN_MS, SESSION_MS, Network
from tests.support.clocks import settle
from tests.support.control_requests import BILLS_0, ID_A, ORDERS_0, ORDERS_1, StateRow, stop_replica

from .conftest import Handled
from .scripts import waiting_for

pytestmark = pytest.mark.anyio

LED = StateRow(ORDERS_0, leader_epoch=7, topic_id=ID_A, isr=(1, 3))
LEASE_MS = SESSION_MS - MARGIN_MS


async def test_leader_prepares_and_leads_under_its_token(network: Network, handled: Handled) -> None:
    async with handled.running_participant() as participant:
        assert await network.lead_and_follow(1, LED.but(leader=2, leader_epoch=6)) == [0]
        assert await network.lead_and_follow(1, LED) == [0]
        await settle()

        assert handled.calls_of() == ["follow 2 at 6", "prepare 1.7", "lead 1.7"]
        assert handled.state() is HandlerState.LEADING
        (leader,) = handled.leaders
        leader.check()
        assert (leader.token, leader.isr, leader.previous) == (FencingToken(1, 7, ID_A), (1, 3), 2)
        assert participant.leadership(ORDERS_0) is leader
        assert participant.leaderships() == [leader]


async def test_leadership_is_invalid_before_lead(network: Network, handled: Handled) -> None:
    seen: list[bool] = []

    async def prepare(leader: object) -> None:
        seen.append(leader.is_valid)  # type: ignore[attr-defined]
        with pytest.raises(LeadershipLost):
            leader.tasks  # type: ignore[attr-defined]  # noqa: B018

    handled.scripts[ORDERS_0, "prepare"] = prepare
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)

        assert seen == [False]


async def test_newer_epoch_ends_the_leadership_and_begins_another(network: Network, handled: Handled) -> None:
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await settle()
        await network.lead_and_follow(1, LED.but(leader_epoch=9))  # another broker may have led under 8
        await settle()

        first, second = handled.leaders
        assert not first.is_valid
        assert second.is_valid
        assert first.token < second.token
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "prepare 1.9", "lead 1.9"]
        assert len(handled.handlers) == 1


async def test_older_epoch_does_not_reach_the_handler(network: Network, handled: Handled) -> None:
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        assert await network.lead_and_follow(1, LED.but(leader_epoch=6)) == [11]
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7"]


async def test_follower_stops_leading_first(network: Network, handled: Handled) -> None:
    ended = anyio.Event()

    async def lead(leader: object) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await network.clock.sleep_ms(MARGIN_MS / 2)
            ended.set()

    handled.scripts[ORDERS_0, "lead"] = lead
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        tasks.start_soon(network.lead_and_follow, 1, LED.but(leader=2, leader_epoch=8))
        await network.clock.advance(100)

        assert handled.leaders[0].is_valid is False  # from the order on, while its task still ends
        assert handled.calls_of()[-1] == "lead 1.7"
        assert handled.state() is HandlerState.ENDING
        await network.clock.advance(MARGIN_MS / 2)
        assert ended.is_set()
        assert handled.calls_of()[-1] == "follow 2 at 8"


async def test_tasks_of_a_leader_end_with_its_leadership(network: Network, handled: Handled) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("work")

    async def lead(leader: object) -> None:
        leader.tasks.start_soon(work)  # type: ignore[attr-defined]

    class Returning(PartitionHandler):
        async def lead(self, leader: object) -> None:
            await lead(leader)

    participant = Participant(
        1, store=network.store, hub=network.hub, clock=network.clock, handler=Returning, shutdown_attempts=0
    )
    async with participant:
        await network.lead_and_follow(1, LED)
        await settle()
        leader = participant.leadership(ORDERS_0)
        assert leader is not None  # though `lead` has returned
        assert ended == []
        await network.lead_and_follow(1, LED.but(leader=2, leader_epoch=8))
        await settle()

        assert ended == ["work"]
        with pytest.raises(LeadershipLost):
            leader.tasks  # noqa: B018


async def test_hanging_handler_delays_the_next_request_by_50_ms_only(network: Network, handled: Handled) -> None:
    async def hang(leader: object) -> None:
        await anyio.sleep_forever()

    handled.scripts[ORDERS_0, "prepare"] = hang
    answers: list[list[int]] = []
    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:

        async def send(row: StateRow) -> None:
            answers.append(await network.lead_and_follow(1, row))

        tasks.start_soon(send, LED)
        await network.clock.advance(49)
        assert (answers, participant.hosts) == ([], [])
        await network.clock.advance(1)
        assert (answers, participant.hosts) == ([[0]], [ORDERS_0])

        await send(StateRow(BILLS_0))
        await settle()
        assert handled.calls_of(BILLS_0) == ["prepare 1.0", "lead 1.0"]
        assert participant.leadership(BILLS_0) is not None
        assert participant.leadership(ORDERS_0) is None
        assert handled.state() is HandlerState.PREPARING


async def test_newest_order_replaces_one_that_waits(network: Network, handled: Handled) -> None:
    async def hang(leader: object) -> None:
        with anyio.CancelScope(shield=True):
            await network.clock.sleep_ms(MARGIN_MS / 2)

    handled.scripts[ORDERS_0, "prepare"] = hang
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        for epoch, leader in ((7, 1), (8, 2), (9, 1)):
            tasks.start_soon(network.lead_and_follow, 1, LED.but(leader_epoch=epoch, leader=leader))
            await network.clock.advance(60)
        del handled.scripts[ORDERS_0, "prepare"]
        await network.clock.advance(MARGIN_MS)

        assert handled.calls_of() == ["prepare 1.7", "prepare 1.9", "lead 1.9"]


async def test_number_of_transitions_at_once_is_bounded(network: Network, handled: Handled) -> None:
    at_once, most = 0, 0

    async def slow(leader: object) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await network.clock.sleep_ms(10)
        at_once -= 1

    names = (ORDERS_0, ORDERS_1, BILLS_0)
    for name in names:
        handled.scripts[name, "prepare"] = slow
    async with (
        handled.running_participant(handlers_parallel=2),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(network.lead_and_follow, 1, *(StateRow(name) for name in names))
        await network.clock.advance(15)
        assert [handled.state(name) for name in names].count(HandlerState.LEADING) == 2
        await network.clock.advance(10)

        assert most == 2
        assert [handled.state(name) for name in names] == [HandlerState.LEADING] * 3


async def test_transition_that_is_replaced_while_it_waits_delays_no_other(network: Network, handled: Handled) -> None:
    prepared = anyio.Event()
    handled.scripts[ORDERS_0, "prepare"] = waiting_for(prepared)
    async with handled.running_participant(handlers_parallel=1), anyio.create_task_group() as tasks:
        for name in (ORDERS_0, BILLS_0, ORDERS_1):
            tasks.start_soon(network.lead_and_follow, 1, StateRow(name))
            await network.clock.advance(100)
        await network.lead_and_follow(1, StateRow(BILLS_0, leader=2, leader_epoch=1))
        before = handled.calls_of(ORDERS_1)
        prepared.set()
        await settle()

        assert handled.calls_of(BILLS_0) == ["follow 2 at 1"]
        assert before == []
        assert handled.calls_of(ORDERS_1) == ["prepare 1.0", "lead 1.0"]


async def test_deleted_replica_gets_a_new_handler(network: Network, handled: Handled) -> None:
    async with handled.running_participant():
        await network.lead_and_follow(1, LED)
        await settle()
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=8))
        await network.send(1, stop_replica(ORDERS_0, leader_epoch=9, delete=True))
        await settle()
        assert handled.state() is None
        await network.lead_and_follow(1, LED.but(leader_epoch=10))
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "stop", "delete", "prepare 1.10", "lead 1.10"]
        assert len(handled.handlers) == 2


async def test_deletion_is_not_cancelled_by_a_newer_order(network: Network, handled: Handled) -> None:
    async def slow(_: object) -> None:
        await network.clock.sleep_ms(200)
        handled.calls.append((ORDERS_0, "deleted"))

    handled.scripts[ORDERS_0, "stop"] = slow
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=1, delete=True))
        await network.clock.advance(60)
        tasks.start_soon(network.lead_and_follow, 1, LED)
        await network.clock.advance(300)

        assert handled.calls_of() == ["delete", "deleted", "prepare 1.7", "lead 1.7"]
        assert len(handled.handlers) == 2
        del handled.scripts[ORDERS_0, "stop"]  # nothing advances the clock while the participant stops


async def test_deletion_is_answered_after_the_leadership_and_before_a_slow_call_ends(
    network: Network, handled: Handled
) -> None:
    """The topic's name may be used again then, and another participant may lead it."""

    async def lead(_: object) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await network.clock.sleep_ms(100)

    handled.scripts[ORDERS_0, "lead"] = lead
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        (leader,) = handled.leaders
        leader.check()
        answered: list[bool] = []

        async def delete() -> None:
            await network.send(1, stop_replica(ORDERS_0, leader_epoch=8, delete=True))
            answered.append(leader.is_valid)

        tasks.start_soon(delete)
        await network.clock.advance(60)
        first = list(answered), handled.calls_of()
        await network.clock.advance(60)

    assert first == ([False], ["prepare 1.7", "lead 1.7"])
    assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "delete"]


async def test_deletion_that_waits_is_not_replaced_by_the_next_topic(network: Network, handled: Handled) -> None:
    async def lead(_: object) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await network.clock.sleep_ms(100)

    handled.scripts[ORDERS_0, "lead"] = lead
    async with handled.running_participant(), anyio.create_task_group() as tasks:
        await network.lead_and_follow(1, LED)
        await settle()
        del handled.scripts[ORDERS_0, "lead"]
        tasks.start_soon(network.send, 1, stop_replica(ORDERS_0, leader_epoch=8, delete=True))
        await network.clock.advance(30)
        tasks.start_soon(network.lead_and_follow, 1, StateRow(ORDERS_0, leader=1, leader_epoch=9))
        await network.clock.advance(300)

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "delete", "prepare 1.9", "lead 1.9"]
        assert len(handled.handlers) == 2


async def test_no_call_begins_beside_one_that_a_second_cancellation_has_left(
    network: Network, handled: Handled
) -> None:
    async def lead(_: object) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await network.clock.sleep_ms(100)

    async def main() -> None:
        async with handled.running_participant(shutdown_attempts=3):
            running.set()
            await anyio.sleep_forever()

    handled.scripts[ORDERS_0, "lead"] = lead
    running = anyio.Event()
    task = asyncio.create_task(main())
    await running.wait()
    await network.lead_and_follow(1, LED)
    await settle()
    for _ in range(2):  # the first one begins a controlled shutdown, to which no controller responds
        task.cancel()
        await settle()
    while not task.done():
        await network.clock.advance(1_000)

    assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "lost 1.7", "stop"]
    assert handled.running[ORDERS_0] == 0


@pytest.mark.parametrize("end", ["stop", "session", "kill"])
async def test_handlers_end_with_the_registration(network: Network, handled: Handled, end: str) -> None:
    async with handled.running_participant() as participant:
        await network.lead_and_follow(1, LED, StateRow(BILLS_0, leader=2))
        await settle()
        leader = participant.leadership(ORDERS_0)
        assert leader is not None

        if end == "stop":
            await participant.stop()
        elif end == "kill":
            await participant.kill()
        else:
            participant.pause()
            await network.clock.advance(2 * SESSION_MS)
            participant.resume()
            await network.clock.advance(1_000)

        assert not leader.is_valid
        assert handled.running == {ORDERS_0: 0, BILLS_0: 0}
        stops = [] if end == "kill" else ["stop"]
        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "lost 1.7", *stops]
        assert handled.calls_of(BILLS_0) == ["follow 2 at 0", *stops]


async def test_lapsed_leadership_begins_again_under_the_same_token(network: Network, handled: Handled) -> None:
    async with handled.running_participant() as participant:
        await network.lead_and_follow(1, LED)
        await settle()
        participant.pause()
        await network.clock.advance(SESSION_MS - 1)
        participant.resume()  # the lease has ended, and the session has not
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7", "lost 1.7", "prepare 1.7", "lead 1.7"]
        first, second = handled.leaders
        assert first.token == second.token
        assert not first.is_valid
        assert second.is_valid


async def test_leader_without_a_lease_waits_for_one(network: Network, handled: Handled) -> None:
    async with handled.running_participant() as participant:
        hosting = participant._hosting
        assert hosting is not None
        lease = hosting.lease
        hosting.lease_ended()
        assert await network.lead_and_follow(1, LED) == [0]
        await settle()
        assert handled.state() is HandlerState.WAITING
        assert handled.calls_of() == ["prepare 1.7"]

        hosting.lease_began(lease)
        await settle()

        assert handled.calls_of() == ["prepare 1.7", "lead 1.7"]


async def test_wait_closed_returns_when_the_participant_stops(handled: Handled) -> None:
    closed = anyio.Event()

    async def wait(participant: Participant) -> None:
        await participant.wait_closed()
        closed.set()

    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:
        tasks.start_soon(wait, participant)
        await settle()
        assert not closed.is_set()
        await participant.stop()
        await settle()

        assert closed.is_set()


async def test_handler_excludes_a_listener(network: Network) -> None:
    with pytest.raises(BadRequest, match="not both"):
        Participant(1, store=network.store, hub=network.hub, handler=PartitionHandler, listener=Listener())


async def test_leadership_continues_when_lead_returns(network: Network) -> None:
    """PartitionHandler.lead itself returns at once."""
    participant = Participant(
        1, store=network.store, hub=network.hub, clock=network.clock, handler=PartitionHandler, shutdown_attempts=0
    )
    async with participant:
        await network.lead_and_follow(1, LED)
        await network.clock.advance(100)
        leader = participant.leadership(ORDERS_0)
        await network.clock.advance(10 * SESSION_MS)

        assert leader is not None
        leader.check()


async def test_watchdog_watches_while_the_code_of_a_leader_runs(network: Network, handled: Handled) -> None:
    async def lead(leader: object) -> None:
        with anyio.CancelScope(shield=True):
            await network.clock.sleep_ms(1_000)

    handled.scripts[ORDERS_0, "lead"] = lead
    async with handled.running_participant() as participant, anyio.create_task_group() as tasks:
        assert participant._hosting is not None
        watchdog = participant._hosting.watchdog
        await network.lead_and_follow(1, LED)
        await settle()
        watched = [watchdog.leading]
        tasks.start_soon(network.lead_and_follow, 1, LED.but(leader=2, leader_epoch=8))
        for delay_ms in (900, 100):
            await network.clock.advance(delay_ms)
            watched.append(watchdog.leading)

        assert watched == [1, 1, 0]


async def test_leader_that_cannot_be_watched_is_not_ready(network: Network, handled: Handled, tmp_path: Path) -> None:
    lease = LeaseConfig(watchdog=str(tmp_path / "watchdog"))
    async with handled.running_participant(lease=lease) as participant:
        await network.lead_and_follow(1, LED)
        await settle()

        assert "lead 1.7" not in handled.calls_of()
        assert participant.leadership(ORDERS_0) is None
        assert handled.reports == [(ORDERS_0, ReplicaStatus.NOT_READY)]
