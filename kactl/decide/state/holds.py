"""Holders: earlier leaders of partitions that may still have a valid lease.

    leader 1 ──planned move──▶ leader 2, held by 1 ──the leadership of 1 has ended──▶ leader 2, released

A new leader of a held partition does not act before it is released. Until then it cannot have acted, so a further
change of the leader keeps the first holder. Only participants hold: Kafka's brokers have no leases.

A holder is the id of a registered broker, or `past_life` of an id whose registration has ended while a lease may still
be valid. A controller that has just taken over knows no holders. It knows the brokers that might be one: the members of
`unanswered`, until each has reported that it has carried out the complete state.

Topics with `leadership.lease=false` are exempt: their new leaders wait for no earlier one. A topic with a setting that
is not known is not exempt.

The deletion of a topic waits for its holders: with the rows they would be forgotten, and a leader of the next topic of
that name would not wait for them.

Everything here is arithmetic on columns. `kactl.actors.handlers.leases` decides when a holder is released.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from kactl.model import EPOCH_DURING_DELETE, NO_BROKER, NO_EPOCH, Broker

from .rows import Bools, BrokerSet, Ints, RowNumbers

# A member of `unanswered` for the sessions that vanished before the takeover, of brokers that are not known.
VANISHED_BEFORE: Final = int(np.iinfo(np.int32).min)


def past_life(broker: int) -> int:
    """Returns the holder that stands for the earlier registrations of a broker id."""
    return -2 - broker


class HoldColumns(NamedTuple):
    """Columns of the partition table that concern holds. The first three are read only.

    Attributes:
        holder: NO_BROKER if the leader may act.
        holder_epoch: the first leader epoch since the leadership of the holder.
        ended_epoch: the present leader has reported that none of its leaderships below this epoch is left.
        waiting_epoch: the epoch for which the present leader has reported that it waits; NO_EPOCH once it is released.
        led_since: the present leader was the leader under every epoch from this one on; NO_EPOCH if that is not known.
        back_since: the present leader led before this epoch, and the one that was elected in between has not acted,
            since it was not released; NO_EPOCH if that is not known.
    """

    leader: Ints
    leader_epoch: Ints
    topic: Ints
    holder: Ints
    holder_epoch: Ints
    ended_epoch: Ints
    waiting_epoch: Ints
    led_since: Ints
    back_since: Ints


class Holds:
    """The holders of a cluster.

    Attributes:
        unanswered: holders that may have any leadership, since this controller has just taken over.
        until_ms: by past life: when its leases have ended at the latest, on the monotonic clock of this controller.
        evicted: past lives that were evicted.
        deletions: numbers of topics with deleted replicas, whose deletion waits for holders.
    """

    def __init__(self) -> None:
        self.unanswered: set[int] = set()
        self.until_ms: dict[int, float] = {}
        self.evicted: set[int] = set()
        self.deletions: set[int] = set()
        self._participants = BrokerSet()
        self._past: set[int] = set()
        # By number of a topic that is deleted: row, holder and its epoch, where the holder is known to lead no more.
        self._deleted: dict[int, set[tuple[int, int, int]]] = {}
        self._leased: dict[int, bool] = {}  # by number of a topic with a known setting
        self._exempt: Ints = np.zeros(0, np.int32)  # numbers of topics

    def brokers_changed(self, brokers: Iterable[Broker]) -> None:
        """Take note of the registered brokers."""
        self._participants = BrokerSet(broker.id for broker in brokers if broker.incarnation)

    @property
    def participants(self) -> frozenset[int]:
        """The registered participants."""
        return self._participants.ids

    @property
    def is_used(self) -> bool:
        """Whether any partition can have a holder. If not, the columns are not read."""
        return bool(len(self._participants) or self.unanswered or self._past)

    # -- topics without holds

    def set_leased(self, topics: Mapping[int, bool]) -> None:
        """Note, by topic number, whether new leaders of a topic wait for earlier ones."""
        self._leased |= topics
        self._exempt = np.array(sorted(topic for topic, leased in self._leased.items() if not leased), np.int32)

    def forget_topics(self, topics: Iterable[int]) -> None:
        """Forget the settings of some topics, and that their deletion waits."""
        numbers = set(topics)
        self.deletions -= numbers
        for topic in numbers & self._deleted.keys():
            del self._deleted[topic]
        if self._leased:
            for topic in numbers:
                self._leased.pop(topic, None)
            self.set_leased({})

    def with_unknown_setting(self, topics: Ints) -> list[int]:
        """Returns the distinct ones of some topic numbers with settings that are not known."""
        return [topic for topic in np.unique(topics).tolist() if topic not in self._leased]

    def exempt(self, columns: HoldColumns, rows: RowNumbers) -> Bools:
        """Returns bool[n]: rows of topics without holds."""
        if not len(self._exempt):
            return np.zeros(len(rows), np.bool_)
        return np.isin(columns.topic[rows], self._exempt)

    # -- topics that are deleted

    def have_holder(self, columns: HoldColumns, rows: RowNumbers) -> Bools:
        """Returns bool[n]: rows with an earlier leader that may still have a valid lease, for all that is known."""
        result: Bools = (columns.holder[rows] != NO_BROKER) & ~self.exempt(columns, rows)
        if self._deleted:
            for position in np.flatnonzero(result).tolist():
                row = rows[position]
                deleted = self._deleted.get(int(columns.topic[row]), ())
                held = int(row), int(columns.holder[row]), int(columns.holder_epoch[row])
                result[position] = held not in deleted
        return result

    def deleted(self, columns: HoldColumns, rows: RowNumbers, epoch: Ints, broker: int) -> None:
        """A broker has ended its leaderships of some rows up to an epoch each, and deleted its replicas.

        Calls of its handlers may not have ended, so that a leader which waits for it is not released. The rows are of
        topics queued for deletion. An epoch of EPOCH_DURING_DELETE stands for any.
        """
        done = (columns.holder[rows] == broker) & (
            (epoch == EPOCH_DURING_DELETE) | (epoch + np.int32(1) >= columns.holder_epoch[rows])
        )
        for row in rows[done].tolist():
            held = row, broker, int(columns.holder_epoch[row])
            self._deleted.setdefault(int(columns.topic[row]), set()).add(held)

    def pop_deletable(self, columns: HoldColumns) -> set[int]:
        """Returns the numbers of topics whose deletion has waited for holders, and need not wait any longer."""
        rows = np.flatnonzero(columns.holder != NO_BROKER)
        deletable = self.deletions.difference(columns.topic[rows[self.have_holder(columns, rows)]].tolist())
        self.deletions -= deletable
        return deletable

    # -- changes of leaders

    def leaders_changed(
        self,
        columns: HoldColumns,
        rows: RowNumbers,
        leader: Ints,
        leader_epoch: Ints,
        *,
        read: tuple[Ints, Ints] | None = None,
    ) -> None:
        """Set holders, and since when each leader leads. To be called before `rows` are written into the table.

        The previous leader is the one in the table, which is the last one that brokers may have received.

        Args:
            read: leaders and leader epochs that were read before the change, if the table does not have them.
        """
        before = columns.leader[rows]
        changes = before != leader
        last, epoch, since = before, columns.leader_epoch[rows], columns.led_since[rows]
        since = np.where(since == NO_EPOCH, epoch, since)
        is_back = changes & (columns.holder[rows] == leader) & (columns.holder_epoch[rows] == since)
        is_back &= leader_epoch == epoch + 1
        if read is not None:
            is_back &= (read[0] == before) & (read[1] == epoch)
        columns.back_since[rows] = np.where(is_back, since, NO_EPOCH)
        for next_leader, next_epoch in (read or (before, epoch), (leader, leader_epoch)):
            # An epoch that this controller has not seen may have had another leader.
            since = np.where((next_leader != last) | (next_epoch > epoch + 1), next_epoch, since)
            last, epoch = next_leader, next_epoch
        columns.led_since[rows] = since
        if not changes.any():
            return
        if not changes.all():
            rows, before, leader, leader_epoch = rows[changes], before[changes], leader[changes], leader_epoch[changes]
        holder = columns.holder[rows]
        is_new = (holder == NO_BROKER) & self._participants[before]
        is_new &= columns.ended_epoch[rows] <= columns.leader_epoch[rows]
        if is_new.any():
            columns.holder_epoch[rows[is_new]] = leader_epoch[is_new]
            holder = np.where(is_new, before, holder)
        # A participant that leads again ends its earlier leadership first.
        holder = np.where(holder == leader, np.int32(NO_BROKER), holder)
        if len(self._exempt):
            # If the setting changes, the leader that acts now is the next holder, not one of its predecessors.
            holder[self.exempt(columns, rows)] = NO_BROKER
        columns.holder[rows] = holder
        columns.ended_epoch[rows] = NO_EPOCH  # the new leader has reported nothing

    def unbroken(self, columns: HoldColumns, rows: RowNumbers, leader_epoch: Ints) -> Ints | None:
        """Returns int32[n], as `PartitionStates.unbroken`; None if it is 0 for all."""
        since = columns.led_since[rows]
        known = (since != NO_EPOCH) & (columns.leader_epoch[rows] == leader_epoch)
        back = columns.back_since[rows]
        is_back = known & (back != NO_EPOCH)
        result: Ints = np.where(is_back, back - leader_epoch, np.where(known, leader_epoch - since, 0)).astype(np.int32)
        return result if result.any() else None

    def held(self, columns: HoldColumns, rows: RowNumbers, leader: Ints) -> Bools | None:
        """Returns bool[n]: whether the leaders of `rows` have to wait; None if none has to."""
        if not self.is_used:
            return None
        held: Bools = columns.holder[rows] != NO_BROKER
        if self.unanswered:
            held |= self._is_barred(leader)
        if len(self._exempt):
            held &= ~self.exempt(columns, rows)
        return held if held.any() else None

    def _is_barred(self, leader: Ints) -> Bools:
        """Returns bool[n]: whether a broker other than the leader is unanswered."""
        if len(self.unanswered) == 1:
            (only,) = self.unanswered
            others: Bools = leader != only
            return others
        return np.full(len(leader), bool(self.unanswered))

    # -- reports

    def waits(self, columns: HoldColumns, rows: RowNumbers, epoch: Ints, broker: int) -> None:
        """A leader of some rows waits for its release. Reports about another leadership are ignored."""
        current = (columns.leader[rows] == broker) & (columns.leader_epoch[rows] == epoch)
        columns.waiting_epoch[rows[current]] = epoch[current]
        columns.ended_epoch[rows[current]] = NO_EPOCH

    def ended(self, columns: HoldColumns, rows: RowNumbers, epoch: Ints, broker: int) -> None:
        """No leadership of a broker is left in some rows below an epoch each."""
        leads = columns.leader[rows] == broker
        columns.ended_epoch[rows[leads]] = epoch[leads]
        done = (columns.holder[rows] == broker) & (epoch >= columns.holder_epoch[rows])
        columns.holder[rows[done]] = NO_BROKER

    def leave(self, columns: HoldColumns, broker: int) -> None:
        """No leadership of a broker is left, and it begins none."""
        led = columns.leader == broker
        columns.ended_epoch[led] = columns.leader_epoch[led] + 1
        self.release(columns, broker)

    # -- lives of participants

    def end_life(self, columns: HoldColumns, broker: int) -> None:
        """Hold what a broker led or held, until `release` of its past life: its registration has ended, and its lease
        may still be valid."""
        past = past_life(broker)
        self._past.add(past)
        columns.holder[columns.holder == broker] = past
        led = (columns.leader == broker) & (columns.holder == NO_BROKER) & (columns.leader_epoch != NO_EPOCH)
        led &= columns.ended_epoch <= columns.leader_epoch
        columns.holder[led] = past
        if broker in self.unanswered:
            self.unanswered.remove(broker)
            self.unanswered.add(past)

    def release(self, columns: HoldColumns, holder: int) -> None:
        """Release everything that a holder holds: its lease has ended."""
        columns.holder[columns.holder == holder] = NO_BROKER
        self.unanswered.discard(holder)
        self._past.discard(holder)

    def held_by(self, columns: HoldColumns, holder: int) -> tuple[RowNumbers, Ints]:
        """Returns the rows with a holder, and the epoch since which each is held."""
        rows = np.flatnonzero(columns.holder == holder)
        return rows, columns.holder_epoch[rows]

    def waiting(self, columns: HoldColumns) -> RowNumbers:
        """Returns the rows whose leaders have reported that they wait, and are not released."""
        waits = (columns.waiting_epoch == columns.leader_epoch) & (columns.waiting_epoch != NO_EPOCH)
        return np.flatnonzero(waits)

    def pop_released(self, columns: HoldColumns) -> RowNumbers:
        """Returns the rows with leaders that have reported that they wait, and need not wait any longer."""
        waiting = np.flatnonzero(columns.waiting_epoch != NO_EPOCH)
        if not len(waiting):
            return waiting
        current = columns.waiting_epoch[waiting] == columns.leader_epoch[waiting]
        free = (columns.holder[waiting] == NO_BROKER) & ~self._is_barred(columns.leader[waiting])
        free = current & (free | self.exempt(columns, waiting))
        columns.waiting_epoch[waiting[free | ~current]] = NO_EPOCH
        released: RowNumbers = waiting[free]
        return released
