"""The partitions that the controller knows, as they are told to those who ask.

Filters run over whole columns and only the rows of one page become objects, so that a million partitions cost a few
milliseconds. All of a page is gathered before anything is awaited: it is of one moment.
"""

import asyncio
import bisect
import dataclasses
import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from kactl.messages.log import PARTITION_STATE_NAMES, REPLICA_STATE_NAMES
from kactl.model import NO_BROKER, PartitionState, ReplicaState
from kactl.state.cluster import Cluster
from kactl.state.rows import Bools, Ints, RowNumbers, Rows, first, preferred_imbalance, some
from kactl.state.table import Table, Topic

from . import cursor
from .schema import PartitionInfo, PartitionQuery

# How many objects are made before others get a turn; at some 12 µs each that is two milliseconds.
_OBJECTS_AT_ONCE: Final = 200
# Up to so many rows are sorted as they are, which takes less than a millisecond.
_SORTED_WHOLE_MAX: Final = 10_000
_PARTITION_BITS: Final = 32

_STATES: Final = {name: state for state, name in PARTITION_STATE_NAMES.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """One page of partitions, gathered.

    Attributes:
        rows: those of the page, in order.
        names: of their topics, by topic number.
        offline, under_replicated, under_min_isr: bool[n]; `min_isr`: int32[n], 0 where it is unknown.
        matched: how many there are on all pages.
        next_cursor: None on the last page.
    """

    rows: Rows
    names: dict[int, str]
    offline: Bools
    under_replicated: Bools
    under_min_isr: Bools
    min_isr: Ints
    matched: int
    next_cursor: str | None

    async def infos(self) -> tuple[PartitionInfo, ...]:
        """The page as objects. Others get a turn now and then."""
        made: list[PartitionInfo] = []
        for begin in range(0, len(self.rows), _OBJECTS_AT_ONCE):
            if begin:
                await asyncio.sleep(0)
            which = np.arange(begin, min(begin + _OBJECTS_AT_ONCE, len(self.rows)), dtype=np.intp)
            made += _infos(
                self.rows.take(which),
                self.names,
                offline=self.offline[which],
                under_replicated=self.under_replicated[which],
                under_min_isr=self.under_min_isr[which],
                min_isr=self.min_isr[which],
            )
        return tuple(made)


# -- partitions --------------------------------------------------------------------------------------------------------


def find_partitions(cluster: Cluster, query: PartitionQuery, min_isr: Ints | None = None) -> Found:
    """One page of the partitions that a query asks for.

    Args:
        min_isr: int32[T + 1], `min.insync.replicas` by topic number (`MinIsr.of_topics`); None if nothing is known.

    Raises:
        Refused: the cursor is none of ours.
    """
    table = cluster.table
    offline, under_replicated = offline_partitions(cluster), _mask(table, table.under_replicated())
    min_isr = _of_rows(table, min_isr)
    fewest = in_sync_against(table, min_isr)
    keep = _matching(table, query, offline, under_replicated, fewest)
    matched = np.flatnonzero(keep)
    names = sorted(topic.name for topic in table.topics())
    at, more = _page(table, matched, names, after=cursor.read(query.cursor), limit=query.limit)
    rows = table.rows(at)
    by_number = {number: table.topic_at(number).name for number in np.unique(rows.topic).tolist()}
    next_cursor = cursor.write(by_number[int(rows.topic[-1])], int(rows.partition[-1])) if more else None
    return Found(
        rows,
        by_number,
        offline=offline[at],
        under_replicated=under_replicated[at],
        under_min_isr=fewest.under[at],
        min_isr=min_isr[at],
        matched=len(matched),
        next_cursor=next_cursor,
    )


def find_partition(cluster: Cluster, topic: str, partition: int, min_isr: Ints | None = None) -> PartitionInfo | None:
    """One partition; None if it is unknown. `min_isr` as for `find_partitions`."""
    known = cluster.table.topic(topic)
    if known is None or partition not in range(len(known.rows)) or known.rows[partition] < 0:
        return None
    at = known.rows[partition : partition + 1].astype(np.intp)
    rows = cluster.table.rows(at)
    offline = (rows.state == PartitionState.OFFLINE) & (topic not in cluster.deletion_started)
    own = _of_rows(cluster.table, min_isr)
    (info,) = _infos(
        rows,
        {known.number: topic},
        offline=offline,
        under_replicated=_is_under_replicated(rows),
        under_min_isr=in_sync_against(cluster.table, own).under[at],
        min_isr=own[at],
    )
    return info


@dataclasses.dataclass(frozen=True, slots=True)
class AgainstMinIsr:
    """How many replicas are in sync, against how many brokers ask for; bool[P] each.

    Attributes:
        under: without a leader, or with fewer in sync: brokers reject writes with acks=all.
        at: with just as many in sync: one more failure and they do.
        unknown: with leadership, while the topic's value could not be read.
    """

    under: Bools
    at: Bools
    unknown: Bools


def in_sync_against(table: Table, min_isr: Ints) -> AgainstMinIsr:
    """Compare the ISR of every partition with what brokers enforce: never more than there are replicas.

    Topics that wait for deletion and partitions without leadership are left out.

    Args:
        min_isr: int32[P], 0 where it is unknown.

    Source: Partition.effectiveMinIsr, and isUnderMinIsr of Kafka's tools, for which a missing leader counts.
    """
    in_sync = np.add.reduce(table.column("in_sync"), axis=0, dtype=np.int32)
    replicas = np.add.reduce(table.column("assigned"), axis=0, dtype=np.int32)
    counted = _mask(table, table.with_leadership())
    known = min_isr > 0
    enforced = np.minimum(min_isr, replicas)
    led = table.column("leader") >= 0
    under = counted & (~led | (known & (in_sync < enforced)))
    return AgainstMinIsr(under=under, at=counted & led & known & (in_sync == enforced), unknown=counted & ~known)


def _of_rows(table: Table, min_isr: Ints | None) -> Ints:
    """int32[P] from values by topic number."""
    topic = table.column("topic")
    if min_isr is None:
        return np.zeros(len(topic), np.int32)
    found: Ints = min_isr[topic]
    return found


def _matching(
    table: Table, query: PartitionQuery, offline: Bools, under_replicated: Bools, fewest: AgainstMinIsr
) -> Bools:
    """bool[P]: which rows a query asks for."""
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
        # One more than there are topics, so that the -1 of a free row falls on an entry that is never set.
        wanted = np.zeros(int(topic.max(initial=-1)) + 2, np.bool_)
        wanted[[number for number in numbers if number < len(wanted) - 1]] = True
        keep &= wanted[topic]
    if query.offline is not None:
        keep &= offline == query.offline
    if query.urp is not None:
        keep &= under_replicated == query.urp
    if query.under_min_isr is not None:
        keep &= fewest.under == query.under_min_isr
    if query.at_min_isr is not None:
        keep &= fewest.at == query.at_min_isr
    if query.not_preferred is not None:
        keep &= _not_preferred(table) == query.not_preferred
    return keep


def _named(table: Table, patterns: Iterable[str]) -> Iterable[Topic]:
    """The topics of some names; `*` and `?` stand for any characters, which no name can hold."""
    for pattern in patterns:
        if "*" not in pattern and "?" not in pattern:
            known = table.topic(pattern)
            yield from () if known is None else (known,)
            continue
        fits = re.compile(fnmatch.translate(pattern.replace("[", "[[]"))).match
        yield from (topic for topic in table.topics() if fits(topic.name))


def _page(
    table: Table, at: RowNumbers, names: Sequence[str], *, after: tuple[str, int] | None, limit: int
) -> tuple[RowNumbers, bool]:
    """The first `limit` rows of `at` behind a place, in the order of (topic, partition), and whether there are more."""
    numbers = np.array([known.number for name in names if (known := table.topic(name)) is not None], np.intp)
    rank = np.zeros(1 + int(numbers.max(initial=0)), np.int64)
    rank[numbers] = np.arange(len(numbers))
    topic = table.column("topic")[at]
    if len(at) > _SORTED_WHOLE_MAX:
        # Only the topics that the page can reach: what lies far behind it need not even be looked at.
        begin = 0 if after is None else bisect.bisect_left(names, after[0])
        counts = np.bincount(topic, minlength=len(rank))[numbers[begin:]]
        # The page may begin behind the end of the first topic, so all of that one is on top.
        enough = 1 + int(np.searchsorted(np.cumsum(counts[1:]), limit, side="right")) + 1
        near = np.zeros(len(rank), np.bool_)
        near[numbers[begin : begin + enough]] = True
        within = near[topic]
        at, topic = at[within], topic[within]
        more = begin + enough < len(names) and bool(counts[enough:].any())
    else:
        more = False
    key = (rank[topic] << _PARTITION_BITS) | table.column("partition")[at]
    if after is not None:
        behind = key > _key_of(names, after)
        at, key = at[behind], key[behind]
    order = np.argsort(key)
    return at[order[:limit]], more or len(at) > limit


def _key_of(names: Sequence[str], after: tuple[str, int]) -> int:
    topic, partition = after
    place = bisect.bisect_left(names, topic)
    known = place < len(names) and names[place] == topic
    return (place << _PARTITION_BITS) + (partition if known else -1)


def offline_partitions(cluster: Cluster) -> Bools:
    """bool[P]: which rows count as offline: as the counter does, without topics whose deletion has begun."""
    offline: Bools = cluster.table.column("state") == PartitionState.OFFLINE
    for name in cluster.deletion_started:
        topic = cluster.table.topic(name)
        if topic is not None:
            offline[cluster.table.rows_of(topic)] = False
    return offline


def _mask(table: Table, at: RowNumbers) -> Bools:
    mask = np.zeros(len(table.column("topic")), np.bool_)
    mask[at] = True
    return mask


def _is_under_replicated(rows: Rows) -> Bools:
    missing: Bools = some(rows.assigned & ~rows.in_sync) & rows.has_leadership & ~rows.queued
    return missing


def _not_preferred(table: Table) -> Bools:
    """bool[P]: partitions that count as not led by their preferred replica."""
    at = table.all()
    return _mask(table, at[preferred_imbalance(table.rows(at))])


def _infos(
    rows: Rows,
    names: dict[int, str],
    *,
    offline: Bools,
    under_replicated: Bools,
    under_min_isr: Bools,
    min_isr: Ints,
) -> list[PartitionInfo]:
    """Some partitions as objects. Column by column into lists first: single elements of columns are slow to read."""
    lists: dict[str, Any] = {
        name: getattr(rows, name).T.tolist()
        for name in ("replicas", "assigned", "in_sync", "adding", "removing", "replica_state")
    }
    made = []
    for topic, partition, state, leader, leader_epoch, epoch, controller_epoch, recovering, *of_slots in zip(
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
        made.append(
            PartitionInfo(
                topic=names[topic],
                partition=partition,
                state=PARTITION_STATE_NAMES[state],
                leader=leader,
                leader_epoch=leader_epoch,
                replicas=_those(replicas, assigned),
                isr=_those(replicas, in_sync),
                adding=_those(replicas, adding),
                removing=_those(replicas, removing),
                partition_epoch=epoch,
                controller_epoch=controller_epoch,
                recovering=recovering,
                offline=is_offline,
                under_replicated=is_urp,
                min_insync_replicas=least or None,
                under_min_isr=is_under,
                preferred_leader=preferred,
                replica_states={
                    broker: REPLICA_STATE_NAMES[held]
                    for broker, held, here in zip(replicas, states, assigned, strict=True)
                    if broker != NO_BROKER and (here or held != ReplicaState.ABSENT)
                },
            )
        )
    return made


def _those(brokers: list[int], which: list[bool]) -> tuple[int, ...]:
    return tuple(broker for broker, here in zip(brokers, which, strict=True) if here)
