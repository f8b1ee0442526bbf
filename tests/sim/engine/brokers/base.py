"""Brokers of a simulated cluster, modelled or real, as scripts and conditions at rest see them."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from kactl.model import TopicPartition
from tests.sim.engine.member import Member


class ReplicaView(NamedTuple):
    """A replica as its broker serves it.

    Attributes:
        leader_epoch: NO_EPOCH if the broker has not begun to serve it.
        replicas: of the partition, as the broker knows them; empty if they are not observed.
    """

    topic_id: bytes
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...] = ()


class MetadataView(NamedTuple):
    """Metadata of a partition as a broker knows it.

    Attributes:
        offline: replicas that cannot be reached.
    """

    leader: int
    leader_epoch: int
    isr: frozenset[int]
    partition_epoch: int
    replicas: tuple[int, ...]
    offline: frozenset[int] = frozenset()


class SimulatedBroker(Member):
    """A broker.

    Attributes:
        id: of the broker.
    """

    id: int

    @property
    @abstractmethod
    def has_process(self) -> bool:
        """Whether a process of the broker was started."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The broker epoch; NO_EPOCH before the registration."""

    @abstractmethod
    def replicas(self) -> Mapping[TopicPartition, ReplicaView]:
        """Returns the replicas that the present process serves."""

    @abstractmethod
    def metadata(self, name: TopicPartition) -> MetadataView | None:
        """Returns the metadata of a partition that the broker knows."""

    @abstractmethod
    def live(self) -> frozenset[int]:
        """Returns the live brokers that the broker knows."""

    def has_overtaken_metadata(self, name: TopicPartition | None = None) -> bool:
        """Whether what the broker knows is that of a late copy of a request which later ones had overtaken.

        Args:
            name: of a partition; by default the live brokers.
        """
        return False

    @abstractmethod
    def has_lost(self, name: TopicPartition) -> bool:
        """Whether the broker does not serve a replica, for a reason that the controller does not know.

        A late copy of a StopReplica has stopped it. Or a late copy of an UpdateMetadata has removed its leader from the
        live brokers, so that a Kafka broker has not applied the LeaderAndIsr that came next. Or the broker has a
        replica of an earlier topic of the name: a late copy of a request has started it, or its stop was lost with an
        earlier controller.
        """

    def has_missed_deletion(self, name: TopicPartition, twin: "SimulatedBroker") -> bool:
        """Whether another process with the broker's id has responded to the deletion of a replica, which is here still.

        The controller does not know of the replica, and the next topic of the name may be created.
        """
        return False

    @abstractmethod
    def logs(self) -> Mapping[TopicPartition, bytes]:
        """Returns the topic ids of the logs on the broker's disk.

        Without logs from a request that the controller had given up, and that arrived after their deletion: Kafka's
        brokers do not remember what they have deleted.
        """

    @abstractmethod
    def known_topics(self) -> set[str]:
        """Returns the topics of which the present process has metadata or replicas; without late copies, as `logs`."""

    @abstractmethod
    def failed_directories(self) -> set[TopicPartition]:
        """Returns the replicas of which the directory has failed."""

    @abstractmethod
    def has_failed(self, name: TopicPartition) -> bool:
        """Whether the broker cannot serve a replica at present, and has reported that."""

    def failed_handlers(self) -> set[TopicPartition]:
        """Returns the replicas whose handlers pause after a failure, or are stuck: participants only."""
        return set()

    def stuck_handlers(self) -> set[TopicPartition]:
        """Returns the replicas whose handlers make no call before the end of one that hangs: participants only."""
        return set()

    @abstractmethod
    def can_delete(self, name: TopicPartition) -> bool:
        """Whether the broker can delete a replica at present."""

    @abstractmethod
    def fail_directory(self, name: TopicPartition) -> None:
        """Make the directory of a replica fail until a restart."""

    @abstractmethod
    def make_undeletable(self, name: TopicPartition) -> None:
        """Make the deletion of a replica fail until a restart."""

    @abstractmethod
    def lose_unforced(self, share: float) -> None:
        """Drop the last part of each log, as a loss of power does with records that were not forced to disk.

        Args:
            share: 0 to 1, of the records of each log's last epoch.
        """

    @abstractmethod
    async def shut_down(self, *, epoch_lag: int = 0) -> None:
        """Request a controlled shutdown, then end the process.

        Args:
            epoch_lag: how much older than the registration the epoch of the request is.
        """

    @abstractmethod
    async def allocate_producer_ids(self) -> None:
        """Reserve a block of producer ids; a failure has no consequence."""
