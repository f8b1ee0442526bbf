"""Requested elections, with a result for each partition.

Source: the classic controller's processReplicaLeaderElection. Unlike there, the response contains every requested
partition, also one that has no leader yet or does not exist.
"""

from collections.abc import Awaitable, Callable, Iterable

import numpy as np

from kactl.actors.machines.machine import Move, MoveResult
from kactl.actors.machines.topic_settings import Unclean
from kactl.decide.machines import partition
from kactl.decide.machines.election import Election, nobody_in_sync_online
from kactl.decide.messages.admin import ElectionKind, ElectionResult, EnableUncleanElections, ReplicaLeaderElection
from kactl.decide.messages.events import Event, ZkReplicaLeaderElection
from kactl.decide.state.change import REFUSAL_TEXT, Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bytes, Ints, RowNumbers, Rows
from kactl.decide.state.table import NO_ROW
from kactl.model import NO_LEADER, PartitionState, TopicPartition
from kactl.model.errors import ErrorCode, Remedy, StoreError
from kactl.runtime.logs import logger

from .base import ControllerContext, Handler, Handlers, in_pieces

log = logger(__name__)

_ELECTIONS = {ElectionKind.PREFERRED: Election.PREFERRED, ElectionKind.UNCLEAN: Election.UNCLEAN}
# The rows whose leader an election may change.
_NEEDED = {
    ElectionKind.PREFERRED: partition.prefers_another,
    ElectionKind.UNCLEAN: partition.has_no_live_leader,
}
_NOT_AVAILABLE = {
    ElectionKind.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ElectionKind.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}

# Why the strategy found no leader.
_NO_LEADER_REASON = {
    ElectionKind.PREFERRED: "its preferred replica is dead or not in sync",
    ElectionKind.UNCLEAN: "none of its replicas is alive",
}
# Why no election is needed; {} is the leader.
_NOT_NEEDED_REASON = {
    ElectionKind.PREFERRED: "its preferred replica {} leads it",
    ElectionKind.UNCLEAN: "its leader {} is alive",
}
# Why none is held for a partition of an ownership topic.
_SHARD_REASON = (
    "it is a shard, which has an owner and no preferred leader, and loses no records: the controller chooses its "
    "owner; `kactl explain` has the reason"
)


class Elections(Handlers):
    """Holds elections that are requested by a client or in the store."""

    def __init__(self, context: ControllerContext, unclean: Unclean) -> None:
        super().__init__(context)
        self._unclean = unclean

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            ReplicaLeaderElection: self.on_replica_leader_election,
            ZkReplicaLeaderElection: self.on_zk_replica_leader_election,
            EnableUncleanElections: self.on_enable_unclean_elections,
        }

    async def on_replica_leader_election(self, event: ReplicaLeaderElection) -> list[ElectionResult]:
        if event.election is ElectionKind.PREFERRED and not event.dry_run:
            for name in list(self.cluster.resigned) if event.partitions is None else event.partitions:
                self.cluster.resigned.pop(name, None)
        return await answer(event, self.cluster, self.move_many)

    async def on_enable_unclean_elections(self, event: EnableUncleanElections) -> None:
        log.info("unclean elections are %s by this controller's setting", "allowed" if event.enabled else "forbidden")
        self._unclean.own = event.enabled
        if self._unclean.default != event.enabled:
            log.warning("this controller's setting has no effect: the store has a different default for all brokers")
        elif event.enabled and self.epoch:
            await self.elect_offline()

    # -- requested in the store ----------------------------------------------------------------------------------------

    async def on_zk_replica_leader_election(self, event: ZkReplicaLeaderElection) -> None:
        """Hold the elections that are requested in the store, and delete the request in any case."""
        requested = await self.store.preferred_election_request()
        if requested is None:
            return
        try:
            await self._return_to_preferred(requested)
        finally:
            await self.store.delete_preferred_election_request(self.cluster.fence)
            # Reading again sets the watch for the next request, which may exist by now.
            self.context.enqueue(ZkReplicaLeaderElection())

    async def hold_stored(self) -> None:
        """Hold them as part of a takeover, which a transient store error does not undo."""
        try:
            await self.on_zk_replica_leader_election(ZkReplicaLeaderElection())
        except StoreError as failed:
            if failed.remedy is Remedy.RESIGN:
                raise
            log.warning("preferred elections that are requested in the store are retried later: %s", failed)
            self.context.enqueue(ZkReplicaLeaderElection())

    async def _return_to_preferred(self, requested: list[TopicPartition]) -> None:
        """Elect preferred replicas. Skips partitions that are unknown, queued for deletion, without leadership, or that
        their preferred replicas lead already."""
        table = self.cluster.table
        known = table.rows_known(dict.fromkeys(requested))
        rows = table.rows(table.not_queued(np.sort(known)))
        rows = rows.take(rows.has_leadership & ~np.isin(rows.index, table.owned(rows.index)))
        rows = rows.take(partition.prefers_another(rows, self.cluster))
        log.info("preferred elections are requested in the store for %d partitions; %d need one",
                 len(requested), len(rows))  # fmt: skip
        move = Move(rows.index, PartitionState.ONLINE, Election.PREFERRED, wanted=partition.prefers_another)
        moved = await self.move_many(move)
        failed = table.names(rows.index[moved.refusal != Refusal.NONE])
        if len(failed):
            log.error(
                "%d partitions are not led by their preferred replicas; the first: %s", len(failed), next(iter(failed))
            )


async def answer(
    asked: ReplicaLeaderElection, cluster: Cluster, move: Callable[[Move], Awaitable[MoveResult]]
) -> list[ElectionResult]:
    """Hold elections. Returns one result for each partition, in the order requested, or by name if all were."""
    table = cluster.table
    results: dict[TopicPartition, ElectionResult] = {}
    row_numbers = table.all() if asked.partitions is None else await _rows_of(asked.partitions, cluster, results)
    rows = table.rows(row_numbers)
    for name in table.names(rows.index[rows.queued]):
        results[name] = _failed(name, ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is being deleted")
    rows = rows.take(~rows.queued)
    shards = np.isin(rows.index, table.owned(rows.index))
    if asked.partitions is not None:
        for name in table.names(rows.index[shards]):
            results[name] = _failed(name, ErrorCode.INVALID_REQUEST, _SHARD_REASON)
    rows = rows.take(~shards)
    wanted = _NEEDED[asked.election](rows, cluster)
    if asked.partitions is not None:
        async for name, leader in in_pieces(_each(cluster, rows.take(~wanted))):
            reason = _NOT_NEEDED_REASON[asked.election].format(leader)
            results[name] = ElectionResult(
                name.topic, name.partition, "not_needed", ErrorCode.ELECTION_NOT_NEEDED, reason, leader, leader
            )
    rows = rows.take(wanted)
    leaders, refusals = _dry(asked, cluster, rows) if asked.dry_run else await _hold(asked, cluster, move, rows)
    async for (name, previous), leader, refusal in in_pieces(
        zip(_each(cluster, rows), leaders.tolist(), refusals.tolist(), strict=True)
    ):
        results[name] = _result(asked.election, name, previous, leader, Refusal(refusal))
    order = sorted(results) if asked.partitions is None else dict.fromkeys(asked.partitions)
    return [results[name] for name in order]


async def _rows_of(
    names: Iterable[TopicPartition], cluster: Cluster, results: dict[TopicPartition, ElectionResult]
) -> RowNumbers:
    """Returns the rows of the partitions that exist, each once; adds a result for each of the others."""
    row_numbers = []
    async for name in in_pieces(dict.fromkeys(names)):
        row = cluster.table.row(name)
        if row == NO_ROW:
            results[name] = _failed(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist")
        else:
            row_numbers.append(row)
    return np.array(row_numbers, np.intp)


async def _hold(
    asked: ReplicaLeaderElection, cluster: Cluster, move: Callable[[Move], Awaitable[MoveResult]], rows: Rows
) -> tuple[Ints, Bytes]:
    election, needed = _ELECTIONS[asked.election], _NEEDED[asked.election]
    moved = await move(Move(rows.index, PartitionState.ONLINE, election, wanted=needed))
    return cluster.table.rows(rows.index).leader, moved.refusal


def _dry(asked: ReplicaLeaderElection, cluster: Cluster, rows: Rows) -> tuple[Ints, Bytes]:
    change = partition.go_online(
        rows,
        _ELECTIONS[asked.election],
        cluster.live_brokers,
        unclean=nobody_in_sync_online(rows, cluster.live_brokers),
        controller_epoch=cluster.fence.epoch,
    )
    return change.leader, change.refusal


def _result(kind: ElectionKind, name: TopicPartition, previous: int, leader: int, refusal: Refusal) -> ElectionResult:
    if refusal is Refusal.NONE:
        return ElectionResult(name.topic, name.partition, "ok", ErrorCode.NONE, "", leader, previous)
    code = ErrorCode.UNKNOWN_SERVER_ERROR if refusal is Refusal.STORE_FAILED else _NOT_AVAILABLE[kind]
    reason = _NO_LEADER_REASON[kind] if refusal is Refusal.NO_ELIGIBLE_LEADER else REFUSAL_TEXT[refusal]
    return ElectionResult(name.topic, name.partition, "failed", code, reason, previous, previous)


def _failed(name: TopicPartition, code: ErrorCode, message: str) -> ElectionResult:
    return ElectionResult(name.topic, name.partition, "failed", code, message, NO_LEADER, NO_LEADER)


def _each(cluster: Cluster, rows: Rows) -> list[tuple[TopicPartition, int]]:
    names = cluster.table.names(rows.index)
    return list(zip(names, rows.leader.tolist(), strict=True))
