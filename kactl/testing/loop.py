"""Event loop in virtual time: a program of many nodes runs in one thread, and one seed determines the whole run.

    ready callbacks ──▶ wave ──▶ run in the order of the schedule ──▶ nothing is ready ──▶ jump to the next timer

Time passes only when nothing is ready, and then jumps exactly to the earliest timer. Nothing here waits, opens a socket
or starts a thread: functions given to an executor run inline after a drawn delay.

The loop is an `asyncio.BaseEventLoop` without a selector. It uses private parts of asyncio and anyio, and cannot be
created if the installed versions lack one of them.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import heapq
import itertools
import logging
import math
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple

from . import anyio_seams
from .failures import Deadlock, Livelock, RealWorld, Sealed, StepLimit, WaitingTask
from .handles import NodeTimer, SimFuture, SimHandle, SimTask, SimTimer
from .nodes import JOB_MS, NODE, Node, on
from .schedule import HOLD_WAVES_MAX, Schedule
from .streams import Streams

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

AnyHandle = SimHandle | SimTimer

# Steps without any progress of time that are called a livelock: at least so many, and so many for each task. An order
# for everything that a cluster hosts wakes every task, and anyio delivers a cancellation again in each wave in which
# the schedule holds the task back.
LIVELOCK_STEPS: Final = 100_000
LIVELOCK_STEPS_PER_TASK: Final = 4 * HOLD_WAVES_MAX
# More than the largest clusters have.
LIVELOCK_TASKS_MAX: Final = 10_000
# Steps of a whole run. At some 10 us each, a run of this length takes minutes.
STEPS_MAX: Final = 20_000_000

# Timers this close to each other are due at the same time: sums of floating point numbers differ by less.
_NOISE_S: Final = 1e-9

# Private parts of asyncio that this module uses.
_PRIVATE: Final = (
    (asyncio.BaseEventLoop, ("_run_once", "_check_closed", "_timer_handle_cancelled", "_asyncgen_finalizer_hook")),
    (asyncio.Handle, ("_run", "_callback", "_args", "_context", "_cancelled", "_repr", "_source_traceback")),
    (asyncio.TimerHandle, ("_when", "_scheduled")),
    (asyncio.Task, ("_fut_waiter", "_log_destroy_pending", "_callbacks", "_make_cancelled_error")),
)
_SOCKETS: Final = "pass a simulated network to the program"
_PROCESSES: Final = "processes are nodes of the simulation"


class SimLoop(asyncio.BaseEventLoop):
    """Deterministic event loop in virtual time.

    Args:
        seed: determines the schedule and all delays.
        schedule: order of task steps; drawn from the seed if it is omitted.

    Attributes:
        streams: named random streams of the seed, for the program's own use.
        steps: number of callbacks that have run.
        nodes: all nodes, the killed ones included, in the order of their creation.
        halted_by: the error given to `halt`, or None.

    Raises:
        RuntimeError: the installed asyncio or anyio is not known.
    """

    def __init__(self, seed: int | str = 0, *, schedule: Schedule | None = None, steps_max: int = STEPS_MAX) -> None:
        _check_versions()
        super().__init__()
        self.streams = Streams(seed)
        rng = self.streams["schedule"]
        self.schedule = Schedule.drawn(rng) if schedule is None else schedule
        self._choose = self.schedule.choice(rng)
        self._is_fifo = self.schedule.strategy == "fifo"
        self._grid_s = self.schedule.grid_ms / 1000
        self._steps_max = steps_max
        self._now_s = 0.0
        self._queue: deque[AnyHandle] = deque()
        # Time, number, handle, and whether a slow node has delayed the handle already.
        self._timers: list[tuple[float, int, AnyHandle, bool]] = []
        self._numbers = itertools.count(1)
        self.task_numbers = itertools.count(1)
        self.future_numbers = itertools.count(1)
        self._tasks: weakref.WeakSet[SimTask] = weakref.WeakSet()
        self._held: dict[AnyHandle, int] = {}
        # Delayed handles that are due, by their ids: timers with equal times are equal.
        self._delayed: dict[int, AnyHandle] = {}
        # When the last function of each executor with one worker ends.
        self._executors: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
        self._is_sealed = False
        self.halted_by: Exception | None = None
        self._steps_before = 0  # when time last advanced
        self._steps_limit = min(LIVELOCK_STEPS, steps_max)
        self.steps = 0
        self.nodes: list[Node] = []
        self.set_task_factory(_new_task)

    @property
    def hold_backs(self) -> int:
        """Number of times that the schedule held a step back, those included that `Schedule.only` removed."""
        return self._choose.count

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """The loop's own time, whatever the node of the caller; it starts at 0."""
        return self._now_s

    def time(self) -> float:
        """Returns the monotonic clock of the current node, or the loop's own time outside all nodes."""
        node = NODE.get()
        return self._now_s if node is None else node.clock.of(self._now_s)

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        self._check()
        handle = SimHandle(callback, args, self, context)
        self._queue.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        self._check()
        node = NODE.get()
        handle = (SimTimer if node is None else NodeTimer)(when, callback, args, self, context)
        self._set(when if node is None else node.clock.to_loop(when), handle)
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        return SimFuture(loop=self)

    def call_at_now_s(self, when_s: float, callback: Callable[[], object], context: contextvars.Context) -> None:
        """Run a function at a time of the loop itself, whatever the clock of the current node."""
        self._check()
        self._set(when_s, SimTimer(when_s, callback, (), self, context))

    def _set(self, loop_s: float, handle: SimTimer) -> None:
        if self._grid_s:
            loop_s = self._on_grid(loop_s)
        self._push(loop_s, handle, is_delayed=False)

    def _on_grid(self, loop_s: float) -> float:
        """Returns the time rounded up to the grid, and never less: a timer that fires early may be set for ever."""
        if not math.isfinite(loop_s):
            return loop_s
        return max(loop_s, math.ceil(loop_s / self._grid_s - 1e-9) * self._grid_s)

    def _push(self, loop_s: float, handle: AnyHandle, *, is_delayed: bool) -> None:
        if loop_s != math.inf:  # a timer at infinity never fires
            heapq.heappush(self._timers, (max(loop_s, self._now_s), next(self._numbers), handle, is_delayed))

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Close a generator that was dropped; one of a killed node is only dropped."""
        if not self._is_sealed:
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers stay in the heap until their time."""

    def _check(self) -> None:
        if self._is_sealed:
            raise Sealed
        if self._closed:  # type: ignore[attr-defined]
            self._check_closed()  # type: ignore[attr-defined]

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Run one wave."""
        if not self._queue and not self._stopping:  # type: ignore[attr-defined]
            self._jump()
        timers = self._timers
        if timers and timers[0][0] <= self._now_s + _NOISE_S:
            self._collect_due()
        wave, self._queue = self._queue, deque()
        for handle in self._ordered(wave):
            if handle._cancelled:
                continue
            node = handle._context.get(NODE)
            if node is not None and node.state != "running":
                # An earlier handle of the same wave has paused or killed the node.
                if node.state == "paused":
                    node.withheld.append(handle)
                continue
            self.steps += 1
            if self.steps > self._steps_limit:
                self._raise_steps_limit()
            handle._run()
            if self.halted_by is not None:
                raise self.halted_by

    def _raise_steps_limit(self) -> None:
        """Allow more steps, once, if there are many tasks, but not for all of those that a livelock creates.

        Raises:
            Livelock: too many steps have run without any progress of time.
            StepLimit: too many steps have run.
        """
        if self.steps > self._steps_max:
            raise StepLimit(f"{self._steps_max} steps ran in {self._now_s:.3f} s of virtual time", self.waiting())
        allowed = self._steps_limit - self._steps_before
        more = LIVELOCK_STEPS_PER_TASK * min(len(self._tasks), LIVELOCK_TASKS_MAX)
        if allowed > LIVELOCK_STEPS or more <= allowed:
            raise Livelock(f"{allowed} steps ran at {self._now_s:.6f} s", self.waiting())
        self._steps_limit = min(self._steps_before + more, self._steps_max)

    def halt(self, error: Exception) -> None:
        """End the run after the current step: `sim.run` raises this error, which no task can catch."""
        if self.halted_by is None:
            self.halted_by = error

    def _jump(self) -> None:
        """Advance time to the earliest timer.

        Raises:
            Deadlock: there is none.
        """
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Deadlock("nothing is ready and no timer is set", self.waiting())
        if timers[0][0] > self._now_s:
            self._now_s = timers[0][0]
            self._steps_before = self.steps
            self._steps_limit = min(self.steps + LIVELOCK_STEPS, self._steps_max)

    def _collect_due(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self._now_s + _NOISE_S:
            loop_s, _, handle, is_delayed = heapq.heappop(timers)
            if loop_s > self._now_s:
                self._now_s = loop_s
            if handle._cancelled:
                continue
            if is_delayed:
                self._delayed[id(handle)] = handle
            self._queue.append(handle)

    def _ordered(self, wave: deque[AnyHandle]) -> list[AnyHandle]:
        """Returns the handles that run now: plain callbacks in their places, task steps as the schedule chooses."""
        handles: list[AnyHandle] = []
        places: list[int] = []  # of task steps
        numbers: list[int] = []  # of their tasks
        for handle in wave:
            if handle._cancelled:
                self._delayed.pop(id(handle), None)
                self._held.pop(handle, None)
                continue
            node = handle._context.get(NODE)
            if node is None or self._is_fast(node) or self._is_runnable(handle, node):
                if handle.task is not None:
                    places.append(len(handles))
                    numbers.append(handle.task.number)
                handles.append(handle)
        if not places or self._is_fifo:
            return handles
        if len(places) == 1:
            # The only step always runs. The strategy draws as for any other wave.
            step = handles[places[0]]
            self._choose.one(numbers[0], self._held.pop(step, 0) if self._held else 0)
            return handles
        return self._chosen(handles, places, numbers)

    def _chosen(self, handles: list[AnyHandle], places: list[int], numbers: list[int]) -> list[AnyHandle]:
        """Returns the handles without the steps that are held back to the next wave, in the order of the schedule.

        Args:
            places: of the task steps among the handles.
            numbers: of their tasks.
        """
        held = self._held
        steps = [handles[place] for place in places]
        chosen = self._choose(numbers, [held.get(step, 0) for step in steps] if held else [0] * len(steps))
        if len(chosen) < len(steps):
            runs = set(chosen)
            for index, step in enumerate(steps):
                if index not in runs:
                    held[step] = held.get(step, 0) + 1
                    self._queue.append(step)
        if held:
            for index in chosen:
                held.pop(steps[index], None)
        if len(steps) == len(handles):
            return [steps[index] for index in chosen]
        ordered: list[AnyHandle | None] = list(handles)
        for place in places:
            ordered[place] = None
        for place, index in zip(places, chosen, strict=False):
            ordered[place] = steps[index]
        return [handle for handle in ordered if handle is not None]

    def _is_fast(self, node: Node) -> bool:
        """Whether a node runs at full speed, and nothing waits from a time at which it was slow: what comes later must
        not overtake that, or a loop of callbacks that waits for it runs for ever at one moment."""
        return node.state == "running" and not node.slow_ms and node.busy_until_s <= self._now_s

    def _is_runnable(self, handle: AnyHandle, node: Node) -> bool:
        """Returns whether a handle of a node that does not run at full speed may run now."""
        if node.state == "killed":
            return False
        if node.state == "paused":
            node.withheld.append(handle)
            return False
        if self._delayed.pop(id(handle), None) is not None or handle in self._held:
            return True
        # One handle after the other, as on one slow processor: the order of plain callbacks is kept.
        node.busy_until_s = max(node.busy_until_s, self._now_s) + node.rng.uniform(0, node.slow_ms) / 1000
        self._push(node.busy_until_s, handle, is_delayed=True)
        return False

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        """Create a node. Code runs on it in a block of `nodes.on`, or by `start`."""
        node = Node(name, self.streams[f"node:{name}:{len(self.nodes)}"])
        self.nodes.append(node)
        return node

    def start(self, node: Node, main: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start the main task of a node."""
        with on(node):
            return self.create_task(main, name=f"{node.name} main")

    def pause(self, node: Node) -> None:
        """Suspend a node: none of its callbacks runs until `resume`; time goes on."""
        if node.state == "running":
            node.state = "paused"
            node.pauses += 1

    def resume(self, node: Node) -> None:
        """Continue a paused node. What became due meanwhile runs now, in the order in which it became due."""
        if node.state == "paused":
            if node.clock.is_suspended:
                self._wake(node)
            node.state = "running"
            withheld, node.withheld = node.withheld, []
            self._queue.extend(withheld)

    def suspend(self, node: Node) -> None:
        """Pause a node and its monotonic clock until `resume`; its timers are late by that time."""
        if node.state == "running":
            self.pause(node)
            node.clock.suspend(self._now_s)

    def _wake(self, node: Node) -> None:
        """Set the timers of a node anew, by its monotonic clock."""
        node.clock.wake(self._now_s)

        def is_own(handle: AnyHandle) -> bool:
            return isinstance(handle, NodeTimer) and not handle._cancelled and handle._context.get(NODE) is node

        late = [entry[2] for entry in self._timers if is_own(entry[2])]
        late += [handle for handle in node.withheld if is_own(handle)]
        self._timers = [entry for entry in self._timers if not is_own(entry[2])]
        heapq.heapify(self._timers)
        node.withheld = [handle for handle in node.withheld if not is_own(handle)]
        for handle in late:
            assert isinstance(handle, NodeTimer)
            self._set(node.clock.to_loop(handle._when), handle)

    def slow(self, node: Node, delay_ms_max: float) -> None:
        """Delay each callback of a node by up to that many ms; 0 restores its full speed."""
        node.slow_ms = delay_ms_max

    def kill(self, node: Node) -> None:
        """End a node as `kill -9` does: none of its code runs again, no `finally` and no `except`."""
        node.state = "killed"
        node.withheld.clear()

    def stop_node(self, node: Node) -> None:
        """Cancel all tasks of a node, as a process does that received SIGTERM."""
        for task in list(node.tasks):
            task.cancel()

    # -- the outside ---------------------------------------------------------------------------------------------------

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Run a function inline after a drawn delay. Functions of one executor run one after the other, in order.

        Cancelling the returned future does not undo the function.
        """
        self._check()
        future: asyncio.Future[T] = self.create_future()
        is_serial = isinstance(executor, concurrent.futures.ThreadPoolExecutor) and executor._max_workers == 1
        earliest_s = max(self._executors.get(executor, 0.0), self._now_s) if is_serial else self._now_s
        node = NODE.get()
        stream, job_ms = ("executor", JOB_MS) if node is None else (f"disk:{node.name}", node.job_ms)
        at_s = earliest_s + self.streams[stream].uniform(*job_ms) / 1000
        if is_serial:
            self._executors[executor] = at_s

        def run() -> None:
            try:
                result = func(*args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except Sealed:
                return  # the node was killed inside the function
            except BaseException as error:
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        handle = SimHandle(run, (), self, None)
        self._push(at_s, handle, is_delayed=False)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's
        """Return at once: there are no threads."""

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> NoReturn:
        raise RealWorld("add_signal_handler", "stop a node with SimLoop.stop_node")

    def add_reader(self, fd: Any, callback: Callable[[*Ts], object], *args: *Ts) -> NoReturn:
        raise RealWorld("add_reader", _SOCKETS)

    def add_writer(self, fd: Any, callback: Callable[[*Ts], object], *args: *Ts) -> NoReturn:
        raise RealWorld("add_writer", _SOCKETS)

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RealWorld("getaddrinfo", _SOCKETS)

    async def create_connection(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RealWorld("create_connection", _SOCKETS)

    async def create_server(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RealWorld("create_server", _SOCKETS)

    async def create_datagram_endpoint(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RealWorld("create_datagram_endpoint", _SOCKETS)

    async def connect_accepted_socket(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RealWorld("connect_accepted_socket", _SOCKETS)

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RealWorld("subprocess_exec", _PROCESSES)

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RealWorld("subprocess_shell", _PROCESSES)

    # -- reports -------------------------------------------------------------------------------------------------------

    def waiting(self) -> tuple[WaitingTask, ...]:
        """Returns the tasks that wait, in the order of their creation."""
        return tuple(WaitingTask.of(task, node=task.node_name) for task in self.unfinished())

    def unfinished(self) -> list[SimTask]:
        """Returns the tasks that have not ended, in the order of their creation."""
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask)]
        return sorted(tasks, key=lambda task: task.number)

    # -- end -----------------------------------------------------------------------------------------------------------

    def bury(self, *, everything: bool = False) -> None:
        """Close the coroutines of killed nodes, with the loop sealed: their clean-up has no effect on the run.

        The garbage collector of Python 3.11 does not see the callbacks of a task, nor the error of its cancellation. If
        one of them refers to the task, the task and all that it knows would never be freed; so they are removed.

        Args:
            everything: close all other coroutines, too; nothing runs afterwards.
        """
        of_killed = [task for node in self.nodes if node.state == "killed" for task in node.tasks]
        self._is_sealed = True
        logging_was = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            tasks: list[Any] = [*self.unfinished()] if everything else of_killed
            # A clean-up may create a coroutine that it then cannot await.
            with warnings.catch_warnings(action="ignore"):
                for task in tasks:
                    task._log_destroy_pending = False
                    # A clean-up that schedules or awaits something meets the sealed loop.
                    with contextlib.suppress(BaseException):
                        anyio_seams.close(task)
                    anyio_seams.forget(task)
                    for callback, _ in task._callbacks or ():
                        task.remove_done_callback(callback)
                if everything:
                    created: list[Any] = list(self._tasks)
                    for task in created:
                        anyio_seams.forget(task)
                        if task.cancelled():
                            task._make_cancelled_error()  # takes the error out of the task
        finally:
            self._is_sealed = False
            logging.disable(logging_was)


def _check_versions() -> None:
    missing = [f"{owner.__name__}.{name}" for owner, names in _PRIVATE for name in names if not hasattr(owner, name)]
    if missing:
        raise RuntimeError(f"the simulator does not know this version of Python: asyncio has no {', '.join(missing)}")
    anyio_seams.install(lambda loop: isinstance(loop, SimLoop))


def _new_task(loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> SimTask:
    assert isinstance(loop, SimLoop)
    task = SimTask(coro, loop=loop, **kwargs)
    loop._tasks.add(task)
    node = NODE.get()
    if node is not None:
        node.add(task)
    return task
