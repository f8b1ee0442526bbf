"""Planned change of some rows: the same rows with new columns, and the reason for each rejected row."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from .rows import Bools, Bytes, Ints, RowNumbers, Rows, choose


class Refusal(enum.IntEnum):
    """Reason why a partition or replica did not change its state. Other rows of the call are not affected."""

    NONE = 0
    ILLEGAL_MOVE = 1  # the transition table does not allow it
    NO_ONLINE_REPLICA = 2  # no replica of a new partition is online
    NO_ELIGIBLE_LEADER = 3  # the election strategy found no leader
    NO_LEADERSHIP = 4  # no leadership is stored, or it is unreadable
    LATER_CONTROLLER = 5  # a controller with a higher epoch wrote the stored state
    STATE_EXISTS = 6  # a first leader must be written, but a state is stored already
    STORE_FAILED = 7  # the store returned an error; the outcome has been read back
    CONFIG_UNREADABLE = 8  # the configuration that allows or forbids unclean election could not be read
    ASKED_TO_LEAD = 9  # a replica that must be created is the leader already


REFUSAL_TEXT: Final[Mapping[Refusal, str]] = {
    Refusal.NONE: "",
    Refusal.ILLEGAL_MOVE: "not a legal transition from its state",
    Refusal.NO_ONLINE_REPLICA: "none of the assigned replicas is online",
    Refusal.NO_ELIGIBLE_LEADER: "no replica may lead",
    Refusal.NO_LEADERSHIP: "no leadership information is stored for it",
    Refusal.LATER_CONTROLLER: "another controller with a later epoch wrote its state",
    Refusal.STATE_EXISTS: "a state is stored for it already",
    Refusal.STORE_FAILED: "the store failed",
    Refusal.CONFIG_UNREADABLE: "its topic's configuration could not be read",
    Refusal.ASKED_TO_LEAD: "the new replica is the leader already",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """New columns for some rows. An unchanged column is the identical array of `rows`.

    Attributes:
        rows: the rows as they were when the change was planned.
        refusal: `Refusal` of each row. A rejected row changes in no column.
        writes: bool[n], True where leadership must be committed before anything else happens. The version to compare
            with is `rows.partition_epoch`, NO_VERSION to create.
        notify: bool[W, n], the replicas that receive a LeaderAndIsr.
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
        """Returns a change of `rows` that alters only `columns`."""
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
        """Returns the change of the selected rows; `self` if a mask selects all rows."""
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

    def where(self, which: Bools, other: "Change") -> "Change":
        """Returns this change for the rows `which`, bool[n], and `other`, a change of the same rows, for the rest."""
        columns = {}
        for name in _CHANGE_FIELDS:
            column, rest = getattr(self, name), getattr(other, name)
            columns[name] = column if column is rest else choose(which, column, rest)
        return Change(rows=self.rows, **columns)

    def refuse(self, which: Bools, reason: Refusal) -> "Change":
        """Returns the change with the rows `which`, bool[n], rejected."""
        return Change.of(self.rows, refusal=np.full(len(self), reason, np.uint8)).where(which, self)

    def after(self) -> Rows:
        """Returns the rows as they are after this change is applied."""
        return self.rows.replace(**{name: getattr(self, name) for name in CHANGED_COLUMNS})

    def committed(self, version: Ints) -> "Change":
        """Returns the change with the versions that the store assigned. Rows without a write keep their version."""
        return self.replace(partition_epoch=choose(self.writes, version, self.partition_epoch))


# Columns of the table that a Change may alter.
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
