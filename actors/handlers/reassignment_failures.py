"""Failures of reassignment steps, as values: one for each partition that a step could not process."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kactl.decide.state.change import REFUSAL_TEXT, Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bytes
from kactl.model import TopicPartition
from kactl.model.errors import ErrorCode, Remedy, StoreError


class Failure(NamedTuple):
    """Error of one partition's step."""

    code: ErrorCode
    message: str


Failures = dict[TopicPartition, Failure]


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
