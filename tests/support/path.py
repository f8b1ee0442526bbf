"""Path of a broker's failure through the code: functions, files, and calls that point upward.

    python -m tests.support.path [--list]

A controller runs over a memory store with brokers that encode every request. One broker's session ends. From the
store's notification until the last request that follows is encoded, each Python function of kactl that runs in the
event loop's thread is recorded with its caller. A call points upward if the caller is in a lower layer than the called
function, by the layers of import-linter, or if a machine actor calls a handler or the controller.

It also prints how many modules `kactl.Controller` loads.
"""

import argparse
import asyncio
import dataclasses
import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from bench.brokers import Encoding
from bench.clusters import Racked
from bench.hosting import load, quiet, registered
from kactl.actors.system import Controller
from kactl.decide.messages.control import Request
from kactl.stores.base import Changed, StoreEvent
from kactl.stores.memory import MemoryStore

from .tree import PACKAGE_FOLDERS, ROOT, pyproject

BROKERS: Final = 6
PARTITIONS: Final = 60
CONTROLLER: Final = 901
LIMIT_S: Final = 60
TURNS: Final = 2_000  # of the event loop; the failure needs some fifty
# Some versions of Python run them as functions.
COMPREHENSIONS: Final = ("<dictcomp>", "<genexpr>", "<listcomp>", "<setcomp>")
LOADED: Final = "import sys, kactl; kactl.Controller; print(sum(m.split('.')[0] == 'kactl' for m in sys.modules))"


@dataclasses.dataclass(frozen=True)
class Course:
    """Functions that ran, and calls that point upward, each as caller and called function."""

    functions: frozenset[CodeType]
    upward: frozenset[tuple[CodeType, CodeType]]

    @property
    def files(self) -> frozenset[str]:
        return frozenset(code.co_filename for code in self.functions)


@functools.cache
def module_of(filename: str) -> str | None:
    """Returns the module of a file of kactl; None for other files."""
    for folder, package in PACKAGE_FOLDERS.items():
        parts = Path(filename).resolve()
        if parts.is_relative_to(ROOT / folder):
            return ".".join((package, *parts.relative_to(ROOT / folder).with_suffix("").parts))
    return None


@functools.cache
def _layers(container: str) -> dict[str, int]:
    """Returns the height of each part of a package, by the contract of its layers; 0 is the lowest."""
    contracts = pyproject()["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == [container])
    return {
        part.strip().strip("()"): height
        for height, layer in enumerate(reversed(layers))
        for part in layer.replace(":", "|").split("|")
    }


def points_upward(caller: str, called: str) -> bool:
    """Returns whether a call leads from a lower layer of kactl to a higher one, by the modules' names."""
    if (caller.split(".")[1], called.split(".")[1]) != ("actors", "actors"):
        heights = _layers("kactl")
        return heights[caller.split(".")[1]] < heights[called.split(".")[1]]
    heights = _layers("kactl.actors")
    return caller.split(".")[2] == "machines" and heights[called.split(".")[2]] > heights["machines"]


class Recorder:
    """Profile function that records the functions of kactl while it is installed."""

    def __init__(self) -> None:
        self.calls: set[tuple[CodeType | None, CodeType]] = set()
        self._until_bytes: set[tuple[CodeType | None, CodeType]] = set()

    def notified(self, listener: Callable[[StoreEvent], None], change: StoreEvent) -> None:
        """Begin at a notification of the store, and pass it on."""
        if change.what is Changed.BROKERS:
            sys.setprofile(self)
        listener(change)

    def encoded(self, broker: int, request: Request, at: float) -> None:
        """Keep what was recorded until a request was encoded."""
        self._until_bytes = set(self.calls)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and module_of(frame.f_code.co_filename) is not None:
            back = frame.f_back
            self.calls.add((None if back is None else back.f_code, frame.f_code))

    def course(self) -> Course:
        functions = frozenset(code for _, code in self._until_bytes if code.co_name not in COMPREHENSIONS)
        upward = {
            (caller, called)
            for caller, called in self._until_bytes
            if caller is not None
            and (below := module_of(caller.co_filename)) is not None
            and (above := module_of(called.co_filename)) is not None
            and points_upward(below, above)
        }
        return Course(functions, frozenset(upward))


async def failure() -> Course:
    """Let one broker of a small cluster fail. Returns the path of the event through the code."""
    recorder = Recorder()
    brokers = Encoding(client_id=CONTROLLER, on_bytes=recorder.encoded)
    async with MemoryStore() as holder:
        shape = Racked(PARTITIONS, 2, BROKERS)
        fence = await holder.contest(CONTROLLER - 1)
        await load(holder, shape, fence)
        store = MemoryStore(holder.state)
        controller = Controller(CONTROLLER, store=store, transport=brokers, auto_balance=False, standby_interval_ms=0)
        async with registered(holder, shape) as sessions, controller:
            await holder.resign(fence)
            await controller.wait_active(timeout_ms=LIMIT_S * 1000)
            await quiet(controller, limit_s=LIMIT_S)
            assert store._listener is not None
            store.subscribe(functools.partial(recorder.notified, store._listener))
            await sessions[0].close()
            try:
                for _ in range(TURNS):
                    await asyncio.sleep(0)
            finally:
                sys.setprofile(None)
            assert 1 not in controller.cluster.brokers
    return recorder.course()


def loaded() -> int:
    """Returns the number of modules that `kactl.Controller` loads."""
    command = [sys.executable, "-c", LOADED]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the functions")
    asked = parser.parse_args()
    course = asyncio.run(failure())
    if asked.list:
        for name in sorted(_name(code) for code in course.functions):
            print(name)
    for caller, called in sorted((_name(caller), _name(called)) for caller, called in course.upward):
        print(f"upward: {caller} calls {called}")
    print(f"{len(course.functions)} functions in {len(course.files)} files, {len(course.upward)} calls upward")
    print(f"kactl.Controller loads {loaded()} modules")


def _name(code: CodeType) -> str:
    return f"{module_of(code.co_filename)}:{code.co_qualname}"


if __name__ == "__main__":
    main()
