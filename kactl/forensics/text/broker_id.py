"""Broker id, role and partition in the prefix of a message: `[Broker id=2]`, `[Partition t-0 broker=1]`."""

import re
from typing import Final, NamedTuple

from kactl.forensics.event_types import Role

# Limit of cached prefixes. They contain partitions, so there may be a million.
MEMORY_LIMIT: Final = 100_000

_CONTROLLER: Final = re.compile(
    rb"(?:(?:Quorum)?Controller(?:Server)? id=|controllerId=|[Cc]ontroller |^Topic Deletion Manager |"
    rb"^Controller-|^delete-topics-thread-|^[A-Z]\w+Listener on )(\d+)"
)
_BROKER: Final = re.compile(
    rb"(?:\bbroker=|\b[Bb]roker |^(?:Broker(?:LifecycleManager|Server)?|KafkaServer|RaftManager) id=|^Kafka Server |"
    rb"brokerId=|^(?:KafkaRaftServer|RaftManager) nodeId=)(\d+)"
)
_EPOCH: Final = re.compile(rb"epoch=(\d+)")
_PARTITION: Final = re.compile(
    rb"(?:^Partition |\bpartition=)(?:\[(?P<old>[\w.-]+),(?P<number>\d+)\]|(?P<topic>[\w.-]+)-(?P<partition>\d+))"
)


class Prefix(NamedTuple):
    """Values in a prefix, by column; None if absent. `controller` repeats the writer's id if it is a controller."""

    speaker: bytes | None = None
    role: str | None = None
    controller: bytes | None = None
    controller_epoch: bytes | None = None
    topic: bytes | None = None
    partition: bytes | None = None


EMPTY: Final = Prefix()


def read(prefix: bytes) -> Prefix:
    """Reads the text between the brackets."""
    match = _PARTITION.search(prefix)
    topic, partition = (None, None) if match is None else (match["old"] or match["topic"], match["number"] or match[4])
    broker = _BROKER.search(prefix)
    if broker is not None:
        return Prefix(broker[1], Role.BROKER, None, None, topic, partition)
    controller = _CONTROLLER.search(prefix)
    if controller is not None:
        epoch = _EPOCH.search(prefix)
        return Prefix(controller[1], Role.CONTROLLER, controller[1], epoch[1] if epoch else None, topic, partition)
    return Prefix(None, None, None, None, topic, partition)


class Prefixes(dict[bytes | None, Prefix]):
    """Cache of the values in prefixes."""

    def __missing__(self, prefix: bytes | None) -> Prefix:
        if len(self) >= MEMORY_LIMIT:
            self.clear()
        values = self[prefix] = EMPTY if prefix is None else read(prefix)
        return values
