"""Base class of an application's code for one partition."""

from collections.abc import Callable

from kactl.model import Endpoint, TopicPartition
from kactl.participant.leases.leader import Leader


class Follower:
    """One followership, the argument of `PartitionHandler.follow`: a leader to follow, under one leader epoch.

    Attributes:
        leader: the broker to follow; None if the partition has no leader.
        leader_endpoint: where the leader's program listens, for a network on which participants do; otherwise None.
    """

    __slots__ = ("_report", "leader", "leader_endpoint", "leader_epoch", "partition")

    def __init__(
        self,
        partition: TopicPartition,
        *,
        leader: int | None,
        leader_epoch: int,
        leader_endpoint: Endpoint | None = None,
        report: Callable[[int, bool], None] | None = None,
    ) -> None:
        self.partition = partition
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.leader_endpoint = leader_endpoint
        self._report = report

    def report(self, position: int, *, caught_up: bool = True) -> None:
        """Report to the leader how far this replica has followed. Without a report it counts as caught up.

        A replica that has not caught up leaves the ISR after `lag_ms`, and joins it again when it has. A report after
        the end of the followership is ignored.
        """
        if self._report is not None:
            self._report(position, caught_up)

    def _end(self) -> None:
        """End the followership."""
        self._report = None

    def __repr__(self) -> str:
        return f"Follower({self.partition}, leader={self.leader}, leader_epoch={self.leader_epoch})"


class PartitionHandler:
    """The code for one replica of a partition. Override the methods that you need; most programs need `lead`.

        class Shard(kactl.PartitionHandler):
            async def lead(self, leader: kactl.Leader) -> None:
                while True:
                    leader.check()  # before each step that only a leader may do
                    await work(self.partition, token=leader.token)

    One object serves one hosted partition. It is made for the first order that concerns the partition, and kept until
    the replica is deleted. The next replica of the partition, which may be of another topic, has another object. Its
    methods are called one at a time: a newer order cancels the call in progress, unless the same leadership goes on,
    and the next call begins after that one has ended. A method that raises is described at `ReplicaStatus`.
    """

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition

    async def prepare(self, leader: Leader) -> None:
        """Prepare to lead, for a bounded time. `leader.check` succeeds only from `lead` on.

        Raises:
            NotReady: another replica should lead; this one can be elected again after its delay.
        """

    async def lead(self, leader: Leader) -> None:
        """Lead, until the call is cancelled. If it returns, the leadership continues, with the tasks of the leader.

        Changes of the ISR and the replicas do not end it: `leader.isr` and `leader.leader_epoch` are the present ones.
        """

    async def follow(self, follower: Follower) -> None:
        """Follow, until the call is cancelled. If it returns, the followership continues."""

    async def stop(self, *, deleted: bool) -> None:
        """Stop serving the replica, for a bounded time; `deleted` means that its data has to be deleted.

        Also called when the registration of the participant has ended, and for a deletion of data that an earlier
        process may have left. A deletion that has failed is made again, at the latest before the next replica of the
        partition is served.
        """

    def lease_lost(self, leader: Leader) -> None:
        """Stop acting at once: the lease or the registration has ended. The call of `lead` is cancelled next.

        Called in the event loop, after `leader.check` has begun to raise. It must not wait.
        """
