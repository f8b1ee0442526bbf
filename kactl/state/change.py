"""What a machine makes of some rows: the same rows with new columns, and for each row that may not go on, why."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from .rows import Bools, Bytes, Ints, RowNumbers, Rows, choose


class Refusal(enum.IntEnum):
    """Why a partition or replica did not make the move that was asked for. The others of the call go on."""

    NONE = 0
    ILLEGAL_MOVE = 1  # the transition table has no such row
    NO_ONLINE_REPLICA = 2  # a new partition none of whose replicas is online
    NO_ELIGIBLE_LEADER = 3  # the strategy found nobody
    NO_LEADERSHIP = 4  # nothing is stored for it, or nothing readable
    LATER_CONTROLLER = 5  # a controller with a higher epoch wrote the stored state
    STATE_EXISTS = 6  # a first leader was to be written where a state is stored already
    STORE_FAILED = 7  # the store answered with an error; the outcome has been read back
    CONFIG_UNREADABLE = 8  # whether an unclean election is allowed could not be read
    ASKED_TO_LEAD = 9  # a replica that is about to be created is the leader already


REFUSAL_TEXT: Final[Mapping[Refusal, str]] = {
    Refusal.NONE: "",
    Refusal.ILLEGAL_MOVE: "not a legal move from its state",
    Refusal.NO_ONLINE_REPLICA: "none of the assigned replicas is online",
    Refusal.NO_ELIGIBLE_LEADER: "no replica may lead",
    Refusal.NO_LEADERSHIP: "no leadership information is stored for it",
    Refusal.LATER_CONTROLLER: "another controller with a later epoch wrote its state",
    Refusal.STATE_EXISTS: "a state is stored for it already",
    Refusal.STORE_FAILED: "the store failed",
    Refusal.CONFIG_UNREADABLE: "its topic's configuration could not be read",
    Refusal.ASKED_TO_LEAD: "the new replica is being asked to become the leader",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What is to become of some rows. A column that stays as it was is the very array of `rows`.

    Attributes:
        rows: the rows as they were when this was planned.
        refusal: `Refusal` for each row; a refused row changes in no column.
        writes: bool[n], True where the leadership has to be committed before anything else happens. The version
            to compare with is `rows.partition_epoch`, NO_VERSION to create.
        notify: bool[W, n], the replicas whose brokers get a LeaderAndIsr.
        unclean: bool[n], True where the new leader was not in sync.
    """

    rows: Rows
    refusal: Bytes
    state: Bytes
    replica_state: Bytes  # [W, n]
    assigned: Bools  # [W, n]
    adding: Bools  # [W, n]
    removing: Bools  # [W, n]
    leader: Ints
    leader_epoch: Ints
    in_sync: Bools  # [W, n]
    recovering: Bools
    partition_epoch: Ints
    controller_epoch: Ints
    writes: Bools
    notify: Bools  # [W, n]
    unclean: Bools

    @staticmethod
    def of(rows: Rows, **columns: Any) -> "Change":
        """A change of `rows` in nothing but `columns`."""
        same = {name: getattr(rows, name) for name in CHANGED_COLUMNS if name not in columns}
        count = len(rows)
        columns.setdefault("refusal", np.zeros(count, np.uint8))
        columns.setdefault("writes", np.zeros(count, np.bool_))
        columns.setdefault("unclean", np.zeros(count, np.bool_))
        columns.setdefault("notify", np.zeros(rows.replicas.shape, np.bool_))
        return Change(rows=rows, **same, **columns)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: Bools | RowNumbers) -> "Change":
        """The change of the rows that `which` names; this very change if a mask names all."""
        if which.dtype == np.bool_:
            if which.all():
                return self
            which = np.flatnonzero(which)
        rows = self.rows.take(which)
        columns = {}
        for name in _CHANGE_FIELDS:
            column = getattr(self, name)
            shared = getattr(self.rows, name, None) is column
            columns[name] = getattr(rows, name) if shared else column.take(which, axis=-1)
        return Change(rows=rows, **columns)

    def replace(self, **columns: Any) -> "Change":
        return dataclasses.replace(self, **columns)

    def after(self) -> Rows:
        """The rows as they are once this has been applied."""
        return self.rows.replace(**{name: getattr(self, name) for name in CHANGED_COLUMNS})

    def committed(self, version: Ints) -> "Change":
        """The same, with the versions that the store gave to what it kept; rows that wrote nothing keep theirs."""
        return self.replace(partition_epoch=choose(self.writes, version, self.partition_epoch))


# The columns of the table that a Change may alter.
CHANGED_COLUMNS: Final = (
    "state",
    "replica_state",
    "assigned",
    "adding",
    "removing",
    "leader",
    "leader_epoch",
    "in_sync",
    "recovering",
    "partition_epoch",
    "controller_epoch",
)
_CHANGE_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Change) if field.name != "rows")
