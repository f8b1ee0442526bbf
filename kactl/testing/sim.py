"""Runs of a program on the simulated loop: `sim.run(main, seed=7)`."""

import asyncio
import gc
import inspect
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

from . import guards
from .failures import SimFailure
from .loop import SimLoop
from .schedule import Schedule

T = TypeVar("T")


def run(
    main: Callable[[], Coroutine[Any, Any, T]],
    *,
    seed: int | str = 0,
    schedule: Schedule | None = None,
    allowed: Collection[str] = (),
    guarded: Collection[str] = (),
) -> T:
    """Run `main()` to its end in virtual time. Returns its result.

    `main` finds its loop by `asyncio.get_running_loop()`: it creates nodes, and reads the named random streams.

    Args:
        seed: determines the whole run; equal seeds make equal runs.
        schedule: order of task steps; drawn from the seed if it is omitted.
        allowed: modules that may use real time and randomness.
        guarded: further packages and modules of the program; that of `main` is one of them.

    Raises:
        SimFailure: the program waits for ever, or does not make progress.
        RealWorld, NonDeterministic: the program leaves the simulation.
        RuntimeError: the installed Python or anyio is not known.
        Exception: an exception of `main`, unchanged.
    """
    loop = SimLoop(seed, schedule=schedule)
    # Collections would run finalizers at times that depend on the version of Python.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        asyncio.set_event_loop(loop)
        with guards.guarded(("kactl", main.__module__, *guarded), allowed=allowed):
            try:
                return loop.run_until_complete(main())
            except Exception as error:
                if isinstance(error, SimFailure) or error is loop.halted_by:
                    loop.bury(everything=True)
                raise
            finally:
                loop.bury()
                _cancel_all(loop)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        if was_enabled:
            gc.enable()


def _cancel_all(loop: SimLoop) -> None:
    """Cancel the tasks that the program has left behind, and wait for them."""
    left = [task for task in loop.unfinished() if inspect.getcoroutinestate(task.get_coro()) != inspect.CORO_CLOSED]  # type: ignore[arg-type]
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=60))
    loop.bury(everything=True)
