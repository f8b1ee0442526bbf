"""The replicas that a broker hosts: what it was told last about each, and has done."""

import enum
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from kactl.messages.control import PartitionStates
from kactl.model import NO_EPOCH, NO_LEADER, NO_VERSION, ZERO_ID, Leadership, TopicPartition, TopicRef
from kactl.state.rows import Bools, Bytes, Ints, RowNumbers
from kactl.stores.base import Names

from .columns import lengthened, one_list, put_lists
from .row_index import ABSENT, Index

Ids = npt.NDArray[np.bytes_]

# Bytes of one topic id; ids compare as columns, ZERO_ID as the empty string.
_ID: Final = "S16"


class Role(enum.IntEnum):
    """What the broker does for a partition."""

    NONE = 0  # nothing; only that its directory has failed is known
    LEADER = 1
    FOLLOWER = 2
    STOPPED = 3  # it was told to stop, and kept the data and the epoch


class HostedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as its broker knows it.

    Attributes:
        isr: as the instruction said it, or as the leader has written it since.
        failed: its directory has failed.
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


class Hosted:
    """Columns over all replicas of one broker; `index` has their rows."""

    def __init__(self) -> None:
        self.index = Index()
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

    def __len__(self) -> int:
        return len(self.index)

    # -- reading

    def in_role(self, role: Role) -> RowNumbers:
        """The rows that have a role and a directory that works."""
        rows = self.index.rows
        chosen: RowNumbers = rows[(self.role[rows] == role) & ~self.failed[rows]]
        return chosen

    def view(self, name: TopicPartition) -> HostedPartition | None:
        row = self.index.find_one(name)
        if row == ABSENT:
            return None
        return HostedPartition(
            name=name,
            role=Role(int(self.role[row])),
            leader=int(self.leader[row]),
            leader_epoch=int(self.leader_epoch[row]),
            isr=one_list(self.isr, row),
            replicas=one_list(self.replicas, row),
            partition_epoch=int(self.partition_epoch[row]),
            controller_epoch=int(self.controller_epoch[row]),
            recovering=bool(self.recovering[row]),
            failed=bool(self.failed[row]),
        )

    # -- changing

    def apply(self, states: PartitionStates, chosen: Bools, role: Role) -> None:
        """Keep what an instruction said about the rows of `states` that are chosen, now that it has been done."""
        if not chosen.any():
            return
        rows = self._rows_of(states.topics, states.topic[chosen], states.partition[chosen])
        self.role[rows] = role
        self.leader[rows] = states.leader[chosen]
        self.leader_epoch[rows] = states.leader_epoch[chosen]
        self.partition_epoch[rows] = states.partition_epoch[chosen]
        self.controller_epoch[rows] = states.controller_epoch[chosen]
        self.recovering[rows] = False if states.recovering is None else states.recovering[chosen]
        self.replicas = put_lists(self.replicas, rows, states.replicas[:, chosen])
        self.isr = put_lists(self.isr, rows, states.isr[:, chosen])
        self.learn_ids(states, chosen)

    def learn_ids(self, states: PartitionStates, chosen: Bools) -> None:
        """Keep the topic ids of rows that are chosen and hosted; a topic that comes without one keeps its own."""
        ids = ids_of(states.topics)[states.topic[chosen]]
        rows = self.index.find(names_of(states.topics), states.topic[chosen], states.partition[chosen])
        known = (rows != ABSENT) & (ids != b"")
        self.topic_id[rows[known]] = ids[known]

    def stop(self, rows: RowNumbers) -> None:
        """Serve some replicas no more, and keep their data and epochs."""
        self.role[rows] = Role.STOPPED

    def forget(self, rows: RowNumbers) -> None:
        """The data of some replicas has been deleted; as if they had never been here."""
        self.index.remove(rows)

    def fail(self, names: Iterable[TopicPartition]) -> None:
        """The directory of some replicas has failed, be they hosted already or not."""
        wanted = Names.of(list(dict.fromkeys(names)))
        rows = self._rows_of(wanted.topics, wanted.topic, wanted.partition)
        self.failed[rows] = True

    def keep_isr(self, name: TopicPartition, state: Leadership) -> None:
        """The leader's own write of `state` stands in the store: go on from there, unless an instruction has come
        meanwhile that makes it void."""
        row = self.index.find_one(name)
        if row == ABSENT or self.role[row] != Role.LEADER or self.leader_epoch[row] != state.leader_epoch:
            return
        self.partition_epoch[row] = state.partition_epoch
        self.recovering[row] = state.recovering
        rows = np.array([row], np.intp)
        self.isr = put_lists(self.isr, rows, np.array(state.isr, np.int32).reshape(-1, 1))

    def _rows_of(self, topics: Sequence[TopicRef], topic: Ints, partition: Ints) -> RowNumbers:
        names = names_of(topics)
        rows = self.index.find(names, topic, partition)
        absent = rows == ABSENT
        if absent.any():
            fresh = self.index.add(names, topic[absent], partition[absent])
            self._lengthen()
            self._clear(fresh)
            rows[absent] = fresh
        return rows

    def _lengthen(self) -> None:
        capacity = self.index.capacity
        self.role = lengthened(self.role, capacity, Role.NONE)
        self.leader = lengthened(self.leader, capacity, NO_LEADER)
        self.leader_epoch = lengthened(self.leader_epoch, capacity, NO_EPOCH)
        self.partition_epoch = lengthened(self.partition_epoch, capacity, NO_VERSION)
        self.controller_epoch = lengthened(self.controller_epoch, capacity, NO_EPOCH)
        self.recovering = lengthened(self.recovering, capacity, False)
        self.failed = lengthened(self.failed, capacity, False)
        self.topic_id = lengthened(self.topic_id, capacity, b"")
        self.replicas = lengthened(self.replicas, capacity, NO_LEADER)
        self.isr = lengthened(self.isr, capacity, NO_LEADER)

    def _clear(self, rows: RowNumbers) -> None:
        self.role[rows] = Role.NONE
        self.leader[rows] = NO_LEADER
        self.leader_epoch[rows] = NO_EPOCH
        self.partition_epoch[rows] = NO_VERSION
        self.controller_epoch[rows] = NO_EPOCH
        self.recovering[rows] = False
        self.failed[rows] = False
        self.topic_id[rows] = b""
        self.replicas[:, rows] = NO_LEADER
        self.isr[:, rows] = NO_LEADER


def names_of(topics: Iterable[TopicRef]) -> list[str]:
    return [topic.name for topic in topics]


def ids_of(topics: Sequence[TopicRef]) -> Ids:
    """The ids of some topics, as a column; empty where a topic has none."""
    return np.array([b"" if topic.id == ZERO_ID else topic.id for topic in topics], _ID)
