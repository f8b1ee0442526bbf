"""Replacement of controllers in the assignments of new partitions: controllers host no replicas.

Applied to every new partition before anything else happens to it. A partition that has stored leadership is not
changed. A partition with all replicas on controllers, while no broker is registered, waits for a broker.
"""

from typing import Final

import numpy as np

from kactl.decide.machines.exclude_controllers import rewritten
from kactl.decide.messages.events import TopicChange
from kactl.decide.state.records import Assignments, Found, Names
from kactl.decide.state.rows import RowNumbers
from kactl.decide.state.table import NO_ROW
from kactl.model import Assignment, TopicPartition, TopicRef
from kactl.model.errors import BadRequest, NotFound
from kactl.runtime.logs import logger

from .base import ControllerContext, Handlers

log = logger(__name__)

# How many partitions a line of the log names.
_NAMED_MAX: Final = 5


class Hosting(Handlers):
    """Rewrites assignments that name controllers.

    Attributes:
        rewritten: how many partitions were rewritten since this instance started.
    """

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.rewritten = 0
        self._waiting: set[str] = set()

    @property
    def _controllers(self) -> frozenset[int]:
        """Ids that host no replicas. An id that is registered as a broker is a broker."""
        return self.settings.controller_ids - self.cluster.brokers.keys()

    async def rewrite(self, row_numbers: RowNumbers) -> None:
        """Replace controllers among the replicas of some rows, in the store and then in the table.

        The rows have assignments and no leadership yet.

        Raises:
            StoreError: some assignments may have been written.
        """
        table, controllers = self.cluster.table, self._controllers
        rows = table.rows(row_numbers)
        named = np.isin(rows.replicas, list(controllers)) & rows.assigned
        row_numbers = row_numbers[named.any(axis=0) & ~rows.has_leadership]
        if not len(row_numbers):
            return
        topics = sorted({table.view(row).topic for row in row_numbers.tolist()})
        loaded = await self.store.assignments(topics)
        known = [(ref, table.topic(ref.name)) for ref in loaded.topics]
        begun = (await self.store.leaderships(Names(loaded.topics, loaded.topic, loaded.partition))).status
        fresh = loaded.take(begun == Found.MISSING)
        # An earlier attempt may have written some of them, and its response was lost.
        listed = np.isin(table.rows_at(Names(fresh.topics, fresh.topic, fresh.partition)), row_numbers)
        same = np.array([topic is not None and topic.ref == ref for ref, topic in known], np.bool_)
        self.cluster.put_assignments(fresh.take(listed & same[fresh.topic]))
        racks = {broker.id: broker.rack for broker in self.cluster.brokers.values()}
        changed = rewritten(dict(fresh.items()), controllers=controllers, load=self._load(), racks=racks)
        for ref in loaded.topics:
            await self._write(
                ref, loaded, {name: assignment for name, assignment in changed.items() if name.topic == ref.name}
            )
        self._wait(fresh, changed)

    async def brokers_came(self) -> None:
        """Load topics again that wait for a broker."""
        waiting, self._waiting = self._waiting, set()
        table = self.cluster.table
        for name in sorted(waiting):
            topic = table.topic(name)
            if topic is not None and not table.rows(table.rows_of(topic)).has_leadership.any():
                self.cluster.remove_topic(name)
        if waiting:
            self.context.enqueue(TopicChange())

    async def _write(self, ref: TopicRef, loaded: Assignments, changed: dict[TopicPartition, Assignment]) -> None:
        """Write the complete assignment of one topic."""
        if not changed:
            return
        number = loaded.topics.index(ref)
        assignments = {name.partition: assignment for name, assignment in loaded.take(loaded.topic == number).items()}
        assignments |= {name.partition: assignment for name, assignment in changed.items()}
        try:
            await self.store.write_assignment(ref, assignments, self.cluster.fence)
        except NotFound:
            return  # deleted meanwhile; the event for that is queued
        except BadRequest as refused:
            log.warning("topic %s keeps a controller among its replicas: %s", ref.name, refused)
            return
        placed = Assignments.of(changed, {ref.name: ref.id})
        known = self.cluster.table.rows_at(Names(placed.topics, placed.topic, placed.partition)) != NO_ROW
        self.cluster.put_assignments(placed.take(known))
        self.rewritten += len(changed)
        log.info(
            "topic %s: a controller was replaced among the replicas of %d partitions: %s",
            ref.name, len(changed),
            ", ".join(f"{name.partition} is now on {list(new.replicas)}" for name, new in _first(changed)),
        )  # fmt: skip

    def _wait(self, fresh: Assignments, changed: dict[TopicPartition, Assignment]) -> None:
        """Note the topics with partitions that have all replicas on controllers, while no broker is registered."""
        controllers = self._controllers
        for name, assignment in fresh.items():
            if name not in changed and assignment.replicas and controllers.issuperset(assignment.replicas):
                log.warning("partition %s is assigned to controllers only: it waits for a broker", name)
                self._waiting.add(name.topic)

    def _load(self) -> dict[int, int]:
        live = np.array(sorted(self.cluster.live_brokers.live.ids - self._controllers), np.int32)
        if not len(live):
            return {}
        rows = self.cluster.table.rows(self.cluster.table.all())
        brokers = rows.replicas[rows.assigned]
        places = np.searchsorted(live, brokers).clip(max=len(live) - 1)
        counts = np.bincount(places[live[places] == brokers], minlength=len(live))
        return dict(zip(live.tolist(), counts.tolist(), strict=True))


def _first(changed: dict[TopicPartition, Assignment]) -> list[tuple[TopicPartition, Assignment]]:
    return list(changed.items())[:_NAMED_MAX]
