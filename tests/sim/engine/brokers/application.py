"""Application of a participant that follows its replicas by a listener."""

from collections.abc import Callable

from kactl.model import TopicPartition
from kactl.model.errors import KactlError
from kactl.participant import Listener


class HandlerFault(KactlError):
    """The application fails on purpose: a run does not end at the log record of it, as at those of bugs."""


class Application(Listener):
    """Application of one process: it remembers the role of each replica, and fails when it is told to.

    Attributes:
        roles: leader and leader epoch of each replica that is served.
        calls: partitions for which a call of the present request has succeeded.
        failures: number of calls that will fail.
        stays: whether later calls for the same partitions fail as well, as on a directory that has failed.
        broken: partitions for which every call fails.
        undeletable: partitions that cannot be deleted.
        on_lead: called when a call to lead has succeeded.
    """

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.roles: dict[TopicPartition, tuple[int, int]] = {}
        self.calls: set[TopicPartition] = set()
        self.failures = 0
        self.stays = True
        self.broken: set[TopicPartition] = set()
        self.undeletable: set[TopicPartition] = set()
        self.on_lead: Callable[[TopicPartition, int, int], None] = lambda name, leader_epoch, present_epoch: None

    def became_leader(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
        self._begin(name)
        self.roles[name] = (self.broker, leader_epoch)
        self.on_lead(name, leader_epoch, leader_epoch)

    def became_follower(self, name: TopicPartition, *, leader: int, leader_epoch: int) -> None:
        self._begin(name)
        self.roles[name] = (leader, leader_epoch)

    def stopped(self, name: TopicPartition, *, deleted: bool) -> None:
        if deleted and name in self.undeletable:
            raise HandlerFault(f"{name} cannot be deleted")
        self._begin(name)
        self.roles.pop(name, None)

    def _begin(self, name: TopicPartition) -> None:
        fails = name in self.broken
        if self.failures:
            self.failures -= 1
            fails = True
            if self.stays:
                self.broken.add(name)
        if fails:
            raise HandlerFault(f"the calls for {name} fail")
        self.calls.add(name)
