"""Admin data of the in-memory store: deletion marks, admin requests, features and producer ids."""

from collections.abc import Collection, Mapping

import msgspec

from kactl.errors import BeingDeleted, RequestWaits, StoreError
from kactl.model import Features, Fence, ProducerIdBlock, TopicPartition
from kactl.state.rows import Ints

from .base import Changed
from .memory_client import MemoryClient


class MemoryRequests(MemoryClient):
    """Part of `MemoryStore`; see `kactl.stores.base.Store` for the methods."""

    # -- deletion

    async def mark_deletion(self, topic: str) -> None:
        state = await self._turn()
        if topic in state.deletions:
            raise BeingDeleted(topic)
        state.deletions.add(topic)
        state.changed(Changed.DELETIONS)

    async def deletions(self) -> list[str]:
        state = await self._turn()
        self._watches.arm(Changed.DELETIONS)
        return sorted(state.deletions)

    async def unmark_deletions(self, topics: Collection[str], fence: Fence) -> None:
        state = await self._turn()
        state.check(fence)
        state.unmark(topics)

    async def delete_topics(self, topics: Mapping[str, Ints], fence: Fence) -> dict[str, StoreError]:
        state = await self._turn()
        state.check(fence)
        for topic in topics:
            state.delete_topic(topic)
            self._deleted_topics.forget(topic)
        state.unmark(topics)
        return {}

    async def partitions_begun(self, topic: str) -> list[int]:
        state = await self._turn()
        number = state.topic_numbers.get(topic)
        return [] if number is None else state.entries.partitions_of(number)

    # -- admin requests

    async def request_reassignment(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        state = await self._turn()
        if state.reassignment_request is not None:
            raise RequestWaits("reassignments")
        state.reassignment_request = dict(targets)
        state.changed(Changed.REASSIGNMENT_REQUEST)

    async def reassignment_request(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        state = await self._turn()
        self._watches.arm(Changed.REASSIGNMENT_REQUEST)
        return None if state.reassignment_request is None else dict(state.reassignment_request)

    async def set_reassignment_request(self, targets: Mapping[TopicPartition, tuple[int, ...]], fence: Fence) -> None:
        state = await self._turn()
        state.check(fence)
        state.reassignment_request = dict(targets) or None

    async def request_preferred_election(self, partitions: Collection[TopicPartition]) -> None:
        state = await self._turn()
        if state.preferred_election_request is not None:
            raise RequestWaits("preferred elections")
        state.preferred_election_request = list(dict.fromkeys(partitions))
        state.changed(Changed.PREFERRED_ELECTION_REQUEST)

    async def preferred_election_request(self) -> list[TopicPartition] | None:
        state = await self._turn()
        self._watches.arm(Changed.PREFERRED_ELECTION_REQUEST)
        return None if state.preferred_election_request is None else list(state.preferred_election_request)

    async def delete_preferred_election_request(self, fence: Fence) -> None:
        state = await self._turn()
        state.check(fence)
        state.preferred_election_request = None

    # -- features and producer ids

    async def features(self) -> Features | None:
        return (await self._turn()).features

    async def write_features(self, features: Features, fence: Fence) -> Features:
        state = await self._turn()
        state.check(fence)
        version = 0 if state.features is None else state.features.version + 1
        state.features = msgspec.structs.replace(features, levels=dict(features.levels), version=version)
        return state.features

    async def producer_ids(self) -> tuple[ProducerIdBlock | None, int]:
        return (await self._turn()).producer_ids

    async def write_producer_ids(self, block: ProducerIdBlock, *, expected: int) -> bool:
        state = await self._turn()
        if state.producer_ids[1] != expected:
            return False
        state.producer_ids = (block, expected + 1)
        return True
