"""Stored assignments of topics, written as a whole.

After a write with unknown outcome the stored assignment may differ from the table. It is then written again from the
table, before anything is decided by it: a leader that is elected among the replicas of the table, or a replica that
joins an ISR, may not be assigned in the store.

Source: the classic controller's updateReplicaAssignmentForPartition.
"""

from collections.abc import Collection, Mapping

import numpy as np

from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, RowNumbers, Rows, some
from kactl.decide.state.table import Table
from kactl.model import NO_BROKER, Assignment, TopicPartition
from kactl.model.errors import BadRequest, KactlError, NotFound, Remedy, StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Store

log = logger(__name__)


class TopicEntries:
    """Writes the assignments of topics. `Cluster.assignments_unsure` has those with a last write of unknown outcome."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self.cluster = cluster
        self.store = store

    async def write(self, topic: str, changed: Mapping[TopicPartition, Assignment]) -> None:
        """Write the assignment of a topic: the table's, with `changed`, and with partitions that only the store has.

        Raises:
            NotFound: the topic is gone, or a topic with another id has its name.
            BadRequest: the store cannot represent the assignment.
            StoreError: not written; if the remedy is READ_BACK, the outcome is unknown.
        """
        known = self.cluster.table.topic(topic)
        assert known is not None, topic
        assignments = entry_of(self.cluster.table, topic)
        assignments |= {name.partition: assignment for name, assignment in changed.items()}
        stored = await self.store.assignments([topic])
        if any(any(ref.id) and ref.id != known.ref.id for ref in stored.topics):
            raise NotFound("topic", f"{topic} with the id {known.ref.id.hex()}")
        for name, assignment in stored.items():
            # Partitions may have been added by an event that is still queued.
            assignments.setdefault(name.partition, assignment)
        await self.store.write_assignment(known.ref, assignments, self.cluster.fence)

    def doubt(self, topic: str, error: Exception) -> None:
        """Note a failed write with unknown outcome, so that `put_back` restores the table's assignment.

        An unexpected error may have followed the write.
        """
        known = self.cluster.table.topic(topic)
        is_unknown = not isinstance(error, KactlError) or error.remedy is Remedy.READ_BACK
        if known is not None and is_unknown:
            self.cluster.assignments_unsure.add(topic)
            self.cluster.mark_for_retry(self.cluster.table.rows_of(known))

    async def settle(self, row_numbers: RowNumbers) -> None:
        """Write the assignments of some rows again that are in doubt. Those that fail stay in doubt."""
        if self.cluster.assignments_unsure:
            await self.put_back({name.topic for name in self.cluster.table.names(row_numbers)})

    def is_unsure(self, row_numbers: RowNumbers) -> Bools:
        """Returns bool[n]: the stored assignment of the row may be another one than the table's."""
        unsure = self.cluster.assignments_unsure
        if not unsure:
            return np.zeros(len(row_numbers), np.bool_)
        return np.array([name.topic in unsure for name in self.cluster.table.names(row_numbers)], np.bool_)

    async def put_back(self, topics: Collection[str] | None = None) -> dict[str, StoreError]:
        """Write assignments again after a write with unknown outcome; those of some topics, or all.

        Returns the error of each topic for which this failed. It is repeated with the next retry.
        """
        failed: dict[str, StoreError] = {}
        unsure = self.cluster.assignments_unsure
        for topic in sorted(unsure if topics is None else unsure.intersection(topics)):
            if (known := self.cluster.table.topic(topic)) is None:
                unsure.discard(topic)
                continue
            try:
                await self.write(topic, {})
            except (NotFound, BadRequest) as refused:
                log.warning("the stored assignment of topic %s is not restored: %s", topic, refused)
            except StoreError as error:
                if error.remedy is Remedy.RESIGN:
                    raise
                self.cluster.mark_for_retry(self.cluster.table.rows_of(known))
                failed[topic] = error
                continue
            # Not earlier: after an unexpected error the topic is written by the next retry.
            unsure.discard(topic)
        return failed


def entry_of(table: Table, topic: str) -> dict[int, Assignment]:
    """Returns the assignment of a topic by partition number; empty for an unknown topic."""
    known = table.topic(topic)
    if known is None:
        return {}
    rows = table.rows(table.rows_of(known))
    columns = zip(*(brokers_of(rows, which) for which in (rows.assigned, rows.adding, rows.removing)), strict=True)
    return {partition: Assignment(*lists) for partition, lists in zip(rows.partition.tolist(), columns, strict=True)}


def brokers_of(rows: Rows, which: Bools) -> list[tuple[int, ...]]:
    """Returns for each row the brokers in the slots `which`, in slot order."""
    if not some(which).any():
        return [()] * len(rows)
    lists = np.where(which, rows.replicas, np.int32(NO_BROKER)).T.tolist()
    return [tuple(broker for broker in line if broker != NO_BROKER) for line in lists]
