"""The leaderships of one registration that an application holds."""

from collections.abc import Callable, Iterable

from kactl.model import TopicPartition

from .leader import Leader


class Leaderships:
    """Leaders by partition. A `Leader` is made when it is first needed, and ended when its leadership ends.

    Args:
        make: returns the leader of a partition that this participant leads under a valid lease; None if it does not.
    """

    def __init__(self, make: Callable[[TopicPartition], Leader | None]) -> None:
        self._make = make
        self._leaders: dict[TopicPartition, Leader] = {}

    def get(self, name: TopicPartition) -> Leader | None:
        """Returns the leader of a partition; None if this participant has no valid leadership of it."""
        leader = self._leaders.get(name)
        if leader is None or not leader.is_valid:
            leader = self._make(name)
            if leader is None:
                return None
            self._leaders[name] = leader
        return leader if leader.is_valid else None

    def update(self, name: TopicPartition, *, leader_epoch: int, isr: tuple[int, ...]) -> None:
        """Note the present ISR of a leadership that goes on."""
        leader = self._leaders.get(name)
        if leader is not None:
            leader.leader_epoch, leader.isr = leader_epoch, isr

    def end(self, names: Iterable[TopicPartition]) -> None:
        """End the leaderships of some partitions; those that are not led are skipped."""
        if self._leaders:
            for name in names:
                leader = self._leaders.pop(name, None)
                if leader is not None:
                    leader._end()

    def end_all(self) -> None:
        for leader in self._leaders.values():
            leader._end()
        self._leaders.clear()
