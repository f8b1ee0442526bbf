"""Elections that somebody asked for: which partitions they concern, and what became of each.

Source: the classic controller's processReplicaLeaderElection. Unlike there, every partition that was asked for is
answered, also one that has no leader yet or does not exist.
"""

import logging

import numpy as np

from kactl.actors.actor import Ref
from kactl.actors.messages import Move, Moved
from kactl.cluster import Cluster
from kactl.election import Election, nobody_in_sync_online
from kactl.errors import ErrorCode
from kactl.events import Event
from kactl.machines import partition
from kactl.model import NO_LEADER, PartitionState, TopicPartition
from kactl.requests import ElectionKind, ElectionRequested, ElectionResult, UncleanElectionsEnabled
from kactl.rows import REFUSAL_TEXT, Bools, Bytes, Ints, Refusal, RowNumbers, Rows, first
from kactl.table import NO_ROW

from .reach import Handler, Handlers, Reach
from .topics import UncleanDefault

log = logging.getLogger(__name__)

_ELECTIONS = {ElectionKind.PREFERRED: Election.PREFERRED, ElectionKind.UNCLEAN: Election.UNCLEAN}
_NOT_AVAILABLE = {
    ElectionKind.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ElectionKind.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}

# What it means here that the strategy found nobody.
_NOBODY = {
    ElectionKind.PREFERRED: "its preferred replica is dead or not in sync",
    ElectionKind.UNCLEAN: "none of its replicas is alive",
}


class Elections(Handlers):
    """See the module."""

    def __init__(self, reach: Reach, unclean: UncleanDefault) -> None:
        super().__init__(reach)
        self._unclean = unclean

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            ElectionRequested: self.on_election_requested,
            UncleanElectionsEnabled: self.on_unclean_elections_enabled,
        }

    async def on_election_requested(self, event: ElectionRequested) -> list[ElectionResult]:
        return await answer(event, self.cluster, self.partitions)

    async def on_unclean_elections_enabled(self, event: UncleanElectionsEnabled) -> None:
        log.info("unclean elections are %s by our own setting", "allowed" if event.enabled else "forbidden")
        self._unclean.unclean_own = event.enabled
        if self._unclean.unclean_default != event.enabled:
            log.warning("our own setting has no effect while the store says otherwise for all brokers")
        elif event.enabled and self.epoch:
            await self.elect_offline()


async def answer(asked: ElectionRequested, cluster: Cluster, partitions: Ref[Move]) -> list[ElectionResult]:
    """Hold the elections that were asked for; one result for each partition, in the order asked or by name."""
    table = cluster.table
    names = sorted(table.names(table.all())) if asked.partitions is None else list(dict.fromkeys(asked.partitions))
    results: dict[TopicPartition, ElectionResult] = {}
    at = []
    for name in names:
        row = table.row(name)
        if row == NO_ROW:
            results[name] = _failed(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist")
        elif name.topic in cluster.topics_to_delete:
            results[name] = _failed(name, ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is being deleted")
        else:
            at.append(row)
    rows = table.rows(np.array(at, np.intp))
    wanted = _electable(rows, asked.election, cluster)
    for name, leader in _each(cluster, rows.take(~wanted)):
        if asked.partitions is not None:
            results[name] = ElectionResult(
                name.topic, name.partition, "not_needed", ErrorCode.ELECTION_NOT_NEEDED, "", leader, leader
            )
    rows = rows.take(wanted)
    moved = _dry(asked, cluster, rows) if asked.dry_run else await _hold(asked, cluster, partitions, rows.at)
    for position, (name, previous) in enumerate(_each(cluster, rows)):
        results[name] = _result(
            asked.election, name, previous, int(moved[0][position]), Refusal(int(moved[1][position]))
        )
    return [results[name] for name in names if name in results]


def _electable(rows: Rows, kind: ElectionKind, cluster: Cluster) -> Bools:
    """bool[n]: whether an election could change anything, or it cannot be known without trying."""
    preferred = first(rows.assigned, rows.replicas)
    live = cluster.now.live[rows.leader]
    needed: Bools = rows.leader != preferred if kind is ElectionKind.PREFERRED else ~live
    return needed | ~rows.has_leadership


async def _hold(
    asked: ElectionRequested, cluster: Cluster, partitions: Ref[Move], at: RowNumbers
) -> tuple[Ints, Bytes]:
    """Leaders and refusals after the elections."""
    moved: Moved = await partitions.ask(Move(at, PartitionState.ONLINE, _ELECTIONS[asked.election]))
    return cluster.table.rows(at).leader, moved.refusal


def _dry(asked: ElectionRequested, cluster: Cluster, rows: Rows) -> tuple[Ints, Bytes]:
    """Leaders and refusals as they would be."""
    change = partition.elect(
        rows,
        _ELECTIONS[asked.election],
        cluster.now,
        unclean=nobody_in_sync_online(rows, cluster.now),
        controller_epoch=cluster.fence.epoch,
    )
    return change.leader, change.refusal


def _result(kind: ElectionKind, name: TopicPartition, previous: int, leader: int, refusal: Refusal) -> ElectionResult:
    if refusal is Refusal.NONE:
        return ElectionResult(name.topic, name.partition, "ok", ErrorCode.NONE, "", leader, previous)
    code = ErrorCode.UNKNOWN_SERVER_ERROR if refusal is Refusal.STORE_FAILED else _NOT_AVAILABLE[kind]
    reason = _NOBODY[kind] if refusal is Refusal.NO_ELIGIBLE_LEADER else REFUSAL_TEXT[refusal]
    return ElectionResult(name.topic, name.partition, "failed", code, reason, previous, previous)


def _failed(name: TopicPartition, code: ErrorCode, message: str) -> ElectionResult:
    return ElectionResult(name.topic, name.partition, "failed", code, message, NO_LEADER, NO_LEADER)


def _each(cluster: Cluster, rows: Rows) -> list[tuple[TopicPartition, int]]:
    """Name and leader of each row."""
    names = cluster.table.names(rows.at)
    return list(zip(names, rows.leader.tolist(), strict=True))
