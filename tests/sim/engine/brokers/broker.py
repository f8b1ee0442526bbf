"""A modelled broker over several processes: its disk outlives them."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from kactl.model import NO_EPOCH, ZERO_ID, TopicPartition
from kactl.stores.base import Store
from kactl.testing.loop import SimLoop
from kactl.testing.nodes import Node, on

from .base import MetadataView, ReplicaView, SimulatedBroker
from .process import BrokerProcess, BrokerSettings, Surroundings
from .replica import Disk
from .replication import Fetch


class ModelBroker(SimulatedBroker):
    """One broker.

    Args:
        store: opens a client of the store for a new process.
        name: of its nodes, and its address; by default that of the broker with this id.

    Attributes:
        process: the present process, or the last one.
    """

    def __init__(
        self,
        broker: int,
        loop: SimLoop,
        *,
        rack: str | None,
        store: Callable[[Node], Store],
        settings: BrokerSettings,
        around: Surroundings,
        name: str | None = None,
    ) -> None:
        super().__init__(loop, around.history, f"broker {broker}" if name is None else name, self._run)
        self.id = broker
        self.disk = Disk()
        self.process: BrokerProcess | None = None
        self._rack = rack
        self._store = store
        self._settings = settings
        self._around = around

    async def _run(self, node: Node) -> None:
        self.disk.mend()
        process = self.process = BrokerProcess(
            self.id,
            self.disk,
            address=self.name,
            rack=self._rack,
            store=self._store(node),
            settings=self._settings,
            around=self._around,
            rng=self._loop.streams[self.name.replace(" ", ":")],
        )
        self._around.network.listen(node, process.handle, inline=process.serve, inlined=Fetch)
        with contextlib.suppress(asyncio.CancelledError):
            await process.run()
        self._around.network.close(node)

    @property
    def has_process(self) -> bool:
        return self.process is not None

    @property
    def epoch(self) -> int:
        return NO_EPOCH if self.process is None else self.process.receiver.epoch

    def replicas(self) -> Mapping[TopicPartition, ReplicaView]:
        if self.process is None:
            return {}
        return {
            name: ReplicaView(held.topic.id, held.leader, held.leader_epoch, held.partition_epoch, held.replicas)
            for name, held in self.process.receiver.replicas.items()
        }

    def metadata(self, name: TopicPartition) -> MetadataView | None:
        entry = None if self.process is None else self.process.receiver.known.get(name)
        if entry is None:
            return None
        return MetadataView(
            entry.leader,
            entry.leader_epoch,
            frozenset(entry.isr),
            entry.partition_epoch,
            entry.replicas,
            frozenset(entry.offline_replicas),
        )

    def live(self) -> frozenset[int]:
        return frozenset() if self.process is None else self.process.receiver.live

    def has_overtaken_metadata(self, name: TopicPartition | None = None) -> bool:
        if self.process is None:
            return False
        receiver = self.process.receiver
        return receiver.live_is_overtaken if name is None else name in receiver.overtaken

    def has_lost(self, name: TopicPartition) -> bool:
        if self.process is None:
            return False
        receiver, log = self.process.receiver, self.disk.logs.get(name)
        # With topic ids, it rejects the next LeaderAndIsr, and is `blocked` if that came.
        is_earlier = log is not None and log.is_overtaken and log.topic_id == ZERO_ID
        return is_earlier or any(
            name in names for names in (receiver.late_stops.lost, receiver.blocked, receiver.ignored)
        )

    def has_missed_deletion(self, name: TopicPartition, twin: SimulatedBroker) -> bool:
        other = twin.process if isinstance(twin, ModelBroker) else None
        if self.process is None or other is None:
            return False
        return self.process.receiver.has_missed_deletion(name, other.receiver)

    def logs(self) -> Mapping[TopicPartition, bytes]:
        return {name: log.topic_id for name, log in self.disk.logs.items() if not log.is_overtaken}

    def known_topics(self) -> set[str]:
        if self.process is None:
            return set()
        receiver = self.process.receiver
        known = [name for name in receiver.known if name not in receiver.overtaken]
        logs = self.disk.logs
        held = [name for name in receiver.replicas if name not in logs or not logs[name].is_overtaken]
        return {name.topic for name in (*known, *held)}

    def failed_directories(self) -> set[TopicPartition]:
        return self.disk.failed

    def has_failed(self, name: TopicPartition) -> bool:
        return name in self.disk.failed

    def can_delete(self, name: TopicPartition) -> bool:
        return name not in self.disk.failed and name not in self.disk.undeletable

    async def shut_down(self, *, epoch_lag: int = 0) -> None:
        node, process = self.node, self.process
        if node is None or process is None or node.state != "running":
            return
        with on(node):
            request = asyncio.get_running_loop().create_task(process.shut_down(epoch_lag=epoch_lag), name="shutdown")
        await asyncio.wait([request], timeout=60)
        if self.node is node:
            await self.stop()

    def lose_unforced(self, share: float) -> None:
        for stored in self.disk.logs.values():
            runs = stored.log.runs
            if runs:
                start = runs[-2][1] if len(runs) > 1 else 0
                stored.log.truncate(runs[-1][1] - int((runs[-1][1] - start) * share))

    def fail_directory(self, name: TopicPartition) -> None:
        self.disk.failed.add(name)
        if self.process is not None:
            self.process.receiver.replicas.pop(name, None)

    def make_undeletable(self, name: TopicPartition) -> None:
        self.disk.undeletable.add(name)

    async def allocate_producer_ids(self) -> None:
        if self.process is not None:
            await self.process.allocate_producer_ids()
