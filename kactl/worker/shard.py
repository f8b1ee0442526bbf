"""A shard as its handler receives it, and handlers that are functions."""

import functools
import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from kactl.fencing import Fenced, fenced
from kactl.model import TopicPartition
from kactl.model.errors import BadRequest, LeadershipLost
from kactl.participant.handlers.handler import PartitionHandler
from kactl.participant.handlers.hosting import MakeHandler
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.token import FencingToken
from kactl.runtime.logs import logger

log = logger(__name__)
_Connection = TypeVar("_Connection")


class Shard:
    """A shard that this worker owns, the argument of a handler of `kactl.shards`.

        async def work(shard: kactl.Shard) -> None:
            while True:
                shard.check()  # raises as soon as another worker may own it
                with shard.fenced(connection) as tx:  # a write that no earlier owner can commit
                    tx.execute(...)

    Attributes:
        number: from 0 on.
        name: as `jobs-3`.
        leader: the same ownership for `kactl.fencing`, with tasks that end with it, and `resign`.
    """

    __slots__ = ("leader", "name", "number")

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.number = leader.partition.partition
        self.name = str(leader.partition)

    def check(self) -> None:
        """Verify that this worker still owns the shard. Call it before each step that only the owner may do.

        Raises:
            LeadershipLost: it does not. If it owns the shard again, the handler is called again.
        """
        self.leader.check()

    @property
    def is_owned(self) -> bool:
        """Whether `check` would succeed."""
        return self.leader.is_valid

    @property
    def token(self) -> FencingToken:
        """Higher than that of each earlier owner, for resources that compare it."""
        return self.leader.token

    def fenced(self, connection: _Connection) -> Fenced[_Connection]:
        """Returns the block of a transaction that no earlier owner can commit; see `kactl.fencing.fenced`."""
        return fenced(connection, self.leader, self.name)

    def __repr__(self) -> str:
        return f"Shard({self.name}, token={self.token}, {'owned' if self.is_owned else 'lost'})"


# A coroutine function, or a plain one, which runs in a thread of its own.
Work = Callable[[Shard], Awaitable[None] | None]
Handler = Work | type[PartitionHandler]


def handler_maker(handler: Handler) -> MakeHandler:
    """Returns what makes the handlers of shards. Raises BadRequest if the handler cannot be called with a shard."""
    if inspect.iscoroutine(handler):
        handler.close()  # nothing will await it
        raise BadRequest("handler", f"is a call of {handler.__qualname__}: give the function without calling it")
    try:
        inspect.signature(handler).bind(object())
    except TypeError as error:
        raise BadRequest("handler", f"cannot be called with a shard ({error}): give `async def work(shard)`") from None
    except ValueError:
        pass  # a function in C, without a signature
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
