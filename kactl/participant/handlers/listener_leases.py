"""Calls of a listener at the beginning and the end of leases.

A listener leads only under a lease. When the lease has ended, `stopped` is called for each partition that it leads.
When another one begins, `became_leader` is called again for those that it still leads, with the same epoch.

    ordered to lead ──lease──▶ became_leader ──end of the lease──▶ stopped ──next lease──▶ became_leader
"""

from collections.abc import Callable, Iterable

import numpy as np

from kactl.decide.messages.broker import PartitionReport
from kactl.decide.state.rows import Bools
from kactl.model import NO_EPOCH, ReplicaStatus, TopicPartition
from kactl.model.errors import ErrorCode
from kactl.participant.hosted_replicas import HostedReplicas, Role
from kactl.participant.listener import Listener, overrides
from kactl.participant.listener_calls import ListenerCalls
from kactl.stores.base import Names


class ListenerLeases:
    """The leaderships of a listener that have to wait for a lease.

    Args:
        report: receives failures of `became_leader`, which come after the response to the order, and that the replica
            is ready again: to the controller a response does not prove it.
    """

    def __init__(
        self,
        listener: Listener,
        calls: ListenerCalls,
        hosted: HostedReplicas,
        *,
        report: Callable[[PartitionReport], None],
    ) -> None:
        self._listener = listener
        self._calls = calls
        self._hosted = hosted
        self._report = report
        self._waiting: dict[TopicPartition, None] = {}
        self._failed: set[TopicPartition] = set()  # reported

    @property
    def is_needed(self) -> bool:
        """Whether the listener overrides one of the calls."""
        return overrides(self._listener, "became_leader") or overrides(self._listener, "stopped")

    def wait(self, names: Iterable[TopicPartition]) -> None:
        """Call `became_leader` of some partitions when the next lease begins."""
        if self.is_needed:
            self._waiting.update(dict.fromkeys(names))

    def forget(self, names: Names, chosen: Bools) -> None:
        """Forget partitions that are to be followed now."""
        if self._waiting:
            for name in names.take(chosen):
                self._waiting.pop(name, None)

    def succeeded(self, names: Iterable[TopicPartition]) -> None:
        """Report partitions as ready whose last call has succeeded, if a failure was reported before."""
        if not self._failed:
            return
        for name in names:
            if name in self._failed and name not in self._waiting:
                self._failed.discard(name)
                view = self._hosted.view(name)
                epoch = NO_EPOCH if view is None else view.leader_epoch
                self._report(PartitionReport(name, epoch, ReplicaStatus.READY))

    async def lease_ended(self) -> None:
        """Call `stopped` for everything that is led."""
        if self.is_needed:
            names = self._served(Role.LEADER)
            self.wait(names)
            await self._stop(names)

    async def registration_ended(self) -> None:
        """Call `stopped` for everything that is served."""
        if self.is_needed:
            await self._stop(self._served(Role.LEADER, Role.FOLLOWER))

    async def lease_began(self) -> None:
        """Call `became_leader` for everything that waits, is still led, and is released."""
        waiting, self._waiting = self._waiting, {}
        if self._hosted.held.any():
            held = dict.fromkeys(self._hosted.held_among(waiting))
            self._waiting, waiting = held, {name: None for name in waiting if name not in held}
        views = [self._hosted.view(name) for name in waiting]
        led = [view for view in views if view is not None and view.role is Role.LEADER and not view.failed]
        if not led or not overrides(self._listener, "became_leader"):
            return
        names, errors = Names.of([view.name for view in led]), np.zeros(len(led), np.int16)
        deferred = await self._calls.run(
            lambda name, row: self._listener.became_leader(name, leader_epoch=led[row].leader_epoch, isr=led[row].isr),
            names,
            np.ones(len(names), np.bool_),
            errors,
            leads=True,
        )
        self.wait(names.take(deferred))
        self.succeeded(names.take(errors == ErrorCode.NONE))
        for row in np.flatnonzero(errors).tolist():
            detail = "became_leader has failed after the lease had begun again"
            self._failed.add(led[row].name)
            self._report(PartitionReport(led[row].name, led[row].leader_epoch, ReplicaStatus.FAILED, detail))

    async def _stop(self, names: Names) -> None:
        if len(names) and overrides(self._listener, "stopped"):
            every, errors = np.ones(len(names), np.bool_), np.zeros(len(names), np.int16)
            await self._calls.run(lambda name, _: self._listener.stopped(name, deleted=False), names, every, errors)

    def _served(self, *roles: Role) -> Names:
        """Returns the partitions in some roles for which the listener was called and has not been stopped."""
        rows = np.concatenate([self._hosted.in_role(role) for role in roles])
        names = self._hosted.index.names(rows)
        if not self._waiting:
            return names
        return names.take(np.array([name not in self._waiting for name in names], np.bool_))
