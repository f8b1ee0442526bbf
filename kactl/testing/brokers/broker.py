"""A modelled broker over several processes: its disk outlives them."""

import asyncio
import contextlib
from collections.abc import Callable

from kactl.model import TopicPartition
from kactl.stores.base import Store
from kactl.testing.loop import SimLoop
from kactl.testing.member import Member
from kactl.testing.nodes import Node, on

from .process import BrokerProcess, BrokerSettings, Surroundings
from .replica import Disk
from .replication import Fetch


class ModelBroker(Member):
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

    async def shut_down(self, *, epoch_lag: int = 0) -> None:
        """Request a controlled shutdown, then end the process."""
        node, process = self.node, self.process
        if node is None or process is None or node.state != "running":
            return
        with on(node):
            request = asyncio.get_running_loop().create_task(process.shut_down(epoch_lag=epoch_lag), name="shutdown")
        await asyncio.wait([request], timeout=60)
        if self.node is node:
            await self.stop()

    def lose_unforced(self, share: float) -> None:
        """Drop the last part of each log: what power loss takes that was not forced to disk.

        Args:
            share: 0 to 1, of the records of each log's last epoch.
        """
        for stored in self.disk.logs.values():
            runs = stored.log.runs
            if runs:
                start = runs[-2][1] if len(runs) > 1 else 0
                stored.log.truncate(runs[-1][1] - int((runs[-1][1] - start) * share))

    def fail_directory(self, name: TopicPartition) -> None:
        """Make the directory of a partition fail."""
        self.disk.failed.add(name)
        if self.process is not None:
            self.process.receiver.replicas.pop(name, None)
