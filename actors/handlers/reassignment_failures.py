"""Failures of reassignment steps, as values, and the checks before a reassignment starts.

The new replicas of a partition must include a leader for it. The classic controller starts reassignments without one,
and the partitions have no leader until another election.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from kactl.decide.machines import reassignment
from kactl.decide.state.change import REFUSAL_TEXT, Change, Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bytes, Rows, some
from kactl.decide.state.table import in_sync_of
from kactl.model import NO_BROKER, Assignment, TopicPartition
from kactl.model.errors import ErrorCode, Remedy, StoreError

from .base import Handlers

Failures = dict[TopicPartition, "Failure"]


class Failure(NamedTuple):
    """Error of one partition's step."""

    code: ErrorCode
    message: str


def refused_rows(names: list[TopicPartition], refusal: Bytes) -> Failures:
    """Returns the failures of the partitions `names` with a refusal, uint8[n] of Refusal."""
    return {
        names[position]: _refused(Refusal(int(refusal[position])))
        for position in np.flatnonzero(refusal != Refusal.NONE).tolist()
    }


def failure_of(error: Exception) -> Failure:
    return Failure(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def mark_failed(cluster: Cluster, names: Iterable[TopicPartition], error: Exception) -> Failures:
    """Mark rows for a retry after their step failed in the store. Returns their failures.

    Raises:
        StoreError: the store session has ended.
    """
    unless_over(error)
    names = list(names)
    cluster.mark_for_retry(cluster.table.rows_named(names))
    return {name: failure_of(error) for name in names}


def unless_over(error: Exception) -> None:
    """Raise the error if the store session has ended; other errors are values of the failed step."""
    if isinstance(error, StoreError) and error.remedy is Remedy.RESIGN:
        raise error


def _refused(reason: Refusal) -> Failure:
    if reason is Refusal.NO_ELIGIBLE_LEADER:
        return Failure(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "the present leader would be stopped, or every in-sync replica, and no replica that stays is in sync and "
            "online: name the leader in the target, or wait until another replica is in sync",
        )
    return Failure(ErrorCode.UNKNOWN_SERVER_ERROR, REFUSAL_TEXT[reason])


class TargetLeaders(Handlers):
    """Checks of new assignments, made by `Assignment.reassign_to`."""

    def refusals(self, wanted: Mapping[TopicPartition, Assignment]) -> Failures:
        """Returns the assignments that would leave their partitions without a leader. Changes nothing."""
        row_numbers = self.cluster.table.rows_named(wanted)
        return refused_rows(list(wanted), self.hand_over(self.cluster.table.rows(row_numbers), wanted).refusal)

    def hand_over(self, rows: Rows, wanted: Mapping[TopicPartition, Assignment]) -> Change:
        """Plan the move of leadership to replicas that stay, where the leader is none of the new replicas."""
        stays = [wanted[name].replicas for name in self.cluster.table.names(rows.index)]
        width = max(map(len, stays), default=0)
        padded = [[*replicas, *[NO_BROKER] * (width - len(replicas))] for replicas in stays]
        columns = np.array(padded, np.int32).reshape(len(rows), width).T
        return reassignment.hand_over(rows, columns, self.cluster.live_brokers, controller_epoch=self.epoch)

    async def would_stop(self, wanted: Mapping[TopicPartition, Assignment]) -> Failures:
        """Returns the partitions with a first leader in the store that is not known, and not one of the new replicas.

        Its write had no response. Without it no replica would be in sync, and the partition could not have a leader.
        """
        table = self.cluster.table
        removing = [name for name, new in wanted.items() if {*self.cluster.assignment(name).replicas} - {*new.replicas}]
        rows = table.rows(table.rows_named(removing))
        rows = rows.take(~rows.has_leadership)
        if not len(rows):
            return {}
        names = table.names(rows.index)
        try:
            stored = await self.store.leaderships(names)
        except StoreError as error:
            return mark_failed(self.cluster, names, error)
        # A deleted topic of that name may have left its leadership.
        mine = stored.found & (stored.controller_epoch == self.epoch)
        mine &= some(rows.assigned & in_sync_of(rows.replicas, stored.isr))
        leaders = zip(names, mine.tolist(), stored.leader.tolist(), strict=True)
        leave = [name for name, is_mine, leader in leaders if is_mine and leader not in wanted[name].replicas]
        lost = StoreError("the response to the write of its first leader was lost: try again")
        return mark_failed(self.cluster, leave, lost)
