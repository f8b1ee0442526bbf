"""A shard as its handler receives it. Imports little: see `worker`."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from kactl.fencing import Fenced
    from kactl.participant.handlers.handler import PartitionHandler
    from kactl.participant.leases.leader import Leader
    from kactl.participant.leases.token import FencingToken

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

    def __init__(self, leader: "Leader") -> None:
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
    def token(self) -> "FencingToken":
        """Higher than that of each earlier owner, for resources that compare it."""
        return self.leader.token

    def fenced(self, connection: _Connection) -> "Fenced[_Connection]":
        """Returns the block of a transaction that no earlier owner can commit; see `kactl.fencing.fenced`."""
        from kactl.fencing import fenced

        return fenced(connection, self.leader, self.name)

    def __repr__(self) -> str:
        return f"Shard({self.name}, token={self.token}, {'owned' if self.is_owned else 'lost'})"


# A coroutine function, or a plain one, which runs in a thread of its own.
Work = Callable[[Shard], Awaitable[None] | None]
Handler = Work | type["PartitionHandler"]
