"""The entries of topics in the store, as far as the controller writes them: whole, with what is to change.

A write of which nobody knows whether it was kept leaves an entry that may say something else than we do. It is written
once more as we know it, before anybody else could act on it.

Source: the classic controller's updateReplicaAssignmentForPartition.
"""

from collections.abc import Mapping

import numpy as np

from kactl.errors import BadRequest, NotFound, Remedy, StoreError
from kactl.model import NO_BROKER, Assignment, TopicPartition
from kactl.runtime.logs import logger
from kactl.state.rows import Bools, Rows, some
from kactl.state.table import Table

from .base import ControllerContext, Handlers

log = logger(__name__)


class TopicEntries(Handlers):
    """See the module."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._doubtful: set[str] = set()  # topics of which we do not know what is stored

    async def write(self, topic: str, changed: Mapping[TopicPartition, Assignment]) -> None:
        """Write the entry of a topic: as we know it, but for what is changed, and with what we have yet to hear of.

        Raises:
            NotFound: the topic is gone, or is another one by now.
            BadRequest: the store cannot hold it.
            StoreError: it may have been written, if its remedy is to read back.
        """
        known = self.cluster.table.topic(topic)
        assert known is not None, topic
        held = entry_of(self.cluster.table, topic)
        held |= {name.partition: assignment for name, assignment in changed.items()}
        stored = await self.store.assignments([topic])
        if any(any(ref.id) and ref.id != known.ref.id for ref in stored.topics):
            raise NotFound("topic", f"{topic} with the id {known.ref.id.hex()}")
        for name, assignment in stored.items():
            # It may have grown, and we may not have come to that yet.
            held.setdefault(name.partition, assignment)
        await self.store.write_assignment(known.ref, held, self.cluster.fence)

    def doubt(self, topic: str, error: Exception) -> None:
        """A write has failed, and what came with it is not known to us: have it put back, should it have been kept."""
        known = self.cluster.table.topic(topic)
        if known is not None and isinstance(error, StoreError) and error.remedy is Remedy.READ_BACK:
            self._doubtful.add(topic)
            self.cluster.mark_for_retry(self.cluster.table.rows_of(known))

    async def put_back(self) -> None:
        """Write the entries of which we do not know what is in them."""
        doubtful, self._doubtful = self._doubtful, set()
        for topic in sorted(doubtful):
            if (known := self.cluster.table.topic(topic)) is None:
                continue
            try:
                await self.write(topic, {})
            except (NotFound, BadRequest) as refused:
                log.warning("the entry of topic %s is left as it is: %s", topic, refused)
            except StoreError as error:
                if error.remedy is Remedy.RESIGN:
                    raise
                self._doubtful.add(topic)
                self.cluster.mark_for_retry(self.cluster.table.rows_of(known))


def entry_of(table: Table, topic: str) -> dict[int, Assignment]:
    """All partitions of a topic, as its entry in the store holds them."""
    known = table.topic(topic)
    if known is None:
        return {}
    rows = table.rows(table.rows_of(known))
    held = zip(*(brokers_of(rows, which) for which in (rows.assigned, rows.adding, rows.removing)), strict=True)
    return {partition: Assignment(*lists) for partition, lists in zip(rows.partition.tolist(), held, strict=True)}


def brokers_of(rows: Rows, which: Bools) -> list[tuple[int, ...]]:
    """For each row the brokers of the slots `which`, in slot order."""
    if not some(which).any():
        return [()] * len(rows)
    held = np.where(which, rows.replicas, np.int32(NO_BROKER)).T.tolist()
    return [tuple(broker for broker in line if broker != NO_BROKER) for line in held]
