"""Calls of the application that delay the end of a program, and the lines at which they wait."""

import asyncio
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final, Protocol

import anyio

LISTED_MAX: Final = 5
# How deep awaited coroutines and tasks are followed.
_DEPTH_MAX: Final = 100
# Code in which a program waits, for something of its own.
_LIBRARIES: Final = frozenset(
    {
        "actors",
        "anyio",
        "asyncio",
        "concurrent",
        "contextlib",
        "functools",
        "kactl",
        "threading",
        "transports",
        "uvloop",
    }
)


class Delay(Protocol):
    """A call in progress.

    Attributes:
        what: the call, for a line of text.
        delays: whether it has been cancelled, or belongs to the end.
    """

    what: str

    @property
    def delays(self) -> bool: ...


# The calls in progress.
calls: Final[dict["asyncio.Task[Any]", Delay]] = {}


def listed(main: "asyncio.Task[Any]") -> list[str]:
    """Returns what delays the end, with its line: calls of the application, otherwise `main`. To be called in the event
    loop."""
    children: dict[int | None, list[anyio.TaskInfo]] = {}
    for info in anyio.get_running_tasks():
        children.setdefault(info.parent_id, []).append(info)
    found = [
        f"{call.what}, {line}" for task, call in list(calls.items()) if call.delays for line in _lines(task, children)
    ]
    found = found or [f"the program, {line}" for line in _lines(main, children)]
    more = len(found) - LISTED_MAX
    return found if more <= 0 else [*found[:LISTED_MAX], f"and {more} more"]


def blocked(thread: int) -> str:
    """Returns the line at which a thread is."""
    frame, own = sys._current_frames().get(thread), None
    while frame is not None and own is None:
        own = frame if _is_own(frame) else None
        frame = frame.f_back
    return "at an unknown line" if own is None else _place(own)


def _lines(task: "asyncio.Task[Any]", children: dict[int | None, list[anyio.TaskInfo]]) -> list[str]:
    """Returns the lines at which a task waits: those of the tasks that it has started, if there are any."""
    waiting: list[tuple[int, Any]] = [(id(task), task.get_coro())]
    lines: list[str] = []
    for number, coroutine in waiting:  # which grows meanwhile
        own = [frame for frame in _frames(coroutine) if _is_own(frame)]
        lines += [_place(own[-1])] if own else []
        waiting += [(info.id, info.coro) for info in children.pop(number, ())]
    return list(dict.fromkeys(lines)) or ["at no line of its own"]


def _frames(coroutine: Any) -> Iterator[FrameType]:
    """Yields the frames of a coroutine and of those that it awaits, the innermost last."""
    for _ in range(_DEPTH_MAX):
        for kind in ("cr", "gi", "ag"):
            frame = getattr(coroutine, f"{kind}_frame", None)
            if frame is not None:
                yield frame
                coroutine = getattr(coroutine, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
                break
        else:
            return


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _LIBRARIES


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"at {code.co_filename.rpartition('/')[2]}:{frame.f_lineno} in {code.co_qualname}"
