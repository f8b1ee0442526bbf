"""Errors of a simulated run.

A `SimFailure` is a result: the simulated program did something wrong. The other errors are faults of the test: the
program left the simulation, or it is not deterministic.
"""

import asyncio
from typing import Any, NamedTuple

from .handles import SimFuture


class SimFailure(Exception):
    """The run ended with a violation. `signature` identifies the kind: equal signatures are the same failure."""

    signature = "failure"


class WaitingTask(NamedTuple):
    """A task that waits, for a report.

    Attributes:
        node: name of its node; empty outside all nodes.
        chain: the functions that await each other, from the outermost to the innermost, with file and line.
        wait: the object that the innermost function awaits, without its address.
    """

    node: str
    name: str
    chain: tuple[str, ...]
    wait: str

    @classmethod
    def of(cls, task: "asyncio.Task[Any]", *, node: str) -> "WaitingTask":
        """Returns the description of a task on a node."""
        chain: list[str] = []
        awaited: Any = task.get_coro()
        while (frame := getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)) is not None:
            code = frame.f_code
            chain.append(f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})")
            awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
        future = task._fut_waiter  # type: ignore[attr-defined]
        if future is None:
            wait = "nothing"
        elif isinstance(future, asyncio.Task):
            wait = f"task {future.get_name()!r}"
        else:
            wait = f"a {'Future' if isinstance(future, SimFuture) else type(future).__name__}"
        return cls(node, task.get_name(), tuple(chain), wait)

    def __str__(self) -> str:
        where = f" on {self.node}" if self.node else ""
        return f"{self.name}{where} awaits {self.wait} in {' > '.join(self.chain)}"


class _Stopped(SimFailure):
    """Base of the failures that report the waiting tasks."""

    def __init__(self, reason: str, waiting: tuple[WaitingTask, ...]) -> None:
        tasks = "".join(f"\n  {task}" for task in waiting)
        super().__init__(f"{reason}; {len(waiting)} tasks wait:{tasks}" if waiting else f"{reason}; no task waits")
        self.waiting = waiting


class Deadlock(_Stopped):
    """No callback is ready and no timer is set: the program can never continue."""

    signature = "LIV-09 deadlock"


class Livelock(_Stopped):
    """Very many steps ran without any progress of time."""

    signature = "LIV-09 livelock"


class StepLimit(_Stopped):
    """The run is longer than any run should be."""

    signature = "step-limit"


class Sealed(BaseException):
    """Code of a killed node called the event loop. Raised only during the clean-up of such code."""


class RealWorld(RuntimeError):
    """The simulated program tried to leave the simulation: a thread, a process, a socket or a signal."""

    def __init__(self, call: str, remedy: str) -> None:
        super().__init__(f"{call} is not simulated: {remedy}")


class NonDeterministic(RuntimeError):
    """The simulated program used a source of time or randomness that a seed does not determine."""
