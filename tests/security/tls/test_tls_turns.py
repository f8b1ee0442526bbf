"""Turns of TLS connections: so much in each iteration of the loop, in order, and none is forgotten."""

import asyncio
from collections.abc import Callable

import pytest

from kactl.security.tls.tls_turns import SLICE_S, Turns

pytestmark = pytest.mark.anyio


class Observed:
    """Turns of steps with given durations.

    Attributes:
        done: the iteration of the loop in which each step was carried out, from 0, in order.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.done: list[tuple[int, str]] = []
        self.iteration = 0
        self.turns = Turns(lambda: self.now_s)

    def take(self, name: str, taken_s: float, then: Callable[[], object] = lambda: None) -> bool:
        def step() -> None:
            self.now_s += taken_s
            self.done.append((self.iteration, name))
            then()

        return self.turns.take(step)

    async def next(self) -> None:
        """Continue in the next iteration, after its turns."""
        self.iteration += 1
        await asyncio.sleep(0)

    async def until(self, count: int) -> None:
        while len(self.done) < count:
            assert self.iteration < 100
            await self.next()


async def test_steps_of_one_slice_are_carried_out_at_once() -> None:
    turns = Observed()
    for number in range(3):
        assert turns.take(f"{number}", SLICE_S / 4)
    assert [name for _, name in turns.done] == ["0", "1", "2"]


async def test_steps_beyond_a_slice_wait_in_order() -> None:
    turns = Observed()
    at_once = [turns.take(f"{number}", SLICE_S / 2) for number in range(7)]
    await turns.until(7)

    assert at_once == [True, True, False, False, False, False, False]
    iterations = [iteration for iteration, _ in turns.done]
    assert [name for _, name in turns.done] == [f"{number}" for number in range(7)]
    assert max(map(iterations.count, iterations)) == 2
    assert len(set(iterations)) == 4


async def test_long_step_is_alone_in_its_iteration() -> None:
    turns = Observed()
    for number in range(3):
        turns.take(f"{number}", 10 * SLICE_S)
    await turns.until(3)

    assert len({iteration for iteration, _ in turns.done}) == 3


async def test_new_step_does_not_precede_those_that_wait() -> None:
    turns = Observed()
    turns.take("first", SLICE_S)
    turns.take("waits", 0.0, then=lambda: turns.take("made by it", 0.0))
    assert not turns.take("waits too", 0.0)
    await turns.until(4)

    assert [name for _, name in turns.done] == ["first", "waits", "waits too", "made by it"]


async def test_slice_of_the_next_iteration_is_whole() -> None:
    turns = Observed()
    assert turns.take("first", SLICE_S)
    assert not turns.take("waits", 0.0)
    await turns.until(2)
    await turns.next()

    assert turns.take("later", SLICE_S / 2)
    assert turns.take("at once", SLICE_S / 2)


async def test_steps_after_one_that_raises_are_carried_out() -> None:
    turns, errors = Observed(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))

    turns.take("first", SLICE_S)
    turns.take("raises", 0.0, then=lambda: 1 / 0)
    turns.take("last", 0.0)
    await turns.until(3)

    assert [name for _, name in turns.done] == ["first", "raises", "last"]
    assert [type(error) for error in errors] == [ZeroDivisionError]


async def test_nothing_is_scheduled_without_steps() -> None:
    turns = Observed()
    turns.take("first", 0.0)
    await turns.next()

    assert not turns.turns._is_scheduled
