"""Adapter from a controller of this process to the Kafka listener."""

from collections.abc import Mapping
from typing import Any

from kactl.actors.system import Controller
from kactl.decide.messages.admin import ControllerRequest, ElectionResult
from kactl.decide.state.rows import Rows
from kactl.model import ZERO_ID, Broker, TopicRef
from kactl.model.errors import KactlError
from kactl.runtime.budget import Budget


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

    @property
    def budget(self) -> Budget:
        return self._controller.budget

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

    async def wait_complete(self, counts: Mapping[str, int], *, timeout_ms: float) -> dict[str, KactlError]:
        return await self._controller.answers.complete(counts, timeout_ms)

    async def wait_gone(self, topic: TopicRef, *, timeout_ms: float) -> None:
        await self._controller.answers.gone(topic, timeout_ms, by_id=topic.id != ZERO_ID)

    async def wait_delivered(self, *, timeout_ms: float) -> None:
        await self._controller.answers.delivered("informing the brokers", timeout_ms)

    async def wait_elected(self, results: list[ElectionResult], *, timeout_ms: float) -> list[ElectionResult]:
        return await self._controller.answers.elected(results, timeout_ms)
