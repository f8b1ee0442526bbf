"""State of a participant under its present registration, as an application reads it."""

from collections.abc import Iterator, Mapping

from kactl.decide.messages import arguments
from kactl.decide.messages.arguments import AnyPartition
from kactl.decide.state.rows import common
from kactl.model import NO_EPOCH, Broker, TopicPartition, TopicRef

from .hosted_replicas import HostedPartition, Role
from .incarnation import Incarnation
from .leases.leader import Leader
from .metadata import CachedPartition


class Views:
    """The part of `Participant` that changes nothing. Everything is empty while the broker is not registered."""

    @property
    def _incarnation(self) -> Incarnation | None:
        """The present registration; None if there is none."""
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        """The broker epoch; NO_EPOCH while the broker is not registered."""
        return NO_EPOCH if self._incarnation is None else self._incarnation.epoch

    @property
    def controller_epoch(self) -> int:
        """The highest controller epoch received, NO_EPOCH if none."""
        return NO_EPOCH if self._incarnation is None else self._incarnation.controller_epoch

    def hosted(self, name: AnyPartition) -> HostedPartition | None:
        """Returns the replica of a partition; None if the broker has none."""
        return None if self._incarnation is None else self._incarnation.hosted.view(arguments.partition(name))

    @property
    def hosts(self) -> list[TopicPartition]:
        """The partitions of which the broker has a replica, grouped by topic."""
        if self._incarnation is None:
            return []
        index = self._incarnation.hosted.index
        return list(index.names(index.rows))

    def leader(self, name: AnyPartition) -> int | None:
        """Returns the leader of a partition in the broker's metadata; NO_LEADER if it has none, None if the partition
        is not known."""
        return None if self._incarnation is None else self._incarnation.metadata.leader(arguments.partition(name))

    def leadership(self, name: AnyPartition) -> Leader | None:
        """Returns this broker's own leadership of a partition; None if it has none, or no lease."""
        return None if self._incarnation is None else self._incarnation.leaderships.get(arguments.partition(name))

    def leaderships(self, topic: str | TopicRef | None = None) -> list[Leader]:
        """Returns all leaderships of this broker, or those of one topic; none if it has no lease."""
        return list(self.iter_leaderships(topic))

    def iter_leaderships(self, topic: str | TopicRef | None = None) -> Iterator[Leader]:
        """Yields them one by one, for callers that need only some."""
        if self._incarnation is None or not self._incarnation.has_lease:
            return
        hosted, leaderships = self._incarnation.hosted, self._incarnation.leaderships
        rows = hosted.in_role(Role.LEADER)
        if topic is not None:
            rows = common(rows, hosted.index.rows_of(arguments.topic(topic).name))
        for name in hosted.index.names(rows):
            leader = leaderships.get(name)
            if leader is not None:
                yield leader

    def partition(self, name: AnyPartition) -> CachedPartition | None:
        """Returns the broker's metadata of a partition; None if the partition is not known."""
        return None if self._incarnation is None else self._incarnation.metadata.partition(arguments.partition(name))

    @property
    def live_brokers(self) -> Mapping[int, Broker]:
        """The live brokers in the broker's metadata, by id."""
        return {} if self._incarnation is None else self._incarnation.metadata.live_brokers
