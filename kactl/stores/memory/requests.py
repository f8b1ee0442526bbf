"""Admin data of the in-memory store: deletion marks, admin requests, features and producer ids."""

from collections.abc import Collection, Mapping

from kactl.decide.state.rows import Ints
from kactl.model import Features, Fence, ProducerIdBlock, TopicPartition
from kactl.model.errors import StoreError

from .client import MemoryClient
from .operations import ServerConnection


class MemoryRequests(MemoryClient):
    """Part of `MemoryStore`; see `kactl.stores.base.Store` for the methods."""

    # -- deletion

    async def mark_deletion(self, topic: str) -> None:
        await self._open_link.ask(ServerConnection.mark_deletion, topic)

    async def deletions(self) -> list[str]:
        return await self._open_link.ask(ServerConnection.deletions)

    async def unmark_deletions(self, topics: Collection[str], fence: Fence) -> None:
        await self._open_link.ask(ServerConnection.unmark_deletions, topics, fence)

    async def delete_topics(self, topics: Mapping[str, Ints], fence: Fence) -> dict[str, StoreError]:
        await self._open_link.ask(ServerConnection.delete_topics, topics, fence)
        for topic in topics:
            self._deleted_topics.forget(topic)
        return {}

    async def partitions_begun(self, topic: str) -> list[int]:
        return await self._open_link.ask(ServerConnection.partitions_begun, topic)

    # -- admin requests

    async def request_reassignment(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        await self._open_link.ask(ServerConnection.request_reassignment, targets)

    async def reassignment_request(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        return await self._open_link.ask(ServerConnection.reassignment_request)

    async def set_reassignment_request(self, targets: Mapping[TopicPartition, tuple[int, ...]], fence: Fence) -> None:
        await self._open_link.ask(ServerConnection.set_reassignment_request, targets, fence)

    async def request_preferred_election(self, partitions: Collection[TopicPartition]) -> None:
        await self._open_link.ask(ServerConnection.request_preferred_election, partitions)

    async def preferred_election_request(self) -> list[TopicPartition] | None:
        return await self._open_link.ask(ServerConnection.preferred_election_request)

    async def delete_preferred_election_request(self, fence: Fence) -> None:
        await self._open_link.ask(ServerConnection.delete_preferred_election_request, fence)

    # -- features and producer ids

    async def features(self) -> Features | None:
        return await self._open_link.ask(ServerConnection.features)

    async def write_features(self, features: Features, fence: Fence) -> Features:
        return await self._open_link.ask(ServerConnection.write_features, features, fence)

    async def producer_ids(self) -> tuple[ProducerIdBlock | None, int]:
        return await self._open_link.ask(ServerConnection.producer_ids)

    async def write_producer_ids(self, block: ProducerIdBlock, *, expected: int) -> bool:
        return await self._open_link.ask(ServerConnection.write_producer_ids, block, expected=expected)
