"""Lines of `kafka-topics.sh --describe`, byte for byte, for scripts that parse them.

Source: kafka-topics.sh of Kafka 3.9, in ZooKeeper mode.
"""

from collections.abc import Iterable, Iterator, Mapping

from kactl.admin.schema import PartitionInfo, TopicInfo


def describe_lines(topic: TopicInfo, config: Mapping[str, str], partitions: Iterable[PartitionInfo]) -> Iterator[str]:
    """Yield the lines of one topic and its partitions."""
    configs = ",".join(f"{key}={value}" for key, value in sorted(config.items()))
    id_ = f"\tTopicId: {topic.id}" if topic.id is not None else ""
    yield (
        f"Topic: {topic.name}{id_}\tPartitionCount: {topic.partitions}"
        f"\tReplicationFactor: {topic.replication_factor}\tConfigs: {configs}"
    )
    for partition in partitions:
        yield partition_line(partition, deleting=topic.deleting)


def partition_line(partition: PartitionInfo, *, deleting: bool = False) -> str:
    """Returns the line of one partition."""
    leader = "none" if partition.leader < 0 else str(partition.leader)
    line = (
        f"\tTopic: {partition.topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_joined(partition.replicas)}\tIsr: {_joined(partition.isr)}"
    )
    if partition.adding or partition.removing:
        line += f"\tAdding Replicas: {_joined(partition.adding)}\tRemoving Replicas: {_joined(partition.removing)}"
    return line + "\tElr: N/A\tLastKnownElr: N/A" + ("\tMarkedForDeletion: true" if deleting else "")


def _joined(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
