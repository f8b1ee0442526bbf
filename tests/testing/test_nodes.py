"""Simulated processes: pause, slow, kill, stop, clocks."""

import asyncio
import gc
import warnings

import anyio
import pytest

from kactl.testing import LoopClock, Node, NodeClock, Schedule, on, sim
from kactl.testing.history import History
from kactl.testing.links import Links
from tests.sim.engine.member import Member

from .running import this_loop


async def beat(times: list[float]) -> None:
    """Append the time each second."""
    while True:
        await asyncio.sleep(1)
        times.append(round(this_loop().now_s, 6))


def test_timers_and_jobs_of_a_paused_node_wait_for_its_resumption() -> None:
    async def main() -> list[tuple[float, str]]:
        loop, node, events = this_loop(), this_loop().node("n1"), list[tuple[float, str]]()

        def note(name: str) -> None:
            events.append((loop.now_s, name))

        async def program() -> None:
            for delay_s in (2, 1):
                loop.call_later(delay_s, note, f"timer {delay_s}")
            await asyncio.sleep(1.5)
            await asyncio.to_thread(note, "job")

        loop.start(node, program())
        await asyncio.sleep(0.5)
        loop.pause(node)
        await asyncio.sleep(9.5)
        loop.resume(node)
        await asyncio.sleep(1)
        return events

    events = sim.run(main, schedule=Schedule("fifo"))

    assert [name for _, name in events] == ["timer 1", "timer 2", "job"]
    assert [at_s for at_s, _ in events[:2]] == [10.0, 10.0]


def test_killed_node_runs_no_code_again() -> None:
    ended: list[str] = []

    async def main() -> None:
        loop, node = this_loop(), this_loop().node("n1")

        async def program() -> None:
            try:
                loop.call_later(1, ended.append, "timer")
                await asyncio.sleep(1)
            except BaseException:
                ended.append("except")
                raise
            finally:
                ended.append("finally")

        loop.start(node, program())
        await asyncio.sleep(0.5)
        loop.kill(node)
        await asyncio.sleep(10)
        assert ended == []

    sim.run(main)


def test_clean_up_of_a_killed_node_reaches_nothing() -> None:
    """Its coroutines are closed after the run; a `finally` that sends something is cut off at the loop."""
    sent: list[str] = []

    async def main() -> None:
        loop, node = this_loop(), this_loop().node("n1")

        async def program() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                loop.call_soon(sent.append, "call_soon")
                sent.append("after call_soon")
                await asyncio.sleep(0)
                sent.append("after await")

        loop.start(node, program())
        await asyncio.sleep(1)
        loop.kill(node)

    sim.run(main)

    assert sent == []


def test_a_thousand_killed_nodes_leave_no_memory() -> None:
    async def main() -> None:
        loop = this_loop()

        async def program() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(beat, [])

        for number in range(1000):
            node = loop.node(f"killed-{number}")
            loop.start(node, program())
            await asyncio.sleep(2)
            loop.kill(node)

    sim.run(main, schedule=Schedule("fifo"))
    gc.collect()
    # Other runs of this process may have left nodes.
    alive = [item for item in gc.get_objects() if isinstance(item, Node) and item.name.startswith("killed-")]

    assert alive == []


def test_stopped_node_cleans_up() -> None:
    ended: list[str] = []

    async def main() -> None:
        node = this_loop().node("n1")

        async def program() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(1)
                ended.append("finally")

        this_loop().start(node, program())
        await asyncio.sleep(1)
        this_loop().stop_node(node)
        await asyncio.sleep(5)

    sim.run(main)

    assert ended == ["finally"]


def test_stop_ends_no_later_process() -> None:
    """The process was paused as it was to stop, and killed. Its time to stop passes after the next one has started."""

    async def main() -> list[tuple[str, int, float]]:
        loop = this_loop()
        history = History(lambda: loop.now_s)

        async def program(node: Node) -> None:
            await asyncio.sleep(100)

        member = Member(loop, history, "n1", program)
        member.start()
        await asyncio.sleep(1)
        member.pause()
        stopping = loop.create_task(member.stop(timeout_s=30))
        await asyncio.sleep(1)
        member.kill()
        member.start()
        await stopping
        assert member.is_running
        await asyncio.sleep(1)
        await member.stop()
        return [(event.kind, event.fields["incarnation"], event.time_ms) for event in history.events]

    assert sim.run(main) == [
        ("node.start", 1, 0.0), ("node.crash", 1, 2.0), ("node.start", 2, 2.0), ("node.crash", 2, 32.0),
    ]  # fmt: skip


def test_callbacks_do_not_overtake_those_from_before_full_speed() -> None:
    async def main() -> list[int]:
        loop, calls = this_loop(), list[int]()
        node = loop.node("slow")

        def spin() -> None:
            """Repeats itself until the earlier callback has run, as the delivery of a cancellation does."""
            if calls:
                calls.append(2)
            else:
                loop.call_soon(spin)

        loop.slow(node, 100)
        with on(node):
            loop.call_soon(calls.append, 1)
        await asyncio.sleep(0)
        loop.slow(node, 0)
        with on(node):
            loop.call_soon(spin)
        await asyncio.sleep(1)
        return calls

    assert sim.run(main, seed=1) == [1, 2]


def test_slow_node_delays_each_callback_and_keeps_their_order() -> None:
    async def main() -> tuple[list[int], float]:
        loop, node, ran, ended = this_loop(), this_loop().node("n1"), list[int](), asyncio.Event()
        with on(node):
            loop.slow(node, 100)
            for number in range(20):
                loop.call_soon(ran.append, number)
            loop.call_soon(ended.set)
        started_s = loop.now_s
        await ended.wait()
        return ran, loop.now_s - started_s

    ran, took_s = sim.run(main, seed=5)

    assert ran == list(range(20))
    assert 0.3 < took_s < 2.0


def test_tasks_and_timers_inherit_the_node() -> None:
    async def main() -> tuple[list[float], list[float]]:
        loop = this_loop()
        paused, running = loop.node("n1"), loop.node("n2")
        of_paused: list[float] = []
        of_running: list[float] = []

        async def parent(times: list[float]) -> None:
            await asyncio.gather(beat(times), asyncio.sleep(100))

        loop.start(paused, parent(of_paused))
        loop.start(running, parent(of_running))
        await asyncio.sleep(2.5)
        loop.pause(paused)
        await asyncio.sleep(3)
        return of_paused, of_running

    of_paused, of_running = sim.run(main, schedule=Schedule("fifo"))

    assert of_paused == [1.0, 2.0]
    assert of_running == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_fast_clock_shortens_the_timeouts_of_its_node_only() -> None:
    async def main() -> tuple[list[float], list[float]]:
        loop = this_loop()
        fast, exact = loop.node("fast"), loop.node("exact")
        fast.clock.set_rate(1.1, loop.now_s)
        of_fast: list[float] = []
        of_exact: list[float] = []
        loop.start(fast, beat(of_fast))
        loop.start(exact, beat(of_exact))
        await asyncio.sleep(11.5)
        return of_fast, of_exact

    of_fast, of_exact = sim.run(main, schedule=Schedule("fifo"))

    assert len(of_fast) == 12
    assert len(of_exact) == 11
    assert of_fast[10] == pytest.approx(10.0)


def test_wall_clock_jumps_without_moving_any_timer() -> None:
    async def main() -> tuple[int, float]:
        loop, node, clock = this_loop(), this_loop().node("n1"), LoopClock()
        readings: list[int] = []

        async def program() -> None:
            readings.append(clock.now_ms())
            await clock.sleep_ms(1000)
            readings.append(clock.now_ms())

        task = loop.start(node, program())
        await asyncio.sleep(0.5)
        node.clock.wall_offset_ms = -3_600_000
        await task
        return readings[1] - readings[0], loop.now_s

    assert sim.run(main, schedule=Schedule("fifo")) == (1000 - 3_600_000, 1.0)


def test_node_clock_is_continuous_when_its_rate_changes() -> None:
    clock = NodeClock()
    clock.set_rate(1.1, 10.0)
    before = clock.of(20.0)
    clock.set_rate(0.9, 20.0)

    assert clock.of(20.0) == pytest.approx(before)
    assert clock.of(30.0) == pytest.approx(before + 9)
    assert clock.to_loop(clock.of(25.0)) == pytest.approx(25.0)


def test_rate_outside_of_real_clocks_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"outside 0\.9 to 1\.1"):
        NodeClock().set_rate(1.2, 0.0)


@pytest.mark.parametrize("rate", [0.9, 0.97, 1.0, 1.03, 1.1])
def test_no_timer_fires_before_its_time_on_the_clock_of_its_node(rate: float) -> None:
    clock = NodeClock()
    clock.set_rate(rate, 8.623)

    early = [due for due in range(10_000) if clock.of(clock.to_loop(9 + due / 7)) < 9 + due / 7]

    assert early == []


def test_timers_of_a_suspended_machine_are_late_and_its_clock_for_leases_is_not() -> None:
    async def main() -> tuple[list[tuple[float, str]], float, float]:
        loop, node, events = this_loop(), this_loop().node("n1"), list[tuple[float, str]]()
        clock = LoopClock()

        async def program() -> None:
            loop.call_later(2, lambda: events.append((loop.now_s, "due meanwhile")))
            loop.call_later(20, lambda: events.append((loop.now_s, "due later")))
            await asyncio.sleep(40)

        task = loop.start(node, program())
        links = Links(loop)
        await asyncio.sleep(1)
        loop.suspend(node)
        links.call_at(5.0, lambda: events.append((loop.now_s, "message")), on=node)
        await asyncio.sleep(10)
        with on(node):
            assert (clock.monotonic_ms(), clock.lease_ns()) == (1_000, 11_000_000_000)
        loop.resume(node)
        await task
        with on(node):
            return events, clock.monotonic_ms(), clock.lease_ns() / 1_000_000

    events, monotonic_ms, lease_ms = sim.run(main)

    assert events == [(11.0, "message"), (12.0, "due meanwhile"), (30.0, "due later")]
    assert (round(monotonic_ms), round(lease_ms)) == (40_000, 50_000)


def test_rate_that_changes_during_a_suspension_counts_from_then_on() -> None:
    clock = NodeClock()
    clock.suspend(10.0)
    clock.set_rate(1.1, 20.0)

    assert clock.of(30.0) == 10.0
    assert clock.ahead_s(30.0) == pytest.approx(21.0)

    clock.wake(30.0)
    assert clock.of(40.0) == pytest.approx(21.0)
    assert clock.ahead_s(40.0) == pytest.approx(21.0)


def test_killed_node_leaves_no_warning_of_a_task_that_never_began() -> None:
    kept: list[object] = []

    async def late() -> None:
        raise AssertionError("it began")

    async def main() -> None:
        loop, node = this_loop(), this_loop().node("n1")

        async def program() -> None:
            async with anyio.create_task_group() as tasks:
                coroutine = late()
                kept.append(coroutine)
                tasks.start_soon(lambda: coroutine)
                loop.kill(node)
                await asyncio.sleep(1)

        loop.start(node, program())
        await asyncio.sleep(2)

    sim.run(main, schedule=Schedule("fifo"))
    with warnings.catch_warnings(record=True) as seen:
        kept.clear()
        gc.collect()

    assert seen == []
