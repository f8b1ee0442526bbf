"""How a leader keeps its ISRs: it takes followers in that have caught up, and drops those that have not for too long.

As long as participants keep no log, a follower is caught up as soon as it follows this leader under this leader epoch;
an application may ask for more. The leader asks each time anew and remembers no word of a follower, so that none from a
dead one is left over. How an ISR then comes about, by asking the controller or by writing the store, is the way's
affair: `isr_proposer`, `isr_writer`.

Source: Partition.maybeExpandIsr, Partition.maybeShrinkIsr.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio
import numpy as np

from kactl.clock import Clock
from kactl.errors import KactlError
from kactl.logs import logger
from kactl.model import NO_BROKER, Leadership, TopicPartition
from kactl.rows import Bools, Ints, Live, RowNumbers, members, some
from kactl.store import Names

from .hosted import Hosted, Role
from .index import ABSENT
from .laggards import LOOKS_PER_LAG, Laggards
from .pause import Pause
from .words import Follows, InSync, Wanted, Way

log = logger(__name__)

# After a failure, and between two looks at an application's own measure of being caught up.
RETRY_MS: Final = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Candidates:
    """n partitions that this broker leads and whose ISR may grow.

    Attributes:
        replicas: int32[W, n].
        missing: bool[W, n], assigned, live and not in sync.
        recovering: bool[n].
    """

    rows: RowNumbers
    replicas: Ints
    missing: Bools
    recovering: Bools

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: Bools) -> "Candidates":
        return Candidates(**{f.name: getattr(self, f.name)[..., which] for f in dataclasses.fields(self)})


def candidates(hosted: Hosted, live: Live) -> Candidates:
    """Where a leader may have somebody to take in, or a recovery to end: live replicas are out of sync."""
    rows = hosted.in_role(Role.LEADER)
    replicas, isr = hosted.replicas[:, rows], hosted.isr[:, rows]
    in_sync = np.zeros(replicas.shape, np.bool_)
    for member in isr:
        in_sync |= replicas == member
    missing = live[replicas] & ~in_sync
    recovering = hosted.recovering[rows]
    return Candidates(rows, replicas, missing, recovering).take(some(missing) | recovering)


def wish(hosted: Hosted, row: int, *, taken_in: Sequence[int] = (), dropped: Sequence[int] = ()) -> Leadership:
    """The leadership that a leader wants for one row: members in assignment order, others behind them."""
    isr = {int(broker) for broker in hosted.isr[:, row] if broker != NO_BROKER}.union(taken_in).difference(dropped)
    assigned = [int(broker) for broker in hosted.replicas[:, row] if broker in isr]
    others = [int(broker) for broker in hosted.isr[:, row] if broker in isr and broker not in assigned]
    return Leadership(
        leader=int(hosted.leader[row]),
        leader_epoch=int(hosted.leader_epoch[row]),
        isr=(*assigned, *others),
        partition_epoch=int(hosted.partition_epoch[row]),
        controller_epoch=int(hosted.controller_epoch[row]),
        recovering=False,  # there is no log yet that would have to recover
    )


class IsrKeeper:
    """Looks at what this broker leads whenever something may have changed, and now and then at who still follows.

    Args:
        live: the brokers that the metadata call live, at each call.
        lag_ms: for how long a member may not follow before it is dropped.
    """

    def __init__(
        self,
        broker: int,
        hosted: Hosted,
        *,
        way: Way,
        clock: Clock,
        pause: Pause,
        live: Callable[[], Live],
        follows: Follows,
        in_sync: InSync | None,
        lag_ms: float,
    ) -> None:
        self._hosted = hosted
        self._way = way
        self._clock = clock
        self._pause = pause
        self._live = live
        self._follows = follows
        self._in_sync = in_sync
        self._lag_ms = lag_ms
        self._laggards = Laggards(broker, hosted, clock=clock, follows=follows, in_sync=in_sync, lag_ms=lag_ms)
        self._wanted = anyio.Event()
        # Under which (leader epoch, version) a wish was refused: the same would be refused for ever.
        self._refused: dict[TopicPartition, tuple[int, int]] = {}

    def look(self) -> None:
        """Something may have changed: look again soon. Many calls may become one look."""
        self._wanted.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look_at_members)
            while True:
                await self._wanted.wait()
                self._wanted = anyio.Event()
                await self._pause.over()
                if not await self._keep():
                    await self._clock.sleep_ms(RETRY_MS)
                    self.look()

    async def _look_at_members(self) -> None:
        while True:
            await self._clock.sleep_ms(self._lag_ms / LOOKS_PER_LAG)
            await self._pause.over()
            self._laggards.look()
            self.look()

    async def _keep(self) -> bool:
        """Bring about what is wanted. False if it is worth another look later."""
        try:
            return await self._bring_all()
        except KactlError as error:
            log.info("a leader could not change its ISRs, and will try again: %s", error)
        except Exception:
            # Its outcome is unknown; the next look compares with what is stored.
            log.exception("a leader could not change its ISRs, and will try again")
        return False

    async def _bring_all(self) -> bool:
        """Go on until nothing is left that can be brought about now. True if nothing waits for anything either."""
        self._way.catch_up()
        self._forget_refused()
        later: set[TopicPartition] = set()
        while True:
            wanted, waiting = self._look(later)
            brought = await self._way.bring(wanted)
            if not wanted:
                return not (waiting or later)
            for name, state in brought.refused:
                self._refused[name] = (state.leader_epoch, state.partition_epoch)
            later |= {name for name, _ in brought.later}

    def _forget_refused(self) -> None:
        """What was refused may be wished again under another version."""
        for name, known in list(self._refused.items()):
            held = self._hosted.view(name)
            if held is None or held.role is not Role.LEADER or (held.leader_epoch, held.partition_epoch) != known:
                del self._refused[name]

    def _look(self, later: set[TopicPartition]) -> tuple[list[Wanted], bool]:
        """What is wanted now, at most as much as the way takes; and whether followers wait for the application's word
        that they are in sync."""
        hosted = self._hosted
        found = candidates(hosted, self._live())
        taken_in, waiting = self._caught_up(found)
        dropped = self._laggards.to_drop()
        which = np.flatnonzero(some(taken_in) | found.recovering)[: self._way.limit + len(self._refused) + len(later)]
        grown = members(taken_in, found.replicas)[:, which]
        wanted = {}
        for position, name in enumerate(hosted.index.names(found.rows[which])):
            added = [broker for broker in grown[:, position].tolist() if broker != NO_BROKER]
            row = int(found.rows[which[position]])
            wanted[name] = wish(hosted, row, taken_in=added, dropped=tuple(dropped.get(name, ())))
        for name, row in _rows_of(hosted, dropped, but=wanted):
            wanted[name] = wish(hosted, row, dropped=tuple(dropped[name]))
        made = [
            (name, state)
            for name, state in wanted.items()
            if name not in later and self._refused.get(name) != (state.leader_epoch, state.partition_epoch)
        ]
        return made[: self._way.limit], waiting

    def _caught_up(self, found: Candidates) -> tuple[Bools, bool]:
        """bool[W, n]: who is to be taken in; and whether somebody follows of whom the application says that he has not
        caught up."""
        hosted = self._hosted
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
        return caught_up, int(np.count_nonzero(caught_up)) < followed

    def _ask_application(self, names: Names, replicas: Ints, caught_up: Bools) -> None:
        """Take out of `caught_up` whom the application does not call in sync."""
        assert self._in_sync is not None
        partitions = list(names)
        for slot, position in np.argwhere(caught_up).tolist():
            caught_up[slot, position] = self._in_sync(partitions[position], int(replicas[slot, position]))


def _rows_of(
    hosted: Hosted, names: Mapping[TopicPartition, set[int]], *, but: Mapping[TopicPartition, Leadership]
) -> list[tuple[TopicPartition, int]]:
    """The rows of some partitions, those of `but` left out."""
    found = [(name, hosted.index.find_one(name)) for name in names if name not in but]
    return [(name, row) for name, row in found if row != ABSENT]
