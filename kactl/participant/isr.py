"""How a leader takes followers into its ISR.

As Kafka's brokers do below protocol level 2.7: the leader itself writes the partition's state by compare-and-set on
the version it knows, and then leaves one notification for all that it wrote. As long as participants keep no log, a
follower is caught up as soon as it follows this leader under this leader epoch; an application may ask for more.

The leader asks each time anew and remembers nothing of an answer, so that no word from a dead follower is left over.

Source: Partition.maybeExpandIsr, ZkAlterPartitionManager.
"""

import dataclasses
import logging
from collections.abc import Callable
from typing import Final

import anyio
import numpy as np

from kactl.clock import Clock
from kactl.errors import StoreError
from kactl.model import NO_BROKER, Leadership, TopicPartition
from kactl.rows import Bools, Ints, Live, RowNumbers, members, some
from kactl.store import Names, Store

from .hosted import Hosted, Role
from .pause import Pause

log = logging.getLogger(__name__)

# (partition, follower) -> whether the follower has caught up. Asked only about followers that follow.
InSync = Callable[[TopicPartition, int], bool]
# (broker, partitions, leader epochs) -> bool[n], which of them that broker follows from us under these epochs.
Follows = Callable[[int, Names, Ints], Bools]

# One notification is one entry of the store: as many names fit well below a megabyte.
NOTIFIED_MAX: Final = 3_000
# As many unanswered writes as Kafka allows itself by default (zookeeper.max.in.flight.requests).
WRITES_IN_FLIGHT: Final = 10
# After a failure of the store, and between two looks at an application's own measure of being caught up.
RETRY_MS: Final = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Candidates:
    """n partitions that this broker leads and whose ISR may grow.

    Attributes:
        replicas: int32[W, n].
        in_sync: bool[W, n].
        missing: bool[W, n], assigned, live and not in sync.
        recovering: bool[n].
    """

    rows: RowNumbers
    replicas: Ints
    in_sync: Bools
    missing: Bools
    recovering: Bools

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: Bools) -> "Candidates":
        return Candidates(**{f.name: getattr(self, f.name)[..., which] for f in dataclasses.fields(self)})


def candidates(hosted: Hosted, live: Live) -> Candidates:
    """What a leader may have to propose: live replicas that are out of sync, or the end of a recovery."""
    rows = hosted.in_role(Role.LEADER)
    replicas, isr = hosted.replicas[:, rows], hosted.isr[:, rows]
    in_sync = np.zeros(replicas.shape, np.bool_)
    for member in isr:
        in_sync |= replicas == member
    in_sync &= replicas != NO_BROKER
    missing = live[replicas] & ~in_sync
    recovering = hosted.recovering[rows]
    found = Candidates(rows, replicas, in_sync, missing, recovering)
    return found.take(some(missing) | recovering)


def proposals(hosted: Hosted, rows: RowNumbers, grown: Ints) -> list[tuple[TopicPartition, Leadership]]:
    """The leadership to write for some rows; its `partition_epoch` is the version to compare with.

    Args:
        grown: int32[W, n], the assigned replicas that are to be in sync, in assignment order. Members from outside
            the assignment are kept, behind them.
    """
    made = []
    for position, (row, name) in enumerate(zip(rows.tolist(), hosted.index.names(rows), strict=True)):
        assigned = [broker for broker in grown[:, position].tolist() if broker != NO_BROKER]
        kept = [broker for broker in hosted.isr[:, row].tolist() if broker != NO_BROKER and broker not in assigned]
        state = Leadership(
            leader=int(hosted.leader[row]),
            leader_epoch=int(hosted.leader_epoch[row]),
            isr=(*assigned, *kept),
            partition_epoch=int(hosted.partition_epoch[row]),
            controller_epoch=int(hosted.controller_epoch[row]),
            recovering=False,  # there is no log yet that would have to recover
        )
        made.append((name, state))
    return made


class IsrKeeper:
    """Looks at what this broker leads whenever something may have changed, and writes what has to be written.

    Args:
        live: the brokers that the metadata call live, at each call.
    """

    def __init__(
        self,
        hosted: Hosted,
        *,
        store: Store,
        clock: Clock,
        pause: Pause,
        live: Callable[[], Live],
        follows: Follows,
        in_sync: InSync | None,
    ) -> None:
        self._hosted = hosted
        self._store = store
        self._clock = clock
        self._pause = pause
        self._live = live
        self._follows = follows
        self._in_sync = in_sync
        self._wanted = anyio.Event()
        self._unnotified: dict[TopicPartition, None] = {}

    def look(self) -> None:
        """Something may have changed: look again soon. Many calls may become one look."""
        self._wanted.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            await self._pause.over()
            try:
                again = await self._grow()
            except Exception:
                # Its outcome is unknown; the next look compares with what is stored.
                log.exception("a leader could not write its ISR, and will try again")
                again = True
            if again:
                await self._clock.sleep_ms(RETRY_MS)
                self.look()

    async def _grow(self) -> bool:
        """Propose until nothing is left that can be proposed now. True if it is worth another look later."""
        refused: set[tuple[TopicPartition, int]] = set()
        while True:
            found, waiting = self._caught_up(refused)
            if not found:
                await self._notify()
                return waiting
            conflicts = await self._write(found)
            await self._read_back(conflicts)
            # A conflict under the same version again would be met for ever: what comes next is an instruction.
            refused |= {(name, state.partition_epoch) for name, state in conflicts}
            await self._notify()

    def _caught_up(
        self, refused: set[tuple[TopicPartition, int]]
    ) -> tuple[list[tuple[TopicPartition, Leadership]], bool]:
        """What to propose now, at most as much as one notification holds; and whether followers wait for the
        application's word that they are in sync."""
        hosted = self._hosted
        found = candidates(hosted, self._live())
        names, epochs = hosted.index.names(found.rows), hosted.leader_epoch[found.rows]
        caught_up = np.zeros(found.missing.shape, np.bool_)
        for broker in np.unique(found.replicas[found.missing]).tolist():
            asked = found.missing & (found.replicas == broker)
            partitions = some(asked)
            following = np.zeros(len(found), np.bool_)
            following[partitions] = self._follows(broker, names.take(partitions), epochs[partitions])
            caught_up |= asked & following
        followed = int(np.count_nonzero(caught_up))
        if self._in_sync is not None:
            self._ask_application(names, found.replicas, caught_up)
        waiting = int(np.count_nonzero(caught_up)) < followed
        grown = found.in_sync | caught_up
        # Those that were refused are passed over below; so many more have to be looked at.
        chosen = np.flatnonzero(some(caught_up) | found.recovering)[: NOTIFIED_MAX + len(refused)]
        made = proposals(hosted, found.rows[chosen], members(grown, found.replicas)[:, chosen])
        made = [(name, state) for name, state in made if (name, state.partition_epoch) not in refused]
        return made[:NOTIFIED_MAX], waiting

    def _ask_application(self, names: Names, replicas: Ints, caught_up: Bools) -> None:
        """Take out of `caught_up` whom the application does not call in sync."""
        assert self._in_sync is not None
        partitions = list(names)
        for slot, position in np.argwhere(caught_up).tolist():
            caught_up[slot, position] = self._in_sync(partitions[position], int(replicas[slot, position]))

    async def _write(self, made: list[tuple[TopicPartition, Leadership]]) -> list[tuple[TopicPartition, Leadership]]:
        """Write some proposals, some at a time. Returns those under which another version stood."""
        conflicts: list[tuple[TopicPartition, Leadership]] = []
        failures: list[StoreError] = []
        left = iter(made)

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
            for _ in range(min(WRITES_IN_FLIGHT, len(made))):
                tasks.start_soon(write)
        if failures:
            await self._read_back(conflicts)
            raise failures[0]
        return conflicts

    async def _read_back(self, conflicts: list[tuple[TopicPartition, Leadership]]) -> None:
        """Where the stored leadership is still ours, a write of ours had gone through unseen: go on from there."""
        if not conflicts:
            return
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
