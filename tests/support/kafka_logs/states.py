"""A partition's stored state, and its text in lines of each version."""

from typing import Final, NamedTuple

from .cluster import Partition

Version = tuple[int, int]
# Versions that changed the lines.
MASKS_INFO: Final[Version] = (2, 6)
RECOVERY: Final[Version] = (3, 2)
EPOCH_NAMED: Final[Version] = (3, 3)
BROKER_EPOCHS: Final[Version] = (3, 5)


class State(NamedTuple):
    """State of one partition at one time."""

    partition: Partition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    recovering: bool
    is_new: bool
    controller_epoch: int

    @property
    def recovery(self) -> str:
        return "RECOVERING" if self.recovering else "RECOVERED"


def state_of(p: Partition, controller_epoch: int, *, is_new: bool = False) -> State:
    return State(
        p, p.leader, p.leader_epoch, p.isr, p.partition_epoch, p.replicas, p.adding, p.removing, p.recovering, is_new,
        controller_epoch,
    )  # fmt: skip


def ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


def spaced(brokers: tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers))


def in_zookeeper(state: State, version: Version) -> str:
    """Returns the text of a controller's line about a leader: `LeaderAndIsr(...)`."""
    head = f"LeaderAndIsr(leader={state.leader}, leaderEpoch={state.leader_epoch}, "
    if version >= BROKER_EPOCHS:
        isr = ", ".join(f"BrokerState(brokerId={broker}, brokerEpoch=-1)" for broker in state.isr)
        head += f"isrWithBrokerEpoch=List({isr})"
    else:
        head += f"isr=List({spaced(state.isr)})"
    if version >= RECOVERY:
        head += f", leaderRecoveryState={state.recovery}"
    return f"{head}, {'partitionEpoch' if version >= EPOCH_NAMED else 'zkVersion'}={state.partition_epoch})"


def in_request(state: State, version: Version) -> str:
    """Returns the text in a LeaderAndIsr request."""
    if version < (2, 4):
        return (
            f"PartitionState(controllerEpoch={state.controller_epoch}, leader={state.leader}, "
            f"leaderEpoch={state.leader_epoch}, isr={ids(state.isr)}, zkVersion={state.partition_epoch}, "
            f"replicas={ids(state.replicas)}, isNew={_bool(state.is_new)})"
        )
    recovery = f", leaderRecoveryState={int(state.recovering)}" if version >= RECOVERY else ""
    return (
        f"LeaderAndIsrPartitionState(topicName='{state.partition.topic.name}', "
        f"partitionIndex={state.partition.number}, controllerEpoch={state.controller_epoch}, leader={state.leader}, "
        f"leaderEpoch={state.leader_epoch}, isr=[{spaced(state.isr)}], {_epoch(version)}={state.partition_epoch}, "
        f"replicas=[{spaced(state.replicas)}], addingReplicas=[{spaced(state.adding)}], "
        f"removingReplicas=[{spaced(state.removing)}], isNew={_bool(state.is_new)}{recovery})"
    )


def in_metadata(state: State, version: Version) -> str:
    """Returns the text in an UpdateMetadata request."""
    if version < (2, 4):
        return (
            f"PartitionState(controllerEpoch={state.controller_epoch}, leader={state.leader}, "
            f"leaderEpoch={state.leader_epoch}, isr={ids(state.isr)}, zkVersion={state.partition_epoch}, "
            f"replicas={ids(state.replicas)}, offlineReplicas=)"
        )
    return (
        f"UpdateMetadataPartitionState(topicName='{state.partition.topic.name}', "
        f"partitionIndex={state.partition.number}, controllerEpoch={state.controller_epoch}, leader={state.leader}, "
        f"leaderEpoch={state.leader_epoch}, isr=[{spaced(state.isr)}], {_epoch(version)}={state.partition_epoch}, "
        f"replicas=[{spaced(state.replicas)}], offlineReplicas=[])"
    )


def _epoch(version: Version) -> str:
    return "partitionEpoch" if version >= EPOCH_NAMED else "zkVersion"


def _bool(value: bool) -> str:
    return "true" if value else "false"
