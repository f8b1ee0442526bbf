"""Continuous check of the leader of each partition and of the leader's process."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.support.processes import HarnessError

from .eyes import Eyes

EVERY_S: Final = 0.1
JOIN_S: Final = 90.0


class LeaderWatch:
    """Looks into ZooKeeper every 100 ms, in a thread of its own, for as long as the `with` block lasts.

    Without ZooKeeper nothing is seen, and who was without a leader before counts as being so until the next look.

    Args:
        eyes: for this alone.
        runs: which brokers do.
    """

    def __init__(self, eyes: Eyes, runs: Callable[[], set[int]]) -> None:
        self.looks = 0
        self._eyes = eyes
        self._runs = runs
        self._lock = threading.Lock()
        self._began: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._worst_s = 0.0
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def reset(self) -> None:
        """Forget what was seen before."""
        with self._lock:
            self._last.clear()
            self._worst_s = 0.0

    def seen(self) -> tuple[float, dict[str, float]]:
        """Since `reset`: the longest that a partition was without a leader, and when each was last seen so.

        Raises:
            HarnessError: nothing is seen any more, for a reason that it names.
        """
        with self._lock:
            if self._error is not None:
                raise HarnessError(f"nobody looks who leads what any more: {self._error!r}")
            return self._worst_s, dict(self._last)

    def _watch(self) -> None:
        try:
            self._look()
        except Exception as error:
            self._error = error  # who asks what was seen has to know that nothing is seen any more

    def _look(self) -> None:
        while not self._ended.wait(EVERY_S):
            before = self._runs()
            try:
                states = self._eyes.states()
            except (KazooException, KazooTimeoutError):
                continue  # ZooKeeper is away, as it now and then has to be
            running = before | self._runs()  # who ended or came in between is given the benefit of the doubt
            now = time.monotonic()
            with self._lock:
                self.looks += 1
                leaderless = {name for name, state in states.items() if state.leader not in running}
                for name in self._began.keys() - leaderless:
                    del self._began[name]
                for name in leaderless:
                    self._worst_s = max(self._worst_s, now - self._began.setdefault(name, now))
                    self._last[name] = now

    def __enter__(self) -> Self:
        self._eyes.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(JOIN_S)
        self._eyes.__exit__(kind, error, trace)
