"""Store with random failures."""

import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kactl.errors import StoreError, StoreUnavailable

# All calls of a controller. `expire` and the like are test controls.
METHODS: Final = (
    "controller", "contest", "resign", "brokers", "broker", "topics", "assignments", "create_topic", "write_assignment",
    "topic_configs", "default_config", "deletions", "mark_deletion", "unmark_deletions", "delete_topics", "check",
    "partitions_begun", "reassignment_request", "set_reassignment_request", "preferred_election_request",
    "delete_preferred_election_request", "features", "write_features", "producer_ids", "write_producer_ids",
    "leaderships", "commit", "changes", "watch_leaderships", "isr_notifications", "log_dir_notifications",
    "delete_notifications",
)  # fmt: skip


class Weather:
    """Lets calls of a store fail: before they take effect, after it, or by an internal error."""

    def __init__(self, dice: random.Random, rate: float) -> None:
        self.dice = dice
        self.rate = rate
        self.bugs: list[Exception] = []

    def over(self, store: Any) -> None:
        for name in METHODS:
            setattr(store, name, self._failing(getattr(store, name)))

    def _failing(self, real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **named: Any) -> Any:
            if not self.rate or self.dice.random() >= self.rate:
                return await real(*args, **named)
            if self.dice.random() < 0.4:
                await real(*args, **named)
                raise StoreUnavailable("the answer was lost")
            kinds = [StoreUnavailable("away"), StoreError("refused"), StoreUnavailable("away"), *self.bugs]
            raise self.dice.choice(kinds)

        return call
