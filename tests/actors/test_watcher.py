"""What the store saw change reaches the controller once, and troubles nobody when there is no controller any more."""

import logging

import pytest

from kactl.actors.actor import Inbox
from kactl.actors.watcher import Watcher
from kactl.events import BrokersChanged, Event, SessionLost, TopicModified
from kactl.store import Changed, StoreEvent

pytestmark = pytest.mark.anyio


def waiting(inbox: Inbox[Event]) -> list[Event]:
    return [message for message, _ in inbox.drain()]


async def test_what_waits_already_is_not_said_again() -> None:
    inbox: Inbox[Event] = Inbox("controller")
    watcher = Watcher(inbox, inbox.put)

    for change in (StoreEvent(Changed.BROKERS), StoreEvent(Changed.TOPIC, "orders"), StoreEvent(Changed.BROKERS)):
        watcher(change)

    assert waiting(inbox) == [BrokersChanged(), TopicModified("orders")]


async def test_the_end_of_the_session_goes_before_everything() -> None:
    inbox: Inbox[Event] = Inbox("controller")
    cleared: list[Event] = []
    watcher = Watcher(inbox, cleared.append)
    watcher(StoreEvent(Changed.BROKERS))

    watcher(StoreEvent(Changed.SESSION_LOST))

    assert cleared == [SessionLost()]


async def test_what_changes_after_the_controller_has_stopped_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    inbox: Inbox[Event] = Inbox("controller")
    watcher = Watcher(inbox, inbox.put)
    inbox.close()

    with caplog.at_level(logging.INFO):
        watcher(StoreEvent(Changed.CONTROLLER_GONE))
        watcher(StoreEvent(Changed.SESSION_LOST))

    assert caplog.records == []
