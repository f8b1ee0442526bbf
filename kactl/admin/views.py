"""Views of partitions for the admin API.

Filters run over whole columns, and only the rows of one page become objects: a million partitions cost a few
milliseconds. A page is gathered without awaiting, so it shows one moment.
"""

import asyncio
import bisect
import dataclasses
import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import numpy as np

from kactl.decide.machines.shards import ShardState, states_of
from kactl.decide.messages.log import PARTITION_STATE_NAMES, REPLICA_STATE_NAMES
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.min_isr import MinIsrState, in_sync_against, offline_partitions
from kactl.decide.state.rows import Bools, Ints, RowNumbers, Rows, first, preferred_imbalance, some
from kactl.decide.state.table import Table, Topic
from kactl.model import NO_BROKER, PartitionState, ReplicaState

from . import cursor
from .problem import of_parameter
from .schema import PartitionInfo, PartitionQuery, ShardInfo, ShardStateName

# Objects built before yielding to other tasks; at about 12 µs each, two milliseconds.
_OBJECTS_AT_ONCE: Final = 200
# Results converted before yielding to other tasks, at about 2 µs each.
_RESULTS_AT_ONCE: Final = 2000
# Up to this number of rows are sorted directly, in less than a millisecond.
_SORTED_WHOLE_MAX: Final = 10_000
_PARTITION_BITS: Final = 32

_FromT = TypeVar("_FromT")
_ToT = TypeVar("_ToT")
_STATES: Final = {name: state for state, name in PARTITION_STATE_NAMES.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class PageRows:
    """One page of partitions, as columns.

    Attributes:
        rows: the rows of the page, in order.
        names: topic names by topic number.
        offline, under_replicated, under_min_isr: bool[n]; `min_isr`: int32[n], 0 if unknown.
        shards: those of the rows that are shards, by row number.
        matched: number of partitions on all pages.
        next_cursor: None on the last page.
    """

    rows: Rows
    names: dict[int, str]
    offline: Bools
    under_replicated: Bools
    under_min_isr: Bools
    min_isr: Ints
    shards: Mapping[int, ShardInfo]
    matched: int
    next_cursor: str | None

    async def infos(self) -> tuple[PartitionInfo, ...]:
        """Returns the page as objects. Yields to other tasks at intervals."""
        infos: list[PartitionInfo] = []
        for begin in range(0, len(self.rows), _OBJECTS_AT_ONCE):
            if begin:
                await asyncio.sleep(0)
            indices = np.arange(begin, min(begin + _OBJECTS_AT_ONCE, len(self.rows)), dtype=np.intp)
            infos += _infos(
                self.rows.take(indices),
                self.names,
                offline=self.offline[indices],
                under_replicated=self.under_replicated[indices],
                under_min_isr=self.under_min_isr[indices],
                min_isr=self.min_isr[indices],
                shards=self.shards,
            )
        return tuple(infos)


async def converted(convert: Callable[[_FromT], _ToT], results: Sequence[_FromT]) -> tuple[_ToT, ...]:
    """Returns the results of a request as objects of the API. Yields to other tasks at intervals."""
    found: list[_ToT] = []
    for begin in range(0, len(results), _RESULTS_AT_ONCE):
        found += map(convert, results[begin : begin + _RESULTS_AT_ONCE])
        await asyncio.sleep(0)
    return tuple(found)


# -- partitions --------------------------------------------------------------------------------------------------------


def find_partitions(cluster: Cluster, query: PartitionQuery, min_isr: Ints | None = None) -> PageRows:
    """Returns one page of the partitions that match a query.

    Args:
        min_isr: int32[T + 1], `TopicSettings.min_isr_of_topics`; None if not known.

    Raises:
        Refused: the cursor is invalid.
    """
    table = cluster.table
    offline, under_replicated = offline_partitions(cluster), _mask(table, table.under_replicated())
    min_isr = _of_rows(table, min_isr)
    min_isr_state = in_sync_against(table, min_isr)
    keep = _matching(cluster, query, offline, under_replicated, min_isr_state)
    matched = np.flatnonzero(keep)
    names = sorted(topic.name for topic in table.topics())
    after = cursor.read(query.cursor)
    if after is not None and query.offset:
        raise of_parameter("offset", "cannot be used with a cursor: give one of the two")
    row_numbers, more = _page(table, matched, names, after=after, limit=query.offset + query.limit)
    row_numbers = row_numbers[query.offset :]
    rows = table.rows(row_numbers)
    by_number = {number: table.topic_at(number).name for number in np.unique(rows.topic).tolist()}
    next_cursor = cursor.write(by_number[int(rows.topic[-1])], int(rows.partition[-1])) if more else None
    return PageRows(
        rows,
        by_number,
        offline=offline[row_numbers],
        under_replicated=under_replicated[row_numbers],
        under_min_isr=min_isr_state.under[row_numbers],
        min_isr=min_isr[row_numbers],
        shards=_shards(cluster, rows),
        matched=len(matched),
        next_cursor=next_cursor,
    )


def find_partition(cluster: Cluster, topic: str, partition: int, min_isr: Ints | None = None) -> PartitionInfo | None:
    """Returns one partition; None if it is unknown. `min_isr` as in `find_partitions`."""
    known = cluster.table.topic(topic)
    if known is None or partition not in range(len(known.rows)) or known.rows[partition] < 0:
        return None
    row_numbers = known.rows[partition : partition + 1].astype(np.intp)
    rows = cluster.table.rows(row_numbers)
    offline = (rows.state == PartitionState.OFFLINE) & (topic not in cluster.deletion_started)
    own = _of_rows(cluster.table, min_isr)
    (info,) = _infos(
        rows,
        {known.number: topic},
        offline=offline,
        under_replicated=_is_under_replicated(rows),
        under_min_isr=in_sync_against(cluster.table, own).under[row_numbers],
        min_isr=own[row_numbers],
        shards=_shards(cluster, rows),
    )
    return info


def _shards(cluster: Cluster, rows: Rows) -> dict[int, ShardInfo]:
    """Returns the states of those rows that are shards, by row number. Only the controller knows them."""
    owned = np.isin(rows.index, cluster.table.owned(rows.index))
    if not owned.any() or not cluster.fence.epoch:
        return {}
    rows = rows.take(owned)
    states = zip(rows.index.tolist(), cluster.table.names(rows.index), states_of(cluster, rows).tolist(), strict=True)
    found = {row: (ShardState(state), cluster.handovers.get(name)) for row, name, state in states}
    former = {row: None if handover is None else handover.former for row, (_, handover) in found.items()}
    members = dict(zip(rows.index.tolist(), rows.replicas.T.tolist(), strict=True))
    return {
        row: ShardInfo(
            state=cast(ShardStateName, state.label),
            former=former[row],
            names={id_: name for id_ in {*members[row], former[row]} if (name := name_of(cluster, id_))},
        )
        for row, (state, _) in found.items()
    }


def name_of(cluster: Cluster, participant: int | None) -> str:
    """Returns the name of a participant that has not chosen its id; empty for others."""
    registered = None if participant is None else cluster.brokers.get(participant)
    return "" if registered is None else registered.name


def _of_rows(table: Table, min_isr: Ints | None) -> Ints:
    """Returns int32[P] from values by topic number."""
    topic = table.column("topic")
    if min_isr is None:
        return np.zeros(len(topic), np.int32)
    values: Ints = min_isr[topic]
    return values


def _matching(
    cluster: Cluster, query: PartitionQuery, offline: Bools, under_replicated: Bools, min_isr_state: MinIsrState
) -> Bools:
    """Returns bool[P]: the rows that match a query."""
    table = cluster.table
    topic = table.column("topic")
    keep: Bools = topic >= 0
    if query.state:
        keep &= np.isin(table.column("state"), [_STATES[name] for name in query.state])
    if query.leader is not None:
        keep &= table.column("leader") == query.leader
    if query.replica is not None:
        keep &= some((table.column("replicas") == query.replica) & table.column("assigned"))
    if query.topic:
        numbers = [known.number for known in _named(table, query.topic)]
        # One entry more than there are topics, so that the -1 of a free row selects an entry that is never set.
        wanted = np.zeros(int(topic.max(initial=-1)) + 2, np.bool_)
        wanted[[number for number in numbers if number < len(wanted) - 1]] = True
        keep &= wanted[topic]
    if query.offline is not None:
        keep &= offline == query.offline
    if query.urp is not None:
        keep &= under_replicated == query.urp
    if query.under_min_isr is not None:
        keep &= min_isr_state.under == query.under_min_isr
    if query.at_min_isr is not None:
        keep &= min_isr_state.at == query.at_min_isr
    if query.not_preferred is not None:
        keep &= _not_preferred(table) == query.not_preferred
    if query.kind is not None:
        keep &= _mask(table, table.owned(table.all())) == (query.kind == "ownership")
    if query.shard:
        if not cluster.fence.epoch:
            raise of_parameter("shard", "only the controller knows the states of shards: ask it, and without at")
        shards = table.owned(np.flatnonzero(keep))
        names = [state.label for state in ShardState]
        wanted = np.isin(states_of(cluster, table.rows(shards)), [names.index(state) for state in query.shard])
        keep = _mask(table, shards[wanted])
    return keep


def _named(table: Table, patterns: Iterable[str]) -> Iterable[Topic]:
    """Yield the topics that match; `*` and `?` are wildcards, which topic names cannot contain."""
    for pattern in patterns:
        if "*" not in pattern and "?" not in pattern:
            known = table.topic(pattern)
            yield from () if known is None else (known,)
            continue
        fits = re.compile(fnmatch.translate(pattern.replace("[", "[[]"))).match
        yield from (topic for topic in table.topics() if fits(topic.name))


def _page(
    table: Table, rows: RowNumbers, names: Sequence[str], *, after: tuple[str, int] | None, limit: int
) -> tuple[RowNumbers, bool]:
    """Returns the first `limit` of `rows` after a position, by (topic, partition), and whether there are more."""
    numbers = np.array([known.number for name in names if (known := table.topic(name)) is not None], np.intp)
    rank = np.zeros(1 + int(numbers.max(initial=0)), np.int64)
    rank[numbers] = np.arange(len(numbers))
    topic = table.column("topic")[rows]
    if len(rows) > _SORTED_WHOLE_MAX:
        # Only consider topics that the page can reach.
        begin = 0 if after is None else bisect.bisect_left(names, after[0])
        counts = np.bincount(topic, minlength=len(rank))[numbers[begin:]]
        # The position may be at the end of the first topic, so that topic is counted in addition.
        enough = 1 + int(np.searchsorted(np.cumsum(counts[1:]), limit, side="right")) + 1
        near = np.zeros(len(rank), np.bool_)
        near[numbers[begin : begin + enough]] = True
        within = near[topic]
        rows, topic = rows[within], topic[within]
        more = begin + enough < len(names) and bool(counts[enough:].any())
    else:
        more = False
    key = (rank[topic] << _PARTITION_BITS) | table.column("partition")[rows]
    if after is not None:
        is_after = key > _key_of(names, after)
        rows, key = rows[is_after], key[is_after]
    order = np.argsort(key)
    return rows[order[:limit]], more or len(rows) > limit


def _key_of(names: Sequence[str], after: tuple[str, int]) -> int:
    topic, partition = after
    place = bisect.bisect_left(names, topic)
    known = place < len(names) and names[place] == topic
    return (place << _PARTITION_BITS) + (partition if known else -1)


def _mask(table: Table, rows: RowNumbers) -> Bools:
    mask = np.zeros(len(table.column("topic")), np.bool_)
    mask[rows] = True
    return mask


def _is_under_replicated(rows: Rows) -> Bools:
    missing: Bools = some(rows.assigned & ~rows.in_sync) & rows.has_leadership & ~rows.queued
    return missing


def _not_preferred(table: Table) -> Bools:
    """Returns bool[P]: partitions that count as not led by their preferred replica."""
    rows = table.all()
    return _mask(table, rows[preferred_imbalance(table.rows(rows))])


def _infos(
    rows: Rows,
    names: dict[int, str],
    *,
    offline: Bools,
    under_replicated: Bools,
    under_min_isr: Bools,
    min_isr: Ints,
    shards: Mapping[int, ShardInfo],
) -> list[PartitionInfo]:
    """Returns partitions as objects. Columns become lists first, because reading single elements of columns is slow."""
    lists: dict[str, Any] = {
        name: getattr(rows, name).T.tolist()
        for name in ("replicas", "assigned", "in_sync", "adding", "removing", "replica_state")
    }
    infos = []
    for row, topic, partition, state, leader, leader_epoch, epoch, controller_epoch, recovering, *of_slots in zip(
        rows.index.tolist(),
        rows.topic.tolist(),
        rows.partition.tolist(),
        rows.state.tolist(),
        rows.leader.tolist(),
        rows.leader_epoch.tolist(),
        rows.partition_epoch.tolist(),
        rows.controller_epoch.tolist(),
        rows.recovering.tolist(),
        lists["replicas"],
        lists["assigned"],
        lists["in_sync"],
        lists["adding"],
        lists["removing"],
        lists["replica_state"],
        offline.tolist(),
        under_replicated.tolist(),
        min_isr.tolist(),
        under_min_isr.tolist(),
        first(rows.assigned, rows.replicas).tolist(),
        strict=True,
    ):
        replicas, assigned, in_sync, adding, removing, states, is_offline, is_urp, least, is_under, preferred = of_slots
        infos.append(
            PartitionInfo(
                topic=names[topic],
                partition=partition,
                state=PARTITION_STATE_NAMES[state],
                leader=leader,
                leader_epoch=leader_epoch,
                replicas=_select(replicas, assigned),
                isr=_select(replicas, in_sync),
                adding=_select(replicas, adding),
                removing=_select(replicas, removing),
                partition_epoch=epoch,
                controller_epoch=controller_epoch,
                recovering=recovering,
                offline=is_offline,
                under_replicated=is_urp,
                min_insync_replicas=least or None,
                under_min_isr=is_under,
                preferred_leader=preferred,
                replica_states={
                    broker: REPLICA_STATE_NAMES[replica_state]
                    for broker, replica_state, is_assigned in zip(replicas, states, assigned, strict=True)
                    if broker != NO_BROKER and (is_assigned or replica_state != ReplicaState.ABSENT)
                },
                shard=shards.get(row),
            )
        )
    return infos


def _select(brokers: list[int], indices: list[bool]) -> tuple[int, ...]:
    return tuple(broker for broker, is_assigned in zip(brokers, indices, strict=True) if is_assigned)
