"""Handlers that fail and are called again, at the same participant first and without an end."""

import itertools
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from kactl.model import ReplicaStatus, TopicPartition
from kactl.participant.handlers import handler_failures
from kactl.participant.handlers.handler_failures import PAUSE_MS_MAX, PAUSE_MS_MIN, PAUSE_SPREAD, pause_ms
from kactl.participant.handlers.orders import HandlerState
from tests.participant.conftest import Network
from tests.support.clocks import settle
from tests.support.control_requests import BILLS_0, ORDERS_0, StateRow, stop_replica

from .conftest import Handled
from .scripts import FAILED, LED, READY, raising

pytestmark = pytest.mark.anyio

RETRYING = ReplicaStatus.RETRYING


@pytest.fixture
def patient(handled: Handled, monkeypatch: pytest.MonkeyPatch) -> Handled:
    """A participant whose handlers are called again as in production, without jitter."""
    monkeypatch.setattr(handler_failures, "TRIES_HERE", 3)
    return handled


def failing(times: int) -> Any:
    """Returns a call that raises the first times."""
    left = iter(range(times))

    async def call(_: object) -> None:
        if next(left, None) is not None:
            raise ConnectionRefusedError("database is not reachable")
        await anyio.sleep_forever()

    return call


@pytest.mark.parametrize("call", ["prepare", "lead", "follow"])
async def test_call_that_raises_is_made_again_at_the_same_participant(
    network: Network, patient: Handled, call: str
) -> None:
    patient.scripts[ORDERS_0, call] = failing(2) if call != "prepare" else raising(OSError("disk full"))
    async with patient.running_participant() as participant:
        row = LED.but(leader=2) if call == "follow" else LED
        assert await network.lead_and_follow(1, row, StateRow(BILLS_0)) == [0, 0]
        await settle()
        assert patient.state() is HandlerState.BACKING_OFF
        assert participant.leadership(BILLS_0) is not None  # no other partition is affected
        await network.clock.advance(1_000)
        patient.scripts.pop((ORDERS_0, "prepare"), None)
        await network.clock.advance(1_000)
        assert READY not in patient.statuses
        await network.clock.advance(1_000)

        assert patient.statuses == [RETRYING, RETRYING, READY]
        assert patient.state() is (HandlerState.FOLLOWING if call == "follow" else HandlerState.LEADING)
        assert patient.calls_of()[-1] == ("follow 2 at 7" if call == "follow" else "lead 1.7")  # the same token


async def test_third_failure_in_a_row_lets_another_replica_try(network: Network, patient: Handled) -> None:
    patient.scripts[ORDERS_0, "lead"] = failing(5)
    async with patient.running_participant():
        await network.lead_and_follow(1, LED)
        await network.clock.advance(2_000)
        assert patient.statuses == [RETRYING, RETRYING, FAILED]
        report = patient.last_report
        assert report is not None
        assert (report.failures, report.next_ms, report.detail) == (3, 1_000.0, "lead: database is not reachable")
        await network.clock.advance(1_000)
        assert patient.statuses[-1] is READY
        await network.lead_and_follow(1, LED.but(leader_epoch=8))
        await network.clock.advance(4_000)

        assert patient.statuses[4:] == [RETRYING, RETRYING, READY]
        assert patient.state() is HandlerState.LEADING


async def test_handler_that_cannot_be_made_is_made_again(network: Network, patient: Handled) -> None:
    async with patient.running_participant() as participant:
        make, failures = patient.hosting._make, iter(range(2))

        def fail(name: TopicPartition) -> Any:
            if next(failures, None) is not None:
                raise OSError("no such file")
            return make(name)

        patient.make_by(fail)
        await network.lead_and_follow(1, LED)
        await network.clock.advance(2_000)

        assert participant.leadership(ORDERS_0) is not None


async def test_handler_that_fails_for_hours_works_when_the_cause_is_gone(network: Network, patient: Handled) -> None:
    """The controller orders it to lead whenever it is ready, as it does for the only replica in sync."""
    patient.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
    async with patient.running_participant() as participant:
        await network.lead_and_follow(1, LED)
        epochs: Iterator[int] = itertools.count(8)
        for _ in range(600):
            await network.clock.advance(6_000)
            if patient.state() is HandlerState.IDLE:
                await network.lead_and_follow(1, LED.but(leader_epoch=next(epochs)))
        del patient.scripts[ORDERS_0, "lead"]
        for _ in range(11):
            await network.clock.advance(6_000)
            if patient.state() is HandlerState.IDLE:
                await network.lead_and_follow(1, LED.but(leader_epoch=next(epochs)))

        assert participant.leadership(ORDERS_0) is not None


async def test_reset_ends_the_pause_before_the_next_try(network: Network, patient: Handled) -> None:
    patient.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
    async with patient.running_participant() as participant:
        await network.lead_and_follow(1, LED)
        await settle()
        del patient.scripts[ORDERS_0, "lead"]
        await participant.reset(ORDERS_0)
        await settle()

        assert participant.leadership(ORDERS_0) is not None


@pytest.mark.parametrize("order", ["stop", "follow"])
async def test_other_order_ends_the_pause_before_the_next_try(network: Network, patient: Handled, order: str) -> None:
    patient.scripts[ORDERS_0, "lead"] = raising(OSError("disk full"))
    async with patient.running_participant():
        await network.lead_and_follow(1, LED)
        await settle()
        if order == "stop":
            await network.send(1, stop_replica(ORDERS_0, leader_epoch=8))
        else:
            await network.lead_and_follow(1, LED.but(leader=2, leader_epoch=8))
        await settle()

        assert patient.calls_of()[-1] == ("stop" if order == "stop" else "follow 2 at 8")
        assert patient.statuses == [RETRYING, READY]


async def test_call_that_has_run_for_long_is_no_failure_in_a_row(network: Network, patient: Handled) -> None:
    async def lead(_: object) -> None:
        await patient.clock.sleep_ms(61_000)
        raise OSError("disk full")

    patient.scripts[ORDERS_0, "lead"] = lead
    async with patient.running_participant():
        await network.lead_and_follow(1, LED)
        for _ in range(5 * 62):
            await network.clock.advance(1_000)

        assert FAILED not in patient.statuses
        assert patient.statuses.count(RETRYING) >= 4


def test_pauses_last_from_a_second_to_a_minute_and_cost_a_part_of_the_outage() -> None:
    paused = 0.0
    for count in range(1, 100):
        pause = pause_ms(ORDERS_0, count, paused)
        assert PAUSE_MS_MIN <= pause <= PAUSE_MS_MAX
        assert pause <= PAUSE_MS_MIN * (1 + PAUSE_SPREAD) or pause <= paused / 6
        paused += pause

    assert pause == PAUSE_MS_MAX


def test_partitions_that_fail_at_once_are_not_tried_again_at_once() -> None:
    pauses = {pause_ms(TopicPartition("shards", number), 1, 0.0) for number in range(100)}

    assert len(pauses) == 100
