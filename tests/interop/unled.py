"""Watcher for partitions without a leader."""

import threading
from typing import Self

from tests.support.processes import POLL_S

from .zookeeper_reader import ZooKeeperReader


class Unled:
    """Collects the partitions that have no leader in ZooKeeper, at any time while the block runs.

    Args:
        hosts, chroot: as for `ZooKeeperReader`.
        topics: whose partitions are watched.

    Attributes:
        seen: names of partitions that had no leader.
        looks: number of complete reads.
    """

    def __init__(self, hosts: str, chroot: str, *topics: str) -> None:
        self._topics = topics
        self._reader = ZooKeeperReader(hosts, chroot)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.seen: set[str] = set()
        self.looks = 0

    def _look(self) -> None:
        while not self._ends.wait(POLL_S):
            for topic in self._topics:
                self.seen |= {name for name, state in self._reader.states_of(topic).items() if state.leader == -1}
            self.looks += 1

    def __enter__(self) -> Self:
        self._reader.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._reader.__exit__(None, None, None)
