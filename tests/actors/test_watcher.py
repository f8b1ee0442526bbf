"""Store notifications reach the controller once, and are ignored after it has stopped."""

import logging
from unittest.mock import MagicMock

import pytest

from kactl.actors.channel import SendGate
from kactl.actors.priority_inbox import PriorityInbox
from kactl.actors.watcher import Watcher
from kactl.decide.messages.events import BrokerChange, Event, Expire, PartitionModifications
from kactl.stores.base import Changed, StoreEvent

pytestmark = pytest.mark.anyio


def inbox_of_controller() -> PriorityInbox[Event]:
    return PriorityInbox("controller", now=lambda: 0.0, lane=lambda event: event.priority)


def queued_messages(inbox: PriorityInbox[Event]) -> list[Event]:
    return [entry.message for entry in inbox.drain()]


async def test_waiting_event_is_not_queued_again() -> None:
    inbox: PriorityInbox[Event] = inbox_of_controller()
    watcher = Watcher(inbox, inbox.put, SendGate())

    for change in (StoreEvent(Changed.BROKERS), StoreEvent(Changed.TOPIC, "orders"), StoreEvent(Changed.BROKERS)):
        watcher(change)

    assert queued_messages(inbox) == [BrokerChange(), PartitionModifications("orders")]


async def test_lost_session_clears_the_inbox() -> None:
    inbox: PriorityInbox[Event] = inbox_of_controller()
    cleared: list[Event] = []
    watcher = Watcher(inbox, cleared.append, SendGate())
    watcher(StoreEvent(Changed.BROKERS))

    watcher(StoreEvent(Changed.SESSION_LOST))

    assert cleared == [Expire()]


async def test_change_after_the_controller_has_stopped_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    inbox: PriorityInbox[Event] = inbox_of_controller()
    watcher = Watcher(inbox, inbox.put, SendGate())
    inbox.close()

    with caplog.at_level(logging.INFO):
        watcher(StoreEvent(Changed.CONTROLLER_GONE))
        watcher(StoreEvent(Changed.SESSION_LOST))

    assert caplog.records == []


async def test_send_gate_is_paused_while_the_session_is_suspended_or_over() -> None:
    inbox: PriorityInbox[Event] = inbox_of_controller()
    gate = SendGate()
    watcher = Watcher(inbox, inbox.put, gate)
    stood = []

    for what in (Changed.SUSPENDED, Changed.CONNECTED, Changed.SESSION_LOST, Changed.SESSION_OPENED):
        watcher(StoreEvent(what))
        stood.append(gate.is_open)

    assert stood == [False, True, False, False], "after a loss the controllership is given up first"


@pytest.mark.parametrize("what", Changed)
async def test_each_kind_of_change_has_an_effect(what: Changed) -> None:
    inbox, calls = MagicMock(), MagicMock()
    watcher = Watcher(inbox, clear_and_put=calls.clear_and_put, gate=calls.gate, configs=lambda _: None)

    watcher(StoreEvent(what, {Changed.BROKER: "1", Changed.LEADERSHIP: "orders-0"}.get(what, "orders")))

    assert inbox.mock_calls or calls.mock_calls
