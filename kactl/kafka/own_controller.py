"""Adapter from a controller of this process to the Kafka listener."""

from collections.abc import Callable
from typing import Any

import anyio
import numpy as np

from kactl.actors.system import Controller
from kactl.errors import ActionTimedOut, NotController
from kactl.messages.admin import ControllerRequest
from kactl.model import NO_LEADER, ZERO_ID, Broker, TopicRef
from kactl.state.rows import Rows


class ListenerController:
    """Adapter from a controller of this process to the listener: its `ServedController`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @property
    def node_id(self) -> int:
        return self._controller.node_id

    @property
    def active_id(self) -> int | None:
        return self._controller.loop.active_id

    @property
    def is_active(self) -> bool:
        return self._controller.is_active

    async def ask(self, request: ControllerRequest) -> Any:
        return await self._controller.ask(request)

    def brokers(self) -> list[Broker]:
        return self._controller.brokers()

    def topics(self) -> list[TopicRef]:
        return self._controller.topics()

    def rows(self, topic: str) -> Rows | None:
        table = self._controller.cluster.table
        known = table.topic(topic)
        return None if known is None else table.rows(table.rows_of(known))

    def partition_count(self, topic: str) -> int:
        table = self._controller.cluster.table
        known = table.topic(topic)
        return 0 if known is None else len(table.rows_of(known))

    async def wait_led(self, topic: str, *, partitions: int, timeout_ms: float) -> None:
        table = self._controller.cluster.table

        def led() -> bool:
            known = table.topic(topic)
            rows = np.zeros(0, np.intp) if known is None else np.asarray(table.rows_of(known))
            return len(rows) >= partitions and bool((table.rows(rows).leader != NO_LEADER).all())

        await self._until(led, f"electing leaders for topic {topic}", timeout_ms)

    async def wait_gone(self, topic: TopicRef, *, timeout_ms: float) -> None:
        table = self._controller.cluster.table

        def gone() -> bool:
            known = table.topic(topic.name)
            return known is None or ZERO_ID != topic.id != known.ref.id

        await self._until(gone, f"deleting topic {topic.name}", timeout_ms)

    async def _until(self, reached: Callable[[], bool], action: str, timeout_ms: float) -> None:
        """Wait for a condition, which is checked after each event."""
        epoch = self._controller.cluster.fence.epoch
        try:
            with anyio.fail_after(timeout_ms / 1000):
                while True:
                    if not self.is_active or self._controller.cluster.fence.epoch != epoch:
                        # After a resignation the table is no longer maintained.
                        raise NotController(self.active_id)
                    if reached():
                        return
                    await self._controller.history.changed()
        except TimeoutError:
            raise ActionTimedOut(action, timeout_ms) from None
