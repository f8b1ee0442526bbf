"""Summaries of topics and brokers, counted over the columns of their partitions."""

import base64
import bisect
import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kactl.decide.machines.shards import ShardState, shard_rows, states_of
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.min_isr import offline_partitions
from kactl.decide.state.rows import Ints, some
from kactl.decide.state.table import Table
from kactl.model import NO_BROKER, ZERO_ID

from . import cursor
from .schema import TopicInfo, TopicQuery

# Above this, broker ids are counted by sorting: an array with an entry for each id would be too large.
_DENSE_ID_MAX: Final = 1 << 16


def find_topics(cluster: Cluster, query: TopicQuery) -> tuple[tuple[TopicInfo, ...], int, str | None]:
    """Returns one page of topics by name, the number of all topics, and the cursor of the next page.

    Raises:
        Refused: the cursor is invalid.
    """
    names = sorted(topic.name for topic in cluster.table.topics())
    after = cursor.read(query.cursor)
    begin = 0 if after is None else bisect.bisect_right(names, after[0])
    chosen = names[begin : begin + query.limit]
    next_cursor = cursor.write(chosen[-1], 0) if begin + len(chosen) < len(names) else None
    return tuple(topic_infos(cluster, chosen)), len(names), next_cursor


def topic_infos(cluster: Cluster, names: Sequence[str]) -> list[TopicInfo]:
    """Returns summaries of topics; unknown topics are omitted."""
    table = cluster.table
    known = [topic for name in names if (topic := table.topic(name)) is not None]
    rows_by_topic = [table.rows_of(topic) for topic in known]
    rows = np.concatenate([np.zeros(0, np.intp), *rows_by_topic])
    index = np.repeat(np.arange(len(known)), [len(topic_rows) for topic_rows in rows_by_topic])
    assigned = table.column("assigned")[:, rows]
    factor = np.zeros(len(known), np.int64)
    np.maximum.at(factor, index, assigned.sum(axis=0))
    missing = some(assigned & ~table.column("in_sync")[:, rows]) & (table.column("leader_epoch")[rows] >= 0)
    offline = offline_partitions(cluster)[rows]
    shards = np.isin(rows, shard_rows(cluster)) & (cluster.fence.epoch > 0)
    offline[shards] = states_of(cluster, table.rows(rows[shards])) == ShardState.UNOWNED
    counts = zip(
        known,
        np.bincount(index, minlength=len(known)).tolist(),
        factor.tolist(),
        np.bincount(index[offline], minlength=len(known)).tolist(),
        np.bincount(index[missing], minlength=len(known)).tolist(),
        strict=True,
    )
    return [
        TopicInfo(
            name=topic.name,
            id=text_of_id(topic.ref.id),
            partitions=count,
            replication_factor=replicas,
            offline_partitions=without_leader,
            under_replicated_partitions=0 if topic.name in cluster.topics_to_delete else lagging,
            deleting=topic.name in cluster.topics_to_delete,
            kind=topic.ref.kind,
            standby=cluster.standbys.get(topic.name) if topic.ref.is_ownership else None,
        )
        for topic, count, replicas, without_leader, lagging in counts
    ]


def text_of_id(topic_id: bytes) -> str | None:
    """Returns a topic's id in Kafka's text form, 22 characters; None if it has none."""
    return None if topic_id == ZERO_ID else base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """Leaders and replicas of each broker, by id, without those of shards; brokers without any are missing.

    Attributes:
        owners: number of shards that each owns; `standbys`: that it follows.
    """

    leaders: dict[int, int]
    replicas: dict[int, int]
    out_of_sync: dict[int, int]
    owners: dict[int, int]
    standbys: dict[int, int]


def shares(table: Table) -> Shares:
    """Count the partitions that each broker leads and holds."""
    leader, replicas, assigned = table.column("leader"), table.column("replicas"), table.column("assigned")
    lagging = assigned & ~table.column("in_sync") & (table.column("leader_epoch") >= 0)
    shards, none = table.owned(table.all()), np.int32(NO_BROKER)
    is_shard = np.zeros(len(leader), np.bool_)
    is_shard[shards] = True
    follows = assigned[:, shards] & (replicas[:, shards] != leader[shards])
    return Shares(
        _counted(np.where(is_shard, none, leader)),
        _counted(np.where(assigned & ~is_shard, replicas, none)),
        _counted(replicas[lagging & ~is_shard]),
        _counted(leader[shards]),
        _counted(replicas[:, shards][follows]),
    )


def _counted(brokers: Ints) -> dict[int, int]:
    """Count how often each broker occurs in a column; negative entries mean no broker."""
    ids: Any
    if brokers.max(initial=-1) > _DENSE_ID_MAX:
        ids, counts = np.unique(brokers, return_counts=True)
    else:
        counts = np.bincount(np.maximum(brokers, NO_BROKER).ravel() + 1)
        ids = np.arange(-1, len(counts) - 1)
    known = (ids >= 0) & (counts > 0)
    return dict(zip(ids[known].tolist(), counts[known].tolist(), strict=True))
