"""What waits in an inbox: in which lane, and who goes before whom."""

import pytest

from kactl.actors.actor import OVERTAKEN_MAX, Inbox

pytestmark = pytest.mark.anyio


class Ticks:
    """A time that somebody moves."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


def inbox_of(*messages: str, now: Ticks | None = None) -> Inbox[str]:
    """The first letter says in which lane a message stands: "0a", "1b"."""
    made: Inbox[str] = Inbox("test", now=now or Ticks(), lane=lambda message: int(message[0]))
    for message in messages:
        made.put(message)
    return made


async def taken(inbox: Inbox[str]) -> list[str]:
    return [(await inbox.take())[0] for _ in range(len(inbox))]


async def test_who_reads_from_all_lanes_finds_the_order_kept() -> None:
    assert await taken(inbox_of("0a", "2b", "0c", "0d", "2e")) == ["0a", "2b", "0c", "0d", "2e"]
    assert await taken(inbox_of("0a", "1b", "0c", "1d")) == ["0a", "1b", "0c", "1d"]


async def test_what_somebody_waits_for_goes_before_what_nobody_waits_for_and_before_nothing_else() -> None:
    assert await taken(inbox_of("1a", "1b", "0c", "2d", "2e")) == ["2d", "2e", "1a", "1b", "0c"]
    assert await taken(inbox_of("0a", "1b", "2c", "0d")) == ["0a", "2c", "1b", "0d"]


async def test_nothing_is_overtaken_for_ever() -> None:
    inbox = inbox_of("1a", "1b")
    order = []
    for number in range(3 * OVERTAKEN_MAX):
        inbox.put(f"2{number}")
        order.append((await inbox.take())[0])

    assert order.index("1a") == OVERTAKEN_MAX
    assert order.index("1b") == 2 * OVERTAKEN_MAX + 1


async def test_some_lanes_can_be_read_before_others() -> None:
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


async def test_what_is_drained_and_looked_at_stands_in_the_order_in_which_it_came() -> None:
    inbox = inbox_of("1a", "0b", "2c", "0d")

    assert [message for message, _, _ in inbox.waiting()] == ["1a", "0b", "2c", "0d"]
    assert len(inbox) == 4
    assert [message for message, _ in inbox.drain()] == ["1a", "0b", "2c", "0d"]
    assert len(inbox) == 0
    assert inbox.oldest_ms == 0.0


async def test_what_was_put_once_may_be_put_again_when_it_was_taken_from_its_lane() -> None:
    inbox = inbox_of()
    inbox.put_once("2a")
    inbox.put_once("2a")
    assert inbox.take_from(2) == ("2a", None)
    inbox.put_once("2a")

    assert len(inbox) == 1
