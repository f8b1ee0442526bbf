"""Where replicas stand within a row.

Assigned replicas fill the first slots in assignment order; behind them stand brokers that are in sync, or have a state,
although the assignment does not name them.
"""

import numpy as np

from kactl.model import NO_BROKER, Assignment, ReplicaState

from .columns import PER_SLOT, Columns
from .records import Assignments
from .rows import Ints, RowNumbers, some


class Slots(Columns):
    """Columns of which the slots of a row are given to brokers."""

    def admit(self, at: RowNumbers, brokers: Ints) -> None:
        """Make sure that every broker of a column int32[K, n] has a slot in its row; NO_BROKER is passed over.

        A broker that gets one is not assigned, not in sync and has no state.
        """
        for line in brokers:
            while True:
                replicas = self._columns["replicas"][:, at]
                missing = (line != NO_BROKER) & ~some(replicas == line)
                if not missing.any():
                    break
                room = replicas == NO_BROKER
                if not some(room)[missing].all():
                    self._widen(self.width + 1)
                    continue
                slot = np.argmax(room, axis=0)
                self._columns["replicas"][slot[missing], at[missing]] = line[missing]

    def _lay(self, at: RowNumbers, loaded: Assignments) -> None:
        """Lay the slots of the rows `at` by n assignments, which fit into the width; brokers keep what they are."""
        # A row is laid in bulk only while no slot of it is taken; any broker in it may have a state or a mark.
        known = some(self._columns["replicas"][:, at] != NO_BROKER)
        new, fresh = at[~known], ~known
        depth = len(loaded.replicas)
        for name in ("replicas", "adding", "removing"):
            self._columns[name][:depth, new] = getattr(loaded, name)[:, fresh]
        self._columns["assigned"][:depth, new] = loaded.replicas[:, fresh] != NO_BROKER
        for position in np.flatnonzero(known).tolist():
            self._reassign(int(at[position]), loaded.one(position))

    def _reassign(self, row: int, assignment: Assignment) -> None:
        """Lay the slots of one row anew: the assignment first, then whoever is in sync or has a state."""
        columns = self._columns
        kept = {
            int(broker): (
                bool(columns["in_sync"][slot, row]),
                bool(columns["dir_offline"][slot, row]),
                int(columns["replica_state"][slot, row]),
            )
            for slot, broker in enumerate(columns["replicas"][:, row])
            if broker != NO_BROKER
        }
        strays = [
            broker
            for broker, (in_sync, _, state) in kept.items()
            if broker not in assignment.replicas and (in_sync or state != ReplicaState.ABSENT)
        ]
        brokers = [*dict.fromkeys(assignment.replicas), *strays]
        if len(brokers) > self.width:
            self._widen(len(brokers))
            columns = self._columns
        for name, (_, empty) in PER_SLOT.items():
            columns[name][:, row] = empty
        for slot, broker in enumerate(brokers):
            in_sync, dir_offline, state = kept.get(broker, (False, False, int(ReplicaState.ABSENT)))
            columns["replicas"][slot, row] = broker
            columns["assigned"][slot, row] = broker in assignment.replicas
            columns["adding"][slot, row] = broker in assignment.adding
            columns["removing"][slot, row] = broker in assignment.removing
            columns["in_sync"][slot, row] = in_sync
            columns["dir_offline"][slot, row] = dir_offline
            columns["replica_state"][slot, row] = state
