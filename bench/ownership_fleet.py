"""Worker processes of `bench.ownership`, and what they print about the shards that they own."""

import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.processes import HarnessError, Process

LIMIT_S: Final = 300.0
_POLL_S: Final = 0.02


class Event(NamedTuple):
    """A worker began or ended to own a shard. `worker` is the number of a start: each has another one."""

    time_ms: float
    worker: int
    owns: bool
    shard: int


class Window(NamedTuple):
    """What has happened to the shards in some time.

    Attributes:
        calls: how often the work for each shard has begun.
        changes: how often another worker began it.
        gaps_ms: times between the end of the work for a shard in order and its next begin.
        twice: how often the next owner began before the former one had ended.
    """

    calls: Counter[int]
    changes: Counter[int]
    gaps_ms: list[float]
    twice: int


class _Log:
    """What one worker has printed."""

    def __init__(self, process: Process, number: int) -> None:
        self.process = process
        self.number = number
        self.owned: set[int] = set()
        self.words: dict[str, float] = {}  # ready, left
        self._offset = 0

    def read(self) -> list[Event]:
        text = self.process.text
        end = text.rfind("\n") + 1
        lines, self._offset = text[self._offset : end].splitlines(), end
        events = []
        for line in lines:
            match line.split():
                case ["own" | "lost" as kind, shard, time_ms]:
                    events.append(Event(float(time_ms), self.number, kind == "own", int(shard)))
                    (self.owned.add if kind == "own" else self.owned.discard)(int(shard))
                case ["ready" | "left" as word, time_ms]:
                    self.words[word] = float(time_ms)
        return events


class Fleet:
    """Workers of one contender.

    Args:
        python: the interpreter that has the contender's client.
    """

    def __init__(self, kind: str, address: str, shards: int, session_ms: int, folder: Path, python: str) -> None:
        self.shards = shards
        self._arguments = [str(shards), str(session_ms)]
        self._command = [python, "-m", "bench.ownership_worker", kind]
        self._address = address
        self._folder = folder
        self._logs: dict[int, _Log] = {}  # of the workers that run, by id
        self._starts = 0
        self._killed_ms: dict[int, float] = {}  # by start
        self._started: dict[int, int] = {}
        self.events: list[Event] = []

    # -- workers

    def launch(self, worker: int) -> None:
        self._starts += 1
        process = Process(
            [*self._command, str(worker), self._address, *self._arguments],
            output=self._folder / f"worker-{worker}-{self._starts}.log",
        )
        self._logs[worker] = _Log(process, self._starts)

    def wait_ready(self, *workers: int) -> None:
        self.until(lambda: all("ready" in self._logs[worker].words for worker in workers), "workers are ready")

    def stop(self, worker: int) -> None:
        """Stop a worker in order."""
        log = self._logs[worker]
        log.process.terminate()
        self.until(lambda: "left" in log.words or not log.process.alive, f"worker {worker} has left")
        log.process.wait(LIMIT_S)
        self.read()
        del self._logs[worker]

    def kill(self, *workers: int) -> float:
        """Kill workers. Returns the time."""
        killed_ms = time.monotonic_ns() / 1e6
        for worker in workers:
            self._logs[worker].process.signal(signal.SIGKILL)
        for worker in workers:
            self._logs[worker].process.kill()
        self.read()
        for worker in workers:
            self._killed_ms[self._logs.pop(worker).number] = killed_ms
        return killed_ms

    def signal(self, number: signal.Signals) -> None:
        for log in self._logs.values():
            log.process.signal(number)

    def close(self) -> None:
        for log in self._logs.values():
            log.process.kill()

    @property
    def workers(self) -> list[int]:
        return sorted(self._logs)

    def busiest(self) -> int:
        return max(self.workers, key=lambda worker: len(self._logs[worker].owned))

    # -- what they own

    def read(self) -> None:
        for log in self._logs.values():
            self.events += log.read()

    def owned(self) -> int:
        """How many shards are owned by a worker that runs."""
        self.read()
        return len(set().union(*(log.owned for log in self._logs.values())))

    def above_average(self) -> float:
        """How many shards the busiest worker owns more than the average."""
        self.read()
        return max(len(log.owned) for log in self._logs.values()) - self.shards / len(self._logs)

    def until(self, condition: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
        deadline = time.monotonic() + limit_s
        self.read()
        while not condition():
            if time.monotonic() > deadline:
                raise HarnessError(f"not within {limit_s:g} s: {what}; {self.owned()} of {self.shards} are owned")
            time.sleep(_POLL_S)
            self.read()

    def until_owned(self) -> float:
        """Wait until all shards are owned. Returns when the last one was."""
        self.until(lambda: self.owned() == self.shards, "all shards are owned")
        last: dict[int, float] = {}
        for event in self.events:
            if event.owns:
                last[event.shard] = event.time_ms
        return max(last.values())

    def settle(self, quiet_s: float) -> None:
        """Wait until all shards are owned and none has moved for some time."""
        deadline = time.monotonic() + LIMIT_S
        count, since = -1, time.monotonic()
        while time.monotonic() - since < quiet_s:
            if self.owned() != self.shards or len(self.events) != count:
                count, since = len(self.events), time.monotonic()
            if time.monotonic() > deadline:
                raise HarnessError(f"shards still move; {self.owned()} of {self.shards} are owned")
            time.sleep(_POLL_S)

    def window(self, begin_ms: float) -> Window:
        """Returns what has happened since some time."""
        calls, changes, gaps, twice = Counter[int](), Counter[int](), list[float](), 0
        for shard, events in self._by_shard().items():
            owner, ended_ms = -1, 0.0  # the last owner, and since when it owns no more; infinite while it owns
            for event in events:
                if not event.owns:
                    ended_ms = event.time_ms if event.worker == owner else ended_ms
                    continue
                former, owner = owner, event.worker
                if event.time_ms >= begin_ms:
                    calls[shard] += 1
                    changes[shard] += former != owner
                    if former not in self._killed_ms and former != -1:
                        twice += ended_ms > event.time_ms
                        gaps.append(max(0.0, event.time_ms - ended_ms) if ended_ms != float("inf") else 0.0)
                ended_ms = float("inf")
        return Window(calls, changes, gaps, twice)

    def interrupted(self, begin_ms: float, joined: int) -> tuple[int, int]:
        """Returns how many shards the worker that has joined got, and how often others were interrupted besides."""
        number = self._logs[joined].number
        moved = {event.shard for event in self.events if event.worker == number and event.owns}
        lost = [event.shard for event in self.events if event.time_ms >= begin_ms and not event.owns]
        return len(moved), len(lost) - len(moved & set(lost))

    def _by_shard(self) -> dict[int, list[Event]]:
        found: defaultdict[int, list[Event]] = defaultdict(list)
        for event in sorted(self.events):
            found[event.shard].append(event)
        return found


def wait(fleet: Fleet, seconds: float) -> None:
    """Wait, and read what the workers print meanwhile."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        fleet.read()
        time.sleep(_POLL_S)


def python_with(module: str, *interpreters: str) -> str | None:
    """Returns the first interpreter that can import a module."""
    candidates: Iterable[str] = (*interpreters, sys.executable)
    for each in candidates:
        try:
            process = Process([each, "-c", f"import {module}"], output=Path("/dev/null"))
        except HarnessError:
            continue
        if process.wait(LIMIT_S) == 0:
            return each
    return None
