"""ISR updates below protocol level 2.7: the leader itself writes the partition's state to the store.

Each write is a compare-and-set on the version that the leader knows. One notification to the controller follows for all
partitions written. If the store holds another version, it is read: if the stored leadership is still that of this
leader, an earlier write of the leader itself has been committed.

Source: ZkAlterPartitionManager.
"""

from collections.abc import Sequence
from typing import Final

import anyio

from kactl.model import Leadership, TopicPartition
from kactl.model.errors import StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Names, Store

from .hosted_replicas import HostedReplicas
from .isr_update import IsrUpdate, IsrUpdateResult
from .pause_gate import PauseGate

log = logger(__name__)

# One notification is one entry of the store. This many names fit well below a megabyte.
NOTIFIED_MAX: Final = 3_000
# Kafka's default (zookeeper.max.in.flight.requests).
WRITES_IN_FLIGHT: Final = 10


class IsrWriter:
    """An `IsrUpdater` that writes to the store.

    Attributes:
        limit: see `IsrUpdater`.
    """

    limit = NOTIFIED_MAX

    def __init__(self, hosted: HostedReplicas, *, store: Store, pause: PauseGate) -> None:
        self._hosted = hosted
        self._store = store
        self._pause = pause
        self._unnotified: dict[TopicPartition, None] = {}

    def reconcile(self) -> None:
        """Do nothing: `submit` has read the store after each conflict."""

    async def submit(self, updates: Sequence[IsrUpdate]) -> IsrUpdateResult:
        """See `IsrUpdater`."""
        conflicts = await self._write(updates)
        rejected = await self._read_back(conflicts)
        await self._notify()
        return IsrUpdateResult(rejected)

    async def _write(self, updates: Sequence[IsrUpdate]) -> list[IsrUpdate]:
        """Write the updates, WRITES_IN_FLIGHT at a time. Returns those for which the store holds another version."""
        conflicts: list[IsrUpdate] = []
        failures: list[StoreError] = []
        pending = iter(updates)

        async def write() -> None:
            for name, state in pending:
                await self._pause.wait_open()
                if failures:
                    return  # the store fails; the next check submits the remaining updates
                try:
                    version = await self._store.write_isr(name, state, expected=state.partition_epoch)
                except StoreError as error:
                    failures.append(error)
                    return
                if version is None:
                    conflicts.append((name, state))
                else:
                    self._apply(name, state, version)

        async with anyio.create_task_group() as tasks:
            for _ in range(min(WRITES_IN_FLIGHT, len(updates))):
                tasks.start_soon(write)
        if failures:
            await self._read_back(conflicts)
            raise failures[0]
        return conflicts

    async def _read_back(self, conflicts: list[IsrUpdate]) -> list[IsrUpdate]:
        """Read the partitions with a rejected write.

        If the stored leadership is still that of this leader, an earlier write had been committed without a response:
        apply the stored state.

        Returns:
            all conflicts: none may be retried with the same version.
        """
        if not conflicts:
            return conflicts
        stored = await self._store.leaderships(Names.of([name for name, _ in conflicts]))
        ended = []
        for position, (name, state) in enumerate(conflicts):
            current = stored.one(position)
            if current is None or (current.leader, current.leader_epoch) != (state.leader, state.leader_epoch):
                ended.append(name)
            else:
                self._apply(name, current, current.partition_epoch)
        if ended:
            log.info(
                "%d ISRs were not written, the first that of %s: the leadership has ended, and a LeaderAndIsr will "
                "follow",
                len(ended),
                ended[0],
            )
        return conflicts

    def _apply(self, name: TopicPartition, state: Leadership, version: int) -> None:
        self._unnotified[name] = None
        written = Leadership(
            state.leader, state.leader_epoch, state.isr, version, state.controller_epoch, state.recovering
        )
        self._hosted.apply_isr(name, written)

    async def _notify(self) -> None:
        """Notify the controller of the partitions that were written."""
        while self._unnotified:
            await self._pause.wait_open()
            names = list(self._unnotified)[:NOTIFIED_MAX]
            await self._store.notify_isr(names)
            for name in names:
                self._unnotified.pop(name, None)
