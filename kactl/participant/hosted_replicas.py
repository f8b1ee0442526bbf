"""The replicas that a broker hosts, with the last state of each that the broker has received and carried out."""

import enum
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kactl.decide.messages.control import LeaseRelease, PartitionStates, StopReplica
from kactl.decide.state.rows import Bools, Bytes, Ints, RowNumbers
from kactl.model import NO_EPOCH, NO_LEADER, NO_VERSION, ZERO_ID, Leadership, TopicPartition, TopicRef
from kactl.stores.base import Names

from .growable import broker_list, grow, put_lists
from .row_index import ABSENT, RowIndex

Ids = npt.NDArray[np.bytes_]

# Delayed requests are some minutes old: fewer replicas of a broker are deleted meanwhile. These take some megabytes.
DELETED_MAX: Final = 20_000
# 16 bytes of one topic id, so that columns of ids can be compared; ZERO_ID is the empty string.
_ID: Final = "S16"


class Role(enum.IntEnum):
    """Role of the broker for a partition."""

    NONE = 0  # only the failure of its directory is known
    LEADER = 1
    FOLLOWER = 2
    STOPPED = 3  # stopped by a StopReplica request; the data and the epoch remain


class HostedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as its broker knows it.

    Attributes:
        isr: the ISR of the last LeaderAndIsr, or the one that the leader has committed since.
        failed: the replica's directory has failed.
        held: a leader that was not released.
        token: controller epoch and leader epoch with which the last leadership here began.
    """

    name: TopicPartition
    role: Role
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int
    recovering: bool
    failed: bool
    held: bool = False
    token: tuple[int, int] = (NO_EPOCH, NO_EPOCH)


class Deleted(NamedTuple):
    """A replica that was deleted here, and that no earlier request may create again.

    Attributes:
        topic_id: as in `HostedReplicas.topic_id`.
        leader_epoch: with which it was deleted.
        controller_epoch: of the controller that deleted it.
    """

    topic_id: bytes
    leader_epoch: int
    controller_epoch: int


class HostedReplicas:
    """Columns over all replicas of one broker; `index` maps partitions to rows.

    Attributes:
        turn: number of times that leaderships began here.
        began: int32 of each row, the `turn` with which its last leadership began.
        held: bool of each row, it is to be led and was not released; or its last leadership has failed.
        sender_epoch: int32 of each row, the epoch of the last controller that has sent a LeaderAndIsr with it.
        ended_below: by topic and partition: no leadership below that epoch may begin without a release.
        emptied: bool of each row, its directory has failed, and its data was deleted: nothing was served there since.
        set_aside: bool of each row, it was stopped since a controller has named another topic, and its data is kept.
        undeleted: bool of each row, it could not be deleted when it was to be, and nothing was served there since.
        token: int32[2] of each row, the controller epoch and the leader epoch with which its last leadership began.
        isr_changed: called with each ISR that a leadership has committed, and the leader epoch.
    """

    def __init__(self) -> None:
        # By topic and partition, of those that are not hosted again.
        self.deleted: dict[tuple[str, int], Deleted] = {}
        # By topic, partition and topic id: those of before, since the name may be used for one topic after the other.
        self.deleted_before: dict[tuple[str, int, bytes], Deleted] = {}
        self.index = RowIndex()
        self.role: Bytes = np.zeros(0, np.uint8)
        self.leader: Ints = np.zeros(0, np.int32)
        self.leader_epoch: Ints = np.zeros(0, np.int32)
        self.partition_epoch: Ints = np.zeros(0, np.int32)
        self.controller_epoch: Ints = np.zeros(0, np.int32)
        self.recovering: Bools = np.zeros(0, np.bool_)
        self.failed: Bools = np.zeros(0, np.bool_)
        self.topic_id: Ids = np.zeros(0, _ID)
        self.replicas: Ints = np.zeros((0, 0), np.int32)
        self.isr: Ints = np.zeros((0, 0), np.int32)
        self.turn = 0
        self.began: Ints = np.zeros(0, np.int32)
        self.held: Bools = np.zeros(0, np.bool_)
        self.sender_epoch: Ints = np.zeros(0, np.int32)
        self.ended_below: dict[tuple[str, int], int] = {}
        self.emptied: Bools = np.zeros(0, np.bool_)
        self.set_aside: Bools = np.zeros(0, np.bool_)
        self.undeleted: Bools = np.zeros(0, np.bool_)
        self.token: Ints = np.zeros((2, 0), np.int32)
        self.isr_changed: Callable[[TopicPartition, int, tuple[int, ...]], None] = lambda name, leader_epoch, isr: None

    def __len__(self) -> int:
        return len(self.index)

    # -- reading

    def in_role(self, role: Role) -> RowNumbers:
        """Returns the rows that have that role and no failed directory."""
        rows = self.index.rows
        matching: RowNumbers = rows[(self.role[rows] == role) & ~self.failed[rows]]
        return matching

    def view(self, name: TopicPartition) -> HostedPartition | None:
        row = self.index.find_one(name)
        if row == ABSENT:
            return None
        return HostedPartition(
            name=name,
            role=Role(int(self.role[row])),
            leader=int(self.leader[row]),
            leader_epoch=int(self.leader_epoch[row]),
            isr=broker_list(self.isr, row),
            replicas=broker_list(self.replicas, row),
            partition_epoch=int(self.partition_epoch[row]),
            controller_epoch=int(self.controller_epoch[row]),
            recovering=bool(self.recovering[row]),
            failed=bool(self.failed[row]),
            held=bool(self.held[row]),
            token=(int(self.token[0, row]), int(self.token[1, row])),
        )

    def led_replicated(self) -> RowNumbers:
        """Returns the rows that are led here, without those of ownership topics, which have no in-sync replicas."""
        rows = self.in_role(Role.LEADER)
        return rows[~self.are_owned(rows)]

    def are_owned(self, rows: RowNumbers) -> Bools:
        """Returns bool[n]: the rows of ownership topics."""
        if not len(rows):
            return np.zeros(0, np.bool_)
        ids = self.topic_id[rows]
        owned = [found for found in np.unique(ids) if TopicRef("", bytes(found)).is_ownership]
        return np.isin(ids, owned) if owned else np.zeros(len(rows), np.bool_)

    def current(self, states: PartitionStates, rows: RowNumbers) -> RowNumbers:
        """Returns the rows of a request that is not late, ABSENT for those stopped for an earlier ownership topic."""
        other = self.differs(states, rows)
        if other.any():
            other[other] = (self.role[rows[other]] == Role.STOPPED) & ~self.failed[rows[other]]
            other[other] = self.are_owned(rows[other])
        return np.where(other, ABSENT, rows)

    def topic_id_of(self, name: TopicPartition) -> bytes:
        """Returns the topic id of a hosted partition; ZERO_ID if it is not known."""
        row = self.index.find_one(name)
        # Columns of bytes do not keep zeros at the end.
        return ZERO_ID if row == ABSENT else bytes(self.topic_id[row]).ljust(len(ZERO_ID), b"\0")

    # -- leaderships that wait

    @property
    def waits(self) -> bool:
        """Returns whether a leadership waits for its release."""
        return len(self._waiting()) > 0

    def _waiting(self) -> RowNumbers:
        rows = self.index.rows
        waiting: RowNumbers = rows[self.held[rows] & (self.role[rows] == Role.LEADER) & ~self.failed[rows]]
        if self.ended_below and len(waiting):
            names = self.index.names(waiting)
            free = [(name.topic, name.partition) not in self.ended_below for name in names]
            waiting = waiting[np.array(free, np.bool_)]
        return waiting

    def held_among(self, names: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Returns those of some partitions that are held."""
        found = ((name, self.index.find_one(name)) for name in names)
        return [name for name, row in found if row != ABSENT and self.held[row]]

    def waiting_leaderships(self) -> tuple[Names, Ints]:
        """Returns the leaderships that wait for their release, and their epochs."""
        rows = self._waiting()
        return self.names_with_ids(rows), self.leader_epoch[rows]

    def names_with_ids(self, rows: RowNumbers) -> Names:
        """Returns the partitions of some rows, with the ids of their topics."""
        names = self.index.names(rows)
        _, first = np.unique(names.topic, return_index=True)
        ids = [bytes(self.topic_id[row]).ljust(len(ZERO_ID), b"\0") for row in rows[first]]
        refs = tuple(TopicRef(ref.name, id_) for ref, id_ in zip(names.topics, ids, strict=True))
        return Names(refs, names.topic, names.partition)

    def must_wait(self, states: PartitionStates, lead: Bools) -> Bools:
        """Returns bool[n]: the rows of a request to lead that have to wait for a release."""
        wait = np.zeros(len(lead), np.bool_)
        if states.hold is not None:
            rows = self.index.find(names_of(states.topics), states.topic, states.partition)
            known = rows != ABSENT
            leads = np.zeros(len(lead), np.bool_)
            leads[known] = (self.role[rows[known]] == Role.LEADER) & ~self.held[rows[known]]
            wait = lead & states.hold & ~leads
        if self.ended_below:
            for position in np.flatnonzero(lead & ~wait).tolist():
                ended_below = self.ended_below.get(_key(states, position), NO_EPOCH)
                wait[position] = states.leader_epoch[position] < ended_below
        return wait

    def continued(self, states: PartitionStates, lead: Bools) -> Bools:
        """Returns bool[n]: the rows to lead whose leadership here goes on: only the ISR or the replicas have changed,
        or the hand-over of a shard has failed.

        Each leader epoch has one leader. The row leads here under its last epoch, and the controller knows the epochs
        directly before that of the request under which the leader was the same. If these leave none out in between, no
        other broker has led. A topic that was given an id begins again, because its tokens contain the id. So does a
        leadership that has ended here.
        """
        rows = self.index.find(names_of(states.topics), states.topic, states.partition)
        known = lead & (rows != ABSENT)
        of_known, result = rows[known], np.zeros(len(lead), np.bool_)
        unbroken = np.zeros(len(of_known), np.int32) if states.unbroken is None else states.unbroken[known]
        owned = np.array([ref.is_ownership for ref in states.topics], np.bool_)[states.topic[known]]
        since = states.leader_epoch[known] - np.where(owned, np.abs(unbroken), unbroken)
        is_named = (ids_of(states.topics)[states.topic[known]] != b"") & (self.topic_id[of_known] == b"")
        leads = (self.role[of_known] == Role.LEADER) & ~self.failed[of_known]
        result[known] = leads & (since <= self.leader_epoch[of_known] + 1) & ~is_named
        if self.ended_below:
            for position in np.flatnonzero(result).tolist():
                result[position] = _key(states, position) not in self.ended_below
        return result

    def end_below(self, names: Names, leader_epoch: Ints) -> None:
        """Begin no leadership of some partitions below an epoch each without a release."""
        if len(leader_epoch):
            rows = self.index.find(names_of(names.topics), names.topic, names.partition)
            self.held[rows[rows != ABSENT]] = True
            for name, epoch in zip(names, leader_epoch.tolist(), strict=True):
                self.ended_below[name.topic, name.partition] = epoch

    # -- changing

    def apply(
        self,
        states: PartitionStates,
        chosen: Bools,
        role: Role,
        *,
        held: Bools | None = None,
        continued: Bools | None = None,
    ) -> None:
        """Store the chosen rows of a request's `states`, after they have been carried out.

        Args:
            held: bool[n], rows to lead that wait for a release.
            continued: bool[n], rows to lead whose leadership goes on. Its token is raised after a failed hand-over, as
                the next owner may have passed on its own.
        """
        if not chosen.any():
            return
        rows = self._rows_of(states.topics, states.topic[chosen], states.partition[chosen])
        if role is Role.LEADER:
            self.turn += 1
            self.began[rows] = self.turn
            self._forget_ends(states, chosen)
            begins = np.ones(len(rows), np.bool_) if continued is None else ~continued[chosen]
            begins |= False if states.unbroken is None else states.unbroken[chosen] < 0
            self.token[:, rows[begins]] = np.stack((states.controller_epoch, states.leader_epoch))[:, chosen][:, begins]
        self.held[rows] = False if held is None else held[chosen]
        self.undeleted[rows] = self.set_aside[rows] = False
        self.role[rows] = role
        self.leader[rows] = states.leader[chosen]
        self.leader_epoch[rows] = states.leader_epoch[chosen]
        self.partition_epoch[rows] = states.partition_epoch[chosen]
        self.controller_epoch[rows] = states.controller_epoch[chosen]
        self.recovering[rows] = False if states.recovering is None else states.recovering[chosen]
        self.replicas = put_lists(self.replicas, rows, states.replicas[:, chosen])
        self.isr = put_lists(self.isr, rows, states.isr[:, chosen])
        self.update_topic_ids(states, chosen)

    def update_topic_ids(self, states: PartitionStates, chosen: Bools) -> None:
        """Store the topic ids of rows that are chosen and hosted. A topic without an id in `states` keeps its id."""
        ids = ids_of(states.topics)[states.topic[chosen]]
        rows = self.index.find(names_of(states.topics), states.topic[chosen], states.partition[chosen])
        known = (rows != ABSENT) & (ids != b"")
        self.topic_id[rows[known]] = ids[known]

    def _forget_ends(self, states: PartitionStates, chosen: Bools) -> None:
        """Leaderships begin, or wait for a release from now on."""
        if self.ended_below:
            for position in np.flatnonzero(chosen).tolist():
                self.ended_below.pop(_key(states, position), None)

    def sent_by(self, states: PartitionStates, controller_epoch: int) -> None:
        """A controller has sent the state of some partitions. Those of other topic ids do not count."""
        rows = self.index.find(names_of(states.topics), states.topic, states.partition)
        self.sender_epoch[rows[(rows != ABSENT) & ~self.differs(states, rows)]] = controller_epoch

    def differs(self, request: PartitionStates | StopReplica | LeaseRelease, rows: RowNumbers) -> Bools:
        """Returns bool[n]: the rows of a request that are hosted with another topic id.

        Args:
            rows: of the partitions; ABSENT for those that are not hosted.
        """
        ids = ids_of(request.topics)[request.topic]
        if not len(self.topic_id):
            return np.zeros(len(rows), np.bool_)
        local = self.topic_id[rows]
        found: Bools = (rows != ABSENT) & (ids != b"") & (local != b"") & (ids != local)
        return found

    def contradicts(self, states: PartitionStates, rows: RowNumbers) -> Bools:
        """Returns bool[n]: the rows of a request that are hosted for another topic, if the request is a later one.

        Without equal ids, leaderships show that: within the life of a topic leader epochs do not decrease, and each has
        one leader. A replica that was stopped has the epoch of that request, but not its leader.

        Args:
            rows: of the partitions; ABSENT for those that are not hosted.
        """
        if not len(self.topic_id):
            return np.zeros(len(rows), np.bool_)
        ids, local = ids_of(states.topics)[states.topic], self.leader_epoch[rows]
        is_same = (ids != b"") & (ids == self.topic_id[rows])
        # The leader of a replica that was set aside is known, too.
        served = (self.role[rows] == Role.LEADER) | (self.role[rows] == Role.FOLLOWER) | self.set_aside[rows]
        other_leader = served & (states.leader_epoch == local) & (states.leader != self.leader[rows])
        found: Bools = (rows != ABSENT) & ~is_same & ((states.leader_epoch < local) | other_leader)
        return found

    def stop(self, rows: RowNumbers, leader_epoch: Ints, *, controller_epoch: int) -> None:
        """Mark replicas as stopped; their data and epochs remain.

        Args:
            leader_epoch: int32 of each row, with which it was stopped; a negative one says nothing.
        """
        self.role[rows] = Role.STOPPED
        self.leader_epoch[rows] = np.maximum(self.leader_epoch[rows], leader_epoch)
        self.controller_epoch[rows] = controller_epoch

    def remove(self, rows: RowNumbers, leader_epoch: Ints, *, controller_epoch: int) -> None:
        """Remove replicas after their data has been deleted. The epochs of the deletion are kept; see `deleted`.

        A directory that has failed stays so: it is known of its partition, whichever topic that belongs to.

        Args:
            leader_epoch: as for `stop`. Nothing is kept of topics without ids: a later one of the name cannot be told
                apart.
        """
        failed = list(self.index.names(rows[self.failed[rows]]))
        for name, row, epoch in zip(self.index.names(rows), rows.tolist(), leader_epoch.tolist(), strict=True):
            topic_id = bytes(self.topic_id[row])
            if topic_id:
                epoch = max(epoch, int(self.leader_epoch[row]))
                self.deleted.pop((name.topic, name.partition), None)
                self.deleted[name.topic, name.partition] = Deleted(topic_id, epoch, controller_epoch)
        _limit(self.deleted)
        self.index.remove(rows)
        if failed:
            self._mark_failed(failed, emptied=failed)

    @property
    def has_deletions(self) -> bool:
        """Returns whether a deletion is known."""
        return bool(self.deleted or self.deleted_before)

    def deletion(self, topic: str, partition: int, topic_id: bytes) -> Deleted | None:
        """Returns the last deletion of a replica of one topic id; None if there was none, or long ago."""
        last = self.deleted.get((topic, partition))
        if last is not None and last.topic_id == topic_id:
            return last
        return self.deleted_before.get((topic, partition, topic_id))

    def fail(self, names: Iterable[TopicPartition]) -> None:
        """Mark the directory of some replicas as failed, whether they are hosted already or not."""
        unique = list(dict.fromkeys(names))
        self._mark_failed(unique, emptied=[name for name in unique if (name.topic, name.partition) in self.deleted])

    def _mark_failed(self, names: Sequence[TopicPartition], *, emptied: Sequence[TopicPartition]) -> None:
        rows, of_emptied = self._rows_named(names), self._rows_named(emptied)  # may replace the columns
        self.failed[rows] = True
        self.emptied[of_emptied] = True

    def _rows_named(self, names: Sequence[TopicPartition]) -> RowNumbers:
        """Returns the rows of some partitions, which are added if they are not hosted."""
        columns = Names.of(names)
        return self._rows_of(columns.topics, columns.topic, columns.partition)

    def apply_isr(self, name: TopicPartition, state: Leadership) -> None:
        """Apply an ISR that this leader has committed, unless a LeaderAndIsr has ended the leadership meanwhile."""
        row = self.index.find_one(name)
        if row == ABSENT or self.role[row] != Role.LEADER or self.leader_epoch[row] != state.leader_epoch:
            return
        self.partition_epoch[row] = state.partition_epoch
        self.recovering[row] = state.recovering
        rows = np.array([row], np.intp)
        self.isr = put_lists(self.isr, rows, np.array(state.isr, np.int32).reshape(-1, 1))
        self.isr_changed(name, state.leader_epoch, state.isr)

    def _rows_of(self, topics: Sequence[TopicRef], topic: Ints, partition: Ints) -> RowNumbers:
        names = names_of(topics)
        rows = self.index.find(names, topic, partition)
        absent = rows == ABSENT
        if absent.any():
            added = self.index.add(names, topic[absent], partition[absent])
            if self.deleted:
                for number, of_topic in zip(topic[absent].tolist(), partition[absent].tolist(), strict=True):
                    if (last := self.deleted.pop((names[number], of_topic), None)) is not None:
                        self.deleted_before.pop((names[number], of_topic, last.topic_id), None)
                        self.deleted_before[names[number], of_topic, last.topic_id] = last
                _limit(self.deleted_before)
            self._grow()
            self._clear(added)
            rows[absent] = added
        return rows

    def _grow(self) -> None:
        capacity = self.index.capacity
        self.role = grow(self.role, capacity, Role.NONE)
        self.leader = grow(self.leader, capacity, NO_LEADER)
        self.leader_epoch = grow(self.leader_epoch, capacity, NO_EPOCH)
        self.partition_epoch = grow(self.partition_epoch, capacity, NO_VERSION)
        self.controller_epoch = grow(self.controller_epoch, capacity, NO_EPOCH)
        self.recovering = grow(self.recovering, capacity, False)
        self.failed = grow(self.failed, capacity, False)
        self.emptied = grow(self.emptied, capacity, False)
        self.undeleted = grow(self.undeleted, capacity, False)
        self.set_aside = grow(self.set_aside, capacity, False)
        self.topic_id = grow(self.topic_id, capacity, b"")
        self.replicas = grow(self.replicas, capacity, NO_LEADER)
        self.isr = grow(self.isr, capacity, NO_LEADER)
        self.began = grow(self.began, capacity, 0)
        self.held = grow(self.held, capacity, False)
        self.sender_epoch = grow(self.sender_epoch, capacity, NO_EPOCH)
        self.token = grow(self.token, capacity, NO_EPOCH)

    def _clear(self, rows: RowNumbers) -> None:
        self.role[rows] = Role.NONE
        self.leader[rows] = NO_LEADER
        self.leader_epoch[rows] = NO_EPOCH
        self.partition_epoch[rows] = NO_VERSION
        self.controller_epoch[rows] = NO_EPOCH
        self.recovering[rows] = False
        self.failed[rows] = False
        self.emptied[rows] = False
        self.undeleted[rows] = False
        self.set_aside[rows] = False
        self.topic_id[rows] = b""
        self.held[rows] = False
        self.sender_epoch[rows] = NO_EPOCH
        self.replicas[:, rows] = NO_LEADER
        self.isr[:, rows] = NO_LEADER


def _key(states: PartitionStates, position: int) -> tuple[str, int]:
    return states.topics[states.topic[position]].name, int(states.partition[position])


def _limit(deleted: dict[Any, Deleted]) -> None:
    """Forget the deletions that are the oldest ones of more than DELETED_MAX."""
    for oldest in list(itertools.islice(deleted, max(0, len(deleted) - DELETED_MAX))):
        del deleted[oldest]


def names_of(topics: Iterable[TopicRef]) -> list[str]:
    return [topic.name for topic in topics]


def ids_of(topics: Sequence[TopicRef]) -> Ids:
    """Returns the ids of some topics as a column; empty where a topic has none."""
    return np.array([b"" if topic.id == ZERO_ID else topic.id for topic in topics], _ID)
