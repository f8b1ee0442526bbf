"""Broker requests as objects, one entry for each partition, and their encoding, entry after entry."""

import dataclasses
import struct
from collections.abc import Iterable

from kactl.model import LEADER_DURING_DELETE, ZERO_ID, TopicPartition

from .model import ObjectCluster, Partition


@dataclasses.dataclass(slots=True)
class LeadEntry:
    """Entry of a LeaderAndIsr request for one partition."""

    name: TopicPartition
    topic_id: bytes
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: list[int]
    version: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    is_new: bool
    recovering: bool


@dataclasses.dataclass(slots=True)
class MetadataEntry:
    """Entry of an UpdateMetadata request for one partition."""

    name: TopicPartition
    topic_id: bytes
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: list[int]
    version: int
    replicas: list[int]
    offline_replicas: list[int]


@dataclasses.dataclass(slots=True)
class StopEntry:
    """Entry of a StopReplica request for one replica."""

    name: TopicPartition
    topic_id: bytes
    leader_epoch: int
    delete: bool


@dataclasses.dataclass(slots=True)
class Request:
    """One request to one broker. `nodes`: the leaders named in it, or all registered brokers, by id."""

    kind: str
    broker: int
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    entries: list[LeadEntry] | list[MetadataEntry] | list[StopEntry]
    nodes: list[int]


class ObjectBatch:
    """Collects entries by broker and partition and builds requests from them."""

    def __init__(self, cluster: ObjectCluster) -> None:
        self.cluster = cluster
        self.lead: dict[int, dict[TopicPartition, LeadEntry]] = {}
        self.stops: dict[int, dict[TopicPartition, StopEntry]] = {}
        self.metadata: dict[TopicPartition, MetadataEntry] = {}
        self.metadata_brokers: set[int] = set()

    def lead_and_follow(self, brokers: Iterable[int], partition: Partition, *, is_new: bool) -> None:
        leading = partition.leading
        assert leading is not None
        for broker in brokers:
            if broker < 0:
                continue
            entries = self.lead.setdefault(broker, {})
            before = entries.get(partition.name)
            entries[partition.name] = LeadEntry(
                partition.name,
                self.cluster.topic_ids.get(partition.name.topic, ZERO_ID),
                leading.controller_epoch,
                leading.leader,
                leading.leader_epoch,
                leading.isr,
                leading.version,
                partition.replicas,
                partition.adding,
                partition.removing,
                is_new or (before is not None and before.is_new),
                leading.recovering,
            )
        self.update_metadata(self.cluster.brokers, [partition])

    def stop(self, broker: int, partition: Partition, *, delete: bool) -> None:
        if broker < 0:
            return
        entries = self.stops.setdefault(broker, {})
        before = entries.get(partition.name)
        entries[partition.name] = StopEntry(
            partition.name,
            self.cluster.topic_ids.get(partition.name.topic, ZERO_ID),
            self.cluster.stop_epoch(partition),
            delete or (before is not None and before.delete),
        )

    def update_metadata(self, brokers: Iterable[int], partitions: Iterable[Partition] = ()) -> None:
        self.metadata_brokers.update(broker for broker in brokers if broker >= 0)
        for partition in partitions:
            leading = partition.leading
            if leading is None:
                continue
            deleting = self.cluster.is_queued(partition)
            self.metadata[partition.name] = MetadataEntry(
                partition.name,
                self.cluster.topic_ids.get(partition.name.topic, ZERO_ID),
                leading.controller_epoch,
                LEADER_DURING_DELETE if deleting else leading.leader,
                0 if deleting else leading.leader_epoch,
                leading.isr,
                0 if deleting else leading.version,
                partition.replicas,
                [broker for broker in partition.replicas if not self.cluster.is_online(broker, partition.name)],
            )

    def flush(self) -> list[Request]:
        """Return LeaderAndIsr, then UpdateMetadata, then StopReplica requests; only for registered brokers."""
        requests = []
        registered = self.cluster.brokers
        for broker, lead in sorted(self.lead.items()):
            if broker in registered:
                leaders = {entry.leader for entry in lead.values()}
                nodes = [node for node in sorted(leaders) if node in registered]
                requests.append(self._request("LeaderAndIsr", broker, list(lead.values()), nodes))
        metadata = list(self.metadata.values())
        nodes = sorted(registered)
        for broker in sorted(self.metadata_brokers):
            if broker in registered:
                requests.append(self._request("UpdateMetadata", broker, metadata, nodes))
        for broker, stops in sorted(self.stops.items()):
            if broker in registered:
                requests.append(self._request("StopReplica", broker, list(stops.values()), []))
        self.lead, self.stops, self.metadata, self.metadata_brokers = {}, {}, {}, set()
        return requests

    def _request(
        self,
        kind: str,
        broker: int,
        entries: list[LeadEntry] | list[MetadataEntry] | list[StopEntry],
        nodes: list[int],
    ) -> Request:
        cluster = self.cluster
        epoch = cluster.brokers[broker].epoch
        return Request(kind, broker, cluster.controller_id, cluster.controller_epoch, epoch, entries, nodes)


# -- bytes -------------------------------------------------------------------------------------------------------------


def encode(requests: Iterable[Request]) -> list[bytes]:
    """Return the bytes of each request, similar to Kafka's layout. Entries sent to many brokers are encoded once."""
    bodies: dict[int, bytes] = {}
    encoded = []
    for request in requests:
        body = bodies.get(id(request.entries))
        if body is None:
            body = b"".join(map(_entry, request.entries))
            bodies[id(request.entries)] = body
        header = struct.pack(">iiqi", request.controller_id, request.controller_epoch, request.broker_epoch, len(body))
        encoded.append(b"".join((header, body, _ids(request.nodes))))
    return encoded


def _entry(entry: LeadEntry | MetadataEntry | StopEntry) -> bytes:
    topic = entry.name.topic.encode()
    head = struct.pack(">h", len(topic)) + topic + entry.topic_id
    if isinstance(entry, StopEntry):
        return head + struct.pack(">ii?", entry.name.partition, entry.leader_epoch, entry.delete)
    middle = struct.pack(
        ">iiiii", entry.name.partition, entry.controller_epoch, entry.leader, entry.leader_epoch, entry.version
    )
    lists = _ids(entry.isr) + _ids(entry.replicas)
    if isinstance(entry, MetadataEntry):
        return head + middle + lists + _ids(entry.offline_replicas)
    flags = struct.pack(">??", entry.is_new, entry.recovering)
    return head + middle + lists + _ids(entry.adding) + _ids(entry.removing) + flags


def _ids(brokers: list[int]) -> bytes:
    return struct.pack(f">i{len(brokers)}i", len(brokers), *brokers)
