"""Leadership that is written without any machine's move: plan → commit → apply; what is refused is planned again.

The handlers' counterpart of what each machine does for its own moves.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from kactl.actors.machines.commit import ROUNDS_MAX, Committer
from kactl.runtime.logs import logger
from kactl.state.change import Change, Refusal
from kactl.state.rows import Bools, Bytes, RowNumbers, Rows, choose

from .base import ControllerContext, Handlers

log = logger(__name__)

Plan = Callable[[Rows], Change]

# What may be different in the store, if a leader or another controller has written it.
_DOUBTFUL: Final = (Refusal.NO_LEADERSHIP, Refusal.NO_ELIGIBLE_LEADER)


class Rewrites(Handlers):
    """See the module."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._committer = Committer(context.cluster, context.store)

    async def write(self, at: RowNumbers, plan: Plan) -> tuple[Bytes, Bools]:
        """Write what `plan` makes of some rows, and take over what was kept. Nobody is told.

        A row that the store refuses is read, and so is one that is refused for want of leadership or of a leader;
        what stands there is planned anew, and may then need no write.

        Returns:
            uint8[n] of Refusal, and bool[n]: the row was written.

        Raises:
            ControllerMoved: a later controller exists.
            StoreError: the store has ended our session.
        """
        refusal, written = np.zeros(len(at), np.uint8), np.zeros(len(at), np.bool_)
        waiting, rows, read = np.arange(len(at)), self.cluster.table.rows(at), False
        for _ in range(ROUNDS_MAX):
            if not len(waiting):
                return refusal, written
            change = plan(rows)
            settled = await self._committer.commit(change)
            self.cluster.apply(settled.change)
            table = self.cluster.table
            self.history.add_partitions(
                settled.change, table.refs, controller_epoch=self.epoch, which=settled.change.writes
            )
            refusal[waiting] = choose(settled.failed, np.uint8(Refusal.STORE_FAILED), change.refusal)
            written[waiting] = settled.kept & change.writes
            again = settled.conflict
            if not read:
                again = again | np.isin(change.refusal, _DOUBTFUL)
            if not again.any():
                return refusal, written
            waiting, read = waiting[again], True
            rows, refused = await self._committer.reload(rows.take(again))
            refusal[waiting] = refused
            waiting, rows = waiting[refused == Refusal.NONE], rows.take(refused == Refusal.NONE)
        refusal[waiting] = Refusal.STORE_FAILED
        return refusal, written
