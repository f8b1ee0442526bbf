"""The way of brokers below protocol level 2.7: the leader itself writes the partition's state.

By compare-and-set on the version it knows; and then it leaves one notification for the controller, for all that it
wrote. Where another version stands the store is read: if the leadership there is still ours, it was our own write.

Source: ZkAlterPartitionManager.
"""

from collections.abc import Sequence
from typing import Final

import anyio

from kactl.errors import StoreError
from kactl.model import Leadership, TopicPartition
from kactl.runtime.logs import logger
from kactl.stores.base import Names, Store

from .hosted_replicas import Hosted
from .isr_update import Brought, Wanted
from .pause_gate import Pause

log = logger(__name__)

# One notification is one entry of the store: as many names fit well below a megabyte.
NOTIFIED_MAX: Final = 3_000
# As many unanswered writes as Kafka allows itself by default (zookeeper.max.in.flight.requests).
WRITES_IN_FLIGHT: Final = 10


class IsrWriter:
    """See the module, and `Way`."""

    limit = NOTIFIED_MAX

    def __init__(self, hosted: Hosted, *, store: Store, pause: Pause) -> None:
        self._hosted = hosted
        self._store = store
        self._pause = pause
        self._unnotified: dict[TopicPartition, None] = {}

    def catch_up(self) -> None:
        """See `Way`: the store was read when it refused."""

    async def bring(self, wanted: Sequence[Wanted]) -> Brought:
        """See `Way`."""
        conflicts = await self._write(wanted)
        refused = await self._read_back(conflicts)
        await self._notify()
        return Brought(refused)

    async def _write(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Write some wishes, some at a time. Returns those under which another version stood."""
        conflicts: list[Wanted] = []
        failures: list[StoreError] = []
        left = iter(wanted)

        async def write() -> None:
            for name, state in left:
                await self._pause.over()
                if failures:
                    return  # the store is in trouble; the rest is for the next look
                try:
                    version = await self._store.write_isr(name, state, expected=state.partition_epoch)
                except StoreError as error:
                    failures.append(error)
                    return
                if version is None:
                    conflicts.append((name, state))
                else:
                    self._keep(name, state, version)

        async with anyio.create_task_group() as tasks:
            for _ in range(min(WRITES_IN_FLIGHT, len(wanted))):
                tasks.start_soon(write)
        if failures:
            await self._read_back(conflicts)
            raise failures[0]
        return conflicts

    async def _read_back(self, conflicts: list[Wanted]) -> list[Wanted]:
        """Where the stored leadership is still ours, a write of ours had gone through unseen: go on from there.

        Returns:
            all of them: none is to be tried again under the same version.
        """
        if not conflicts:
            return conflicts
        stored = await self._store.leaderships(Names.of([name for name, _ in conflicts]))
        ended = []
        for position, (name, state) in enumerate(conflicts):
            there = stored.one(position)
            if there is None or (there.leader, there.leader_epoch) != (state.leader, state.leader_epoch):
                ended.append(name)
            else:
                self._keep(name, there, there.partition_epoch)
        if ended:
            log.info(
                "%d ISRs were not written, the first that of %s: an instruction that ends the leadership is coming",
                len(ended),
                ended[0],
            )
        return conflicts

    def _keep(self, name: TopicPartition, state: Leadership, version: int) -> None:
        self._unnotified[name] = None
        written = Leadership(
            state.leader, state.leader_epoch, state.isr, version, state.controller_epoch, state.recovering
        )
        self._hosted.keep_isr(name, written)

    async def _notify(self) -> None:
        """Tell the controller what was written."""
        while self._unnotified:
            await self._pause.over()
            names = list(self._unnotified)[:NOTIFIED_MAX]
            await self._store.notify_isr(names)
            for name in names:
                self._unnotified.pop(name, None)
