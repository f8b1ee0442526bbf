"""Simulated loop: virtual time, order of steps, stop conditions, executors."""

import asyncio
import concurrent.futures
import itertools
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.to_thread
import pytest

from kactl.testing import Deadlock, Livelock, RealWorld, Schedule, SimLoop, StepLimit, sim
from kactl.testing import loop as loop_module

from .running import this_loop

SCHEDULES = [Schedule("fifo"), Schedule("shuffle", hold_back=0.25), Schedule("priority", changes=2)]
EACH_SCHEDULE = pytest.mark.parametrize("schedule", SCHEDULES, ids=[schedule.strategy for schedule in SCHEDULES])


@EACH_SCHEDULE
def test_time_jumps_exactly_to_each_timer(schedule: Schedule) -> None:
    async def main() -> list[float]:
        times = [this_loop().time()]
        for delay_s in (0.1, 3600.0, 86_400.0):
            await asyncio.sleep(delay_s)
            times.append(this_loop().time())
        return times

    assert sim.run(main, schedule=schedule) == [0.0, 0.1, 0.1 + 3600.0, 0.1 + 3600.0 + 86_400.0]


def test_timers_are_rounded_up_to_the_grid() -> None:
    async def main() -> list[float]:
        times = []
        for delay_s in (0.0012, 0.005, 0.0001):
            await asyncio.sleep(delay_s)
            times.append(round(this_loop().time(), 9))
        return times

    assert sim.run(main, schedule=Schedule("fifo", grid_ms=5)) == [0.005, 0.01, 0.015]


@EACH_SCHEDULE
def test_plain_callbacks_run_in_the_order_of_their_calls(schedule: Schedule) -> None:
    async def main() -> list[int]:
        ran: list[int] = []
        for number in range(50):
            this_loop().call_soon(ran.append, number)
        await asyncio.sleep(1)
        return ran

    for seed in range(10):
        assert sim.run(main, seed=seed, schedule=schedule) == list(range(50))


@EACH_SCHEDULE
def test_every_ready_step_runs_within_50_waves(schedule: Schedule) -> None:
    async def main() -> int:
        waves = 0
        waited: list[int] = []

        def count() -> None:
            nonlocal waves
            waves += 1
            if len(waited) < 20:
                this_loop().call_soon(count)

        async def step() -> None:
            waited.append(waves)

        this_loop().call_soon(count)
        await asyncio.gather(*(step() for _ in range(20)))
        return max(waited)

    # 20 steps become ready in one wave. With `priority` they run one after the other until all are overdue.
    assert max(sim.run(main, seed=seed, schedule=schedule) for seed in range(30)) <= 52


async def lost_update() -> int:
    """A counter that two tasks read and write without a lock. Returns its value; 1 if an update is lost."""
    counter = 0

    async def increment(*, yields: int) -> None:
        nonlocal counter
        for _ in range(yields):
            await asyncio.sleep(0)
        value = counter
        await asyncio.sleep(0)
        counter = value + 1

    # In FIFO order the first task has just written when the second one reads.
    await asyncio.gather(increment(yields=0), increment(yields=1))
    return counter


def test_planted_race_is_found_by_permuted_schedules_only() -> None:
    def found(schedule: Schedule | None) -> float:
        return sum(sim.run(lost_update, seed=seed, schedule=schedule) != 2 for seed in range(100)) / 100

    assert found(Schedule("fifo")) == 0
    assert found(Schedule("shuffle")) >= 0.1
    assert found(Schedule("priority", changes=3, steps_expected=6)) >= 0.1
    assert found(None) >= 0.1


def test_equal_seeds_make_equal_runs_and_others_differ() -> None:
    async def main() -> list[int]:
        order: list[int] = []

        async def worker(number: int) -> None:
            for _ in range(5):
                await asyncio.sleep(0.1)
                order.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(worker, number)
        return order

    shuffled = Schedule("shuffle")
    runs = [sim.run(main, seed=seed, schedule=shuffled) for seed in (1, 1, 2, 3)]

    assert runs[0] == runs[1]
    assert len({tuple(run) for run in runs}) == 3


# Prints the order in which the tasks of a cancelled group receive their cancellation.
CANCELLED = textwrap.dedent("""
    import random, sys
    rng = random.Random(int(sys.argv[1]))
    padding = [bytes(rng.randrange(1, 500)) for _ in range(20_000)]
    padding = [block for block in padding if rng.random() < 0.5]
    import anyio, asyncio
    from kactl.testing import sim

    async def main():
        ended = []
        async def sleeper(number):
            try:
                with anyio.CancelScope():
                    await anyio.sleep_forever()
            finally:
                ended.append(number)
        async with anyio.create_task_group() as outer:
            for number in range(30):
                outer.start_soon(sleeper, number)
            await anyio.sleep(1)
            outer.cancel_scope.cancel()
        return ended

    print([sim.run(main, seed=seed) for seed in range(5)])
""")


# Prints the order in which tasks wake that wait for futures of one set.
SET_OF_FUTURES = textwrap.dedent("""
    import random, sys
    rng = random.Random(int(sys.argv[1]))
    padding = [bytes(rng.randrange(1, 500)) for _ in range(20_000)]
    padding = [block for block in padding if rng.random() < 0.5]
    import anyio, asyncio
    from kactl.testing import sim
    from kactl.testing.schedule import Schedule

    async def main():
        woken, waiting = [], set()
        async def waiter(number):
            future = asyncio.get_running_loop().create_future()
            waiting.add(future)
            await future
            woken.append(number)
        async with anyio.create_task_group() as outer:
            for number in range(30):
                outer.start_soon(waiter, number)
            await anyio.sleep(1)
            for future in waiting:
                future.set_result(None)
        return woken

    print(sim.run(main, schedule=Schedule("fifo")))
""")


@pytest.mark.slow
@pytest.mark.parametrize("program", [CANCELLED, SET_OF_FUTURES], ids=["cancellation", "set of futures"])
def test_order_is_equal_in_processes_with_other_addresses_and_hashes(program: str) -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, str(padding)],
            check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": str(padding * 77)}, timeout=60,
        ).stdout
        for padding in range(4)
    }  # fmt: skip

    assert len(outputs) == 1


def test_deadlock_names_the_waiting_task_and_where_it_waits() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(waits_for_ever(), name="the stuck one")

    with pytest.raises(Deadlock) as raised:
        sim.run(main)

    stuck = next(task for task in raised.value.waiting if task.name == "the stuck one")
    assert "waits_for_ever (test_loop.py:" in stuck.chain[0]
    assert stuck.chain[1].startswith("Event.wait")
    assert "the stuck one awaits a Future" in str(raised.value)


def test_timer_at_infinity_is_no_timer() -> None:
    with pytest.raises(Deadlock):
        sim.run(anyio.sleep_forever)


def test_steps_without_progress_of_time_are_a_livelock() -> None:
    async def main() -> None:
        for _ in range(200_000):
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="100000 steps ran at"):
        sim.run(main)


def test_steps_of_many_tasks_at_one_time_are_no_livelock() -> None:
    """As when a large cluster carries out an order for everything that it hosts."""

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(2_000):
                tasks.start_soon(steps, 100)

    async def steps(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    sim.run(main)


def test_livelock_that_creates_tasks_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "LIVELOCK_TASKS_MAX", 1_000)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for step in itertools.count():
                if step % 50 == 0:
                    tasks.start_soon(anyio.sleep_forever)
                await asyncio.sleep(0)

    with pytest.raises(Livelock, match="200000 steps ran at"):
        sim.run(main)


def test_run_with_too_many_steps_is_ended() -> None:
    async def main() -> None:
        for _ in range(10_000):
            await asyncio.sleep(1)

    loop = SimLoop(steps_max=1000)
    coroutine = main()
    try:
        with pytest.raises(StepLimit, match="1000 steps ran in"):
            loop.run_until_complete(coroutine)
    finally:
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine.close()
        loop.close()


def test_blocking_functions_run_inline_after_a_delay() -> None:
    async def main() -> tuple[str, float, str]:
        first = await asyncio.to_thread(lambda: "asyncio")
        second = await anyio.to_thread.run_sync(lambda: "anyio")
        return first, this_loop().time(), second

    first, took_s, second = sim.run(main)

    assert (first, second) == ("asyncio", "anyio")
    assert 0 < took_s < 0.02


def test_executor_with_one_worker_keeps_the_order_of_its_functions() -> None:
    async def main() -> list[int]:
        ran: list[int] = []
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            futures = [this_loop().run_in_executor(executor, ran.append, number) for number in range(20)]
            futures[3].cancel()
            await asyncio.gather(*futures, return_exceptions=True)
        return ran

    # A cancelled caller does not undo the function.
    assert sim.run(main, seed=3) == list(range(20))


def test_error_of_a_blocking_function_reaches_its_caller() -> None:
    def fail() -> None:
        raise OSError("disk full")

    async def main() -> None:
        await asyncio.to_thread(fail)

    with pytest.raises(OSError, match="disk full"):
        sim.run(main)


@pytest.mark.parametrize(
    "leave",
    [
        lambda: asyncio.open_connection("127.0.0.1", 1),
        lambda: asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0),
        lambda: asyncio.create_subprocess_exec("true"),
    ],
    ids=["connection", "server", "process"],
)
def test_leaving_the_simulation_raises_an_error_with_the_remedy(leave: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    async def main() -> None:
        await leave()

    with pytest.raises(RealWorld, match="is not simulated: "):
        sim.run(main)


def order_free_program(rng: random.Random) -> Callable[[], Coroutine[Any, Any, Any]]:
    """Returns a random program of queues, locks, events and task groups whose result does not depend on the order."""
    workers = [
        [(rng.choice(("sleep", "put", "lock", "event", "group")), rng.randint(0, 3)) for _ in range(rng.randint(1, 6))]
        for _ in range(rng.randint(1, 5))
    ]

    async def main() -> Any:
        queue: asyncio.Queue[int] = asyncio.Queue()
        lock, event, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
        total, inside = 0, 0

        async def worker(actions: list[tuple[str, int]]) -> None:
            nonlocal total, inside
            for action, amount in actions:
                match action:
                    case "sleep":
                        await asyncio.sleep(amount / 10_000)
                    case "put":
                        await queue.put(amount)
                    case "event":
                        event.set()
                        await event.wait()
                    case "group":
                        async with anyio.create_task_group() as tasks:
                            for _ in range(amount):
                                tasks.start_soon(queue.put, 1)
                    case "lock":
                        async with lock:
                            inside += 1
                            assert inside == 1
                            await asyncio.sleep(0)
                            inside -= 1
                            total += amount
                async with condition:
                    condition.notify_all()

        await asyncio.gather(*map(worker, workers))
        values = sorted(queue.get_nowait() for _ in range(queue.qsize()))
        return values, total, event.is_set()

    return main


def test_no_wake_up_is_lost_in_random_programs() -> None:
    """Under every schedule, each program has the same result as on the standard loop."""
    for seed in range(100):
        program = order_free_program(random.Random(seed))
        expected = asyncio.run(program())

        assert [sim.run(program, seed=seed, schedule=schedule) for schedule in SCHEDULES] == [expected] * 3, seed
