"""Shards whose participants fail or are drained: those that others own then, and those that none can.

A shard is never lost by failures: it keeps no records, and any participant that offers its topic may own it.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import numpy as np

from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import RowNumbers
from kactl.runtime.plural import count

from .shards import shard_rows

# Topics that a sentence names.
_NAMED_MAX: Final = 5


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
