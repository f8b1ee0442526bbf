"""Handlers of shards that are functions."""

import functools
import inspect
import math
from typing import Any

import anyio
import anyio.to_thread

from kactl.model import TopicPartition
from kactl.model.errors import LeadershipLost
from kactl.participant.handlers.handler import PartitionHandler
from kactl.participant.handlers.hosting import MakeHandler
from kactl.participant.leases.leader import Leader
from kactl.runtime.logs import logger

from .shard import Handler, Shard

log = logger(__name__)


def handler_maker(handler: Handler) -> MakeHandler:
    """Returns what makes the handlers of shards."""
    if isinstance(handler, type) and issubclass(handler, PartitionHandler):
        return handler
    # A thread ends with its shard, so that none may wait for the end of another one.
    return functools.partial(_Worked, work=handler, threads=anyio.CapacityLimiter(math.inf))


class _Worked(PartitionHandler):
    """The handler of a shard by a function."""

    def __init__(self, partition: TopicPartition, *, work: Any, threads: anyio.CapacityLimiter) -> None:
        super().__init__(partition)
        self._work = work
        self._threads = threads

    async def lead(self, leader: Leader) -> None:
        is_async = any(map(inspect.iscoroutinefunction, (self._work, type(self._work).__call__)))
        try:
            if is_async:
                await self._work(Shard(leader))
            else:
                await anyio.to_thread.run_sync(self._work, Shard(leader), limiter=self._threads)
        except LeadershipLost:
            if leader.is_valid:
                raise  # that of another shard
        if leader.is_valid:
            log.warning(
                "the handler of %s has returned: this worker keeps the shard, and nothing works on it until it moves "
                "to another worker; loop in the handler until it is cancelled, or call shard.leader.resign()",
                leader.partition,
            )
        await anyio.sleep_forever()
