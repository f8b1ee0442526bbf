"""Keeping the ISRs of the partitions that this broker leads.

A leader adds followers that have caught up, and removes members that have lagged for too long.

Participants keep no log yet, so a follower has caught up as soon as it reports that it follows this leader under this
leader epoch; an application may require more. Reports count for a limited time, so that none of a dead follower
remains. The controller commits a change that `isr_proposer` sends.

Source: Partition.maybeExpandIsr, Partition.maybeShrinkIsr.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio
import anyio.abc
import numpy as np

from kactl.decide.state.rows import Bools, BrokerSet, Ints, RowNumbers, members, some
from kactl.model import NO_BROKER, Leadership, TopicPartition
from kactl.model.errors import KactlError
from kactl.runtime.clock import Clock
from kactl.runtime.conditions import FailureLog
from kactl.runtime.logs import logger
from kactl.stores.base import Names

from .followers import Followers
from .hosted_replicas import HostedReplicas, Role
from .isr_proposer import IsrProposer
from .isr_update import InSync, IsrUpdate
from .lagging_replicas import CHECKS_PER_LAG, LaggingReplicas
from .pause_gate import PauseGate
from .row_index import ABSENT

log = logger(__name__)

# Pause after a failure, and between two calls of the application's `in_sync`. Also the first pause after the controller
# has rejected a member as ineligible; each further pause is twice as long.
RETRY_MS: Final = 500
# The longest pause: a little more than the time after which a member that does not follow is removed (`LAG_MS`).
RETRY_MS_MAX: Final = 32_000


@dataclasses.dataclass(frozen=True, slots=True)
class Candidates:
    """n partitions that this broker leads with an ISR that may grow.

    Attributes:
        replicas: int32[W, n].
        missing: bool[W, n]; the replica is assigned, live and not in sync.
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

    def without(self, offline: Ints) -> "Candidates":
        """Returns the candidates that remain if the brokers int32[W, n] `offline` may not join an ISR."""
        missing = self.missing.copy()
        for brokers in offline:
            missing &= self.replicas != brokers
        remaining = dataclasses.replace(self, missing=missing)
        return remaining.take(some(missing) | self.recovering)


@dataclasses.dataclass(frozen=True, slots=True)
class _Postponed:
    """An update with a member that the controller rejected as ineligible.

    Attributes:
        state: the requested leadership.
        pause_ms: the pause after the last rejection.
        until_ms: the time at which the update may be submitted again.
    """

    state: Leadership
    pause_ms: float
    until_ms: float


def candidates(hosted: HostedReplicas, live: BrokerSet) -> Candidates:
    """Returns the led partitions that have a live replica out of sync, or a recovery to end."""
    rows = hosted.led_replicated()
    replicas, isr = hosted.replicas[:, rows], hosted.isr[:, rows]
    in_sync = np.zeros(replicas.shape, np.bool_)
    for member in isr:
        in_sync |= replicas == member
    missing = live[replicas] & ~in_sync
    recovering = hosted.recovering[rows]
    return Candidates(rows, replicas, missing, recovering).take(some(missing) | recovering)


def updated_leadership(
    hosted: HostedReplicas, row: int, *, added: Sequence[int] = (), removed: Sequence[int] = ()
) -> Leadership:
    """Returns the leadership to request for one row: members in assignment order, then members not assigned."""
    isr = {int(broker) for broker in hosted.isr[:, row] if broker != NO_BROKER}.union(added).difference(removed)
    assigned = [int(broker) for broker in hosted.replicas[:, row] if broker in isr]
    others = [int(broker) for broker in hosted.isr[:, row] if broker in isr and broker not in assigned]
    return Leadership(
        leader=int(hosted.leader[row]),
        leader_epoch=int(hosted.leader_epoch[row]),
        isr=(*assigned, *others),
        partition_epoch=int(hosted.partition_epoch[row]),
        controller_epoch=int(hosted.controller_epoch[row]),
        recovering=False,  # participants keep no log yet that would have to recover
    )


class IsrKeeper:
    """Checks the led partitions after every possible change, and the members of their ISRs at intervals.

    Args:
        updater: commits the updates.
        live: returns the brokers that are live according to the metadata.
        offline: (partitions) -> int32[W, n], the replicas that are offline according to the metadata. They include
            those of a broker that is shutting down, which may not join an ISR.
        lag_ms: the time for which a member may fail to follow before it is removed.
    """

    def __init__(
        self,
        broker: int,
        hosted: HostedReplicas,
        *,
        updater: IsrProposer,
        clock: Clock,
        pause: PauseGate,
        live: Callable[[], BrokerSet],
        offline: Callable[[Names], Ints],
        followers: Followers,
        in_sync: InSync | None,
        lag_ms: float,
    ) -> None:
        self._broker = broker
        self._failures = FailureLog(log)
        self._hosted = hosted
        self._updater = updater
        self._clock = clock
        self._pause = pause
        self._live = live
        self._offline = offline
        self._followers = followers
        self._in_sync = in_sync
        self._lag_ms = lag_ms
        self._lagging = LaggingReplicas(
            broker, hosted, clock=clock, followers=followers, in_sync=in_sync, lag_ms=lag_ms
        )
        self._scheduled = anyio.Event()
        # The (leader epoch, version) of each rejected update: the same update would be rejected for ever.
        self._rejected: dict[TopicPartition, tuple[int, int]] = {}
        self._postponed: dict[TopicPartition, _Postponed] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    def schedule(self) -> None:
        """Schedule a check, because something may have changed. Many calls may result in one check."""
        self._scheduled.set()

    async def run(self) -> None:
        """Run until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._check_members)
            while True:
                await self._scheduled.wait()
                self._scheduled = anyio.Event()
                await self._pause.wait_open()
                if not await self._update():
                    await self._clock.sleep_ms(RETRY_MS)
                    self.schedule()

    async def _check_members(self) -> None:
        failures = FailureLog(log)
        while True:
            await self._clock.sleep_ms(self._lag_ms / CHECKS_PER_LAG)
            await self._pause.wait_open()
            try:
                self._lagging.check()
            except Exception as error:
                # An error of the application's `in_sync` must not end the registration.
                text = "broker %d could not check the members of its ISRs, and retries"
                failures.add(logging.ERROR, error, text, self._broker)
            else:
                failures.end("broker %d checks the members of its ISRs again", self._broker)
            self.schedule()

    async def _update(self) -> bool:
        """Submit all updates that are due. Returns False if another check is needed later."""
        try:
            is_done = await self._submit_all()
            self._failures.end("broker %d updates its ISRs again", self._broker)
            return is_done
        except KactlError as error:
            log.info("broker %d could not update its ISRs, and retries: %s", self._broker, error)
        except Exception as error:
            # The outcome is unknown; the next check compares with the stored state.
            self._failures.add(logging.ERROR, error, "broker %d could not update its ISRs, and retries", self._broker)
        return False

    async def _submit_all(self) -> bool:
        """Submit updates until none is left that can succeed now. Returns True if none is waiting either."""
        self._updater.reconcile()
        self._forget_rejected()
        retryable: set[TopicPartition] = set()
        while True:
            updates, waiting = self._plan(retryable)
            result = await self._updater.submit(updates)
            if not updates:
                return not (waiting or retryable)
            for name, state in result.rejected:
                self._rejected[name] = (state.leader_epoch, state.partition_epoch)
            self._postpone(result.ineligible)
            retryable |= {name for name, _ in result.retryable}

    def _postpone(self, ineligible: Sequence[IsrUpdate]) -> None:
        """Submit the same updates again after a pause, which doubles with every rejection."""
        now_ms, pauses = self._clock.monotonic_ms(), set()
        for name, state in ineligible:
            before = self._postponed.get(name)
            pause_ms = RETRY_MS if before is None else min(2 * before.pause_ms, RETRY_MS_MAX)
            self._postponed[name] = _Postponed(state, pause_ms, now_ms + pause_ms)
            pauses.add(pause_ms)
        for pause_ms in sorted(pauses):
            assert self._tasks is not None
            self._tasks.start_soon(self._schedule_in, pause_ms)

    async def _schedule_in(self, pause_ms: float) -> None:
        await self._clock.sleep_ms(pause_ms)
        self.schedule()

    def _is_postponed(self, name: TopicPartition, state: Leadership) -> bool:
        """Returns whether this update has to wait. A different one need not: its members may all be eligible."""
        postponed = self._postponed.get(name)
        if postponed is None:
            return False
        if postponed.state != state:
            del self._postponed[name]
            return False
        return self._clock.monotonic_ms() < postponed.until_ms

    def _forget_rejected(self) -> None:
        """Forget rejections of versions that are not current any more: the next update has another version."""
        for name, version in list(self._rejected.items()):
            replica = self._hosted.view(name)
            if (
                replica is None
                or replica.role is not Role.LEADER
                or (replica.leader_epoch, replica.partition_epoch) != version
            ):
                del self._rejected[name]

    def _plan(self, retryable: set[TopicPartition]) -> tuple[list[IsrUpdate], bool]:
        """Plan the updates that are due.

        Returns:
            the updates, at most `IsrProposer.limit`; and whether followers are waiting until the application's
            `in_sync` returns true.
        """
        hosted = self._hosted
        eligible = candidates(hosted, self._live())
        removed = self._lagging.expired()
        if not len(eligible) and not removed:
            self._postponed = {}
            return [], False
        eligible = eligible.without(self._offline(hosted.index.names(eligible.rows)))
        caught_up, waiting = self._caught_up(eligible)
        skipped = len(self._rejected) + len(retryable) + len(self._postponed)
        positions = np.flatnonzero(some(caught_up) | eligible.recovering)[: self._updater.limit + skipped]
        added = members(caught_up, eligible.replicas)[:, positions]
        planned = {}
        for column, name in enumerate(hosted.index.names(eligible.rows[positions])):
            planned[name] = updated_leadership(
                hosted,
                int(eligible.rows[positions[column]]),
                added=[broker for broker in added[:, column].tolist() if broker != NO_BROKER],
                removed=tuple(removed.get(name, ())),
            )
        for name, row in _rows_of(hosted, removed, but=planned):
            planned[name] = updated_leadership(hosted, row, removed=tuple(removed[name]))
        # An update that is not planned any more is not postponed either.
        self._postponed = {name: postponed for name, postponed in self._postponed.items() if name in planned}
        updates = [
            (name, state)
            for name, state in planned.items()
            if name not in retryable
            and self._rejected.get(name) != (state.leader_epoch, state.partition_epoch)
            and not self._is_postponed(name, state)
        ]
        return updates[: self._updater.limit], waiting

    def _caught_up(self, eligible: Candidates) -> tuple[Bools, bool]:
        """Find the replicas to add.

        Returns:
            bool[W, n], the replicas that have caught up; and whether any replica follows and has not caught up
            according to the application.
        """
        hosted = self._hosted
        names, epochs = hosted.index.names(eligible.rows), hosted.leader_epoch[eligible.rows]
        caught_up = np.zeros(eligible.missing.shape, np.bool_)
        for broker in np.unique(eligible.replicas[eligible.missing]).tolist():
            replicas = eligible.missing & (eligible.replicas == broker)
            partitions = some(replicas)
            following = np.zeros(len(eligible), np.bool_)
            following[partitions] = self._followers.follows(broker, names.take(partitions), epochs[partitions])
            caught_up |= replicas & following
        followed = int(np.count_nonzero(caught_up))
        if self._in_sync is not None:
            self._remove_out_of_sync(names, eligible.replicas, caught_up)
        return caught_up, int(np.count_nonzero(caught_up)) < followed

    def _remove_out_of_sync(self, names: Names, replicas: Ints, caught_up: Bools) -> None:
        """Remove from `caught_up` the replicas for which the application's `in_sync` returns false."""
        assert self._in_sync is not None
        partitions = list(names)
        for slot, position in np.argwhere(caught_up).tolist():
            caught_up[slot, position] = self._in_sync(partitions[position], int(replicas[slot, position]))


def _rows_of(
    hosted: HostedReplicas, names: Mapping[TopicPartition, set[int]], *, but: Mapping[TopicPartition, Leadership]
) -> list[tuple[TopicPartition, int]]:
    """Returns the rows of some partitions, except those of `but`."""
    rows = [(name, hosted.index.find_one(name)) for name in names if name not in but]
    return [(name, row) for name, row in rows if row != ABSENT]
