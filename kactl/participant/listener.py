"""Callbacks through which an application follows the state of its replicas."""

from collections.abc import Awaitable

from kactl.model import TopicPartition


class Listener:
    """Callbacks for programs that apply Kafka's requests themselves. Others use `PartitionHandler`.

    Override the methods that you need; every method may be `async` as well.

    The participant carries out one request at a time and waits for each call, so a call that hangs delays the others,
    for `transition_timeout_ms` at most; then it is cancelled, and counts as one that raised. At the end of the lease a
    call of `became_leader` is cancelled as well. A plain function cannot be cancelled, and must not block.

    If a call raises, the participant reports a storage failure of the replica to the controller, leaves its state of
    the replica unchanged, and accepts the same request again. Every call must therefore be idempotent.
    """

    def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> Awaitable[None] | None:
        """Lead the partition from now on. Called again with a higher epoch if this broker remains the leader."""
        return None

    def became_follower(self, name: TopicPartition, *, leader: int, leader_epoch: int) -> Awaitable[None] | None:
        """Follow `leader` from now on. If it is NO_LEADER, the partition has no leader to follow."""
        return None

    def stopped(self, name: TopicPartition, *, deleted: bool) -> Awaitable[None] | None:
        """Stop serving the replica: it was stopped, or the broker's registration has ended.

        If `deleted` is true, delete the replica's data. The call may also concern a replica that this registration has
        never served, and of which an earlier registration of the broker may have left data.
        """
        return None


def overrides(listener: Listener, method: str) -> bool:
    """Returns whether the listener overrides a method; otherwise the calls for up to 100,000 rows are skipped."""
    return getattr(type(listener), method, None) is not getattr(Listener, method)
