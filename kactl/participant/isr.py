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
import anyio.abc
import numpy as np

from kactl.clock import Clock
from kactl.errors import KactlError
from kactl.model import NO_BROKER, Leadership, TopicPartition
from kactl.runtime.logs import logger
from kactl.state.rows import Bools, BrokerSet, Ints, RowNumbers, members, some
from kactl.stores.base import Names

from .hosted_replicas import Hosted, Role
from .isr_update import Follows, InSync, Wanted, Way
from .lagging_replicas import LOOKS_PER_LAG, Laggards
from .pause_gate import Pause
from .row_index import ABSENT

log = logger(__name__)

# After a failure, and between two looks at an application's own measure of being caught up. It is also the first pause
# after the controller has called a member ineligible; each further pause is twice as long.
RETRY_MS: Final = 500
# The longest of these: a little more than the time after which a member that does not follow is dropped (`LAG_MS`).
RETRY_MS_MAX: Final = 32_000


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

    def without(self, offline: Ints, broker: int) -> "Candidates":
        """Those that are left if int32[W, n] `offline` may not be in an ISR. If the leader `broker` may not be in one
        itself, nobody is left: what it proposes contains it."""
        missing = self.missing & ~some(offline == broker)
        for line in offline:
            missing &= self.replicas != line
        left = dataclasses.replace(self, missing=missing)
        return left.take(some(missing) | self.recovering)


@dataclasses.dataclass(frozen=True, slots=True)
class _Postponed:
    """A wish with a member that the controller called ineligible.

    Attributes:
        state: what was wished.
        pause_ms: the pause after it was refused last.
        until_ms: when it may be wished again.
    """

    state: Leadership
    pause_ms: float
    until_ms: float


def candidates(hosted: Hosted, live: BrokerSet) -> Candidates:
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
        offline: (partitions) -> int32[W, n], the replicas that the metadata call offline; those of a broker that is
            shutting down are among them, and may not be in an ISR.
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
        live: Callable[[], BrokerSet],
        offline: Callable[[Names], Ints],
        follows: Follows,
        in_sync: InSync | None,
        lag_ms: float,
    ) -> None:
        self._broker = broker
        self._hosted = hosted
        self._way = way
        self._clock = clock
        self._pause = pause
        self._live = live
        self._offline = offline
        self._follows = follows
        self._in_sync = in_sync
        self._lag_ms = lag_ms
        self._laggards = Laggards(broker, hosted, clock=clock, follows=follows, in_sync=in_sync, lag_ms=lag_ms)
        self._wanted = anyio.Event()
        # Under which (leader epoch, version) a wish was refused: the same would be refused for ever.
        self._refused: dict[TopicPartition, tuple[int, int]] = {}
        self._postponed: dict[TopicPartition, _Postponed] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    def look(self) -> None:
        """Something may have changed: look again soon. Many calls may become one look."""
        self._wanted.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
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
            self._postpone(brought.ineligible)
            later |= {name for name, _ in brought.later}

    def _postpone(self, ineligible: Sequence[Wanted]) -> None:
        """Wish the same again after a pause, the longer the more often it was refused."""
        now_ms, pauses = self._clock.monotonic_ms(), set()
        for name, state in ineligible:
            before = self._postponed.get(name)
            pause_ms = RETRY_MS if before is None else min(2 * before.pause_ms, RETRY_MS_MAX)
            self._postponed[name] = _Postponed(state, pause_ms, now_ms + pause_ms)
            pauses.add(pause_ms)
        for pause_ms in sorted(pauses):
            assert self._tasks is not None
            self._tasks.start_soon(self._look_in, pause_ms)

    async def _look_in(self, pause_ms: float) -> None:
        await self._clock.sleep_ms(pause_ms)
        self.look()

    def _is_postponed(self, name: TopicPartition, state: Leadership) -> bool:
        """Whether this wish has to wait. Another one need not: its members may all be eligible."""
        postponed = self._postponed.get(name)
        if postponed is None:
            return False
        if postponed.state != state:
            del self._postponed[name]
            return False
        return self._clock.monotonic_ms() < postponed.until_ms

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
        found = found.without(self._offline(hosted.index.names(found.rows)), self._broker)
        taken_in, waiting = self._caught_up(found)
        dropped = self._laggards.to_drop()
        left_out = len(self._refused) + len(later) + len(self._postponed)
        which = np.flatnonzero(some(taken_in) | found.recovering)[: self._way.limit + left_out]
        grown = members(taken_in, found.replicas)[:, which]
        wanted = {}
        for position, name in enumerate(hosted.index.names(found.rows[which])):
            added = [broker for broker in grown[:, position].tolist() if broker != NO_BROKER]
            row = int(found.rows[which[position]])
            wanted[name] = wish(hosted, row, taken_in=added, dropped=tuple(dropped.get(name, ())))
        for name, row in _rows_of(hosted, dropped, but=wanted):
            wanted[name] = wish(hosted, row, dropped=tuple(dropped[name]))
        # What is not wished any more is not refused either.
        self._postponed = {name: each for name, each in self._postponed.items() if name in wanted}
        made = [
            (name, state)
            for name, state in wanted.items()
            if name not in later
            and self._refused.get(name) != (state.leader_epoch, state.partition_epoch)
            and not self._is_postponed(name, state)
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
