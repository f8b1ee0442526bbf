"""A leadership of this participant, as applications hold it."""

from collections.abc import Callable
from os import getpid
from typing import Final, NoReturn

from anyio.abc import TaskGroup

from kactl.decide.messages import arguments
from kactl.decide.messages.control import UNKNOWN_REASON, OrderReason
from kactl.model import TopicPartition
from kactl.model.errors import BadRequest, IllegalState, LeadershipLost
from kactl.runtime import forks

from .lease import ENDED, Lease
from .terms import NS_PER_MS
from .token import FencingToken

# Longer than maintenance of one replica takes, and short enough to be forgotten.
RESIGN_HOLD_MS: Final = 600_000


class Leader:
    """One leadership, the argument of `PartitionHandler.lead`: a partition between two elections. Changes of the ISR
    and the replicas do not end it.

        leader.check()  # raises if the leadership, or the lease of the participant, has ended
        with kactl.fencing.fenced(connection, leader, "jobs-3") as tx:  # a write that no earlier leader can repeat
            tx.execute(...)

    Attributes:
        partition: the partition that this participant leads.
        isr: the in-sync replicas, as far as this participant knows; those of the end once the leadership has ended.
        leader_epoch: the present leader epoch. It begins as that of `token`, and rises when the controller changes the
            ISR or the replicas without another leader. Followers of the leadership are called with the same epochs.
        reason: why the controller sent the order to lead: the event, and the election. Empty for a `Listener`.
        previous: the leader before; None if there was none, or it is not known.
    """

    __slots__ = (
        "_home", "_lease", "_now_ns", "_report", "_resign", "_tasks", "_token", "isr", "leader_epoch", "partition",
        "reason",
    )  # fmt: skip

    def __init__(
        self,
        partition: TopicPartition,
        token: FencingToken,
        *,
        isr: tuple[int, ...],
        leader_epoch: int | None = None,
        now_ns: Callable[[], int],
        reason: OrderReason = UNKNOWN_REASON,
        lease: Lease = ENDED,
        resign: Callable[["Leader", str, int], None] | None = None,
        report: Callable[["Leader", int, int], None] | None = None,
    ) -> None:
        self.partition = partition
        self._token = token
        self._home = forks.home()
        self.isr = isr
        self.leader_epoch = token.leader_epoch if leader_epoch is None else leader_epoch
        self.reason = reason
        self._tasks: TaskGroup | None = None
        self._resign = resign
        self._report = report
        self._lease = lease
        self._now_ns = now_ns

    @property
    def token(self) -> FencingToken:
        """Passed to resources that compare tokens. It stays the same for the whole leadership, except that it rises
        when the hand-over of a shard has failed: read it for each use.

        Raises:
            LeadershipLost: this process was forked from the leader's. A token that was read before can be passed on.
        """
        if self._home.left:
            raise self._lost()
        return self._token

    @property
    def previous(self) -> int | None:
        return self.reason.previous

    def check(self) -> None:
        """Verify that the leadership has not ended. Call it immediately before each step that only a leader may do.

        It reads one clock, so it also notices that the event loop was blocked, the process stopped, or the machine
        suspended. What happens between the call and the step itself it cannot notice: `token` is for that.

        Raises:
            LeadershipLost: it has ended, and will never be valid again. So it has in a process that was forked from
                the leader's.
        """
        if self._now_ns() >= self._lease.ends_ns or getpid() != self._home.pid:
            raise self._lost()

    @property
    def is_valid(self) -> bool:
        """Whether `check` would succeed."""
        return self._now_ns() < self._lease.ends_ns and getpid() == self._home.pid

    def remaining_ms(self) -> float:
        """Returns the time until `check` raises, if the lease is not renewed; 0 or less if the leadership has ended."""
        return (self._lease.ends_ns - self._now_ns()) / NS_PER_MS

    @property
    def tasks(self) -> TaskGroup:
        """The task group of the leadership: its tasks are cancelled when the leadership ends.

        Raises:
            LeadershipLost: the leadership has ended, or has not begun yet, as in `PartitionHandler.prepare`.
            IllegalState: the participant has no handler.
        """
        if self._resign is None:
            raise IllegalState(f"{self} has no tasks: pass a handler to its participant")
        if self._tasks is None or self._home.left:
            raise self._lost()
        return self._tasks

    async def resign(self, reason: str = "", *, hold_ms: int | None = None) -> None:
        """End the leadership now. The controller elects another replica, and may elect this one after a second.

        Args:
            hold_ms: how long the controller does not return the leadership to this replica by itself, unless no other
                can lead; by default ten minutes if there is a reason, and not at all if there is none. It ends with
                this registration, with the controllership, or by a preferred election that is requested.

        Raises:
            LeadershipLost: it has ended already.
            IllegalState: the participant has no handler.
            BadRequest: `hold_ms` is negative, or no number.
        """
        if self._resign is None:
            raise IllegalState(f"{self} cannot resign: pass a handler to its participant")
        if hold_ms is not None and arguments.whole(hold_ms, "hold_ms") < 0:
            raise BadRequest("hold_ms", f"{hold_ms} is negative: 0 lets the leadership return at any time")
        self.check()
        self._resign(self, reason, (RESIGN_HOLD_MS if reason else 0) if hold_ms is None else hold_ms)

    def report(self, follower: int, position: int) -> None:
        """Report how far a follower has copied, for handlers with a replication of their own.

        From the first report on, these positions decide which followers have caught up, in place of what the followers
        report. Report the position of this participant, under its own id, as often as it writes: a follower has caught
        up when it reaches that position. A follower that has not caught up for `lag_ms` leaves the ISR, and joins it
        again when it has. Positions of an earlier registration of a follower do not count.

        Raises:
            LeadershipLost: the leadership has ended, or has not begun yet, as in `PartitionHandler.prepare`.
            BadRequest: one of the arguments is not a whole number, or negative.
            IllegalState: the participant has no handler.
        """
        if self._report is None:
            raise IllegalState(f"{self} takes no reports: pass a handler to its participant")
        for field, value in (("follower", follower), ("position", position)):
            if arguments.whole(value, field) < 0:
                raise BadRequest(field, f"{value} is negative")
        self.check()
        self._report(self, follower, position)

    def _lost(self) -> LeadershipLost:
        return LeadershipLost(str(self.partition), str(self._token), forked=self._home.left)

    def _begin(self, lease: Lease, tasks: TaskGroup) -> None:
        """Begin to lead under a lease."""
        self._lease, self._tasks = lease, tasks

    def _end(self) -> None:
        """End the leadership: `check` raises from now on."""
        self._lease, self._tasks = ENDED, None

    def __repr__(self) -> str:
        state = "valid" if self.is_valid else "ended"
        return f"Leader({self.partition}, token={self._token}, {state})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self} cannot be sent to another process: send its token, and check in this process")
