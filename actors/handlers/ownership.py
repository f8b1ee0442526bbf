"""Owners of the partitions of ownership topics, here called shards.

    a member came, left, or cannot serve    settle   every shard without an owner gets one, every missing standby too
    a few seconds after a member came       even     shards move to it, a batch at a time
    the next owner of a shard is prepared   let go   the former one receives its order, and ends its leadership

The stored assignment of an ownership topic has no replicas. The leader is the owner and the other members of the ISR
are the standbys, so that each change of them is one write. In memory, the assignment is the same.

A former owner that lives is not told of the election before the next owner reports that it is prepared. Meanwhile it
leads on, under its lease. The next owner waits for its end, as for that of any earlier leader; see `leases`.

`kactl.decide.machines.ownership` chooses the owners.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from kactl.actors.machines.machine import Move
from kactl.actors.priority_inbox import Timers
from kactl.decide.machines.election import Election
from kactl.decide.machines.ownership import Place, Shard, Shards, even, place
from kactl.decide.machines.restart import Restart, stopped
from kactl.decide.messages.events import AutoPlacement, Event
from kactl.decide.state.change import Change
from kactl.decide.state.cluster import HandoverInProgress
from kactl.decide.state.rows import Bools, Ints, RowNumbers, choose, holds, some
from kactl.decide.state.table import NO_ROW, Topic
from kactl.model import NO_LEADER, Assignment, PartitionState, ReplicaState, TopicPartition
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.stores.base import Assignments

from .base import ControllerContext, Handler, Handlers

log = logger(__name__)

# Shards that move at once to a member that has come. Participants prepare up to 64 at once.
HANDOVERS_AT_ONCE: Final = 20
# A joining member that is followed by others moves the placement to later, by this many delays at most: a rolling
# restart is settled once.
DELAYS_MAX: Final = 5
# How often hand-overs in progress are looked at.
LOOK_MS: Final = 1_000
# How long the next owner may prepare. A participant's own limit is half of it.
PREPARE_MS_MAX: Final = 60_000
# How long a shard that has failed is to work before it counts for the shares again.
HEALED_MS: Final = 30_000
# How long it moves first after that. A resignation lasts no longer.
FORGET_MS: Final = 600_000


class Ownership(Handlers):
    """Places shards on participants.

    Args:
        timers: delay hand-overs that even out the shares.
    """

    def __init__(self, context: ControllerContext, timers: Timers) -> None:
        super().__init__(context)
        self._timers = timers
        self._conditions = Conditions(log, self.clock.monotonic_ms)  # topics that no participant offers
        self._latest_ms = 0.0  # when the shares are evened out at the latest
        self._restarts: dict[str, Restart] = {}  # the last one of the members of each topic

    def handlers(self) -> dict[type[Event], Handler]:
        return {AutoPlacement: self.on_auto_placement}

    # -- events --------------------------------------------------------------------------------------------------------

    async def members_came(self) -> None:
        """Settle, and even out the shares a few seconds later, when other members may have come, too."""
        if not self.cluster.table.owned_topics():
            return
        await self.settle()
        delay_ms, now_ms = self.settings.participant_balance_ms, self.clock.monotonic_ms()
        if not self.settings.auto_balance or delay_ms <= 0:
            return
        if not self._timers.is_set(AutoPlacement()):
            self._latest_ms = now_ms + DELAYS_MAX * delay_ms
        self._timers.set(AutoPlacement(), max(0.0, min(delay_ms, self._latest_ms - now_ms)))

    def member_stops(self, member: int) -> None:
        """A member is about to stop in order. It may be restarted, and the others after it."""
        cluster = self.cluster
        for topic in cluster.table.owned_topics():
            joined = self._joined(cluster.members(topic.name))
            if member in joined:
                self._restarts[topic.name] = stopped(
                    self._restarts.get(topic.name),
                    member,
                    joined,
                    now_ms=self.clock.monotonic_ms(),
                    delay_ms=self.settings.participant_balance_ms,
                )

    async def settle(self) -> None:
        """Give each shard without a member as its owner to one, and each its standbys."""
        topics = self._topics()
        if topics:
            await self._apply(self._changed(topics, place([shards for _, _, shards in topics])))
            self._forget_left()

    async def on_auto_placement(self, event: AutoPlacement) -> None:
        """Return hand-overs whose next owners do not prepare, and begin the next batch when none is in progress."""
        await self._return_overdue()
        if self.cluster.handovers or self._waits_for_former():
            self._timers.set(AutoPlacement(), LOOK_MS)
            return
        await self.settle()  # a member that had resigned is one again
        topics = self._topics()
        moves = even([shards for _, _, shards in topics], limit=HANDOVERS_AT_ONCE)
        if not moves:
            self._await_changes()
            return
        log.info("%d shards are handed over, so that participants own equal shares", len(moves))
        planned: dict[int, list[Shard]] = {}
        for move in moves:
            shards = planned.setdefault(move.topic, list(topics[move.topic][2].shards))
            former = shards[move.shard]
            # The former owner follows if a standby is wanted: it is warm.
            shards[move.shard] = former._replace(owner=move.owner, standbys=(former.owner, *former.standbys))
        changed = [
            (*topics[number][:2], topics[number][2]._replace(shards=tuple(planned[number]))) for number in planned
        ]
        await self._apply(self._changed(changed, place([shards for _, _, shards in changed])))
        self._forget_left()
        self._timers.set(AutoPlacement(), LOOK_MS if self.cluster.handovers else 0)

    def _waits_for_former(self) -> bool:
        """Whether an owner waits for the end of the former one: another move of its shard would lengthen the gap."""
        table = self.cluster.table
        return len(table.owned(self.cluster.holds.waiting(table.hold_columns()))) > 0

    def _await_changes(self) -> None:
        """Look again when the next resignation or failure of a shard ends, or a restart of the members."""
        owned = {topic.name for topic in self.cluster.table.owned_topics()}
        now_ms = self.clock.monotonic_ms()
        resigned_ms = [held.until_ms - now_ms for name, held in self.cluster.resigned.items() if name.topic in owned]
        restarts_ms = [
            restart.left_ms(self._joined(self.cluster.members(topic)), now_ms)
            for topic, restart in self._restarts.items()
        ]
        if any(restarts_ms):
            log.info(
                "participants are restarted: their shares stay uneven until all are, or for %.0f s",
                max(restarts_ms) / 1000,
            )
        if left_ms := [each for each in (*resigned_ms, *restarts_ms, *self._failed_ms().values()) if each > 0]:
            self._timers.set(AutoPlacement(), min(left_ms) + 1)

    def prepared(self, row_numbers: RowNumbers) -> None:
        """End the leaderships of former owners of some rows, whose next owners have reported that they wait for it."""
        if not self.cluster.handovers:
            return
        columns = self.cluster.table.hold_columns()
        current = columns.waiting_epoch[row_numbers] == columns.leader_epoch[row_numbers]
        names = self.cluster.table.names(row_numbers[current])
        self._let_go([name for name in names if name in self.cluster.handovers])

    def assign(self, row_numbers: RowNumbers) -> None:
        """Choose the owners of new partitions among some rows. Nothing is written or sent."""
        if not len(self.cluster.table.owned(row_numbers)):
            return
        topics, wanted = self._topics(), set(row_numbers.tolist())
        changed = self._changed(topics, place([shards for _, _, shards in topics]))
        rows = self.cluster.table.rows(np.array(sorted(wanted & changed.keys()), np.intp))
        self._put({int(row): changed[int(row)] for row in rows.index[~rows.has_leadership]})

    # -- planning ------------------------------------------------------------------------------------------------------

    def _topics(self) -> list[tuple[Topic, RowNumbers, Shards]]:
        """Returns the ownership topics with their rows and shards.

        Shards of live owners that this controller has not reached yet are left out: they are neither moved nor counted.
        """
        cluster, table = self.cluster, self.cluster.table
        owned = [topic for topic in table.owned_topics() if topic.name not in cluster.topics_to_delete]
        names = {topic.name for topic in owned}
        self._restarts = {name: restart for name, restart in self._restarts.items() if name in names}
        if not owned:
            return []
        live = cluster.live_brokers
        failed_ms = self._failed_ms()
        resigned = dict.fromkeys(cluster.held_leaderships(self.clock.monotonic_ms()).tolist())
        result = []
        for topic in owned:
            weights = cluster.members(topic.name)
            self._warn(topic.name, bool(weights))
            rows = table.rows(np.sort(table.rows_of(topic)))
            known = live.electable[rows.leader] | ~live.live[rows.leader]
            rows = rows.take(known & (rows.state != PartitionState.ABSENT) | ~rows.has_leadership)
            shards = []
            columns = rows.index.tolist(), rows.leader.tolist(), rows.leader_epoch.tolist()
            for at, (row, leader, epoch) in enumerate(zip(*columns, strict=True)):
                standbys = rows.replicas[rows.in_sync[:, at] & (rows.replicas[:, at] != leader), at]
                barred = frozenset(rows.replicas[rows.dir_offline[:, at], at].tolist())
                earlier: tuple[int, ...] = ()
                if row in resigned:
                    last = cluster.resigned[next(iter(table.names(rows.index[at : at + 1])))]
                    barred, earlier = barred | {last.broker}, last.earlier
                fails = failed_ms.get(row, 0) > 0, row in failed_ms
                shards.append(Shard(leader, tuple(standbys.tolist()), barred, epoch, earlier, *fails))
            placed = Shards(
                weights,
                cluster.standbys.get(topic.name, 0),
                tuple(shards),
                self._joined(weights),
                unreached=cluster.unreached(topic.name),
            )
            result.append((topic, rows.index, self._restarted(topic.name, placed)))
        return result

    def _failed_ms(self) -> dict[int, float]:
        """Returns for how long shards that have failed count as failing, by row; 0 or less if they work again."""
        cluster, now_ms = self.cluster, self.clock.monotonic_ms()
        result = {}
        for name, failed in tuple(cluster.failed_shards.items()):
            row = cluster.table.row(name)
            owner = int(cluster.table.column("leader")[row]) if row != NO_ROW else NO_LEADER
            report, left_ms = cluster.replica_report(name, owner), failed.last_ms + HEALED_MS - now_ms
            result[row] = HEALED_MS if report is not None and report.fails else left_ms
            held = cluster.resigned.get(name)
            if result[row] <= 0 and owner == failed.owner and held is not None and not held.requested:
                # It failed at its owner, too, and works there again: so it does elsewhere, as far as is known.
                del cluster.resigned[name]
            if result[row] <= 0 and owner != NO_LEADER and not failed.has_healed:
                cluster.failed_shards[name] = failed._replace(has_healed=True)
                log.warning("%s works again: participant %d owns it without a failure", name, owner)
            if result[row] <= HEALED_MS - FORGET_MS:
                del cluster.failed_shards[name]
        return result

    def _joined(self, members: Iterable[int]) -> dict[int, int]:
        """Returns the order in which members have come: the epochs of their registrations."""
        return {member: self.cluster.brokers[member].epoch for member in members}

    def _restarted(self, topic: str, shards: Shards) -> Shards:
        """Add what is known of a restart of the members."""
        restart = self._restarts.get(topic)
        if restart is None:
            return shards
        now_ms = self.clock.monotonic_ms()
        restart = self._restarts[topic] = restart.seen(shards.joined, now_ms)
        is_restarting = restart.left_ms(shards.joined, now_ms) > 0
        return shards._replace(restarted=restart.members(shards.joined), is_restarting=is_restarting)

    def _warn(self, topic: str, is_offered: bool) -> None:
        """Warn if there are participants and none of them offers a topic."""
        if is_offered:
            self._conditions.end(topic, "topic %s is offered by participants again", topic)
        elif len(self.cluster.live_brokers.electable):
            text = "topic %s: no participant offers it (groups=); its shards are owned as soon as one does"
            self._conditions.add(topic, logging.WARNING, text, topic)

    def _changed(
        self, topics: Iterable[tuple[Topic, RowNumbers, Shards]], places: Iterable[list[Place]]
    ) -> dict[int, Place]:
        """Returns the places that differ from the present ones, by row, without those that have no member."""
        changed = {}
        for (_, row_numbers, topic), planned in zip(topics, places, strict=True):
            rows = self.cluster.table.rows(row_numbers)
            # A standby that has left while the owner could not be reached is assigned, and not in sync.
            present = (rows.state == PartitionState.ONLINE) & ~some(rows.assigned & ~rows.in_sync)
            columns = row_numbers.tolist(), rows.leader.tolist(), present.tolist(), topic.shards, planned
            for row, leader, is_present, before, after in zip(*columns, strict=True):
                same = is_present and after.owner == leader and {*after.standbys} == {*before.standbys} - {leader}
                if after.owner in topic.weights and not same:
                    changed[row] = after
        return changed

    # -- changes -------------------------------------------------------------------------------------------------------

    def _put(self, places: Mapping[int, Place]) -> RowNumbers:
        """Set the assignments of some rows in memory."""
        row_numbers = np.array(sorted(places), np.intp)
        names = self.cluster.table.names(row_numbers)
        assigned = {name: Assignment(places[int(row)].replicas) for name, row in zip(names, row_numbers, strict=True)}
        self.cluster.put_assignments(Assignments.of(assigned, {ref.name: ref.id for ref in names.topics}))
        return row_numbers

    async def _apply(self, places: Mapping[int, Place]) -> None:
        """Write new places, and send them to all but former owners that live."""
        if not places:
            return
        table, row_numbers = self.cluster.table, self._put(places)
        former = table.column("leader")[row_numbers].copy()
        await self.move(Move(row_numbers, PartitionState.ONLINE, Election.OWNERSHIP))
        rows = table.rows(row_numbers)
        elected = rows.leader == [places[int(row)].owner for row in row_numbers]
        elected &= rows.state == PartitionState.ONLINE
        self.cluster.assign_owned(row_numbers[~elected & rows.has_leadership])  # as it is stored; it is retried
        self._start_replicas(row_numbers[elected])
        # The next owner of a hand-over may have gone. Its former one, which leads on, may get the shard back.
        handed = np.array([name in self.cluster.handovers for name in table.names(row_numbers)], np.bool_)
        begun = elected & (rows.leader != former) & (self.cluster.live_brokers.registered[former] | handed)
        self._begin_handovers(row_numbers[begun], former[begun])

    def _start_replicas(self, row_numbers: RowNumbers) -> None:
        """Set the states of assigned replicas. The election has sent them what they need."""
        for state in (ReplicaState.NEW, ReplicaState.ONLINE):
            rows = self.cluster.table.rows(row_numbers)
            which = rows.assigned & (rows.replica_state != ReplicaState.ONLINE)
            before = which & (rows.replica_state == ReplicaState.ABSENT) if state is ReplicaState.NEW else which
            self._set_states(row_numbers, before, state)

    def _set_states(self, row_numbers: RowNumbers, which: Bools, state: ReplicaState) -> None:
        if which.any():
            rows = self.cluster.table.rows(row_numbers)
            self.history.add_replicas(rows, which, state, self.cluster.table.refs, controller_epoch=self.epoch)
            states = choose(which, np.uint8(state), rows.replica_state)
            self.cluster.apply(Change.of(rows, replica_state=states))

    def _forget_left(self) -> None:
        """Stop the replicas that are not wanted any more, and forget them. Those that have failed stay known."""
        cluster, table = self.cluster, self.cluster.table
        owned = table.not_queued(table.owned(table.all()))
        rows = table.rows(owned)
        left = ~rows.assigned & (rows.replica_state != ReplicaState.ABSENT)
        left &= ~rows.dir_offline | (rows.replica_state != ReplicaState.OFFLINE)
        for name, handover in cluster.handovers.items():
            left &= (rows.index != table.row(name)) | (rows.replicas != handover.former)
        if not left.any():
            return
        self.batch.begin()
        self.batch.stop(rows, left, delete=False)
        self.channels.send(self.batch.flush())
        for state in (
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_STARTED,
            ReplicaState.DELETION_SUCCESSFUL,
            ReplicaState.ABSENT,
        ):
            self._set_states(owned, left, state)
            left &= ~rows.dir_offline

    # -- hand-overs ----------------------------------------------------------------------------------------------------

    def _begin_handovers(self, row_numbers: RowNumbers, former: Ints) -> None:
        """Let former owners lead until the next ones are prepared; those for which none waits end at once."""
        if not len(row_numbers):
            return
        cluster, until_ms = self.cluster, self.clock.monotonic_ms() + PREPARE_MS_MAX
        rows = cluster.table.rows(row_numbers)
        failed = (rows.dir_offline & (rows.replicas == former)).any(axis=0)
        waits = self._wait_for_former(row_numbers) & ~failed
        at_once = []
        for at, name in enumerate(cluster.table.names(row_numbers)):
            # A hand-over that has not ended has an earlier owner, which leads.
            earlier = cluster.handovers.pop(name, None)
            leads = int(former[at]) if earlier is None else earlier.former
            if leads == rows.leader[at]:
                continue
            cluster.handovers[name] = HandoverInProgress(leads, until_ms)
            if not waits[at]:
                at_once.append(name)
        self._let_go(at_once)
        if cluster.handovers and not self._timers.is_set(AutoPlacement()):
            self._timers.set(AutoPlacement(), LOOK_MS)

    def _wait_for_former(self, row_numbers: RowNumbers) -> Bools:
        """Returns bool[n]: the rows whose owner waits for the end of an earlier leadership."""
        columns = self.cluster.table.hold_columns()
        held = self.cluster.holds.held(columns, row_numbers, columns.leader[row_numbers])
        return np.zeros(len(row_numbers), np.bool_) if held is None else held

    def _let_go(self, names: Iterable[TopicPartition]) -> None:
        """Send former owners their orders: to follow, or to stop."""
        groups: dict[int, list[int]] = {}
        for name in names:
            groups.setdefault(self.cluster.handovers.pop(name).former, []).append(self.cluster.table.row(name))
        for former, found in groups.items():
            rows = self.cluster.table.rows(np.array(sorted(row for row in found if row != NO_ROW), np.intp))
            deleted = rows.take(rows.queued)
            rows = rows.take(some(holds(rows, former) & rows.assigned) & ~rows.queued)
            self.batch.begin()
            self.batch.lead_and_follow(rows, holds(rows, former))
            self.batch.stop(deleted, holds(deleted, former), delete=False)
            self.channels.send(self.batch.flush())
        if groups:
            self._forget_left()

    async def _return_overdue(self) -> None:
        """End hand-overs whose next owners wait for nothing, and choose others in place of owners that do not prepare.

        The former owner may have gone meanwhile, also to register again.
        """
        cluster, now_ms = self.cluster, self.clock.monotonic_ms()
        waits = self._wait_for_former(np.array([cluster.table.row(name) for name in cluster.handovers], np.intp))
        over = {
            name: handover
            for (name, handover), is_held in zip(cluster.handovers.items(), waits.tolist(), strict=True)
            if not is_held or handover.former not in cluster.brokers or name.topic in cluster.topics_to_delete
        }
        late = [
            name for name, handover in cluster.handovers.items() if handover.until_ms <= now_ms and name not in over
        ]
        self._let_go(over)
        for name in late:
            row = cluster.table.row(name)
            owner = int(cluster.table.column("leader")[row])
            if owner == NO_LEADER or owner not in cluster.brokers:
                continue
            log.warning(
                "%s: participant %d has not prepared for %d ms, and another one is chosen", name, owner, PREPARE_MS_MAX
            )
            epoch = cluster.brokers[owner].epoch
            cluster.resign(name, owner, broker_epoch=epoch, until_ms=now_ms + PREPARE_MS_MAX)
            cluster.handovers[name] = cluster.handovers[name]._replace(until_ms=now_ms + PREPARE_MS_MAX)
        if late:
            await self.settle()
