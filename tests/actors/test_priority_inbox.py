"""Order, lanes and bounds of the controller's inbox."""

import pytest

from kactl.actors.priority_inbox import OVERTAKEN_MAX, PriorityInbox

pytestmark = pytest.mark.anyio


class Ticks:
    """Clock set by the test."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


def inbox_of(*messages: str, now: Ticks | None = None) -> PriorityInbox[str]:
    """The first character of a message is its lane: "0a", "1b"."""
    made: PriorityInbox[str] = PriorityInbox("test", now=now or Ticks(), lane=lambda message: int(message[0]))
    for message in messages:
        made.put(message)
    return made


async def taken(inbox: PriorityInbox[str]) -> list[str]:
    return [(await inbox.take())[0] for _ in range(len(inbox))]


async def test_lanes_keep_their_common_order() -> None:
    assert await taken(inbox_of("0a", "2b", "0c", "0d", "2e")) == ["0a", "2b", "0c", "0d", "2e"]
    assert await taken(inbox_of("0a", "1b", "0c", "1d")) == ["0a", "1b", "0c", "1d"]


async def test_lane_2_passes_lane_1_only() -> None:
    assert await taken(inbox_of("1a", "1b", "0c", "2d", "2e")) == ["2d", "2e", "1a", "1b", "0c"]
    assert await taken(inbox_of("0a", "1b", "2c", "0d")) == ["0a", "2c", "1b", "0d"]


async def test_a_message_is_passed_a_bounded_number_of_times() -> None:
    inbox = inbox_of("1a", "1b")
    order = []
    for number in range(3 * OVERTAKEN_MAX):
        inbox.put(f"2{number}")
        order.append((await inbox.take())[0])

    assert order.index("1a") == OVERTAKEN_MAX
    assert order.index("1b") == 2 * OVERTAKEN_MAX + 1


async def test_messages_are_taken_from_given_lanes() -> None:
    now = Ticks()
    inbox = inbox_of("0a", "1b", "2c", "1d", now=now)
    now.ms = 30.0

    assert [entry.message for entry in inbox.in_lane(1)] == ["1b", "1d"]
    assert inbox.oldest_ms_in(1) == 30.0
    assert inbox.take_from(2, 1) == ("2c", None)
    assert inbox.waited_ms == 30.0
    assert inbox.take_from(2, 1) == ("1b", None)
    assert inbox.take_from(2) is None
    assert inbox.oldest_ms_in(2) == 0.0
    assert [message for message, _, _ in inbox.waiting()] == ["0a", "1d"]


async def test_drained_messages_keep_their_order() -> None:
    inbox = inbox_of("1a", "0b", "2c", "0d")

    assert [message for message, _, _ in inbox.waiting()] == ["1a", "0b", "2c", "0d"]
    assert len(inbox) == 4
    assert [entry.message for entry in inbox.drain()] == ["1a", "0b", "2c", "0d"]
    assert len(inbox) == 0
    assert inbox.oldest_ms == 0.0


async def test_message_taken_from_its_lane_can_be_queued_again() -> None:
    inbox = inbox_of()
    inbox.put_once("2a")
    inbox.put_once("2a")
    assert inbox.take_from(2) == ("2a", None)
    inbox.put_once("2a")

    assert len(inbox) == 1


async def test_equal_message_is_queued_once_until_it_is_taken() -> None:
    inbox = inbox_of()
    for message in ("0a", "0a", "0b", "0a"):
        inbox.put_once(message)

    assert [entry.message for entry in inbox.drain()] == ["0a", "0b"]

    inbox.put_once("0a")
    assert await inbox.take() == ("0a", None)
    # The data it refers to may have been read when it was taken: the next one is queued.
    inbox.put_once("0a")
    assert len(inbox) == 1
