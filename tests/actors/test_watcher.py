"""What the store saw change reaches the controller once, and troubles nobody when there is no controller any more."""

import logging

import pytest

from kactl.actors.actor import Inbox
from kactl.actors.send_gate import SendGate
from kactl.actors.watcher import Watcher
from kactl.messages.events import BrokersChanged, Event, SessionLost, TopicModified
from kactl.stores.base import Changed, StoreEvent

pytestmark = pytest.mark.anyio


def waiting(inbox: Inbox[Event]) -> list[Event]:
    return [message for message, _ in inbox.drain()]


async def test_what_waits_already_is_not_said_again() -> None:
    inbox: Inbox[Event] = Inbox("controller")
    watcher = Watcher(inbox, inbox.put, SendGate())

    for change in (StoreEvent(Changed.BROKERS), StoreEvent(Changed.TOPIC, "orders"), StoreEvent(Changed.BROKERS)):
        watcher(change)

    assert waiting(inbox) == [BrokersChanged(), TopicModified("orders")]


async def test_the_end_of_the_session_goes_before_everything() -> None:
    inbox: Inbox[Event] = Inbox("controller")
    cleared: list[Event] = []
    watcher = Watcher(inbox, cleared.append, SendGate())
    watcher(StoreEvent(Changed.BROKERS))

    watcher(StoreEvent(Changed.SESSION_LOST))

    assert cleared == [SessionLost()]


async def test_what_changes_after_the_controller_has_stopped_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    inbox: Inbox[Event] = Inbox("controller")
    watcher = Watcher(inbox, inbox.put, SendGate())
    inbox.close()

    with caplog.at_level(logging.INFO):
        watcher(StoreEvent(Changed.CONTROLLER_GONE))
        watcher(StoreEvent(Changed.SESSION_LOST))

    assert caplog.records == []


async def test_while_the_session_is_in_doubt_or_over_the_gate_is_shut() -> None:
    inbox: Inbox[Event] = Inbox("controller")
    gate = SendGate()
    watcher = Watcher(inbox, inbox.put, gate)
    stood = []

    for what in (Changed.SUSPENDED, Changed.CONNECTED, Changed.SESSION_LOST, Changed.SESSION_OPENED):
        watcher(StoreEvent(what))
        stood.append(gate.is_open)

    assert stood == [False, True, False, False], "after a loss the controllership is given up first"
