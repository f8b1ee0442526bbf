"""Common parts of all incidents: brokers that can be killed, a prober, writers, and a record of all faults."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from ..acceptance.bench import until
from ..tools import Tools
from . import disk
from .facts import Cut, Facts, Kill, Lost, Pause, Planned
from .prober import Prober, gaps
from .writers import Writer, read_all

# Time limit of every wait, also on a busy machine.
MARGIN_S: Final = 90.0


class Broker(Protocol):
    """Interface of a broker, with ZooKeeper or without."""

    folder: Path
    client_port: int

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Notes:
    """Brokers under observation within the `with` block.

    Args:
        brokers: running brokers, by their ids.
    """

    def __init__(self, brokers: Mapping[int, Broker], tools: Tools) -> None:
        self.brokers = brokers
        self.partitions: list[str] = []
        self.kills: list[Kill] = []
        self.pauses: list[Pause] = []
        self.planned: list[Planned] = []
        self.bootstrap = ",".join(f"127.0.0.1:{broker.client_port}" for broker in brokers.values())
        self.prober = Prober({number: broker.client_port for number, broker in brokers.items()})
        self.writers = [Writer(self.bootstrap, acks=acks) for acks in ("1", "all")]
        self._tools = tools
        self._stack = ExitStack()

    def create(self, topic: str, assignment: str, *options: str) -> None:
        """Create a topic, probe its partitions and write to them from now on, and wait until both work."""
        self._tools.topics("--create", "--topic", topic, "--replica-assignment", assignment, *options).well()
        self.partitions += [f"{topic}-{number}" for number in range(assignment.count(",") + 1)]
        self.prober.watch(self.partitions)
        for writer in self.writers:
            writer.write_to(self.partitions)
        self.flowing()

    def flowing(self, partitions: Iterable[str] | None = None) -> None:
        """Wait until partitions (all by default) have leaders and accept the records of both writers again."""
        began = time.time()
        for partition in self.partitions if partitions is None else partitions:
            until(partial(self._flows, partition, began), f"{partition} to be written to", MARGIN_S)

    def kill(self, broker: int) -> None:
        """Send SIGKILL, and read what remains on its disk."""
        before = time.time()
        self.brokers[broker].kill()
        after = time.time()
        self.kills.append(Kill(broker, before, after, disk.ends(self.brokers[broker].folder / "logs")))

    def kill_together(self, *brokers: int) -> None:
        """Send SIGKILL to several brokers, one right after the other."""
        before = time.time()
        for broker in brokers:
            self.brokers[broker].kill()
        after = time.time()
        for broker in brokers:
            self.kills.append(Kill(broker, before, after, disk.ends(self.brokers[broker].folder / "logs")))

    def paused(self, broker: int, meanwhile: Callable[[], object]) -> None:
        """Send SIGSTOP, and SIGCONT after `meanwhile` has returned."""
        before = time.time()
        self.brokers[broker].pause()
        after = time.time()
        meanwhile()
        resumed = time.time()
        self.brokers[broker].resume()
        self.pauses.append(Pause(broker, before, after, resumed, time.time()))

    def plan(self, reason: str, act: Callable[[], object]) -> None:
        """Move leaders on purpose, and wait until all partitions work again."""
        begin = time.time()
        act()
        self.flowing()
        self.planned.append(Planned(reason, begin, time.time()))

    def finish(self) -> None:
        """Stop the writers and the prober."""
        self._stack.close()

    def facts(self, logs: Path, zone: str, *, unclean: dict[str, int], committed: dict[str, int]) -> Facts:
        """Return all facts. The brokers must run with all replicas in sync, and nothing may write."""
        stored = read_all(self.bootstrap, self.partitions)
        lost = [
            Lost(writer.acks, record)
            for writer in self.writers
            for number, record in writer.acknowledged.items()
            if writer.value(number) not in stored[record.partition]
        ]
        return Facts(
            logs=logs,
            zone=zone,
            partitions=self.partitions,
            kills=self.kills,
            planned=self.planned,
            gaps=[gap for partition in self.partitions for gap in gaps(self.prober.looks, partition, self.pauses)],
            cuts=[cut for kill in self.kills for cut in self._cuts(kill)],
            begins={partition: disk.begins(self._log_of_leader(partition), partition) for partition in self.partitions},
            lost=lost,
            unclean=unclean,
            committed=committed,
            acknowledged=sum(len(writer.acknowledged) for writer in self.writers),
            refused=[reason for writer in self.writers for reason in writer.refused],
            pauses=self.pauses,
        )

    def _flows(self, partition: str, since: float) -> bool:
        return self.prober.leads(partition) is not None and all(
            writer.has_written(partition, since) for writer in self.writers
        )

    def _cuts(self, kill: Kill) -> list[Cut]:
        cuts = []
        for partition, end in kill.ends.items():
            cut_offset = disk.first_after(self._log_of_leader(partition), partition, end.epoch)
            if cut_offset is not None:  # else the epoch continues, and so does the log
                cuts.append(Cut(partition, kill.broker, end.epoch, end.offset, cut_offset))
        return cuts

    def _log_of_leader(self, partition: str) -> Path:
        leader = self.prober.leads(partition)
        assert leader is not None, partition
        return self.brokers[leader].folder / "logs"

    def __enter__(self) -> Self:
        with self._stack as stack:
            stack.enter_context(self.prober)
            for writer in self.writers:
                stack.enter_context(writer)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
