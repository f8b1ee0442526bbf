"""Effect of draining a broker on the partitions that it holds: previewed by the rules of election, or observed.

A drained broker leads nothing and leaves every ISR. The cluster keeps serving, with one replica less in sync: some
partitions may lose their last spare replica, others fall below `min.insync.replicas` and reject `acks=all`.
"""

import dataclasses
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from kactl.decide.machines import partition, replica
from kactl.decide.state.change import Refusal
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, BrokerSet, Ints, LiveBrokers, RowNumbers, Rows, common, holds, some
from kactl.runtime.plural import count

from .election import Election
from .shards import shard_rows

# Topics that a sentence names.
_NAMED_MAX: Final = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Effect:
    """Rows of the table by effect, each ascending.

    Attributes:
        moved: another replica takes over leadership from the broker.
        remaining: the broker still leads although there are other replicas, because none of these is in sync.
        alone: the broker holds the only replica and keeps it, as leader and in sync.
        left: the broker leaves the ISR.
        under_min_isr: fewer in-sync replicas than brokers enforce, and enough before.
        last_in_sync: one in-sync replica, and several before: another failure makes the partition unavailable.
        shards_moved: shards that the broker owned, and other participants own then, once these are prepared.
        shards_kept: shards that it keeps, as no other participant can own them.
    """

    moved: RowNumbers
    remaining: RowNumbers
    alone: RowNumbers
    left: RowNumbers
    under_min_isr: RowNumbers
    last_in_sync: RowNumbers
    shards_moved: RowNumbers
    shards_kept: RowNumbers


def held_by(cluster: Cluster, broker: int) -> Rows:
    """Returns the partitions that draining a broker affects, in their present state."""
    table = cluster.table
    return table.rows(common(table.with_replica_on([broker]), table.with_leadership()))


def preview(cluster: Cluster, rows: Rows, broker: int, min_isr: Ints) -> Effect:
    """Returns the expected effect, without reading the store.

    Args:
        rows: result of `held_by`.
        min_isr: int32[n], 0 where it is unknown; of `rows`.
    """
    brokers, shards = cluster.live_brokers, without(cluster, [broker])
    rows, min_isr = _replicated(cluster, rows, min_isr)
    replicated = _count(rows.assigned) > 1
    leads = replicated & (rows.leader == broker)
    leader, in_sync = rows.leader.copy(), rows.in_sync.copy()
    elected = partition.elect(
        rows.take(leads),
        Election.CONTROLLED_SHUTDOWN,
        LiveBrokers(
            BrokerSet(brokers.live.ids - {broker}),
            brokers.registered,
            brokers.recovery,
            None if brokers.unfenced is None else BrokerSet(brokers.unfenced.ids - {broker}),
        ),
        unclean=np.zeros(int(leads.sum()), np.bool_),
        controller_epoch=0,
    )
    is_elected = elected.refusal == Refusal.NONE
    leader[leads] = np.where(is_elected, elected.leader, leader[leads])
    in_sync[:, leads] = np.where(is_elected, elected.in_sync, in_sync[:, leads])
    follows = replicated & ~leads
    in_sync[:, follows] = replica.go_offline(rows.take(follows), broker, controller_epoch=0).in_sync
    return _effect(rows, leader, in_sync, broker, min_isr, shards)


def observe(cluster: Cluster, rows: Rows, broker: int, min_isr: Ints) -> Effect:
    """Returns the effect since `rows` was gathered. Removed partitions count as unchanged."""
    after = cluster.table.rows(rows.index)
    owned = np.isin(rows.index, cluster.table.owned(rows.index)) & (rows.leader == broker)
    stays = after.leader == broker
    shards = ShardLoss(rows.index[owned & ~stays], rows.index[owned & stays])
    rows, min_isr = _replicated(cluster, rows, min_isr)
    after = cluster.table.rows(rows.index)
    same = (after.topic == rows.topic) & (after.partition == rows.partition)
    width = len(after.replicas)  # slots are only ever added
    before = np.pad(rows.in_sync, ((0, width - len(rows.in_sync)), (0, 0)))
    in_sync = np.where(same, after.in_sync, before)
    # In-sync replicas are in the slots that they had, or in slots that were free before.
    wide = rows.replace(
        replicas=np.where(same, after.replicas, _padded(rows.replicas, width)),
        assigned=_padded(rows.assigned, width),
        in_sync=before,
    )
    return _effect(wide, np.where(same, after.leader, rows.leader), in_sync, broker, min_isr, shards)


def _replicated(cluster: Cluster, rows: Rows, min_isr: Ints) -> tuple[Rows, Ints]:
    """Returns the rows that are no shards, with their values."""
    which = ~np.isin(rows.index, cluster.table.owned(rows.index))
    return rows.take(which), min_isr[which]


def _effect(before: Rows, leader: Ints, in_sync: Bools, broker: int, min_isr: Ints, shards: "ShardLoss") -> Effect:
    """Returns the effect. `leader` and `in_sync` are the columns afterwards, in the slots of `before`."""
    slots = holds(before, broker)
    replicated = _count(before.assigned) > 1
    led, leads = replicated & (before.leader == broker), leader == broker
    had, has = _count(before.in_sync), _count(in_sync)
    enforced = np.minimum(min_isr, _count(before.assigned))
    return Effect(
        moved=before.index[led & ~leads],
        remaining=before.index[replicated & leads],
        alone=before.index[~replicated & leads],
        left=before.index[some(slots & before.in_sync) & ~some(slots & in_sync)],
        under_min_isr=before.index[(min_isr > 0) & (has < enforced) & (had >= enforced)],
        last_in_sync=before.index[(has == 1) & (had > 1)],
        shards_moved=shards.moved,
        shards_kept=shards.unowned,
    )


def _padded(column: Any, width: int) -> Any:
    return np.pad(column, ((0, width - len(column)), (0, 0)))


def _count(which: Bools) -> Ints:
    count: Ints = np.add.reduce(which, axis=0, dtype=np.int32)
    return count


class ShardLoss(NamedTuple):
    """Rows of the table, each ascending.

    Attributes:
        moved: shards that other participants own then.
        unowned: shards that no other participant can own, until one that offers their topics starts.
    """

    moved: RowNumbers
    unowned: RowNumbers


def without(cluster: Cluster, brokers: Collection[int]) -> ShardLoss:
    """Returns what happens to the shards of some participants, if these cannot own them any more."""
    table = cluster.table
    rows = table.rows(shard_rows(cluster))
    rows = rows.take(np.isin(rows.leader, list(brokers)))
    left = {
        number: cluster.members(table.topic_at(number).name).keys() - set(brokers)
        for number in np.unique(rows.topic).tolist()
    }
    can = [
        any(row not in table.dirs_offline(broker) for broker in left[topic])
        for row, topic in zip(rows.index.tolist(), rows.topic.tolist(), strict=True)
    ]
    moved = np.array(can, np.bool_)
    return ShardLoss(rows.index[moved], rows.index[~moved])


def explained(cluster: Cluster, brokers: Collection[int]) -> str:
    """Returns what happens to the shards as sentences; empty without shards. `brokers`: none for the present state."""
    table = cluster.table
    numbers = shard_rows(cluster)
    if not len(numbers):
        return ""
    if not brokers:
        return " ".join(_present(cluster, numbers))
    moved, unowned = without(cluster, brokers)
    sentences = [f"{count(len(moved), 'shard')} would be owned by other participants."] if len(moved) else []
    if len(unowned):
        topics = _topics(sorted({name.topic for name in table.names(unowned)}))
        shards = f"{count(len(unowned), 'shard')} of {topics}"
        sentences.append(f"{shards} would have no owner until a participant that offers them starts; none is lost.")
    return " ".join(sentences) or "No shard would move."


def _present(cluster: Cluster, numbers: RowNumbers) -> Iterator[str]:
    topics = sorted(topic.name for topic in cluster.table.owned_topics() if topic.name not in cluster.topics_to_delete)
    shards = f"{count(len(numbers), 'shard')} of {count(len(topics), 'ownership topic')}"
    yield f"{shards}: none is lost by failures as long as one participant lives that offers its topic."
    members = {topic: [*cluster.members(topic)] for topic in topics}
    if none := [topic for topic in topics if not members[topic]]:
        yield f"No participant offers {_topics(none)}."
    alone: dict[int, list[str]] = {}
    for topic in topics:
        if len(members[topic]) == 1:
            alone.setdefault(members[topic][0], []).append(topic)
    for member, only in sorted(alone.items())[:_NAMED_MAX]:
        yield f"Only participant {member} offers {_topics(only)}."


def _topics(names: Collection[str]) -> str:
    named = [*names][:_NAMED_MAX]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(named) + more
