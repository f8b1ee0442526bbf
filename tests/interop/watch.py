"""Continuous check of the leader of each partition and of the leader's process."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.support.processes import HarnessError

from .zookeeper_reader import ZooKeeperReader

EVERY_S: Final = 0.1
JOIN_S: Final = 90.0


class LeaderWatch:
    """Reads the leaders from ZooKeeper every 100 ms, in a separate thread, within the `with` block.

    While ZooKeeper is unavailable nothing is read, and a partition without a leader before counts as such until the
    next read.

    Args:
        reader: reader for this object alone.
        runs: returns the running brokers.
    """

    def __init__(self, reader: ZooKeeperReader, runs: Callable[[], set[int]]) -> None:
        self.looks = 0
        self._reader = reader
        self._runs = runs
        self._lock = threading.Lock()
        self._began: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._worst_s = 0.0
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def reset(self) -> None:
        """Discard earlier observations."""
        with self._lock:
            self._last.clear()
            self._worst_s = 0.0

    def seen(self) -> tuple[float, dict[str, float]]:
        """Return the longest time of a partition without a leader since `reset`, and each one's last such time.

        Raises:
            HarnessError: the thread has failed; contains the reason.
        """
        with self._lock:
            if self._error is not None:
                raise HarnessError(f"the leaders are not read any more: {self._error!r}")
            return self._worst_s, dict(self._last)

    def _watch(self) -> None:
        try:
            self._look()
        except Exception as error:
            self._error = error  # a caller of `seen` must learn that nothing is read any more

    def _look(self) -> None:
        while not self._ended.wait(EVERY_S):
            before = self._runs()
            try:
                states = self._reader.states()
            except (KazooException, KazooTimeoutError):
                continue  # ZooKeeper is unavailable, as expected at times
            running = before | self._runs()  # brokers that ended or started in between count as running
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
        self._reader.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(JOIN_S)
        self._reader.__exit__(kind, error, trace)
